// A memory to type into: pairs of words in a gated symmetric-power state, one key asked, and what comes back.
import { ask, button, clamp, html, say, set, show, slider, svg } from "./common.js";
import { stage } from "./stage.js";
import { raster } from "./draw.js";
import { field } from "./write.js";

// Computing -----------------------------------------------------------------------------------------------------------

const MOST = 24; // pairs that are read
const SHUT = 0.01; // the gate of a stroke "/"
const LETTERS = 300, WORD = 24;

/** The pairs of a line, key then value; `shut` counts the strokes "/" between a pair and the one before it. */
export function pairs(text) {
  const all = [];
  let key = null, shut = 0;
  for (const word of text.toLowerCase().match(/\/|[^\s,;:=/]+/g) ?? []) {
    if (word === "/") shut += all.length && key === null ? 1 : 0;
    else if (key === null) key = word;
    else {
      if (all.length < MOST) all.push({ key, value: word, shut });
      [key, shut] = [null, 0];
    }
  }
  return all;
}

/** Numbers from 0 to 1 that a word alone decides. */
function numbers(word) {
  let seed = 2166136261; // the word's hash, by Fowler, Noll and Vo, starts Mulberry's generator
  for (const letter of word) seed = Math.imul(seed ^ letter.codePointAt(0), 16777619);
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), seed | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** The direction of a word among d features, the same in every page: normal numbers, brought to length 1. */
export function vector(word, d) {
  const next = numbers(word), normal = () =>
    Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next());
  const all = Array.from({ length: d }, normal), size = Math.hypot(...all);
  return all.map((x) => x / size);
}

/** The symmetric power of a vector: monomials of degree p in order, each times the root of its multinomial. */
export function embed(v, p) {
  const all = [];
  const walk = (from, left, product, run) => {
    if (!left) { all.push(product); return; }
    for (let i = from; i < v.length; i++) {
      const again = i === from ? run + 1 : 1; // the a-th factor of a kind divides by the root of a
      walk(i, left - 1, (product * v[i]) / Math.sqrt(again), again);
    }
  };
  let factorial = 1;
  for (let i = 2; i <= p; i++) factorial *= i;
  walk(0, p, Math.sqrt(factorial), 0);
  return all;
}

/** The gate of each token: the slider's, and less after a stroke. */
export function gates({ text, gate }) {
  return pairs(text).map(({ shut }) => gate * SHUT ** shut);
}

/** The state after the last pair, one row of D numbers for each value, and the normaliser z. */
export function written(state) {
  const all = pairs(state.text), gamma = gates(state), words = [...new Set(all.map(({ value }) => value))];
  let z = [], rows = [];
  all.forEach(({ key, value }, m) => {
    const phi = embed(vector(key, state.features), state.power), kept = (row) => row.map((x) => gamma[m] * x);
    [z, rows] = m ? [kept(z), rows.map(kept)] : [phi.map(() => 0), words.map(() => phi.map(() => 0))];
    const row = rows[words.indexOf(value)];
    phi.forEach((x, i) => { z[i] += x; row[i] += x; });
  });
  return { words, rows, z };
}

const inner = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);

/** What the state answers: the share of each value, for the key that is asked. */
export function byState(state, { words, rows, z } = written(state)) {
  const phi = embed(vector(state.ask.toLowerCase(), state.features), state.power), all = z.length ? inner(z, phi) : 0;
  return words.map((_, i) => inner(rows[i], phi) / all);
}

/** What is left of each pair: the product of the gates after it. */
export function left(state) {
  const gamma = gates(state);
  return gamma.map((_, n) => gamma.slice(n + 1).reduce((product, gate) => product * gate, 1));
}

/** The same answer by attention over all pairs, with weights (q . k)^p times the gates after each. */
export function byAttention(state) {
  const all = pairs(state.text), q = vector(state.ask.toLowerCase(), state.features), kept = left(state);
  const weights = all.map(({ key }, n) => kept[n] * inner(q, vector(key, state.features)) ** state.power);
  const total = weights.reduce((a, b) => a + b, 0), words = [...new Set(all.map(({ value }) => value))];
  return words.map((word) => weights.reduce((sum, w, n) => sum + (all[n].value === word ? w : 0), 0) / total);
}

/** Tokens that the gates have left. */
export function memory(state) {
  return left(state).reduce((a, b) => a + b, 0);
}

/** D, the features of the power: binom(d + p - 1, p). */
export function size({ features, power }) {
  let count = 1;
  for (let i = 0; i < power; i++) count = (count * (features + i)) / (i + 1);
  return Math.round(count);
}

const tokens = (count) => `${count} token${count === 1 ? "" : "s"}`;
const percent = (share) => `${show(100 * share, 0)}\u00a0%`;

/** What comes back, in words. */
export function describe(state, answers = byState(state)) {
  const all = pairs(state.text), words = [...new Set(all.map(({ value }) => value))];
  if (!all.length) return "No pair is stored yet: write a key and its value.";
  const best = answers.indexOf(Math.max(...answers));
  const stored = all.findLast(({ key }) => key === state.ask.toLowerCase());
  const truth = stored ? `stored last under it: ${stored.value}` : "nothing is stored under it";
  return `Asked for ${state.ask || "nothing"}: ${words[best]}, ${percent(answers[best])}; ${truth}. `
    + `The gates have left ${show(memory(state), 1)} of ${tokens(all.length)}.`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["text", "ask", "power", "features", "gate"];
const MORE = ["hester rust", "walter teal", "frederick amber", "eliza plum", "gilmore slate", "mercy coral",
  "catherick ivory", "percival mint", "madame olive", "countess pearl"];

const CSS = `
.geo .memory { display: grid; gap: 12px 26px; padding: 14px 16px 18px; align-items: start;
  grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); }
.geo .memory > :is(.geo-ask, .geo-panel, .whole) { grid-column: 1 / -1; }
.geo .memory > * { min-width: 0; }
.geo .memory .whole { display: grid; gap: 6px; }
.geo .memory :is(.write, .back) { display: grid; gap: 8px; align-content: start; }
.geo .memory .chips { display: flex; flex-wrap: wrap; gap: 6px; min-height: 28px; }
.geo .memory .chips button { padding: 2px 9px; font-weight: 500; }
.geo .memory .chips i { font-style: normal; color: var(--key); }
.geo .memory .chips button[aria-pressed="true"] { background: var(--panel); color: var(--text);
  box-shadow: 0 0 0 2px var(--query); }
.geo .memory .chips u { display: block; height: 3px; border-radius: 2px; background: var(--key);
  text-decoration: none; }
.geo .memory .geo-controls { grid-template-columns: repeat(auto-fit, minmax(min(170px, 100%), 1fr)); }
.geo .memory .bar { fill: var(--rule); } .geo .memory .bar.stored { fill: var(--value); }
.geo .memory .best { font-weight: 700; fill: var(--text); }
@container (max-width: 560px) { .geo .memory { display: flex; flex-direction: column; align-items: stretch;
  padding: 10px 8px 14px; } }`;

/** The stored pairs as buttons that ask for their keys; under each, how much of it the gates have left. */
function chips(parent, onAsk) {
  const box = html("div", { class: "chips", role: "group", "aria-label": "Stored pairs: press one to ask for its key" },
    parent);
  let all = [], known = "";
  return (state) => {
    const now = pairs(state.text), text = now.map(({ key, value }) => `${key} ${value}`).join("\n");
    if (text !== known || all.length !== now.length) {
      known = text;
      box.replaceChildren();
      all = now.map(({ key, value }) => {
        const one = button(box, "", () => onAsk(key)), { element } = one;
        html("i", {}, element, key);
        element.append(` ${value}`);
        return { ...one, bar: html("u", {}, element) };
      });
    }
    const kept = left(state);
    all.forEach(({ element, update, bar }, n) => {
      update(now[n].key === state.ask.toLowerCase());
      bar.style.width = `${Math.max(2, 100 * kept[n]).toFixed(0)}%`;
      element.title = `${percent(kept[n])} left by the gates`;
    });
  };
}

/** One bar for each value that can come back. */
function bars(parent) {
  const picture = svg("svg", { role: "img" }, parent), high = 24;
  let rows = [];
  return (state, words, answers, said) => {
    const width = Math.max(160, parent.clientWidth), best = Math.max(...answers), room = Math.min(110, 0.3 * width);
    while (rows.length < words.length) {
      const y = high * rows.length;
      rows.push({ name: svg("text", { x: room - 8, y: y + 16, "text-anchor": "end" }, picture),
        bar: svg("rect", { x: room, y: y + 4, height: high - 8, rx: 2 }, picture),
        value: svg("text", { y: y + 16 }, picture) });
    }
    rows.splice(words.length).forEach((row) => Object.values(row).forEach((part) => part.remove()));
    const height = high * Math.max(words.length, 1);
    set(picture, { viewBox: `0 0 ${width} ${height}`, height, "aria-label": `What comes back. ${said}` });
    const stored = new Set(pairs(state.text).filter(({ key }) => key === state.ask.toLowerCase()).map((p) => p.value));
    rows.forEach(({ name, bar, value }, i) => {
      const long = clamp(answers[i], 0, 1) * (width - room - 52);
      name.textContent = words[i].length > 13 ? `${words[i].slice(0, 12)}…` : words[i];
      set(name, { class: answers[i] === best ? "best" : "" });
      set(bar, { width: Math.max(1, long).toFixed(1), class: stored.has(words[i]) ? "bar stored" : "bar" });
      set(value, { x: (room + 6 + long).toFixed(1) });
      value.textContent = percent(answers[i]);
    });
  };
}

// Putting it together -------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS), { change, read } = place;
  const root = html("div", { class: "memory", role: "group", "aria-label": "A memory to type into" }, place.root);
  ask(root, "How many pairs can you add before less than half of what comes back is right?");
  const back = html("div", { class: "back geo-stay" }, root), write = html("div", { class: "write" }, root);
  const told = html("p", { class: "geo-say" }, back), drawBars = bars(html("div", {}, back));

  const line = field(write, { label: "Pairs: key value, key value, … (a stroke / shuts the gate)", most: LETTERS,
    rows: 3, onInput: (text) => change({ text }) });
  const drawChips = chips(write, (key) => change({ ask: key }));
  const asked = field(write, { label: "Key that is asked", most: WORD,
    onInput: (word) => change({ ask: word.trim() }) });
  const row = html("div", { class: "geo-pick" }, write);
  const add = (more) => {
    const { text } = read(), next = `${text.trim().replace(/,$/, "")}${more}`;
    if ([...next].length <= LETTERS) change({ text: next });
  };
  button(row, "One pair more", () => {
    const { text } = read(), here = new Set(pairs(text).map(({ key }) => key));
    const other = MORE.find((pair) => !here.has(pair.split(" ")[0]));
    if (other) add(`${/[/]\s*$/.test(text) || !text.trim() ? " " : ", "}${other}`);
  });
  button(row, "Shut the gate before the next pair", () => add(" /"));

  const controls = html("div", { class: "geo-panel geo-controls" }, root);
  const gate = slider(controls, { label: "Gate γ of each pair", min: 0.5, step: 0.01, tone: "join",
    onInput: (x) => change({ gate: x }) });
  const power = slider(controls, { label: "Power p", min: 2, max: 6, step: 2, onInput: (x) => change({ power: x }) });
  const features = slider(controls, { label: "Features of a key, d", min: 2, max: 12, step: 1,
    onInput: (x) => change({ features: x }) });
  const whole = html("div", { class: "whole" }, root), proof = html("p", { class: "geo-note" }, whole);
  const map = raster(whole);

  place.start((state) => {
    const store = written(state), answers = byState(state, store), all = pairs(state.text);
    const said = describe(state, answers), best = answers.indexOf(Math.max(...answers)), count = size(state);
    drawBars(state, store.words, answers, said);
    line.update(state.text);
    asked.update(state.ask);
    drawChips(state);
    gate.update(state.gate, state.gate === 1 ? "1, no gate" : show(state.gate, 2), 1);
    power.update(state.power, String(state.power));
    features.update(state.features, String(state.features));
    const known = all.some(({ key }) => key === state.ask.toLowerCase());
    if (all.length) say(told, ["warm", state.ask || "…"], " brings back ", ["text", store.words[best]], `, `,
      ["join", percent(answers[best])], `. ${known ? "" : "Nothing is stored under it; it is answered all the same. "}`
      + `The gates have left ${show(memory(state), 1)} of ${tokens(all.length)}.`);
    else say(told, said);
    const apart = Math.max(0, ...byAttention(state).map((x, i) => Math.abs(x - answers[i])));
    const equal = apart < 1e-9 ? "less than 10⁻⁹" : apart.toExponential(0);
    proof.textContent = `D = ${count.toLocaleString("en")} numbers for each different value, and for the normaliser, `
      + `however often it is stored. ${all.length ? `Attention over all pairs differs by ${equal}.` : ""}`;
    const values = store.rows.flat(), most = values.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-9);
    map.canvas.style.height = `${10 * Math.max(1, store.words.length)}px`;
    const shown = values.map((x) => Math.sign(x) * Math.sqrt(Math.abs(x) / most));
    map.draw(shown.length ? shown : [0], shown.length ? count : 1);
    set(map.canvas, { "aria-label": `The state as a map: ${store.words.length} values by ${count} features` });
    place.speak(said);
  });
  return place.close;
}

export default { render };
