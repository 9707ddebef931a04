// A trained model in the page: draw a digit, drag it about, ask a cell where it looks, turn what the model has learned.
import { ask, button, calm, choice, clamp, drag, html, more, pick, say, set, show, slider, svg } from "./common.js";
import { stage } from "./stage.js";
import { wager } from "./guess.js";
import { engine } from "./network.js";
import { C, METHODS, SIDE, TURNED, bars, carry, cells, counter, cover, keys, meanScale, needle, settings, shares,
  turnable } from "./sheet.js";

// Computing -----------------------------------------------------------------------------------------------------------

const { read, place: stand, forward, heldOut, count, places } = engine();
export { carry, cover, forward, heldOut, places, read, settings, stand };

const FIELD = 12; // positions along a side of the field

const moved = ({ row, column }) => (row || column ? `moved ${row} down and ${column} to the right` : "at home");

const blank = ({ digit, ink }) => digit < 0 && ink.every((value) => value === 0);

/** The state in a sentence, for those who hear the picture. */
export function describe(state, title, answers) {
  const best = answers.indexOf(Math.max(...answers)), { row, column, shuffled } = state;
  if (blank(state)) return `${title}: the sheet is blank, and is read as ${best} all the same`;
  return `${title}: a digit ${moved({ row, column })}${shuffled ? ", its patches shuffled," : ""} is read as ${best}, `
    + `with ${show(100 * answers[best], 0)} percent`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["method", "digit", "ink", "row", "column", "shuffled", "query", "layer", "head", "view", "pair",
  ...TURNED];
const VIEWS = [["weights", "Weights"], ["scores", "Scores"], ["arrows", "Arrows"]];
const SLIDERS = [["turn", "All angles", 0, 3], ["alone", "This pair’s angle", 0, 3], ["scale", "Scale s", 0.8, 1.2],
  ["focus", "Width of focusing", 0.1, 4], ["rest", "Part that does not commute", 0, 2], ["slope", "Slope", 0, 4]];

const CSS = `
.geo .live { display: grid; gap: 10px 22px; padding: 14px 16px 18px; align-items: start;
  grid-template: auto auto auto auto auto 1fr / minmax(0, 2fr) minmax(0, 1.1fr); }
.geo .live > .geo-ask, .geo .live > .bets { grid-column: 1 / -1; }
.geo .live > :is(.said, .tools, .geo-panel) { grid-column: 1; }
.geo .live > .look { grid-column: 2; grid-row: 3 / span 4; }
.geo .live .cursor { display: none; fill: none; stroke: var(--key); stroke-width: 3; stroke-dasharray: 3 3; }
.geo .live .cursor.down { stroke-dasharray: none; } .geo .live .hands:focus-visible .draws .cursor { display: block; }
.geo .live .hands:focus-visible { outline: 2px solid var(--text); outline-offset: 2px; border-radius: 4px; }
.geo .live .both { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 2fr); gap: 16px;
  align-items: center; }
.geo .live .field { cursor: grab; border: 1px solid var(--rule); border-radius: 4px; }
.geo .live .field.draws { cursor: crosshair; } .geo .live .field * { touch-action: none; }
.geo .live .home { fill: none; stroke: var(--rule); stroke-dasharray: 4 4; }
.geo .live .sheet { fill: var(--panel); stroke: var(--soft); }
.geo .live .ink { fill: var(--text); } .geo .live .warm { fill: var(--warm); } .geo .live .cool { fill: var(--cool); }
.geo .live .asked { fill: none; stroke: var(--warm); stroke-width: 2.5; }
.geo .live .carried { fill: none; stroke: var(--join); stroke-width: 1.6; }
.geo .live .bar { fill: var(--soft); } .geo .live .bar.best { fill: var(--join); }
.geo .live .look svg { cursor: pointer; border: 1px solid var(--rule); border-radius: 4px; }
.geo .live .look { display: grid; gap: 6px; min-width: 0; }
.geo .live .look .geo-pick .geo-pick { flex-wrap: nowrap; gap: 3px; }
.geo .live .look .geo-pick button { padding: 2px 8px; font-weight: 500; }
.geo .live .geo-pick button { padding: 2px 10px; }
.geo .live .tools { display: flex; flex-wrap: wrap; gap: 6px 14px; align-items: end; }
.geo .live .said { display: grid; gap: 2px; min-height: 46px; }
.geo .live .geo-panel { display: grid; gap: 10px; }
@container (max-width: 560px) {
  .geo .live { display: flex; flex-direction: column; align-items: stretch; padding: 10px 8px 14px; gap: 10px; }
  .geo .live .both { gap: 10px; }
  .geo .live .look svg { max-width: 264px; }
}`;

// Putting it together -------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS), { change } = place, nets = new Map(), tally = counter();
  const root = html("div", { class: "live", role: "group", "aria-label": "A trained model" }, place.root);
  const fetched = (name) => {
    const given = model.get(`_later_${name.replace(/\W+/g, "_")}`);
    return typeof given === "function" ? given() : given;
  };
  const raw = new Map(), net = ({ method: name }) => {
    digits = raw.get("digits");
    if (!nets.has(name)) nets.set(name, read(raw.get(name)));
    return nets.get(name);
  };
  let digits = null, mode = "move", dots = [], before = null, now = null, standing = null, key = "", job = "";
  let timer = 0, built = "", walk = 0;

  const question = ask(root, ""), bets = new Map(), wagers = html("div", { class: "bets" }, root);
  const stroll = () => { // to the other corner, one cell at a time
    const { row: y, column: x } = place.read();
    change({ row: Math.min(y + 1, FIELD - SIDE), column: Math.min(x + 1, FIELD - SIDE) });
    if (Math.min(y, x) < FIELD - SIDE - 1) walk = setTimeout(stroll, calm() ? 0 : 250);
  };
  for (const type of ["pointerdown", "keydown", "geo-reset"]) {
    place.root.addEventListener(type, () => clearTimeout(walk), true);
  }
  const betOn = (name) => {
    if (!bets.has(name)) bets.set(name, wager(wagers, [["yes", "Yes"], ["no", "No"]], stroll));
    return bets.get(name);
  };
  const both = html("div", { class: "both geo-stay" }, root);
  const hands = html("div", { class: "hands", tabindex: 0, role: "application", "aria-label": "The sheet. Arrow keys "
    + "move it. In Draw they move a place in its grid, and space sets the pen down or lifts it." }, both);
  const field = svg("svg", { role: "img", class: "field", viewBox: `0 0 ${FIELD * C} ${FIELD * C}`, "data-drag": "" },
    hands);
  svg("rect", { class: "home", x: 1, y: 1, width: SIDE * C - 2, height: SIDE * C - 2 }, field);
  const sheet = svg("g", {}, field), paper = svg("rect", { class: "sheet", width: SIDE * C, height: SIDE * C }, sheet);
  const paintInk = cells(sheet, "ink"), asked = svg("rect", { class: "asked", width: C, height: C }, sheet);
  const cursor = svg("rect", {}, sheet);
  const drawBars = bars(html("div", {}, both));
  const tools = html("div", { class: "tools" }, root), said = html("div", { class: "said" }, root);
  const look = html("div", { class: "look" }, root);
  const view = pick(look, "What is shown", VIEWS, (v) => change({ view: v }));
  const map = svg("svg", { role: "img", viewBox: `0 0 ${SIDE * C} ${SIDE * C}`, "data-drag": "pad" }, look);
  const paintMap = cells(map, "warm"), arrows = svg("path", { class: "carried" }, map);
  const askedToo = svg("rect", { class: "asked", width: C, height: C }, map);
  const note = html("p", { class: "geo-note" }, look);
  const query = slider(look, { label: "Cell that is asked", min: 0, max: SIDE * SIDE - 1, step: 1,
    onInput: (value) => change({ query: value }) });
  const pairs = html("div", {}, look), where = html("div", { class: "geo-pick" }, look);
  const first = html("p", { class: "geo-say" }, said), second = html("p", {}, said);

  const panel = html("div", { class: "geo-panel" }, root);
  const own = model.get("_later_own")?.about ? [["own", "your model"]] : [];
  const there = METHODS.filter(([name]) => model.get("_rules").method.words.includes(name));
  const method = choice(tools, { label: "Method", options: [...own, ...there],
    onInput: (v) => change({ method: v }) });
  const hand = pick(tools, "What the hand does", [["move", "Move"], ["draw", "Draw"]], (v) => {
    mode = v;
    if (v === "draw" && now.digit >= 0) change({ digit: -1, ink: Array(64).fill(0) });
    field.classList.toggle("draws", v === "draw");
    hand.update(v);
  });
  hand.update(mode);
  place.root.addEventListener("geo-reset", () => {
    hand.update(mode = "move");
    field.classList.remove("draws");
  });
  const row = html("div", { class: "geo-pick" }, tools);
  button(row, "Another digit", () => change({ digit: (now.digit + 1) % digits.labels.length }));
  button(row, "Blank", () => change({ digit: -1, ink: Array(64).fill(0) }));
  const shuffle = button(row, "Shuffle patches", () => change({ shuffled: 1 - now.shuffled }));
  const moves = html("div", { class: "geo-controls" }, panel);
  const line = (parent, name, label, min, max, step = 1) =>
    slider(parent, { label, min, max, step, onInput: (value) => change({ [name]: value }) });
  const down = line(moves, "row", "Down", 0, FIELD - SIDE);
  const right = line(moves, "column", "To the right", 0, FIELD - SIDE);
  const details = more(panel, "Turn what the model has learned"), turned = {};
  const picked = {};

  // The sheet in hand: it moves, is asked, or is drawn upon.
  const cell = () => field.getBoundingClientRect().width / FIELD;
  const onSheet = (x, y) => [x / cell() - now.column, y / cell() - now.row];
  const within = ([x, y]) => Math.min(x, y) >= 0 && Math.max(x, y) < SIDE;
  let grip = null, last = null;
  const begin = () => {
    const { digit, ink: old } = place.read();
    [dots, last, before] = [[], null, digit < 0 ? [...old] : Array(64).fill(0)];
  };
  const ink = (to) => {
    const steps = last ? Math.ceil(8 * Math.hypot(to[0] - last[0], to[1] - last[1])) : 0;
    for (let i = 1; i < steps; i++) dots.push([0, 1].map((a) => last[a] + (i / steps) * (to[a] - last[a])));
    dots.push(to);
    last = to;
    const over = cover(dots);
    change({ ink: before.map((value, i) => Math.max(value, over[i])), digit: -1 });
  };
  drag(field, {
    start(x, y) {
      if (!now || !within(onSheet(x, y))) return false;
      grip = [x, y, now.row, now.column];
      if (mode === "draw") {
        begin();
        ink(onSheet(x, y));
      }
      return true;
    },
    move(x, y) {
      if (mode === "draw") return ink(onSheet(x, y));
      const [to, across] = [(y - grip[1]) / cell() + grip[2], (x - grip[0]) / cell() + grip[3]];
      change({ row: clamp(Math.round(to), 0, FIELD - SIDE), column: clamp(Math.round(across), 0, FIELD - SIDE) });
    },
  });
  let pen = ""; // what the keys' pen says of itself
  hands.addEventListener("blur", () => { pen = ""; });
  const tell = (text) => place.speak(pen = text);
  keys(hands, cursor, { drawing: () => mode === "draw", begin, ink, tell, shift(by, across) {
    const { row: y, column: x } = place.read();
    change({ row: clamp(y + by, 0, FIELD - SIDE), column: clamp(x + across, 0, FIELD - SIDE) });
  } });
  const at = (u, v) => change({ query: SIDE * clamp(Math.floor(v), 0, SIDE - 1) + clamp(Math.floor(u), 0, SIDE - 1) });
  const point = (x, y) => at(...[x, y].map((each) => (each * SIDE) / map.getBoundingClientRect().width));
  drag(map, { start: point, move: point });
  field.addEventListener("click", (event) => {
    const box = field.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const still = grip && Math.hypot(x - grip[0], y - grip[1]) < 4;
    if (mode === "move" && still && within(onSheet(x, y))) at(...onSheet(x, y));
  });

  /** The controls that a method has use for. */
  const build = (name, net) => {
    built = name;
    for (const each of [details, where, pairs]) each.replaceChildren();
    const can = turnable(net);
    for (const [each, label, low, high] of SLIDERS) {
      turned[each] = can[each] && line(details, each, label, low, high, 0.01);
    }
    const of = (what, size) => pick(where, what, Array.from({ length: size }, (_, i) => [i, `${what} ${i + 1}`]),
      (i) => change({ [what.toLowerCase()]: i }));
    Object.assign(picked, { layer: of("Layer", net.layers), head: of("Head", net.heads) });
    turned.pair = (can.alone || can.carries) && line(pairs, "pair", "Pair, for arrows and angle", 0, can.pairs - 1);
    if (!can.turn && !can.focus && !can.slope) html("p", { class: "geo-note" }, details, "Here is nothing to turn.");
    else button(html("div", {}, details), "As learned", () =>
      change({ turn: 1, alone: 1, scale: 0, focus: 1, rest: 1, slope: 1 }));
  };

  const recount = (state, net) => {
    const wanted = JSON.stringify([state.method, settings(state), state.shuffled]);
    if (wanted === job) return;
    job = wanted;
    clearTimeout(timer);
    set(second, { "aria-busy": "true" });
    const { row: y, column: x, shuffled } = state, total = digits.labels.length;
    const spot = shuffled ? "shuffled" : y || x ? "moved as far" : "at home";
    say(second, `Counting ${total} held-out digits ${spot} …`); // no other setting's number
    timer = setTimeout(() => tally.ask(state.method, raw.get(state.method), net, digits, settings(state),
      Boolean(state.shuffled), ({ right: good, done }) => {
        say(second, `Of ${total} held-out digits ${spot} `, ["join", `${show((100 * good) / done, 1)} %`],
          done < total ? " so far." : " are read rightly.");
        set(second, { "aria-busy": String(done < total) });
      }), 120);
  };

  const draw = (state, net) => {
    if (built !== state.method) build(state.method, net);
    const wanted = JSON.stringify([state.method, settings(state)]);
    if (wanted !== key) [key, standing] = [wanted, stand(net, settings(state))];
    const pixels = state.digit < 0 ? state.ink : heldOut(digits, state.digit, false);
    const order = [...digits.orders.slice(0, SIDE * SIDE)].map((letter) => letter.charCodeAt(0) - 48);
    const shown = state.shuffled ? order.map((from) => pixels[from]) : pixels;
    const { logits, seen } = forward(net, standing, shown, true), answers = shares(logits);
    const best = answers.indexOf(Math.max(...answers)), title = METHODS.find(([name]) => name === state.method)?.[1];
    const words = describe(state, title ?? "your model", answers);
    draws(state, shown, words);
    drawBars(answers, words);
    attention(state, net, seen);
    controls(state, net);
    const label = digits.labels[state.digit] ?? String(best), one = label === "8" ? "an" : "a";
    const truth = state.digit < 0 ? "" : ` It is ${one} ${label}.`, hue = label === String(best) ? "join" : "warm";
    say(first, blank(state) ? "The sheet is blank. All the same it is read as " : "Read as ", [hue, best],
      `, ${show(100 * answers[best], 0)} %.${truth}`);
    const said = ventured(state, title ?? "your model", label === String(best) ? "yes" : "no");
    recount(state, net);
    place.speak(`${words}${said} ${pen}`.trim());
  };

  /** The question of this method, and its answer once the digit has stood in the other corner. */
  const ventured = (state, title, found) => {
    const bet = betOn(state.method), there = Math.min(state.row, state.column) === FIELD - SIDE && !state.shuffled;
    question.textContent = `${title}. Will it still read this digit in the other corner?`;
    bets.forEach((each, name) => { each.row.hidden = name !== state.method || state.digit < 0; });
    const rests = there && state.digit >= 0 && !("gliding" in place.root.dataset);
    if (rests) bet.answer = found;
    bet.update(rests, bet.answer);
    return bet.said(bet.answer);
  };

  const draws = ({ row: y, column: x, query: cellAsked, digit }, shown, words) => {
    set(sheet, { transform: `translate(${x * C} ${y * C})` });
    paintInk(shown.map((value) => value / 16));
    const [left, top] = [(cellAsked % SIDE) * C + 1, Math.floor(cellAsked / SIDE) * C + 1];
    [asked, askedToo].forEach((each) => set(each, { x: left, y: top, width: C - 2, height: C - 2 }));
    const kind = digit < 0 ? "a drawing" : `held-out digit ${digit}`;
    set(field, { "aria-label": `A field of 12 by 12 positions with ${kind} on a sheet of 8 by 8 cells. ${words}` });
  };

  const attention = ({ layer, head, view: kind, query: m, pair }, net, seen) => {
    const l = Math.min(layer, net.layers - 1), h = Math.min(head, net.heads - 1), from = m * net.tokens;
    const { scores, weights } = seen[l][h], rowOf = (all) => [...all.slice(from, from + net.tokens)];
    const values = rowOf(kind === "scores" ? scores : weights), most = Math.max(...values.map(Math.abs), 1e-9);
    paintMap(values.map((value) => (kind === "arrows" ? 0.35 : 1) * (value / most)));
    const one = standing.layers[l][h], half = net.dim / 2, vectors = carry(one, net.tokens, net.dim, m, pair % half);
    const longest = Math.max(1, ...vectors.map(([u, v]) => Math.hypot(u, v)));
    set(arrows, { d: kind !== "arrows" ? "" : vectors.map(([u, v], t) => {
      const x = ((t % SIDE) + 0.5) * C, y = (Math.floor(t / SIDE) + 0.5) * C;
      const [a, b] = [u, v].map((z) => (9 * z) / longest);
      return needle(x, y, a, -b);
    }).join("") });
    const total = rowOf(weights).reduce((a, b) => a + b, 0), name = `layer ${l + 1}, head ${h + 1}`;
    const text = { weights: `Where the outlined cell looks: the largest weight is ${show(most, 3)}, their sum `
      + `${show(total, 2)}.`,
      scores: `Scores before the softmax: warm above zero, cool below, up to ${show(most, 1)}.`,
      arrows: one.map ? `Pair ${(pair % half) + 1} carried to the outlined cell: the arrow (1, 0) from each cell.`
        : "Nothing is carried here: every arrow stays as it is." }[kind];
    note.textContent = text;
    set(map, { "aria-label": `Attention of cell ${m}, ${name}. ${text}` });
    picked.layer.update(l);
    picked.head.update(h);
    view.update(kind);
  };

  const controls = (state, net) => {
    method.update(state.method);
    shuffle.update(Boolean(state.shuffled));
    down.update(state.row, String(state.row));
    right.update(state.column, String(state.column));
    query.update(state.query, `row ${Math.floor(state.query / SIDE)}, column ${state.query % SIDE}`);
    for (const [name] of SLIDERS) {
      const value = name === "scale" ? state.scale || meanScale(net) : state[name];
      const text = name === "scale" ? show(value, 3) + (state.scale ? "" : ", learned") : `${show(value, 2)} ×`;
      if (turned[name]) turned[name].update(value, text);
    }
    if (turned.pair) turned.pair.update(state.pair, String(state.pair + 1));
  };

  /** Draws with what is here, and asks for what is not: a page loads a model when it is chosen. */
  place.start((state) => {
    now = state;
    const missing = [state.method, "digits"].map((name) => [name, raw.get(name) ?? fetched(name)])
      .filter(([name, value]) => {
        if (typeof value?.then === "function") return true;
        raw.set(name, value);
        return false;
      });
    if (missing.length) {
      say(first, "The model is on its way.");
      const coming = missing.map(async ([name, value]) => raw.set(name, await value));
      return Promise.all(coming).then(() => { if (raw.has(now.method)) draw(now, net(now)); });
    }
    return draw(state, net(state));
  });
  return () => { clearTimeout(timer); clearTimeout(walk); tally.close(); place.close(); };
}

export default { render };
