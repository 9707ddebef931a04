// Where the time goes: a recorded training step cut into its parts, and what a faster part would give.
import { ask, html, pick, say, set, show, slider, svg } from "./common.js";
import { stage } from "./stage.js";

// Computing -----------------------------------------------------------------------------------------------------------

/** The numbers that a size takes in the rows, from the least on. */
export function sizes(rows, name) {
  return [...new Set(rows.map((row) => row[name]))].sort((a, b) => a - b);
}

/** The recorded row of these sizes; of a size between two, as a figure passes on its way, the nearest. */
export function rowOf(rows, { precision, ...asked }) {
  const far = (row) => ["batch", "width", "tokens"]
    .reduce((sum, name) => sum + Math.abs(Math.log(row[name] / asked[name])), 0);
  return rows.filter((row) => row.precision === precision).reduce((best, row) => (far(row) < far(best) ? row : best));
}

/** Amdahl's law: how many times as fast the whole is when a share f of its time becomes g times as fast. */
export function law(f, g) {
  return 1 / (f / g + 1 - f);
}

/** The parts, the longest first. */
export function longest(shares) {
  return Object.keys(shares).sort((a, b) => shares[b] - shares[a]);
}

/** Where each part begins and ends, in shares of the recorded step, when one of them is g times as fast. */
export function cuts(shares, part, g) {
  let from = 0;
  return Object.entries(shares).map(([name, share]) => {
    const to = from + (name === part ? share / g : share), cut = [from, to];
    from = to;
    return cut;
  });
}

const time = (seconds) => (seconds < 0.9995 ? `${show(1000 * seconds, seconds < 0.1 ? 1 : 0)}\u00a0ms`
  : `${show(seconds, seconds < 10 ? 2 : 1)}\u00a0s`);
const percent = (share) => `${show(100 * share, share < 0.1 ? 1 : 0)}\u00a0%`;
const times = (g) => show(g, g < 9.95 ? 2 : 0, true);

/** The state in a sentence, for those who hear the picture. */
export function describe(state) {
  const { cpu_seconds: seconds, shares } = rowOf(state.rows, state), share = shares[state.part];
  if (!state.part) return `A step of ${state.batch} pictures takes ${time(seconds)}: press the part that takes longest`;
  const first = longest(shares)[0], gain = law(share, state.gain);
  return `A step of ${state.batch} pictures takes ${time(seconds)}, most of it ${first}, ${percent(shares[first])}. `
    + `${state.part} take ${percent(share)}; ${times(state.gain)} times as fast, the step is ${times(gain)} times as `
    + `fast, and never more than ${times(1 / (1 - share))} times`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["rows", "made", "batch", "width", "tokens", "precision", "part", "gain"];
const LABELS = { batch: "Pictures in a batch", width: "Features of a token", tokens: "Tokens of a picture" };
const TONES = ["value", "cool", "warm", "join", "soft"];
const STEPS = 10, BAR = 34, SECOND = 92, WORDS = 196; // slider steps for a factor of ten; pixels

const CSS = `
.geo .times { display: grid; gap: 12px; padding: 14px 16px 18px; text-align: left; }
.geo .times > * { min-width: 0; }
.geo .times .bar { stroke: var(--ground); stroke-width: 1.5; cursor: pointer; }
.geo .times .bar.now { stroke: var(--text); stroke-width: 2.5; }
.geo .times .limit { stroke: var(--text); stroke-dasharray: 4 3; stroke-width: 1.5; }
.geo .times .value { --part: var(--value); } .geo .times .cool { --part: var(--cool); }
.geo .times .warm { --part: var(--warm); } .geo .times .join { --part: var(--join); }
.geo .times .soft { --part: var(--soft); }
.geo .times .bar { fill: var(--part); } .geo .times .unknown .bar { fill: var(--line); stroke: none; }
.geo .times .unknown :is(.limit, .after) { visibility: hidden; }
.geo .times .parts button { display: inline-flex; align-items: baseline; gap: 7px; font-weight: 500;
  font-variant-numeric: tabular-nums; }
.geo .times .parts i { width: 0.75em; height: 0.75em; background: var(--part); border: 1px solid var(--rule); }
@container (max-width: 560px) { .geo .times { padding: 10px 8px 14px; } }`;

/**
 * Two bars: the step as it was recorded, and with one part faster; a dashed line where it would end without it. Until a
 * part is chosen there is one bar, and nothing tells the parts apart.
 */
function bars(parent, parts, onPick) {
  const picture = svg("svg", { role: "img", height: SECOND + BAR + 26 }, parent);
  const head = (y, kind) => svg("text", { class: `geo-text ${kind}`, x: 0, y }, picture);
  const heads = [head(14, "before"), head(SECOND - 8, "after")];
  const rows = [22, SECOND].map((y) => parts.map((part, i) => {
    const bar = svg("rect", { y, height: BAR }, picture);
    bar.addEventListener("click", () => onPick(part));
    return bar;
  }));
  const limit = svg("line", { class: "limit", y1: SECOND - 4, y2: SECOND + BAR + 8 }, picture);
  const end = svg("text", { class: "after", y: SECOND + BAR + 22 }, picture);
  return (state, { cpu_seconds: seconds, shares }) => {
    const wide = Math.max(180, Math.round(parent.clientWidth)), share = shares[state.part] ?? 0;
    picture.classList.toggle("unknown", !state.part);
    [1, state.gain].forEach((g, k) => cuts(shares, state.part, g).forEach(([from, to], i) => set(rows[k][i], {
      x: (from * wide).toFixed(1), width: ((to - from) * wide).toFixed(1),
      class: `bar ${TONES[i]}${parts[i] === state.part ? " now" : ""}${k ? " after" : ""}` })));
    if (state.part) rows.forEach((row) => picture.insertBefore(row[parts.indexOf(state.part)], limit)); // frame on top
    const x = (1 - share) * wide, gain = law(share, state.gain);
    set(limit, { x1: x, x2: x });
    set(end, { x: Math.max(0, Math.min(x, wide - WORDS)).toFixed(1) });
    end.textContent = `no time for it: ${times(1 / (1 - share))} times as fast`;
    heads[0].textContent = `recorded: ${time(seconds)}`;
    heads[1].textContent = `${state.part} ${times(state.gain)} times as fast: ${time(seconds / gain)}`;
    set(picture, { viewBox: `0 0 ${wide} ${SECOND + BAR + 26}`, "aria-label": describe(state) });
  };
}

// Putting it together -------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS), { change, read } = place, { rows, made } = read();
  const root = html("div", { class: "times", role: "group", "aria-label": "Where the time goes" }, place.root);
  ask(root, "Which part of a training step takes longest, and what would a faster one give?");
  const parts = Object.keys(rows[0].shares), told = html("p", { class: "geo-say" }, root);
  const stay = html("div", { class: "geo-stay" }, root), choose = (part) => change({ part });
  const draw = bars(stay, parts, choose);
  const chips = pick(root, "Parts of the step", parts.map((part) => [part, part]), choose);
  chips.row.classList.add("parts");
  const shown = [...chips.row.children].map((chip, i) => {
    chip.prepend(html("i", { class: TONES[i], "aria-hidden": "true" }));
    return html("span", {}, chip);
  });
  const controls = html("div", { class: "geo-panel geo-controls" }, root);
  const gain = slider(controls, { label: "The chosen part becomes faster", min: 0, step: 1, tone: "warm",
    onInput: (x) => change({ gain: Number((10 ** (x / STEPS)).toPrecision(3)) }) });
  const scales = Object.entries(LABELS).map(([name, label]) => {
    const all = sizes(rows, name);
    const scale = slider(controls, { label, min: 0, step: 1, onInput: (i) => change({ [name]: all[i] }) });
    return (row) => scale.update(all.indexOf(row[name]), String(row[name]), all.length - 1);
  });
  const precisions = [...new Set(rows.map((row) => row.precision))];
  const precision = pick(controls, "Precision", precisions.map((word) => [word, word]), (word) =>
    change({ precision: word }));
  html("p", { class: "geo-note" }, root, made);

  place.start((state) => {
    const row = rowOf(state.rows, state), { shares } = row, first = longest(shares)[0];
    gain.update(Math.round(STEPS * Math.log10(state.gain)), `${times(state.gain)} times`, 2 * STEPS);
    scales.forEach((scale) => scale(row));
    precision.update(state.precision);
    chips.update(state.part);
    gain.row.style.visibility = state.part ? "" : "hidden"; // without a part it would do nothing
    parts.forEach((part, i) => { shown[i].textContent = state.part ? percent(shares[part]) : "?"; });
    const now = law(shares[state.part], state.gain);
    if (!state.part) say(told, "Longest: ", ["text", "?"], " Press the part that you think it is.");
    else say(told, "Longest: ", ["text", first], `, ${percent(shares[first])}. With ${state.part} `,
      ["warm", `${times(state.gain)} times`], " as fast, the step is ", ["text", `${times(now)} times`], " as fast.");
    draw({ ...state, batch: row.batch }, row);
    place.speak(describe({ ...state, batch: row.batch }));
  });
  return place.close;
}

export default { render };
