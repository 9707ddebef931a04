// What is left of a page: a letter in a state of fixed size, each byte as strong as its value can be read back.
import { ask, button, html, path, pick, say, set, show, slider, stage, svg } from "./common.js";

// Computing -----------------------------------------------------------------------------------------------------------

const LETTER = "And now, my love, seeing that I am at the end of my paper, now for the real reason, the surprising "
  + "reason, for my fondness for little Anne Catherick. My dear Philip, although she is not half so pretty, she is, "
  + "nevertheless, by one of those extraordinary caprices of accidental resemblance which one sometimes sees, the "
  + "living likeness, in her hair, her complexion, the colour of her eyes, and the shape of her face----";
const FIRST = LETTER.indexOf("Anne"), LAST = LETTER.indexOf("k.");

/** The mean of (k . k')^(2p) over random directions of d features. */
export function moment(d, p) {
  let product = 1;
  for (let i = 0; i < p; i += 1) product *= (2 * i + 1) / (d + 2 * i);
  return product;
}

/** Squared signal over the variance of the noise, for the value stored `back` tokens before the last of `tokens`. */
export function signal({ gate, features, power }, back, tokens) {
  const square = gate * gate, kept = gate === 1 ? tokens : (1 - square ** tokens) / (1 - square);
  return square ** back / (moment(features, power) * (kept - square ** back));
}

/** The share of signs that come back right: the normal distribution at the root of the signal over noise. */
export function right(eta) {
  const x = Math.sqrt(eta / 2), t = 1 / (1 + 0.3275911 * x); // Abramowitz and Stegun 7.1.26, right to seven digits
  const sum = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return 1 - 0.5 * sum * Math.exp(-x * x);
}

/** The share of right signs for each byte of the letter, from the first on. */
export function shares(state) {
  const tokens = LETTER.length + state.after;
  return Array.from(LETTER, (_, i) => right(signal(state, tokens - 1 - i, tokens)));
}

/** The gate with which the token `back` is read best in an endless document. */
export function bestGate(back) {
  return Math.sqrt(back / (back + 1));
}

/** The features of the symmetric power, binom(d + p - 1, p). */
export function size({ features, power }) {
  let count = 1;
  for (let i = 0; i < power; i += 1) count = count * (features + i) / (i + 1);
  return Math.round(count);
}

const percent = (share) => `${show(100 * share, 0)}\u00a0%`;
const whole = (number) => Math.round(number).toLocaleString("en");
const memory = (gate) => (gate === 1 ? "no gates" : `${whole(1 / (1 - gate))} tokens`);

/** The state in a sentence, for those who hear the picture. */
export function describe(state) {
  const all = shares(state), name = all[FIRST], sure = all.filter((share) => share >= 0.99).length;
  const gates = state.gate === 1 ? "no gates" : `a memory of ${memory(state.gate)}`;
  return `${whole(size(state))} features, ${gates}, ${whole(state.after)} bytes read since: the name’s first letter `
    + `comes back with ${show(100 * name, 0)} percent right signs, ${sure} of ${all.length} bytes with 99 or more`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["gate", "features", "power", "after"];
const STEPS = 20, NONE = 101; // slider steps for a factor of ten; the step after the last is no gate

const CSS = `
.geo .page { display: grid; gap: 12px; padding: 14px 16px 18px; text-align: left; }
.geo .page .letter { font: 15px/1.55 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; margin: 0;
  max-width: 62ch; }
.geo .page .name { color: var(--warm); font-weight: 700; }
@container (max-width: 560px) { .geo .page { padding: 10px 8px 14px; } .geo .page .letter { font-size: 13px; } }`;

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS);
  const root = html("div", { class: "page", role: "group", "aria-label": "What is left of a page" }, place.root);
  ask(root, "Read on. Which bytes go first: the old ones, or all alike?");
  const controls = html("div", { class: "geo-panel geo-controls" }, root);
  const after = slider(controls, { label: "Bytes read since the letter", min: 0, step: 1, tone: "cool",
    onInput: (x) => place.change({ after: x === 0 ? 0 : Math.round(10 ** (0.9 + x / 10)) }) });
  const gate = slider(controls, { label: "Memory of the gates", min: 0, step: 1, tone: "join",
    onInput: (x) => place.change({ gate: x >= NONE ? 1 : 1 - 0.5 * 10 ** (-x / STEPS) }) });
  const features = slider(controls, { label: "Features of a key, d", min: 8, step: 8,
    onInput: (x) => place.change({ features: x }) });
  const power = pick(controls, "Power p", [[2, "p = 2"], [4, "p = 4"]], (p) => place.change({ power: p }));

  const letter = html("p", { class: "letter", role: "img" }, root);
  const bytes = Array.from(LETTER, (byte, i) =>
    html("span", i >= FIRST && i <= LAST ? { class: "name" } : {}, letter, byte));
  const strip = svg("svg", { role: "img", class: "strip", height: 64 }, root);
  const [top, half] = [8, 52].map((y) => svg("line", { class: "geo-axis", x1: 44, y1: y, y2: y }, strip));
  const line = svg("path", { class: "geo-line geo-join" }, strip);
  svg("text", { x: 38, y: 12, "text-anchor": "end" }, strip, "100 %");
  svg("text", { x: 38, y: 56, "text-anchor": "end" }, strip, "50 %");
  const told = html("p", { class: "geo-say" }, root), row = html("div", { class: "geo-pick" }, root);
  let since = 0;
  button(row, "Best gate at its distance, in an endless document", () =>
    place.change({ gate: bestGate(LETTER.length + since - 1 - FIRST) }));
  button(row, "No gates", () => place.change({ gate: 1 }));
  html("p", { class: "geo-note" }, root, "Keys are random directions, values random signs. Full "
    + "strength: every sign comes back right. Faintest: half of them, which is guessing.");

  place.start((state) => {
    since = state.after;
    after.update(since && Math.max(1, Math.round(10 * Math.log10(since) - 9)), whole(since), 41);
    const at = state.gate === 1 ? NONE : Math.round(-STEPS * Math.log10(2 * (1 - state.gate)));
    gate.update(at, memory(state.gate), NONE);
    features.update(state.features, String(state.features), 128);
    power.update(state.power);
    const all = shares(state);
    all.forEach((share, i) => { bytes[i].style.opacity = (0.1 + 0.9 * (2 * share - 1) ** 2).toFixed(2); });
    const wide = Math.max(120, strip.getBoundingClientRect().width);
    [top, half].forEach((axis) => set(axis, { x2: wide }));
    const across = all.map((_, i) => 44 + ((wide - 46) * i) / (all.length - 1));
    set(line, { d: path(across, all.map((share) => 8 + 88 * (1 - share))) });
    set(strip, { viewBox: `0 0 ${wide} 64`, "aria-label": `Right signs along the letter: ${describe(state)}` });
    const sure = all.filter((share) => share >= 0.99).length;
    say(told, "D = ", ["text", whole(size(state))], ". Of the name’s first letter ", ["warm", percent(all[FIRST])],
      " of the signs come back right; ", ["join", String(sure)], ` of ${all.length} bytes have 99\u00a0% or more.`);
    set(letter, { "aria-label": `A letter of ${all.length} bytes in a state: ${describe(state)}` });
    place.speak(describe(state));
  });
  return place.close;
}

export default { render };
