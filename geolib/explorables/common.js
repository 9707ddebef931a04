// What every explorable shares: numbers, elements, controls, dragging. Its style is style.css.
// An explorable's text is joined to this one, and to the other shared files it imports, to make a single module (see
// _widget.py). So every import and every `export` stands at the start of its line.

const SVG = "http://www.w3.org/2000/svg";

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

/** A label, what stands beside it and what stands below it. */
function control(parent, label, tone) {
  const id = unique(), row = html("div", { class: "geo-control" }, parent);
  html("label", { for: id }, row, label);
  // An output speaks each change by itself; the control already speaks its own.
  const output = html("output", { for: id, "aria-live": "off", class: `geo-${tone}` }, row);
  return { id, row, output };
}

/**
 * A labelled slider. `onInput(number)` runs on each move of the hand; `update(position, text, max)` places it from
 * outside, where `text` is what the reader sees and a screen reader speaks.
 */
export function slider(parent, { label, min, max = 1, step, tone = "text", onInput }) {
  const { id, row, output } = control(parent, label, tone);
  const input = html("input", { type: "range", id, min, max, step, class: `geo-${tone}` }, row);
  input.addEventListener("input", () => onInput(Number(input.value)));
  return {
    row,
    update(position, text, top = max) {
      input.max = top;
      input.value = position;
      input.style.setProperty("--fill", `${(100 * (input.value - min)) / (top - min)}%`);
      input.setAttribute("aria-valuetext", text);
      output.textContent = text;
    },
  };
}

/** A labelled list to choose from: `options` are [value, text] pairs; `update(value)` chooses from outside. */
export function choice(parent, { label, options, onInput }) {
  const { id, row } = control(parent, label, "text");
  const select = html("select", { id }, row);
  for (const [value, text] of options) html("option", { value }, select, text);
  select.addEventListener("input", () => onInput(select.value));
  return { row, update(value) { select.value = value; } };
}

/** The question that an explorable begins with. */
export function ask(parent, text) {
  return html("p", { class: "geo-ask" }, parent, text);
}

/** A place for controls that wait until they are called for. */
export function more(parent, label = "More to move") {
  const details = html("details", { class: "geo-more" }, parent);
  html("summary", {}, details, label);
  return html("div", { class: "geo-controls" }, details);
}

/** Buttons of which one is pressed: `options` are [value, text] pairs; `update(value)` presses from outside. */
export function pick(parent, label, options, onPick) {
  const row = html("div", { class: "geo-pick", role: "group", "aria-label": label }, parent);
  const all = options.map(([value, text]) => [value, button(row, text, () => onPick(value))]);
  return { row, update(now) { all.forEach(([value, each]) => each.update(value === now)); } };
}

/** A button; with `update(on)` it becomes one that is pressed or not. */
export function button(parent, text, onPress) {
  const element = html("button", { type: "button" }, parent, text);
  element.addEventListener("click", onPress);
  return { element, update(on) { element.setAttribute("aria-pressed", String(on)); } };
}

/** Whether the reader asked for less motion. */
export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/**
 * A button that lets time run. `step(seconds, calm)` moves the state on and returns false at the end; for readers who
 * asked for less motion it is called once a second with calm = true, and should go by whole steps. `begin()` runs
 * before the first step. Returns the function that stops it, for the explorable's end; its `go` starts it.
 */
export function runner(parent, { step, begin = () => {} }) {
  let frame = 0, before = 0;
  const stop = () => {
    cancelAnimationFrame(frame);
    frame = 0;
    element.textContent = "Run";
  };
  const tick = (now) => {
    if (now - before >= (calm() ? 1000 : 0)) {
      const more = step(Math.min(now - before, 100) / 1000, calm());
      before = now;
      if (more === false) return stop();
    }
    frame = requestAnimationFrame(tick);
  };
  const go = () => {
    begin();
    element.textContent = "Pause";
    before = performance.now();
    frame ||= requestAnimationFrame(tick);
  };
  const { element } = button(parent, "Run", () => (frame ? stop() : go()));
  parent.closest(".geo")?.addEventListener("geo-reset", stop);
  return Object.assign(stop, { go });
}

// Follow a pointer from press to release: `start(x, y)` may return false to decline, `move(x, y)` follows. A finger
// takes what has touch-action none; on other ground it takes hold to a side or by a touch; up and down scrolls.
export function drag(element, { start, move }) {
  const at = ({ clientX, clientY }, use) => {
    const { left, top } = (element.ownerSVGElement ?? element).getBoundingClientRect();
    return use(clientX - left, clientY - top);
  };
  let held = false, waits = null;
  const take = (event) => {
    [held, waits] = [at(event, start) !== false, null];
    if (held) element.setPointerCapture(event.pointerId), event.preventDefault();
  };
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || held) return;
    if (event.pointerType === "touch" && getComputedStyle(event.target).touchAction !== "none") waits = event;
    else take(event);
  });
  element.addEventListener("pointermove", (event) => {
    const far = (axis) => Math.abs(event[axis] - waits[axis]);
    if (waits && far("clientX") > Math.max(4, far("clientY"))) take(waits);
    if (held) at(event, move);
  });
  element.addEventListener("pointerup", () => { if (waits) take(waits); held = false; });
  element.addEventListener("pointercancel", () => { [held, waits] = [false, null]; });
  // Browsers heed touch-action on a whole svg, not on what it holds: without this, a finger's second move would scroll.
  element.addEventListener("touchmove", (event) => held && event.preventDefault(), { passive: false });
}
