// Series of numbers with gaps: their means, the lines and dots that show them, their ticks, labels that keep apart.

export const known = (values) => values.filter((value) => value !== null && value !== undefined);

/** The mean of the numbers among the values; null when there is none. */
export function mean(values) {
  const numbers = known(values);
  return numbers.length ? numbers.reduce((sum, value) => sum + value, 0) / numbers.length : null;
}

/** The sample's standard deviation, with n - 1; null for fewer than two numbers. */
export function deviation(values) {
  const numbers = known(values), middle = mean(numbers);
  if (numbers.length < 2) return null;
  return Math.sqrt(numbers.reduce((sum, value) => sum + (value - middle) ** 2, 0) / (numbers.length - 1));
}

/** Heights moved as little as it takes (least squares) to lie `gap` apart in their order, within [low, high]. */
export function spread(heights, gap, low, high) {
  const order = heights.map((_, i) => i).sort((a, b) => heights[a] - heights[b]), blocks = [];
  order.forEach((i, rank) => {
    let block = { sum: heights[i] - rank * gap, count: 1 };
    while (blocks.length && blocks.at(-1).sum / blocks.at(-1).count > block.sum / block.count) {
      const before = blocks.pop();
      block = { sum: before.sum + block.sum, count: before.count + block.count };
    }
    blocks.push(block);
  });
  const starts = blocks.flatMap(({ sum, count }) => Array(count).fill(sum / count)), placed = [];
  const most = Math.max(low, high - (heights.length - 1) * gap);
  order.forEach((i, rank) => { placed[i] = clamp(starts[rank], low, most) + rank * gap; });
  return placed;
}

/** Round numbers, about six, that reach from below the least to above the greatest value, and their decimals. */
export function ticks(least, greatest) {
  const rough = Math.max(greatest - least, 1e-9) / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((m) => m * power >= rough * 0.999) * power;
  const first = Math.floor(least / step + 1e-6), last = Math.max(first + 1, Math.ceil(greatest / step - 1e-6));
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-6));
  return { values: Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step), digits };
}

/** Drawing commands of a line that leaves out what is null; a value without neighbours becomes a short dash. */
export function broken(values, x, y) {
  const there = (i) => (values[i] ?? null) !== null;
  const point = (i, by) => `${(x(i + 1) + by).toFixed(1)} ${y(values[i]).toFixed(1)}`;
  return values.map((_, i) => {
    if (!there(i)) return "";
    if (!there(i - 1) && !there(i + 1)) return `M${point(i, -2)}L${point(i, 2)}`;
    return (there(i - 1) ? "L" : "M") + point(i, 0);
  }).join("");
}

/** A dot at each value: circles of radius 3, as one path. */
export function beadsAt(values, x, y) {
  const dot = (value, i) => `M${(x(i + 1) - 3).toFixed(1)} ${y(value).toFixed(1)}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0Z`;
  return values.map((value, i) => (value === null ? "" : dot(value, i))).join("");
}
