// A letter in a state: a page in a state of fixed size, each byte as strong as its value can be read back.
import { ask, button, clamp, html, more, path, pick, say, set, show, slider, svg } from "./common.js";
import { stage } from "./stage.js";
import { wager } from "./guess.js";
import { field, savePicture } from "./write.js";

// Computing -----------------------------------------------------------------------------------------------------------

const SURE = 0.99; // of the signs of a byte that is still there
const LETTERS = 600;

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

/** The letters of a text, each with the place of its first byte, the words they make, and the bytes in all. */
export function spell(text) {
  const coder = new TextEncoder(), letters = [...text.replace(/\s+/g, " ").trim()], at = [], words = [];
  let bytes = 0;
  letters.forEach((letter, i) => {
    at.push(bytes);
    bytes += coder.encode(letter).length;
    if (letter === " ") return;
    if (i === 0 || letters[i - 1] === " ") words.push([i, i]);
    words.at(-1)[1] = i;
  });
  return { letters, at, words, bytes };
}

/** The share of right signs for each letter of the text, from the first on. */
export function shares(state, { at, bytes } = spell(state.text)) {
  const tokens = bytes + state.after;
  return at.map((place) => right(signal(state, tokens - 1 - place, tokens)));
}

/** The words that are still there: all of their letters have 99 % of their signs right. */
export function there({ words }, all) {
  return words.filter(([first, last]) => all.slice(first, last + 1).every((share) => share >= SURE));
}

/**
 * The gate, 0.5 to 1, with which the value stored `back` tokens before the last of `tokens` is read best: the noise over
 * the signal is a sum of exponentials of the gate's logarithm, so it falls and then rises.
 */
export function bestGate(back, tokens) {
  const read = (log) => signal({ gate: Math.exp(log), features: 8, power: 2 }, back, tokens);
  if (back >= (tokens - 1) / 2) return 1; // there the signal still grows with the gate
  let [low, high] = [Math.log(0.5), -1e-7];
  for (let i = 0; i < 90; i += 1) {
    const [a, b] = [low + (high - low) / 3, high - (high - low) / 3];
    if (read(a) > read(b)) high = b;
    else low = a;
  }
  return Math.exp((low + high) / 2);
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
const textOf = ({ letters }, [first, last]) => letters.slice(first, last + 1).join("");
const bare = (word) => word.replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, "") || word;

/** The word that is followed; the last one where the text has fewer. */
export function followed({ words }, word) {
  return words[Math.min(word, words.length - 1)] ?? [0, 0];
}

/** Which words are still there, as they stand in the text, shortened in the middle where they are many. */
export function listed(page, found) {
  const all = found.map((word) => textOf(page, word));
  return all.length > 12 ? [...all.slice(0, 6), "…", ...all.slice(-5)].join(" ") : all.join(" ");
}

/** The state in a sentence, for those who hear the picture. */
export function describe(state) {
  const page = spell(state.text), all = shares(state, page), word = followed(page, state.word);
  const found = there(page, all), gates = state.gate === 1 ? "no gates" : `a memory of ${memory(state.gate)}`;
  if (!page.words.length) return "There is no text: write some below the figure.";
  return `${whole(size(state))} features, ${gates}, ${whole(state.after)} bytes read since: of the first letter of `
    + `${bare(textOf(page, word))} ${show(100 * all[word[0]], 0)} percent of the signs come back right; `
    + `${found.length} of ${page.words.length} words are still there${found.length ? `: ${listed(page, found)}` : ""}`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["text", "word", "gate", "features", "power", "after"];
const STEPS = 20, NONE = 101; // slider steps for a factor of ten; the step after the last is no gate

const CSS = `
.geo .page { display: grid; gap: 12px; padding: 14px 16px 18px; text-align: left; }
.geo .page .letter { font: 15px/1.55 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; margin: 0;
  max-width: 62ch; cursor: pointer; overflow-wrap: anywhere; }
.geo .page .geo-controls .geo-pick { align-content: end; }
.geo .page .name { color: var(--warm); font-weight: 700; }
.geo .page .geo-more .geo-controls { grid-template-columns: minmax(0, 1fr); padding-top: 6px; }
@container (max-width: 560px) { .geo .page { padding: 10px 8px 14px; } .geo .page .letter { font-size: 13px; } }`;

const strength = (share) => 0.1 + 0.9 * Math.max(0, 2 * share - 1) ** 2;

/** The letter with its strip, as a picture to keep: what the page shows and what it was set to. */
function picture(state, colours) {
  const page = spell(state.text), all = shares(state, page), name = followed(page, state.word);
  const wide = 60, step = 9.6, high = 25, edge = 36, rows = [[]];
  page.words.forEach((word) => {
    const row = rows.at(-1), from = row.length ? row[0][0] : word[0];
    if (word[1] - from >= wide && row.length) rows.push([word]);
    else row.push(word);
  });
  const height = 2 * edge + high * rows.length + 54;
  return savePicture("letter.png", 2 * edge + Math.round(step * wide), height, (pen) => {
    pen.fillStyle = colours.ground;
    pen.fillRect(0, 0, 2 * edge + step * wide, height);
    rows.forEach((row, r) => row.forEach(([first, last]) => {
      for (let i = first; i <= last; i += 1) {
        const named = first === name[0];
        pen.font = `${named ? "700 " : ""}16px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace`;
        pen.fillStyle = named ? colours.warm : colours.text;
        pen.globalAlpha = strength(all[i]);
        pen.fillText(page.letters[i], edge + step * (i - row[0][0]), edge + 16 + high * r);
      }
    }));
    pen.globalAlpha = 1;
    pen.font = "14px system-ui, sans-serif";
    const gates = state.gate === 1 ? "no gates" : `gates that keep ${memory(state.gate)}`;
    const count = `${there(page, all).length} of ${page.words.length} words still there`;
    pen.fillStyle = colours.text;
    pen.fillText(`${count}, ${whole(state.after)} bytes later`, edge, height - edge - 20);
    pen.fillStyle = colours.soft;
    pen.fillText(`A state of ${whole(size(state))} features, ${gates}. The Geometry of Attention`, edge, height - edge);
  });
}

/** The letters as spans of opacity; a tap follows a word. */
function letters(parent, onWord) {
  const box = html("p", { class: "letter", role: "img", "data-picture": "" }, parent);
  let spans = [], known = null;
  box.addEventListener("click", ({ target }) => {
    const at = spans.indexOf(target), word = spell(known).words.findIndex(([a, b]) => a <= at && at <= b);
    if (word >= 0) onWord(word);
  });
  return (state, page, all) => {
    if (known !== (known = state.text)) {
      box.replaceChildren();
      spans = page.letters.map((letter) => html("span", {}, box, letter));
    }
    const [first, last] = followed(page, state.word);
    spans.forEach((span, i) => {
      const named = i >= first && i <= last, dark = strength(all[i]).toFixed(2);
      if (span.style.opacity !== dark) span.style.opacity = dark;
      if (named !== (span.className === "name")) span.className = named ? "name" : "";
    });
    set(box, { "aria-label": `A text of ${page.bytes} bytes in a state: ${describe(state)}` });
  };
}

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS), { change, read } = place;
  const root = html("div", { class: "page", role: "group", "aria-label": "A letter in a state" }, place.root);
  const open = model.get("gate") === 1;
  ask(root, open ? "Read on. Which words will go first?"
    : "The first words are gone, the last ones stand. Take the gates away: which will be left?");
  const bet = wager(root, [["first", "The first"], ["last", "The last"], ["alike", "All alike"]]);
  const controls = html("div", { class: "geo-panel geo-controls" }, root);
  const after = slider(controls, { label: "Read on: bytes since the letter", min: 0, step: 1, tone: "cool",
    onInput: (x) => change({ after: x === 0 ? 0 : Math.round(10 ** (0.9 + x / 10)) }) });
  const gate = slider(controls, { label: "Gates", min: 0, step: 1, tone: "join",
    onInput: (x) => change({ gate: x >= NONE ? 1 : 1 - 0.5 * 10 ** (-x / STEPS) }) });
  const features = slider(controls, { label: "Features of a key, d", min: 8, step: 8,
    onInput: (x) => change({ features: x }) });
  const power = pick(controls, "Power p", [[2, "p = 2"], [4, "p = 4"]], (p) => change({ power: p }));

  const told = html("p", { class: "geo-say" }, root), drawLetters = letters(root, (word) => change({ word }));
  const strip = svg("svg", { role: "img", class: "strip", height: 64 }, root);
  const [top, half] = [8, 52].map((y) => svg("line", { class: "geo-axis", x1: 44, y1: y, y2: y }, strip));
  const line = svg("path", { class: "geo-line geo-join" }, strip);
  svg("text", { x: 38, y: 12, "text-anchor": "end" }, strip, "100 %");
  svg("text", { x: 38, y: 56, "text-anchor": "end" }, strip, "50 %");
  const row = html("div", { class: "geo-pick" }, root);
  button(row, "Best gate for the coloured word", () => {
    const state = read(), page = spell(state.text), [first] = followed(page, state.word);
    const tokens = page.bytes + state.after;
    change({ gate: bestGate(Math.max(0, tokens - 1 - (page.at[first] ?? 0)), tokens) });
  });
  button(row, "No gates", () => change({ gate: 1 }));
  button(row, "Save a picture", () => {
    const style = getComputedStyle(place.root), colour = (name) => style.getPropertyValue(name).trim();
    picture(read(), { ground: style.backgroundColor, text: style.color, soft: colour("--soft"),
      warm: colour("--query") });
  });
  const own = more(root, "A text of your own, and the word that is followed");
  const text = field(own, { label: `Text, at most ${LETTERS} letters; it stays in this page and in the links you copy`,
    most: LETTERS, rows: 5, onInput: (typed) => change({ text: typed }) });
  const word = slider(own, { label: "Coloured word", min: 0, step: 1, tone: "warm",
    onInput: (x) => change({ word: x }) });
  html("p", { class: "geo-note" }, root, "Keys are random directions, values random signs. Full "
    + "strength: every sign comes back right. Faintest: half of them, which is guessing. The best gate is the one with "
    + "which the coloured word is read best here: none, while more bytes stand after it than before it.");

  place.start((state) => {
    const wide = Math.max(120, strip.clientWidth), page = spell(state.text), all = shares(state, page);
    const [first, last] = followed(page, state.word), found = there(page, all), said = describe(state);
    bet.update(state.gate === 1 && (!open || state.after - bet.since(state.after) >= 100), "alike");
    after.update(state.after && Math.max(1, Math.round(10 * Math.log10(state.after) - 9)), whole(state.after), 41);
    const at = state.gate === 1 ? NONE : Math.round(-STEPS * Math.log10(2 * (1 - state.gate)));
    const factor = state.gate === 1 ? "" : `γ = ${state.gate.toFixed(state.gate > 0.9995 ? 5 : 3)}, `;
    gate.update(at, factor + memory(state.gate), NONE);
    features.update(state.features, String(state.features), 128);
    power.update(state.power);
    text.update(state.text);
    const shown = page.words.length ? bare(textOf(page, [first, last])) : "none";
    word.update(clamp(state.word, 0, page.words.length - 1), shown, Math.max(1, page.words.length - 1));
    drawLetters(state, page, all);
    [top, half].forEach((axis) => set(axis, { x2: wide }));
    const across = all.map((_, i) => 44 + ((wide - 46) * i) / Math.max(1, all.length - 1));
    set(line, { d: path(across, all.map((share) => 8 + 88 * (1 - share))) });
    set(strip, { viewBox: `0 0 ${wide} 64`, "aria-label": `Right signs along the text: ${said}` });
    if (!page.words.length) say(told, said);
    else say(told, ["join", String(found.length)], ` of ${page.words.length} words are still there, with 99\u00a0% of `,
      "their signs right or more; of the first letter of ", ["warm", shown], ` ${percent(all[first])} are. D = `,
      ["text", whole(size(state))], ".");
    place.speak(said + bet.said("alike"));
  });
  return place.close;
}

export default { render };
