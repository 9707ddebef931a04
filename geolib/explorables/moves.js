// Text that drives a figure: links such as #move-mirrors?m=90&n=0 and numbers such as #drag-circle?temperature=0.5.
// All explorables of a page, each perhaps with its own copy of this text, enter themselves in one list; the first of
// them listens to the whole document, so that it works in a book's page and in a notebook alike.
import { button, calm, clamp, html, set, show } from "./common.js";

/** What #move-NAME.COPY?trait=value&... asks for: { kind, name, copy, asked }; null for any other address. */
export function readMove(hash) {
  const found = /^#(move|drag)-([a-z_]+)(?:\.(\d+))?(?:\?(.*))?$/i.exec(hash);
  if (!found) return null;
  const asked = {};
  for (const [trait, text] of new URLSearchParams(found[4] ?? "")) {
    try {
      asked[trait] = JSON.parse(text);
    } catch {
      asked[trait] = text; // words stand bare
    }
  }
  return { kind: found[1].toLowerCase(), name: found[2], copy: Number(found[3] ?? 0), asked };
}

/** Whether a value is what a trait allows: a number in a range, a word of a list, a list of either. */
export function allows(rule, value) {
  const { low = -Infinity, high = Infinity, step, words, least, most, letters } = rule;
  if (letters !== undefined) return typeof value === "string" && [...value].length <= letters;
  if (least !== undefined) {
    const one = { ...rule, least: undefined };
    return Array.isArray(value) && value.length >= least && value.length <= most && value.every((x) => allows(one, x));
  }
  if (words) return words.includes(value);
  return Number.isFinite(value) && value >= low && value <= high && (!step || (value - low) % step === 0);
}

/** The values that the rules allow, and the names of those that they do not. */
export function sift(asked, rules) {
  const good = {}, bad = [];
  for (const [trait, value] of Object.entries(asked)) {
    if (Object.hasOwn(rules, trait) && allows(rules[trait], value)) good[trait] = value;
    else bad.push(trait);
  }
  return { good, bad };
}

/** A share of the way from one value to another; words and steps change at once, lists entry by entry. */
export function between(rule, from, to, share) {
  if (share === 1 || typeof from !== typeof to) return to;
  if (Array.isArray(to)) return from.length === to.length ? to.map((x, i) => between({}, from[i], x, share)) : to;
  if (typeof to !== "number" || rule?.step > 1) return to;
  const value = from + share * (to - from);
  return rule?.step ? Math.round(value) : value;
}

/** The address of a state: what differs from the start. */
export function address(name, copy, values, start) {
  const short = (value) => (typeof value === "number" ? Number(value.toPrecision(6)) : value);
  const bare = (word) => { // a word that would be read as something else stands in quotes
    try { JSON.parse(word); } catch { return true; }
    return false;
  };
  const text = (value) => (typeof value === "string" && bare(value) ? value
    : JSON.stringify(Array.isArray(value) ? value.map(short) : short(value)));
  const pieces = Object.keys(values).filter((trait) => text(values[trait]) !== text(start[trait]))
    .map((trait) => `${trait}=${encodeURIComponent(text(values[trait]))}`);
  return `#move-${name}${copy > 1 ? `.${copy}` : ""}?${pieces.join("&")}`;
}

/** Plain HTML that shows a figure in any page, with the values that differ from the start. */
export function embedding(name, module, values, start) {
  const state = Object.fromEntries(Object.entries(values).filter(([trait, value]) => (
    JSON.stringify(value) !== JSON.stringify(start[trait]))));
  return `<div id="geo-${name}"></div>
<script type="module">
  import figure from ${JSON.stringify(module)};
  figure.render({ el: document.getElementById("geo-${name}"), state: ${JSON.stringify(state)} });
</script>`;
}

// A heading may begin with the same word; what asks a figure for something has a question mark.
const MOVES = 'a[href^="#move-"][href*="?"]', DRAGS = "[data-geo-drag]", ASIDE = "geo-aside";

/** The explorable that a link means: the one it counts, or else the nearest of that name in the same notebook. */
function meant(list, { name, copy }, link) {
  const scope = link?.closest(".jp-NotebookPanel") ?? document;
  const named = [...scope.querySelectorAll(`[data-explorable="${name}"]`)];
  const height = (element) => element.getBoundingClientRect().top;
  const near = (element) => (link ? Math.abs(height(element) - height(link)) : 0);
  const box = copy ? named[copy - 1] : [...named].sort((a, b) => near(a) - near(b))[0];
  return [...list].find((entry) => entry.box === box && box);
}

/** A remark behind a link, spoken; an empty one takes it away. */
function remark(link, text) {
  const old = link.nextElementSibling;
  const place = old?.classList.contains(ASIDE) ? old : html("span", { class: ASIDE, role: "status" }, null);
  if (place !== old && text) link.after(place);
  setTimeout(() => { place.textContent = text && ` (${text})`; });
}

const wrong = (bad) => (bad.length ? `this figure does not take ${bad.join(", ")}` : "");

function follow(list, link) {
  const move = readMove(link.hash), entry = move && meant(list, move, link);
  if (!entry) return remark(link, "there is no such figure here yet; in a notebook, run its cell");
  remark(link, wrong(entry.go(move.asked)));
}

/** What a number in the text moves: its trait, range and step, and the explorable it belongs to. */
function dragged(list, link) {
  const move = readMove(link.dataset.geoDrag), entry = move && meant(list, move, link);
  if (!entry) return null;
  const trait = Object.keys(move.asked)[0], rule = entry.rules[trait] ?? {};
  const { min = rule.low ?? 0, max = rule.high ?? 1, step = rule.step ?? 0.01 } = move.asked;
  const digits = (String(step).split(".")[1] ?? "").length;
  const to = (value) => {
    const kept = clamp(Number((Math.round(value / step) * step).toFixed(digits)), min, max);
    if (allows(rule, kept)) entry.change({ [trait]: kept });
  };
  return { entry, trait, min, max, step, digits, to, now: () => Number(entry.read()[trait]) };
}

/** Make sliders of the text's numbers, buttons of its links; numbers show what the figures have. */
function dress(list) {
  document.querySelectorAll(MOVES).forEach((link) => link.setAttribute("role", "button"));
  document.querySelectorAll('a[href^="#drag-"]').forEach((link) => {
    link.dataset.geoDrag = link.hash;
    link.removeAttribute("href");
    set(link, { role: "slider", tabindex: 0 });
    link.addEventListener("touchmove", (event) => event.preventDefault(), { passive: false });
  });
  document.querySelectorAll(DRAGS).forEach((link) => {
    const it = dragged(list, link);
    if (!it) return;
    const text = show(it.now(), it.digits);
    if (link.textContent !== text) link.textContent = text;
    set(link, { "aria-label": `${it.trait} of the figure`, "aria-valuemin": it.min, "aria-valuemax": it.max,
      "aria-valuenow": it.now(), "aria-valuetext": text });
  });
}

function listen(list) {
  const on = (type, selector, use) => document.addEventListener(type, (event) => {
    const link = event.target.closest?.(selector);
    if (link) use(link, event);
  }, true);
  const press = (link, event) => {
    event.preventDefault();
    event.stopPropagation(); // a notebook would look for a heading of this name
    follow(list, link);
  };
  on("click", MOVES, press);
  on("keydown", MOVES, (link, event) => { if (event.key === " ") press(link, event); });
  on("keydown", DRAGS, (link, event) => {
    const it = dragged(list, link), ways = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10,
      PageDown: -10, Home: -Infinity, End: Infinity };
    if (!it || !(event.key in ways)) return;
    event.preventDefault();
    event.stopPropagation();
    it.to(clamp(it.now() + ways[event.key] * it.step, it.min, it.max));
  });
  on("pointerdown", DRAGS, (link, event) => {
    const it = dragged(list, link);
    if (!it || event.button !== 0) return;
    event.preventDefault();
    link.focus();
    link.setPointerCapture(event.pointerId);
    it.entry.view();
    const [x, start] = [event.clientX, it.now()], reach = Math.max(1, 240 / ((it.max - it.min) / it.step));
    const move = ({ clientX }) => it.to(start + Math.round((clientX - x) / Math.min(reach, 8)) * it.step);
    const done = () => link.removeEventListener("pointermove", move);
    link.addEventListener("pointermove", move);
    for (const end of ["pointerup", "pointercancel"]) link.addEventListener(end, done, { once: true });
  });
  window.addEventListener("hashchange", () => {
    const move = readMove(location.hash);
    const entry = move?.kind === "move" && meant(list, move, null);
    if (entry) {
      entry.go(move.asked);
      arrive(entry.view);
    }
  });
}

/** Keep a figure in view while what stands above it takes its true height; the reader's hand ends that. */
function arrive(view) {
  const end = performance.now() + 1500, halt = new AbortController();
  for (const type of ["wheel", "touchstart", "pointerdown", "keydown"]) {
    addEventListener(type, () => halt.abort(), { signal: halt.signal, passive: true });
  }
  const align = () => {
    if (halt.signal.aborted || performance.now() > end) return halt.abort();
    view("instant");
    requestAnimationFrame(align);
  };
  align();
}

/** To other values within half a second, so that the eye can follow; at once for readers who asked for less motion. */
function glider(model, rules, root) {
  let frame = 0;
  const stop = () => {
    cancelAnimationFrame(frame);
    delete root.dataset.gliding;
  };
  for (const type of ["pointerdown", "keydown"]) root.addEventListener(type, stop, true);
  const glide = (values, now = calm()) => {
    stop();
    const all = Object.entries(values).map(([name, to]) => [name, model.get(name), to]), begun = performance.now();
    const step = (time) => {
      const way = now ? 1 : clamp((time - begun) / 500, 0, 1), share = way * way * (3 - 2 * way);
      for (const [name, from, to] of all) model.set(name, between(rules[name], from, to, share));
      if (way < 1) frame = requestAnimationFrame(step);
      else {
        delete root.dataset.gliding;
        model.save_changes();
      }
    };
    root.dataset.gliding = "yes";
    step(begun);
  };
  return { glide, stop };
}

/** Below an explorable: back to the start and, in a book's page, an address that brings others to this state. */
function footer({ root, box, name, start, read, glide, tell }) {
  const foot = html("div", { class: "geo-foot" }, root);
  button(foot, "Reset", () => {
    glide(start, true);
    root.dispatchEvent(new CustomEvent("geo-reset")); // guesses are asked anew, what runs stops
    tell("Back at the start.");
  });
  const book = document.querySelector("script[src*='_static/widget-host.js']")?.src;
  if (book) button(foot, "Copy to embed", async () => {
    const code = embedding(name, new URL(`../explorables/${name}.mjs`, book).href, read(), start);
    try {
      await navigator.clipboard.writeText(code);
      tell("The lines for your page are copied.", true);
    } catch {
      tell("This browser lets no page copy.", true);
    }
  });
  if (root.closest(".explorable:not(.embedded)")) button(foot, "Copy link", async () => {
    const named = [...document.querySelectorAll(`[data-explorable="${name}"]`)];
    try {
      history.replaceState(history.state, "", address(name, named.indexOf(box) + 1, read(), start));
      await navigator.clipboard.writeText(location.href);
      tell("The link is copied.", true);
    } catch {
      tell("The page’s address leads to this state now.", true);
    }
  });
  return html("span", { class: "geo-said", role: "status" }, foot);
}

/**
 * Enter an explorable in the page's list, so that the text can move it, and give it its foot. `refresh()` shows a
 * change in the text's numbers, `close()` takes the explorable off the list.
 */
export function answerText({ model, root, names, change, speak }) {
  const name = (model.get("_anywidget_id") ?? "").split(".").at(-2) ?? "", rules = model.get("_rules") ?? {};
  const read = () => Object.fromEntries(names.filter((each) => rules[each]).map((each) => [each, model.get(each)]));
  const list = (window.geoExplorables ??= new Set()), box = root.closest(".explorable") ?? root;
  box.dataset.explorable = name;
  const { glide, stop } = glider(model, rules, root);
  const tell = (text, shown = false) => {
    said.textContent = shown ? text : "";
    if (!shown) speak(text);
  };
  const said = footer({ root, box, name, start: read(), read, glide, tell });
  const view = (behavior = calm() ? "auto" : "smooth") => {
    const picture = [...root.querySelectorAll("svg, canvas")].find((each) => each.clientHeight > 60);
    const shown = (box.offsetHeight > innerHeight && picture) || box;
    shown.scrollIntoView({ block: "nearest", behavior });
  };
  const go = (asked, now) => {
    const { good, bad } = sift(asked, rules);
    glide(good, now);
    if (!box.dataset.alive) view(); // the book brings a figure to its sentence
    tell(bad.length ? wrong(bad) : `Set to ${Object.entries(good).map((pair) => pair.join(" = ")).join(", ")}.`,
      bad.length > 0);
    return bad;
  };
  const entry = { box, rules, read, change, go, view };
  list.add(entry);
  if (!list.listening) listen(list);
  list.listening = true;

  const asked = readMove(location.hash);
  if (asked?.kind === "move" && list.done !== location.hash && meant(list, asked, null) === entry) {
    list.done = location.hash;
    go(asked.asked, true);
    arrive(view);
  }
  dress(list);
  let due = 0;
  return {
    refresh() {
      due ||= document.querySelector(DRAGS) ? setTimeout(() => {
        due = 0;
        dress(list);
      }, 30) : 0;
    },
    close() {
      stop();
      clearTimeout(due);
      list.delete(entry);
    },
  };
}
