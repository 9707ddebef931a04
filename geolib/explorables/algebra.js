// Small matrices and vectors, as arrays of rows and arrays of numbers.

export function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

export function norm(a) {
  return Math.sqrt(dot(a, a));
}

/** s a + t b of two vectors. */
export function plus(s, a, t, b) {
  return a.map((value, i) => s * value + t * b[i]);
}

/** The cross product of two vectors of space. */
export function cross([a, b, c], [x, y, z]) {
  return [b * z - c * y, c * x - a * z, a * y - b * x];
}

export function transpose(a) {
  return a[0].map((_, j) => a.map((row) => row[j]));
}

/** A B. */
export function multiply(a, b) {
  const columns = transpose(b);
  return a.map((row) => columns.map((column) => dot(row, column)));
}

/** A v. */
export function apply(a, v) {
  return a.map((row) => dot(row, v));
}

/** s A + t B. */
export function combine(s, a, t, b) {
  return a.map((row, i) => row.map((value, j) => s * value + t * b[i][j]));
}

export function identity(size) {
  return Array.from({ length: size }, (_, i) => Array.from({ length: size }, (_, j) => Number(i === j)));
}

/** The plane rotation by an angle in radians, counter-clockwise. */
export function rotation(angle) {
  const [c, s] = [Math.cos(angle), Math.sin(angle)];
  return [[c, -s], [s, c]];
}

/** The skew matrix with these entries above its diagonal, row by row, and their negatives below. */
export function skew(entries, size) {
  const a = identity(size).map((row) => row.map(() => 0));
  let next = 0;
  for (let i = 0; i < size; i++) {
    for (let j = i + 1; j < size; j++) {
      a[i][j] = entries[next++];
      a[j][i] = -a[i][j];
    }
  }
  return a;
}

/** exp(A): Taylor's series at A / 2^k, where it has small terms, squared k times. */
export function expm(a) {
  const size = Math.max(...a.map((row) => row.reduce((sum, value) => sum + Math.abs(value), 0)));
  const squarings = Math.max(0, Math.ceil(Math.log2(size || 1)) + 3);
  const small = combine(2 ** -squarings, a, 0, a);
  let power = identity(a.length), sum = power;
  for (let k = 1; k <= 12; k++) {
    power = combine(1 / k, multiply(power, small), 0, power);
    sum = combine(1, sum, 1, power);
  }
  for (let k = 0; k < squarings; k++) sum = multiply(sum, sum);
  return sum;
}

/** Axis and angle, in radians, of exp(A), for A's entries above the diagonal: A v = w x v, and |w| is the angle. */
export function axisAngle([a, b, c]) {
  const w = [-c, b, -a], angle = norm(w);
  return { axis: angle > 1e-12 ? w.map((value) => value / angle) : [0, 0, 1], angle };
}

/** exp(t A). */
export function turnAt(entries, t) {
  return expm(skew(entries.map((value) => t * value), 3));
}

/** The angle of a rotation of space, 0 to pi: its skew part is sin(angle), its trace 1 + 2 cos(angle). */
export function turnAngle(r) {
  const sine = norm([r[2][1] - r[1][2], r[0][2] - r[2][0], r[1][0] - r[0][1]]) / 2;
  return Math.atan2(sine, (r[0][0] + r[1][1] + r[2][2] - 1) / 2);
}

/** exp(x_i) over their sum. */
export function softmax(scores) {
  const top = Math.max(...scores), each = scores.map((score) => Math.exp(score - top));
  const total = each.reduce((sum, value) => sum + value, 0);
  return each.map((value) => value / total);
}
