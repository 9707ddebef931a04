// Links on a grid of three by three sites, the holonomy of the squares between them, and changes of gauge.
import { ask, button, choice, drag, html, pick, say, set, show, slider, svg, wrap } from "./common.js";
import { stage } from "./stage.js";
import { arrow, handle } from "./draw.js";
import { identity, multiply, rotation, transpose } from "./algebra.js";

// Computing -----------------------------------------------------------------------------------------------------------

const DEGREE = Math.PI / 180, SIDE = 3;
const SITES = Array.from({ length: 9 }, (_, s) => [Math.floor(s / SIDE), s % SIDE]);
const site = (i, j) => SIDE * i + j;
/** Where each link begins and ends: six to the right, then six up, as steps of a connection are stored. */
const LINKS = [
  ...SITES.filter(([i]) => i < 2).map(([i, j]) => [site(i, j), site(i + 1, j)]),
  ...SITES.filter(([, j]) => j < 2).map(([i, j]) => [site(i, j), site(i, j + 1)]),
];
const right = (i, j) => SIDE * i + j, up = (i, j) => 6 + 2 * i + j;

/** A turn of space: of a link to the right, of a link up, of a site. */
function tip(angle, kind) {
  const [c, s] = [Math.cos(angle), Math.sin(angle)];
  if (kind === "site") return [[c, -s, 0], [s, c, 0], [0, 0, 1]];
  return kind === "right" ? [[c, 0, s], [0, 1, 0], [-s, 0, c]] : [[1, 0, 0], [0, c, s], [0, -s, c]];
}

/** The twelve links as matrices, after the sites are turned: C_m U C_n^-1. */
export function linkMatrices({ links, sites, group }) {
  const plane = group === "plane", frame = sites.map((a) => (plane ? rotation(a * DEGREE) : tip(a * DEGREE, "site")));
  return links.map((a, l) => {
    const own = plane ? rotation(a * DEGREE) : tip(a * DEGREE, l < 6 ? "right" : "up"), [n, m] = LINKS[l];
    return multiply(multiply(frame[m], own), transpose(frame[n]));
  });
}

/** The product of links along a way, forward (link + 1) or backward (-(link + 1)), the latest on the left. */
function along(matrices, way) {
  return way.reduce((done, l) => multiply(l > 0 ? matrices[l - 1] : transpose(matrices[-l - 1]), done),
    identity(matrices[0].length));
}

/** The degrees a matrix turns by: above -180 to 180 in the plane (half a turn has no sign), 0 to 180 in space. */
export function degreesOf(a) {
  if (a.length === 2) {
    const degrees = Math.atan2(a[1][0], a[0][0]) / DEGREE;
    return degrees < 1e-9 - 180 ? degrees + 360 : degrees;
  }
  const sine = Math.hypot(a[2][1] - a[1][2], a[0][2] - a[2][0], a[1][0] - a[0][1]);
  return Math.atan2(sine, a[0][0] + a[1][1] + a[2][2] - 1) / DEGREE;
}

/** What the four squares turn by, in the order (0, 0), (0, 1), (1, 0), (1, 1), and the way round the rim. */
export function holonomies(state) {
  const matrices = linkMatrices(state);
  const squares = [[0, 0], [0, 1], [1, 0], [1, 1]].map(([i, j]) =>
    degreesOf(along(matrices, [right(i, j) + 1, up(i + 1, j) + 1, -right(i, j + 1) - 1, -up(i, j) - 1])));
  const rim = [right(0, 0), right(1, 0), up(2, 0), up(2, 1)].map((l) => l + 1);
  const back = [right(1, 2), right(0, 2), up(0, 1), up(0, 0)].map((l) => -l - 1);
  return { squares, rim: degreesOf(along(matrices, [...rim, ...back])) };
}

/** What a link's hand shows: its turn, with the sign of its own angle in space. */
export function shown(state) {
  return linkMatrices(state).map((a, l) => (a.length === 2 || state.links[l] >= 0 ? 1 : -1) * degreesOf(a));
}

const text = (value) => `${show(value, 0)}°`;
const degrees = (angle) => Math.round(wrap(angle * DEGREE) / DEGREE);

/** The state in a sentence, for those who hear the picture. */
export function describe(state) {
  const { squares, rim } = holonomies(state), names = ["lower left", "upper left", "lower right", "upper right"];
  return `${squares.map((angle, i) => `${names[i]} square ${text(angle)}`).join(", ")}; round the rim ${text(rim)}`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["links", "sites", "group", "part"];
const CSS = `
.geo .plaquettes > :is(.geo-ask, .geo-pick) { grid-column: 1 / -1; }
.geo .plaquettes .square { fill: currentColor; }
.geo .plaquettes .dial { fill: var(--ground); stroke: var(--rule); }
.geo .plaquettes .dial.chosen { stroke: var(--text); stroke-width: 2.5; }
.geo .plaquettes .link { fill: none; stroke: var(--rule); stroke-width: 2; }
.geo .plaquettes .hand { stroke: currentColor; stroke-width: 2.6; }
.geo .plaquettes svg text { font-size: 15px; font-weight: 650; fill: var(--text); }
.geo .plaquettes .side { display: grid; gap: 12px; align-content: center; }
.geo .plaquettes .row { display: flex; gap: 6px; flex-wrap: wrap; }
.geo .plaquettes .row button { font-size: 12px; font-weight: 500; padding: 0 10px; background: none; }`;

/** The grid: `turn(part, angle)` follows the hand. */
function grid(parent, turn) {
  const picture = svg("svg", { role: "img" }, parent);
  const squares = [0, 1, 2, 3].map(() => ({ body: svg("rect", { class: "square" }, picture),
    word: svg("text", { "text-anchor": "middle" }, picture) }));
  const arrows = LINKS.map(() => svg("path", { class: "link" }, picture));
  let step = 1, left = 1;
  const flat = ([i, j]) => [left + step * i, left + step * (2 - j)];
  const middle = (l) => {
    const [a, b] = LINKS[l].map((s) => flat(SITES[s]));
    return [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
  };
  const dial = (part, tone, radius, centre) => {
    const ring = svg("circle", { class: "dial", r: radius }, picture);
    const hand = svg("line", { class: `hand geo-${tone}` }, picture), grip = handle(picture, tone, 6.5);
    drag(grip.reach, { start() {}, move(x, y) {
      const [cx, cy] = centre();
      turn(part, Math.atan2(cy - y, x - cx) / DEGREE);
    } });
    return (angle, chosen) => {
      const [cx, cy] = centre(), radians = angle * DEGREE;
      const [x, y] = [cx + radius * Math.cos(radians), cy - radius * Math.sin(radians)];
      set(ring, { cx: cx.toFixed(1), cy: cy.toFixed(1), class: `dial${chosen ? " chosen" : ""}` });
      set(hand, { x1: cx.toFixed(1), y1: cy.toFixed(1), x2: x.toFixed(1), y2: y.toFixed(1) });
      grip.place(x, y);
    };
  };
  const links = LINKS.map((_, l) => dial(`link ${l + 1}`, "cool", 21, () => middle(l)));
  const sites = SITES.map((where, s) => dial(`site ${s + 1}`, "warm", 16, () => flat(where)));
  return (state) => {
    const width = Math.min(Math.max(220, Math.round(parent.clientWidth)), 460);
    [left, step] = [30, (width - 60) / 2];
    set(picture, { viewBox: `0 0 ${width} ${width}`, style: `max-width: ${width}px; margin: 0 auto` });
    const found = holonomies(state);
    squares.forEach(({ body, word }, k) => {
      const angle = found.squares[k], [x, y] = flat([Math.floor(k / 2), (k % 2) + 1]);
      const tone = state.group === "space" ? "join" : angle < 0 ? "cool" : "warm";
      set(body, { x, y, width: step, height: step, class: `square geo-${tone}`,
        "fill-opacity": (0.6 * Math.min(1, Math.abs(angle) / 180)).toFixed(3) });
      set(word, { x: x + step / 2, y: y + step / 2 + 5 });
      word.textContent = text(angle);
    });
    const angles = shown(state);
    LINKS.forEach(([n, m], l) => {
      const [a, b] = [flat(SITES[n]), flat(SITES[m])], share = 1 - 18 / step;
      set(arrows[l], { d: arrow(...a, a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1]), 9) });
      links[l](angles[l], state.part === `link ${l + 1}`);
    });
    sites.forEach((draw, s) => draw(state.sites[s], state.part === `site ${s + 1}`));
    set(picture, { "aria-label": `Nine sites, twelve links and four squares: ${describe(state)}` });
  };
}

// Putting it together -------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS), { change, read } = place;
  const all = html("div", { class: "plaquettes geo-columns", role: "group", "aria-label": "Plaquettes" }, place.root);
  ask(all, "Drag a blue hand, then an orange one. Which squares change?");
  const group = pick(all, "Turns of", [["plane", "Turns of the plane"], ["space", "Turns of space"]],
    (value) => change({ group: value }));
  const kind = (part) => (part.startsWith("link") ? "links" : "sites"), index = (part) => Number(part.slice(5)) - 1;
  const put = (part, angle) => {
    const name = kind(part), values = [...read()[name]];
    values[index(part)] = degrees(angle);
    change({ part, [name]: values });
  };
  const draw = grid(html("div", { class: "geo-stay" }, all), (part, angle) => {
    // A link's hand shows its turn between turned sites: take the sites off, in the plane.
    const { sites, group } = read(), [n, m] = LINKS[index(part)] ?? [0, 0];
    const inside = kind(part) === "links" && group === "plane";
    put(part, inside ? angle - sites[m] + sites[n] : angle);
  });
  const side = html("div", { class: "side" }, all), sentence = html("p", { class: "geo-say" }, side);
  const names = [...LINKS.map((_, l) => `link ${l + 1}`), ...SITES.map((_, s) => `site ${s + 1}`)];
  const part = choice(side, { label: "Move", options: names.map((name) => [name, name]),
    onInput: (value) => change({ part: value }) });
  // A half turn either way is one turn: the slider ends before it.
  const angle = slider(side, { label: "Its own turn", min: -175, max: 175, step: 5,
    onInput: (value) => put(read().part, value) });
  const row = html("div", { class: "row" }, side);
  const any = (count) => Array.from({ length: count }, () => 5 * Math.round(72 * (Math.random() - 0.5)));
  button(row, "Random links", () => change({ links: any(12) }));
  button(row, "Random frames", () => change({ sites: any(9) }));
  button(row, "All at 0", () => change({ links: Array(12).fill(0), sites: Array(9).fill(0) }));
  html("p", { class: "geo-note" }, side, "Blue hands: links, each for the step along its arrow. Orange hands: frames "
    + "at the sites. Colour: what a square turns by, counter-clockwise round it.");

  place.start((state) => {
    const { squares, rim } = holonomies(state), own = state[kind(state.part)][index(state.part)];
    group.update(state.group);
    part.update(state.part);
    angle.update(own, text(own));
    const sum = squares.reduce((total, each) => total + each, 0);
    say(sentence, "Round the rim: ", ["join", text(rim)], "; the four squares add up to ", ["join", text(sum)],
      state.group === "plane" ? ", the same up to whole turns" : ", which in space says nothing");
    draw(state);
    place.speak(describe(state));
  }, { rim: (state) => holonomies(state).rim });
  return () => place.close();
}

export default { render };
