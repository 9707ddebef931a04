// A small vision transformer in plain JavaScript: what geolib.explorables.export wrote, read and run. All stands in one
// function, so that a worker can be made from its text.

export function engine() {
  // Reading -----------------------------------------------------------------------------------------------------------

  /** The number that 16 bits stand for. */
  function half(bits) {
    const exponent = (bits >> 10) & 31, fraction = bits & 1023, sign = bits & 32768 ? -1 : 1;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction);
  }

  /** A model from { about, numbers }, its numbers as base64. */
  function read({ about, numbers }) {
    const bytes = Uint8Array.from(atob(numbers), (c) => c.charCodeAt(0)), view = new DataView(bytes.buffer);
    let at = 0;
    const tensors = {};
    for (const [name, shape] of about.tensors) {
      const values = new Float32Array(shape.reduce((a, b) => a * b, 1));
      for (let i = 0; i < values.length; i++, at += 2) values[i] = half(view.getUint16(at, true));
      tensors[name] = values;
    }
    return { ...about, tensors, dim: about.width / about.heads, tokens: about.grid[0] * about.grid[1] };
  }

  // Positions ---------------------------------------------------------------------------------------------------------

  const PLAIN = { turn: 1, pair: 0, alone: 1, scale: 0, focus: 1, rest: 1, slope: 1, row: 0, column: 0 };
  const of = (list, head) => list[list.length === 1 ? 0 : head];

  /** Where the tokens stand, as (row, column), for a sheet whose corner is at (row, column). */
  function places({ grid }, { row, column }) {
    return Array.from({ length: grid[0] * grid[1] }, (_, i) => [row + Math.floor(i / grid[1]), column + (i % grid[1])]);
  }

  const spare = []; // matrices to compute in, by their side

  /** exp(A) of a matrix in one row, n to a side: eight terms of Taylor's series where they are small, squared. */
  function expm(a, n) {
    const rows = Array.from({ length: n }, (_, i) => a.slice(i * n, i * n + n).reduce((s, x) => s + Math.abs(x), 0));
    const squarings = Math.max(0, Math.ceil(Math.log2(Math.max(...rows) || 1)) + 1);
    const [one, two, three, ...room] = (spare[n] ??= Array.from({ length: 5 }, () => new Float64Array(n * n)));
    for (let i = 0; i < n * n; i++) one[i] = a[i] * 2 ** -squarings;
    const times = (x, y, z) => {
      for (let i = 0; i < n * n; i += n) {
        for (let j = 0; j < n; j++) {
          let sum = 0;
          for (let k = 0, at = j; k < n; k++, at += n) sum += x[i + k] * y[at];
          z[i + j] = sum;
        }
      }
      return z;
    };
    times(times(one, one, two), one, three); // the series is a polynomial in the cube
    const with3 = (z, c0, c1, c2) => {
      for (let i = 0; i < n * n; i++) z[i] += c1 * one[i] + c2 * two[i] + (i % (n + 1) ? 0 : c0);
      return z;
    };
    let sum = with3(room[0].fill(0), 1 / 720, 1 / 5040, 1 / 40320), other = room[1];
    const next = (x, y) => { [sum, other] = [times(x, y, other), sum]; return sum; };
    for (const part of [[1 / 6, 1 / 24, 1 / 120], [1, 1, 1 / 2]]) with3(next(sum, three), ...part);
    for (let k = 0; k < squarings; k++) next(sum, sum);
    return sum.slice();
  }

  const found = new WeakMap(); // exponentials by place: a sheet that moves stands mostly where it stood

  function exponential(one, turned, head, b, p, make) {
    const mark = `${turned.turn} ${turned.rest}`, key = `${head} ${b} ${p}`;
    if (found.get(one)?.mark !== mark) found.set(one, { mark, by: new Map() });
    const { by } = found.get(one);
    if (!by.has(key)) by.set(key, make());
    return by.get(key);
  }

  /** What queries and keys of a head are multiplied by at each place: blocks of size b, (tokens, dim / b, b, b). */
  function maps(net, one, head, where, turned) {
    const { dim } = net, size = one.size ?? 2, count = dim / size, all = new Float64Array(where.length * dim * size);
    const own = one.blocks && of(one.blocks, head), calm = one.calm && of(one.calm, head);
    where.forEach((p, t) => {
      for (let b = 0; b < count; b++) {
        const at = (t * count + b) * size * size;
        if (own) {
          all.set(exponential(one, turned, head, b, p, () => {
            const a = new Float64Array(size * size);
            for (let i = 0, e = 0; i < size; i++) {
              for (let j = i + 1; j < size; j++, e++) {
                const second = calm[b][e] + turned.rest * (own[b][1][e] - calm[b][e]);
                a[i * size + j] = turned.turn * (p[0] * own[b][0][e] + p[1] * second);
                a[j * size + i] = -a[i * size + j];
              }
            }
            return expm(a, size);
          }), at);
        } else {
          let angle = 0, stretch = 0;
          if (one.turn && of(one.turn, head)[b]) {
            const faster = turned.turn * (b === turned.pair ? turned.alone : 1);
            const rates = of(one.turn, head)[b], steps = of(one.stretch, head)[b];
            for (const axis of [0, 1]) {
              angle += faster * p[axis] * rates[axis];
              const own = turned.scale && steps[axis] ? Math.log(turned.scale) / 2 : steps[axis];
              stretch += p[axis] * own;
            }
          }
          const [c, s, r] = [Math.cos(angle), Math.sin(angle), Math.exp(stretch)];
          all.set([r * c, -r * s, r * s, r * c], at);
        }
      }
    });
    return { all, size };
  }

  /** Everything that depends on where the tokens stand and not on what they hold. */
  function place(net, settings) {
    const turned = { ...PLAIN, ...settings }, where = places(net, turned), { heads, width, tokens } = net;
    const added = new Float32Array(tokens * width);
    for (const { frequencies, table } of net.embed) {
      where.forEach(([y, x], t) => {
        for (let i = 0; frequencies && i < frequencies.length; i++) {
          const rate = turned.turn * (i === turned.pair ? turned.alone : 1);
          const angle = rate * (y * frequencies[i][0] + x * frequencies[i][1]);
          added[t * width + 2 * i] += Math.sin(angle);
          added[t * width + 2 * i + 1] += Math.cos(angle);
        }
        const side = Math.sqrt(net.tensors.table?.length / width);
        for (let i = 0; table && i < width; i++) added[t * width + i] += net.tensors.table[(y * side + x) * width + i];
      });
    }
    const layers = net.placed.map((one) => Array.from({ length: heads }, (_, head) => {
      const map = one.turn || one.blocks ? maps(net, one, head, where, turned) : null;
      const gate = one.slopes && new Float32Array(tokens * tokens);
      const loss = one.sigma && new Float32Array(tokens * tokens);
      for (let m = 0, i = 0; (gate || loss) && m < tokens; m++) {
        for (let n = 0; n < tokens; n++, i++) {
          const dy = where[m][0] - where[n][0], dx = where[m][1] - where[n][1];
          if (gate) gate[i] = -turned.slope * one.slopes[head] * (Math.abs(dy) + Math.abs(dx));
          if (loss) { // |L^T d|^2
            const u = dy * one.root[0][0] + dx * one.root[1][0], v = dx * one.root[1][1];
            loss[i] = Math.exp(-(u * u + v * v) / (2 * (turned.focus * one.sigma[head]) ** 2));
          }
        }
      }
      return { map, gate, loss };
    }));
    return { added, layers };
  }

  // One image ---------------------------------------------------------------------------------------------------------

  /** x W^T + b for each row of x. */
  function linear(net, name, x, rows, width, out, bias = true) {
    const w = net.tensors[`${name}.weight`], b = bias ? net.tensors[`${name}.bias`] : null;
    const y = new Float32Array(rows * out);
    for (let t = 0; t < rows; t++) {
      const from = t * width;
      let o = 0;
      for (; o + 3 < out; o += 4) { // four sums at once: none waits for another
        let s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        for (let i = 0, at = o * width; i < width; i++, at++) {
          const each = x[from + i];
          s0 += each * w[at];
          s1 += each * w[at + width];
          s2 += each * w[at + 2 * width];
          s3 += each * w[at + 3 * width];
        }
        for (let k = 0, sums = [s0, s1, s2, s3]; k < 4; k++) y[t * out + o + k] = sums[k];
      }
      for (; o < out; o++) {
        let sum = 0;
        for (let i = 0; i < width; i++) sum += x[from + i] * w[o * width + i];
        y[t * out + o] = sum;
      }
      for (let i = 0; b && i < out; i++) y[t * out + i] += b[i];
    }
    return y;
  }

  function layerNorm(net, name, x, rows, width) {
    const w = net.tensors[`${name}.weight`], b = net.tensors[`${name}.bias`], y = new Float32Array(x.length);
    for (let t = 0; t < rows; t++) {
      let mean = 0, square = 0;
      for (let i = 0; i < width; i++) mean += x[t * width + i] / width;
      for (let i = 0; i < width; i++) square += (x[t * width + i] - mean) ** 2 / width;
      const rate = 1 / Math.sqrt(square + 1e-5);
      for (let i = 0; i < width; i++) y[t * width + i] = (x[t * width + i] - mean) * rate * w[i] + b[i];
    }
    return y;
  }

  /** x times the normal distribution's share below x, by Abramowitz and Stegun 7.1.26: within 2e-7. */
  function gelu(x) {
    const z = Math.abs(x) / Math.SQRT2, t = 1 / (1 + 0.3275911 * z);
    const tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    const above = (tail * Math.exp(-z * z)) / 2;
    return x * (x < 0 ? above : 1 - above);
  }

  /** Features `from ...` of each token's row, carried by the map of its place; (tokens, dim). */
  function carried({ dim, tokens }, map, rows, wide, from) {
    const y = new Float32Array(tokens * dim);
    for (let t = 0; t < tokens; t++) {
      for (let i = 0; i < dim; i++) {
        const first = t * wide + from;
        if (!map) { y[t * dim + i] = rows[first + i]; continue; }
        const { all, size } = map, begin = i - (i % size), at = t * dim * size + i * size;
        let sum = 0;
        for (let j = 0; j < size; j++) sum += all[at + j] * rows[first + begin + j];
        y[t * dim + i] = sum;
      }
    }
    return y;
  }

  /** Attention of a layer: what the heads return, side by side; `seen` collects scores and weights. */
  function attend(net, qkv, placed, seen) {
    const { width, heads, dim, tokens } = net, y = new Float32Array(tokens * width), row = new Float32Array(tokens);
    for (let h = 0; h < heads; h++) {
      const { map, gate, loss } = placed[h], [q, k] = [0, 1].map((part) =>
        carried(net, map, qkv, 3 * width, part * width + h * dim));
      const scores = seen && new Float32Array(tokens * tokens), weights = seen && new Float32Array(tokens * tokens);
      for (let m = 0; m < tokens; m++) {
        let top = -Infinity, total = 0;
        for (let n = 0; n < tokens; n++) {
          let sum = 0;
          for (let i = 0; i < dim; i++) sum += q[m * dim + i] * k[n * dim + i];
          row[n] = sum / Math.sqrt(dim) + (gate ? gate[m * tokens + n] : 0);
          if (row[n] > top) top = row[n];
        }
        if (seen) scores.set(row, m * tokens);
        for (let n = 0; n < tokens; n++) total += row[n] = Math.exp(row[n] - top);
        for (let n = 0; n < tokens; n++) {
          const weight = (row[n] / total) * (loss ? loss[m * tokens + n] : 1);
          if (seen) weights[m * tokens + n] = weight;
          const to = m * width + h * dim, from = (3 * n + 2) * width + h * dim;
          for (let i = 0; i < dim; i++) y[to + i] += weight * qkv[from + i];
        }
      }
      seen?.push({ scores, weights });
    }
    return y;
  }

  /** The scores of the classes for an image's pixels; with `look`, also { scores, weights } of each layer and head. */
  function forward(net, { added, layers }, pixels, look = false) {
    const { width, hidden, tokens, grid, patch, moments: [mean, deviation] } = net, wide = grid[1] * patch;
    const cut = new Float32Array(tokens * patch * patch);
    for (let i = 0; i < pixels.length; i++) {
      const y = Math.floor(i / wide), x = i % wide, t = Math.floor(y / patch) * grid[1] + Math.floor(x / patch);
      cut[t * patch * patch + (y % patch) * patch + (x % patch)] = (pixels[i] - mean) / deviation;
    }
    let x = linear(net, "embedding", cut, tokens, patch * patch, width);
    const add = (more) => { for (let i = 0; i < x.length; i++) x[i] += more[i]; };
    add(added);
    const seen = [];
    layers.forEach((placed, l) => {
      const name = `blocks.${l}`, heads = look ? [] : null;
      const qkv = linear(net, `${name}.attention.qkv`, layerNorm(net, `${name}.norm1`, x, tokens, width), tokens, width,
        3 * width, false);
      add(linear(net, `${name}.attention.out`, attend(net, qkv, placed, heads), tokens, width, width));
      const normed = layerNorm(net, `${name}.norm2`, x, tokens, width);
      const inner = linear(net, `${name}.mlp.0`, normed, tokens, width, hidden);
      for (let i = 0; i < inner.length; i++) inner[i] = gelu(inner[i]);
      add(linear(net, `${name}.mlp.2`, inner, tokens, hidden, width));
      seen.push(heads);
    });
    const last = layerNorm(net, "norm", x, tokens, width), mean1 = new Float32Array(width);
    for (let i = 0; i < last.length; i++) mean1[i % width] += last[i] / tokens;
    return { logits: linear(net, "head", mean1, 1, width, net.classes), seen };
  }

  // Many images -------------------------------------------------------------------------------------------------------

  /** The pixels of one held-out digit, its patches in their order or shuffled. */
  function heldOut({ images, orders, labels }, i, shuffled) {
    const cells = images.length / labels.length;
    const value = (cell) => images.charCodeAt(i * cells + cell) - 97;
    return Array.from({ length: cells }, (_, c) => value(shuffled ? orders.charCodeAt(i * cells + c) - 48 : c));
  }

  /** Counts right answers, some at a time: `tell({ right, done })` after each slice; returns what stops it. */
  function count(net, digits, settings, shuffled, slice, tell) {
    const placed = place(net, settings), total = digits.labels.length;
    let done = 0, right = 0, timer = 0;
    const go = () => {
      for (const end = Math.min(total, done + slice); done < end; done++) {
        const { logits } = forward(net, placed, heldOut(digits, done, shuffled));
        right += logits.indexOf(Math.max(...logits)) === Number(digits.labels[done]);
      }
      tell({ right, done });
      if (done < total) timer = setTimeout(go);
    };
    timer = setTimeout(go);
    return () => clearTimeout(timer);
  }

  return { half, read, places, expm, place, forward, heldOut, count };
}
