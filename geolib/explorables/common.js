// What every explorable shares: elements, sliders, dragging, redrawing, themes, the style.
// An explorable's text is joined to this one to make a single module (see _widget.py). So nothing here imports
// anything, and every `export` stands at the start of its line.

const SVG = "http://www.w3.org/2000/svg";

// Two palettes after Okabe and Ito: told apart by colour-blind readers, at least 4.5 : 1 against their background.
const STYLE = `
.geo { --text: #1c2430; --soft: #55606e; --line: #d5dae1; --rule: #808b99; --panel: #f6f7f9;
  --ground: var(--pst-color-background, #ffffff); --warm: #b34700; --cool: #0067a3; --join: #00704f;
  color-scheme: light; }
.geo[data-theme="dark"] { --text: #e8ebef; --soft: #a9b4c0; --line: #343c48; --rule: #77828f; --panel: #1c222a;
  --ground: var(--pst-color-background, #14181e); --warm: #ffa14d; --cool: #62bdf2; --join: #3fd0a0;
  color-scheme: dark; }
.geo { --face: var(--pst-font-family-base, var(--jp-ui-font-family, system-ui, -apple-system, "Segoe UI", Roboto, Arial,
  sans-serif)); container-type: inline-size; box-sizing: border-box; width: 100%; max-width: 860px; margin: 0 auto;
  color: var(--text); background: var(--ground); font: 14px/1.4 var(--face); }
.geo *, .geo *::before { box-sizing: border-box; }
.geo p { margin: 0; padding: 0; font-size: inherit; line-height: inherit; color: inherit; }
.geo svg { display: block; width: 100%; overflow: visible; user-select: none; -webkit-user-select: none; }
.geo svg text { font: 12px/1 var(--face); fill: var(--soft); }
.geo .geo-say { font-size: 16px; font-variant-numeric: tabular-nums; }
.geo .geo-say b { font-weight: 650; }
.geo .geo-note { font-size: 13px; color: var(--soft); }
.geo .geo-warm { color: var(--warm); } .geo .geo-cool { color: var(--cool); } .geo .geo-join { color: var(--join); }
.geo .geo-full, .geo .geo-ring { display: inline-block; width: 0.72em; height: 0.72em; border-radius: 50%;
  border: 2px solid currentColor; margin-right: 0.1em; }
.geo .geo-full { background: currentColor; }
.geo .geo-control { display: grid; grid-template-columns: 1fr auto; column-gap: 8px; align-items: baseline;
  margin: 0; min-width: 0; }
.geo label { color: var(--text); font: inherit; font-weight: 500; margin: 0; }
.geo output { font: inherit; font-weight: 600; font-variant-numeric: tabular-nums; margin: 0; padding: 0; }
.geo input[type="range"] { -webkit-appearance: none; appearance: none; grid-column: 1 / -1; width: 100%; height: 28px;
  margin: 0; padding: 0; background: transparent; cursor: pointer; --tone: var(--text); }
.geo input.geo-warm { --tone: var(--warm); } .geo input.geo-cool { --tone: var(--cool); }
.geo input.geo-join { --tone: var(--join); }
.geo input::-webkit-slider-runnable-track { height: 4px; border-radius: 2px; background: linear-gradient(to right,
  var(--tone) var(--fill, 0%), var(--rule) var(--fill, 0%)); }
.geo input::-webkit-slider-thumb { -webkit-appearance: none; width: 18px; height: 18px; margin-top: -7px;
  border-radius: 50%; border: 3px solid var(--ground); background: var(--tone); box-shadow: 0 0 0 1px var(--tone); }
.geo input::-moz-range-track { height: 4px; border-radius: 2px; background: var(--rule); }
.geo input::-moz-range-progress { height: 4px; border-radius: 2px; background: var(--tone); }
.geo input::-moz-range-thumb { width: 12px; height: 12px; border-radius: 50%; border: 3px solid var(--ground);
  background: var(--tone); box-shadow: 0 0 0 1px var(--tone); }
.geo button { font: inherit; font-weight: 600; color: var(--text); background: var(--panel); min-height: 28px;
  border: 1px solid var(--rule); border-radius: 14px; padding: 2px 14px; margin: 0; cursor: pointer; }
.geo input:focus-visible, .geo button:focus-visible { outline: 2px solid var(--tone, var(--text));
  outline-offset: 2px; border-radius: 14px; }
.geo .geo-hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
  white-space: nowrap; }
`;

// Numbers -------------------------------------------------------------------------------------------------------------

export function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}

/** A number for the eye: a true minus sign, no negative zero, `digits` decimals (fewer with `trim`). */
export function show(value, digits = 2, trim = false) {
  const text = Math.abs(value).toFixed(digits);
  const digitsOnly = trim && digits > 0 ? text.replace(/\.?0+$/, "") : text;
  return (value < 0 && Number(text) !== 0 ? "\u2212" : "") + digitsOnly;
}

/** An angle brought into (-pi, pi]. */
export function wrap(angle) {
  const turned = angle - 2 * Math.PI * Math.round(angle / (2 * Math.PI));
  return turned <= -Math.PI ? turned + 2 * Math.PI : turned;
}

// Elements ------------------------------------------------------------------------------------------------------------

function make(element, attributes, parent) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  parent?.append(element);
  return element;
}

/** An HTML element with attributes, put at the end of its parent. */
export function html(tag, attributes, parent, text = "") {
  const element = make(document.createElement(tag), attributes, parent);
  if (text) element.textContent = text;
  return element;
}

/** An SVG element with attributes, put at the end of its parent. */
export function svg(tag, attributes, parent, text = "") {
  const element = make(document.createElementNS(SVG, tag), attributes, parent);
  if (text) element.textContent = text;
  return element;
}

/** Change attributes of an element. */
export function set(element, attributes) {
  make(element, attributes, null);
}

/** A sentence whose numbers change: `say(sentence, "query at ", ["warm", 20])` sets plain and bold coloured pieces. */
export function say(paragraph, ...pieces) {
  paragraph.replaceChildren(...pieces.map((piece) => {
    if (typeof piece === "string") return piece;
    return html("b", { class: `geo-${piece[0]}` }, null, String(piece[1]));
  }));
}

/** Drawing commands of a line through the points (x_i, y_i). */
export function path(xs, ys) {
  let d = "";
  for (let i = 0; i < xs.length; i++) d += `${i ? "L" : "M"}${xs[i].toFixed(1)} ${ys[i].toFixed(1)}`;
  return d;
}

// Controls ------------------------------------------------------------------------------------------------------------

// Every module on a page may be its own copy of this text, so a counter would repeat itself from copy to copy.
const unique = () => "geo-" + Math.random().toString(36).slice(2, 12);

/**
 * A labelled slider. `onInput(number)` runs on each move of the hand; `update(position, text, max)` places it from
 * outside, where `text` is what the reader sees and a screen reader speaks.
 */
export function slider(parent, { label, min, step, tone, onInput }) {
  const id = unique();
  const row = html("div", { class: "geo-control" }, parent);
  html("label", { for: id }, row, label);
  // An output speaks each change by itself; the slider already speaks its own.
  const output = html("output", { for: id, "aria-live": "off", class: `geo-${tone}` }, row);
  const input = html("input", { type: "range", id, min, step, class: `geo-${tone}` }, row);
  input.addEventListener("input", () => onInput(Number(input.value)));
  return {
    row,
    update(position, text, max) {
      input.max = max;
      input.value = position;
      input.style.setProperty("--fill", `${(100 * (input.value - min)) / (max - min)}%`);
      input.setAttribute("aria-valuetext", text);
      output.textContent = text;
    },
  };
}

/** Follow a pointer from press to release: `start(x, y)` may return false to decline, `move(x, y)` follows. */
export function drag(element, { start, move }) {
  const at = (event, use) => {
    const box = element.ownerSVGElement?.getBoundingClientRect() ?? element.getBoundingClientRect();
    return use(event.clientX - box.left, event.clientY - box.top);
  };
  let held = false;
  element.addEventListener("pointerdown", (event) => {
    held = event.button === 0 && at(event, start) !== false;
    if (held) element.setPointerCapture(event.pointerId);
    if (held) event.preventDefault();
  });
  element.addEventListener("pointermove", (event) => held && at(event, move));
  for (const end of ["pointerup", "pointercancel"]) element.addEventListener(end, () => { held = false; });
}

// The stage -----------------------------------------------------------------------------------------------------------

function pageIsDark() {
  const { documentElement: page, body } = document;
  const named = page.dataset.theme ?? page.getAttribute("theme"); // the book; Colab
  if (named === "dark" || named === "light") return named === "dark";
  const lab = body.dataset.jpThemeLight; // JupyterLab
  if (lab !== undefined) return lab === "false";
  if (body.dataset.vscodeThemeKind) return body.dataset.vscodeThemeKind.includes("dark");
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/**
 * The place an explorable draws in. `names` are the model's values it depends on; `draw(values)` runs at most once a
 * frame after any of them, or the size, has changed. `speak(text)` tells a screen reader once the hand rests;
 * `change(values)` sends values to the model; `close()` undoes everything.
 */
export function stage({ model, el }, names, css) {
  const root = html("div", { class: "geo" }, el);
  html("style", {}, root, STYLE + css);
  const spoken = html("div", { class: "geo-hidden", "aria-live": "polite" }, root);
  const read = () => Object.fromEntries(names.map((name) => [name, model.get(name)]));
  let frame = 0, speech = 0, draw = () => {};

  const redraw = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      draw(read());
    });
  };
  const theme = () => { root.dataset.theme = pageIsDark() ? "dark" : "light"; };
  const sizes = new ResizeObserver(redraw);
  const themes = new MutationObserver(theme);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const watched = { attributes: true, attributeFilter: ["data-theme", "theme", "data-jp-theme-light",
    "data-vscode-theme-kind"] };
  theme();
  sizes.observe(root);
  themes.observe(document.documentElement, watched);
  themes.observe(document.body, watched);
  scheme.addEventListener("change", theme);
  for (const name of names) model.on(`change:${name}`, redraw);

  return {
    root,
    read,
    change(values) {
      for (const [name, value] of Object.entries(values)) model.set(name, value);
      model.save_changes();
    },
    start(drawing) {
      draw = drawing;
      draw(read());
    },
    speak(text) {
      clearTimeout(speech);
      speech = setTimeout(() => { spoken.textContent = text; }, 600);
    },
    close() {
      cancelAnimationFrame(frame);
      clearTimeout(speech);
      sizes.disconnect();
      themes.disconnect();
      scheme.removeEventListener("change", theme);
      for (const name of names) model.off(`change:${name}`, redraw);
      root.remove();
    },
  };
}
