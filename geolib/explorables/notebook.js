// The lab notebook: recorded curves of every seed, their means, a table of final values, and where each run was made.
import { ask, button, choice, clamp, drag, html, say, set, show, slider, svg } from "./common.js";
import { stage } from "./stage.js";
import { chart } from "./draw.js";
import { beadsAt, broken, deviation, known, mean, spread, ticks } from "./series.js";

// Computing -----------------------------------------------------------------------------------------------------------

/** The runs as they are meant, from what travels: each with its head, which it shares with others. */
export function unpack({ heads, keys, runs }) {
  return runs.map(([head, ...rest]) => ({ ...heads[head], ...Object.fromEntries(keys.map((key, i) => [key, rest[i]])) }));
}

/** Experiments with data set and scale, in the order of their first runs. */
export function groups(runs) {
  return [...new Set(runs.map((run) => run.group))];
}

/** The runs of a group by method: [title, runs] in the order of their first runs. */
export function methods(runs, group) {
  const found = new Map();
  for (const run of runs) {
    if (run.group === group) found.set(run.title, [...(found.get(run.title) ?? []), run]);
  }
  return [...found];
}

/** The mean over seeds at each epoch, of those that were evaluated there; null where none was. */
export function meanCurve(runs, metric) {
  const length = Math.max(...runs.map((run) => run[metric].length));
  return Array.from({ length }, (_, i) => mean(runs.map((run) => run[metric][i])));
}

/** Of each method: title, mean and deviation of the last values, how many seeds, mean seconds. */
export function finals(runs, group, metric) {
  return methods(runs, group).map(([title, own]) => {
    const last = own.map((run) => known(run[metric]).at(-1));
    return { title, mean: mean(last), deviation: deviation(last), count: known(last).length,
      seconds: mean(own.map((run) => run.seconds)) };
  });
}

/** The run whose value at an epoch is nearest to a value; null where none was evaluated. */
export function nearest(runs, metric, epoch, value) {
  const far = (run) => Math.abs(run[metric][epoch - 1] - value);
  const there = runs.filter((run) => known([run[metric][epoch - 1]]).length);
  return there.length ? there.reduce((best, run) => (far(run) < far(best) ? run : best)) : null;
}

/** Of lists of runs, a method each, the one whose last values are best in the mean. */
export function leader(methods, metric) {
  const sign = metric === "test_accuracy" ? -1 : 1;
  const last = (own) => sign * (mean(own.map((run) => known(run[metric]).at(-1))) ?? sign * Infinity);
  return methods.reduce((best, own) => (last(own) < last(best) ? own : best));
}

/** The state in a sentence, for those who hear the picture. */
export function describe({ metric, epoch }, run, average) {
  const [value, middle] = [run[metric][epoch - 1], average].map((number) => spell(metric, number));
  return `${LABELS[metric]} at epoch ${epoch}: ${run.title}, seed ${run.seed}, ${value}; mean of its seeds ${middle}`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["runs", "experiment", "metric", "hidden", "epoch", "run"];
const LABELS = { test_accuracy: "test accuracy", test_loss: "test loss", train_loss: "training loss" };
const DASHES = { "-": "none", "--": "7 4", "-.": "8 3 2 3", ":": "2 4" };
const HEIGHT = 300;

const CSS = `
.geo .notebook { padding: 14px 16px 18px; display: grid; gap: 10px; }
.geo .notebook > * { min-width: 0; }
.geo .notebook .methods { display: flex; flex-wrap: wrap; gap: 6px; }
.geo .notebook .methods button { display: inline-flex; align-items: center; gap: 7px; border-radius: 8px;
  padding: 1px 9px; font-weight: 500; font-size: 13px; }
.geo .notebook .methods svg { width: 24px; height: 8px; }
.geo .notebook .methods button[aria-pressed] { background: var(--panel); color: var(--text); }
.geo .notebook .methods button[aria-pressed="false"] { background: none; color: var(--soft); border-style: dashed; }
.geo .notebook button[aria-pressed="false"] svg { visibility: hidden; }
.geo .notebook .plot svg { cursor: crosshair; }
.geo .notebook .seed { stroke-width: 1; opacity: 0.5; } .geo .notebook .seed.chosen { stroke-width: 2; opacity: 1; }
.geo .notebook .mean { stroke-width: 2.6; stroke-linecap: butt; }
.geo .notebook .lead { stroke-width: 1; }
.geo .notebook .bead { fill: currentColor; } .geo .notebook .stem { stroke: var(--rule); stroke-dasharray: 2 3; }
.geo .notebook .point { fill: var(--ground); stroke: currentColor; stroke-width: 2; }
.geo .notebook .geo-controls > :last-child { grid-column: 1 / -1; }
.geo .notebook select { font-weight: 500; font-size: 14px; }
.geo .notebook table { border-collapse: collapse; width: 100%; margin: 4px 0 0; font: inherit; color: inherit; }
.geo .notebook caption { caption-side: top; text-align: left; color: var(--soft); font-size: 13px; padding: 0 0 4px; }
.geo .notebook :is(th, td) { padding: 3px 0 3px 12px; border: 0; border-top: 1px solid var(--line); background: none;
  text-align: right; font-variant-numeric: tabular-nums; font-weight: 400; }
.geo .notebook tr > :first-child { text-align: left; padding-left: 0 !important; overflow-wrap: break-word; }
.geo .notebook td { white-space: nowrap; } .geo .notebook tr { background: none; }
.geo .notebook thead th { border: 0; color: var(--soft); font-size: 13px; }
.geo .notebook tbody th { font-weight: 600; }
@container (max-width: 560px) { .geo .notebook { padding: 10px 8px 14px; }
  .geo .notebook table :is(th, td) { padding-left: 8px; font-size: 13px; } }`;

/** How a group's methods look, by their palette; of two that would look alike the later takes the next free dashes. */
export function looks(all) {
  const taken = new Set(), kinds = Object.keys(DASHES);
  return all.map(([, [{ look: [colour, wanted, dots] }]]) => {
    const free = (kind) => !taken.has([colour, kind, dots].join()), from = kinds.indexOf(wanted);
    const kind = [...kinds.slice(from), ...kinds.slice(0, from)].find(free) ?? wanted;
    taken.add([colour, kind, dots].join());
    return { ink: `color: ${colour}`, dash: DASHES[kind], dots };
  });
}

const spell = (metric, value, unit = "\u00a0%") => {
  if (value === null || value === undefined) return "not evaluated";
  return metric === "test_accuracy" ? show(100 * value, 1) + unit : show(value, 3);
};

/** The curves: seeds thin, means thick with their names at the ends, a line at the epoch. */
function curves(parent, onPoint) {
  const plot = chart(parent), { picture, marks, x, y } = plot;
  const lines = svg("g", {}, marks), stem = svg("line", { class: "stem" }, marks), dots = svg("g", {}, marks);
  const point = svg("circle", { class: "point", r: 5 }, marks);
  const follow = (px, py) => onPoint(Math.round(plot.atX(px)), plot.atY(py));
  set(picture, { "data-drag": "" });
  drag(picture, { start: follow, move: follow });
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    if (event.pointerType === "mouse") follow(event.clientX - box.left, event.clientY - box.top);
  });
  let drawn = null, seeds = new Map(), means = [];

  const draw = (shown, metric, length) => {
    lines.replaceChildren();
    dots.replaceChildren();
    seeds = new Map();
    means = shown.map(({ own }) => meanCurve(own, metric));
    shown.forEach(({ own, ink }) => own.forEach((run) => {
      const line = svg("path", { class: "geo-line seed", style: ink, d: broken(run[metric], x, y) }, lines);
      seeds.set(run.name, { line, ink });
    }));
    const ends = means.map((curve) => y(known(curve).at(-1) ?? 0));
    const heights = spread(ends, 15, 10, HEIGHT - 38);
    shown.forEach(({ title, ink, dash, dots: beads }, i) => {
      const d = broken(means[i], x, y), end = x(means[i].findLastIndex((value) => value !== null) + 1);
      svg("path", { class: "geo-line mean", style: ink, d, "stroke-dasharray": dash }, lines);
      if (beads) svg("path", { class: "bead", style: ink, d: beadsAt(means[i], x, y) }, lines);
      const lead = `M${end + 3} ${ends[i].toFixed(1)}L${x(length) + 12} ${heights[i].toFixed(1)}`;
      svg("path", { class: "geo-line lead", style: ink, d: lead }, lines);
      svg("text", { class: "geo-text", x: x(length) + 15, y: (heights[i] + 4).toFixed(1) }, lines, title);
      svg("circle", { class: "geo-dot", style: ink, r: 4 }, dots);
    });
  };
  return (state, shown, run, longest, label) => {
    const { metric, epoch } = state, length = Math.max(2, longest);
    const all = known(shown.flatMap(({ own }) => own.flatMap((each) => each[metric])));
    const { values, digits } = all.length ? ticks(Math.min(...all), Math.max(...all)) : ticks(0, 1);
    const share = metric === "test_accuracy";
    const tick = (value) => (share ? `${show(100 * value, Math.max(0, digits - 2))}%` : show(value, digits));
    const room = 26 + 6.4 * Math.max(4, ...shown.map(({ title }) => title.length)), step = Math.ceil(length / 8);
    const xTicks = Array.from({ length: Math.floor((length - 1) / step) + 1 }, (_, i) => 1 + i * step);
    const moved = plot.frame({ xs: [1, length], ys: [values[0], values.at(-1)], height: HEIGHT, xTicks, room,
      yTicks: values.map((value) => [value, tick(value)]), xLabel: "epoch" });
    const now = [state.runs, state.experiment, metric, state.hidden.join("|")];
    if (moved || !drawn || now.some((each, i) => each !== drawn[i])) draw(shown, metric, length);
    drawn = now;
    set(stem, { x1: x(epoch), x2: x(epoch), y1: y(values[0]), y2: y(values.at(-1)) });
    const put = (dot, value) => set(dot, { visibility: known([value]).length ? "visible" : "hidden",
      cx: x(epoch).toFixed(1), cy: y(value ?? values[0]).toFixed(1) });
    means.forEach((curve, i) => put(dots.children[i], curve[epoch - 1]));
    for (const [name, { line }] of seeds) line.classList.toggle("chosen", name === run.name);
    set(point, { style: seeds.get(run.name)?.ink ?? "" });
    put(point, run[metric][epoch - 1]);
    set(picture, { "aria-label": `Curves of ${shown.length} methods. ${label}` });
  };
}

/** A table of the final values, written again when the runs or the metric change. */
function finalTable(parent) {
  const table = html("table", {}, parent);
  html("caption", {}, table, "After the last epoch: mean ± standard deviation over seeds.");
  const head = html("tr", {}, html("thead", {}, table)), body = html("tbody", {}, table);
  const titles = ["Method", "", "Seeds", "Seconds"].map((text) => html("th", { scope: "col" }, head, text));
  return ({ runs, metric }, group) => {
    titles[1].textContent = LABELS[metric] + (metric === "test_accuracy" ? ", %" : "");
    body.replaceChildren();
    finals(runs, group, metric).forEach((row) => {
      const line = html("tr", {}, body), about = row.deviation === null ? "" : ` ± ${spell(metric, row.deviation, "")}`;
      html("th", { scope: "row" }, line, row.title);
      for (const text of [spell(metric, row.mean, "") + about, row.count, show(row.seconds, 1)]) {
        html("td", {}, line, String(text));
      }
    });
  };
}

// Putting it together -------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS);
  const { change } = place;
  let came = null, unpacked = [];
  /** The state with its runs as they are meant; unpacked once for as long as no others come. */
  const meant = (state) => {
    if (state.runs !== came) [came, unpacked] = [state.runs, unpack(state.runs)];
    return { ...state, runs: unpacked };
  };
  const read = () => meant(place.read());
  const whole = html("div", { class: "notebook", role: "group", "aria-label": "The lab notebook" }, place.root);
  const none = html("p", { class: "geo-say" }, place.root, "No record yet.");
  ask(whole, "Which method ends highest, and is its lead wider than its seeds are apart?");
  const sentence = html("p", { class: "geo-say" }, whole), provenance = html("p", { class: "geo-note" }, whole);
  const chips = html("div", { class: "methods", role: "group", "aria-label": "Methods drawn" }, whole);
  const plot = html("div", { class: "plot geo-stay" }, whole);
  const controls = html("div", { class: "geo-panel geo-controls" }, whole), table = html("div", {}, whole);
  const longest = (runs) => Math.max(1, ...runs.map((run) => run.train_loss.length));

  /** What of the state can be shown: the group's methods that are not hidden, an epoch and a run among them. */
  const present = (state) => {
    const group = groups(state.runs).includes(state.experiment) ? state.experiment : state.runs[0].group;
    const found = methods(state.runs, group), look = looks(found);
    const all = found.map(([title, own], i) => ({ title, own, ...look[i] }));
    const shown = all.filter(({ title }) => !state.hidden.includes(title));
    const offered = (shown.length ? shown : all).map(({ own }) => own), runs = offered.flat();
    const run = runs.find((each) => each.name === state.run) ?? leader(offered, state.metric)[0];
    return { group, all, shown, runs, run, epoch: Math.min(state.epoch, longest(runs)) };
  };
  const drawCurves = curves(plot, (wanted, value) => {
    const state = read(), { runs, shown } = present(state), epoch = clamp(wanted, 1, longest(runs));
    const found = shown.length ? nearest(runs, state.metric, epoch, value) : null;
    if (epoch !== state.epoch || (found && found.name !== state.run)) change({ epoch, run: found?.name ?? state.run });
  });
  const epochs = slider(controls, { label: "Epoch", min: 1, step: 1, onInput: (epoch) => change({ epoch }) });
  const run = choice(controls, { label: "Run", options: [], onInput: (name) => change({ run: name }) });
  const metric = choice(controls, { label: "Metric", options: Object.entries(LABELS),
    onInput: (name) => change({ metric: name }) });
  const experiment = choice(controls, { label: "Experiment, data set, scale", options: [], onInput: (name) =>
    change({ experiment: name, run: "", epoch: longest(read().runs.filter((each) => each.group === name)) }) });
  const fill = ({ row }, options) => row.querySelector("select").replaceChildren(...options.map(([value, text]) =>
    html("option", { value }, null, text)));
  const drawTable = finalTable(table);
  let built = [], pressed = [];

  const build = (state, { group, all }) => {
    fill(experiment, groups(state.runs).map((each) => [each, each.split("/").join(", ")]));
    fill(run, all.flatMap(({ title, own }) => own.map((each) => [each.name, `${title}, seed ${each.seed}`])));
    chips.replaceChildren();
    pressed = all.map(({ title, ink, dash, dots }) => {
      const chip = button(chips, title, () => {
        const { hidden } = read();
        change({ hidden: hidden.includes(title) ? hidden.filter((each) => each !== title) : [...hidden, title] });
      });
      const sample = svg("svg", { viewBox: "0 0 24 8", "aria-hidden": "true", style: ink });
      svg("path", { class: "geo-line mean", d: "M0 4L24 4", "stroke-dasharray": dash }, sample);
      if (dots) svg("circle", { class: "bead", cx: 12, cy: 4, r: 3.5 }, sample);
      chip.element.prepend(sample);
      return chip;
    });
    drawTable(state, group);
  };
  place.start((raw) => {
    const state = meant(raw);
    whole.style.display = state.runs.length ? "" : "none";
    none.style.display = state.runs.length ? "none" : "";
    if (!state.runs.length) return;
    const now = present(state), { group, shown, epoch } = now;
    const { own } = now.all.find((each) => each.own.includes(now.run));
    const key = [state.runs, group, state.metric];
    if (key.some((each, i) => each !== built[i])) build(state, now);
    built = key;
    now.all.forEach(({ title }, i) => pressed[i].update(!state.hidden.includes(title)));
    experiment.update(group);
    metric.update(state.metric);
    run.update(now.run.name);
    epochs.update(epoch, String(epoch), longest(now.runs));
    const average = meanCurve(own, state.metric)[epoch - 1];
    const spoken = describe({ ...state, epoch }, now.run, average);
    say(sentence, `epoch ${epoch}, ${LABELS[state.metric]}: `, ["text", `${now.run.title}, seed ${now.run.seed}`], " ",
      ["text", spell(state.metric, now.run[state.metric][epoch - 1])],
      own.length > 1 ? `, mean of ${own.length} seeds ${spell(state.metric, average)}` : "");
    const { device, torch, commit, date, seconds } = now.run;
    const made = [device, `torch ${torch}`, `commit ${commit}`, date, `${show(seconds, 1)} s`, now.run.name];
    provenance.textContent = made.join(" · ");
    drawCurves({ ...state, epoch, experiment: group }, shown, now.run, longest(now.runs), spoken);
    place.speak(spoken);
  });
  return () => place.close();
}

export { broken, deviation, mean, spread, ticks };
export default { render };
