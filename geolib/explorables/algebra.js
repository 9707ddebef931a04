// Small matrices and vectors, as arrays of rows and arrays of numbers.

export function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

export function norm(a) {
  return Math.sqrt(dot(a, a));
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

/** exp(x_i) over their sum. */
export function softmax(scores) {
  const top = Math.max(...scores), each = scores.map((score) => Math.exp(score - top));
  const total = each.reduce((sum, value) => sum + value, 0);
  return each.map((value) => value / total);
}
