// The landing page's wall of score maps: mark those that will stand still, slide the sentence along, then pull it wider.
// What each map shows is computed in maps-scores.js; what is said under each is the page's own list, with its links.
(() => {
  const figure = document.querySelector(".maps-figure");
  const reasons = [...document.querySelectorAll(".maps-why li")].map((each) => each.querySelector("p") ?? each);
  if (!figure || !reasons.length) return;
  const { WORDS, FIRST, PLACES, TRAINED, METHODS, scores, placed, fresh, change, moves } = geoMaps;
  const N = WORDS.length, TOP = 3; // the score that has the full colour
  const TEXT = {
    ask: "Mark your guesses, then slide the sentence.",
    wider: "Now pull the sentence wider by its end.",
    hatch: "Hatched: places, or distances, that training never saw.",
  };

  function make(tag, attributes, parent, text = "") {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text) element.textContent = text;
    parent?.append(element);
    return element;
  }

  // The sentence over its ruler ----------------------------------------------------------------------------------------

  const root = make("div", { class: "maps", role: "group", "aria-label": "Score maps of one sentence" });
  make("p", { class: "maps-ask" }, root, "Slide the sentence along. Which of these stand still?");
  const strip = make("div", { class: "maps-strip" }, root), track = make("div", { class: "maps-track" }, strip);
  const sled = make("div", { class: "maps-sled" }, track), end = make("div", { class: "maps-end" }, track);
  const words = WORDS.map((word) => make("span", {}, sled, word));
  make("span", { class: "maps-grip", "aria-hidden": "true" }, sled, "↔");
  make("span", { "aria-hidden": "true" }, end, "⇥");
  const ruler = make("div", { class: "maps-ruler", "aria-hidden": "true" }, strip);
  for (let m = 0; m < PLACES; m++) make("span", m < TRAINED ? {} : { class: "never" }, ruler, String(m));
  make("b", { style: `--from: 0; --to: ${TRAINED}` }, ruler, "places seen in training");
  make("b", { style: `--from: ${TRAINED}; --to: ${PLACES}` }, ruler, "never seen");
  const said = make("p", { class: "maps-said", role: "status" }, root, TEXT.ask);

  // The wall -----------------------------------------------------------------------------------------------------------

  const wall = make("ul", { class: "maps-wall" }, root);
  const reason = new Map(METHODS.map((method, i) => [method, reasons[i]]));
  const name = (method) => reason.get(method).querySelector("strong").textContent;
  const cards = METHODS.filter((method) => method !== "liere-grid").map((method) => {
    const card = make("li", {}, wall), head = make("p", { class: "maps-name" }, card, name(method));
    const canvas = make("canvas", { role: "img" }, card), foot = make("div", { class: "maps-foot" }, card);
    const guess = make("button", { type: "button", "aria-pressed": "false", "aria-label": `${name(method)} stands still` },
      foot, "still?");
    const verdict = make("b", { class: "maps-verdict" }, foot), why = make("p", {}, foot);
    const it = { method, card, head, canvas, guess, verdict, why };
    guess.addEventListener("click", () => mark(it));
    canvas.addEventListener("click", () => mark(it));
    return it;
  });
  const key = make("li", { class: "maps-key" }, wall);
  key.innerHTML = `<p>− <i class="maps-scale"></i> + score</p><p><i class="maps-hatch"></i> never seen</p>
    <p><i></i> no score</p>`;
  const again = make("button", { type: "button" }, key, "Start again");
  again.hidden = true;
  const lie = cards.find(({ method }) => method === "liere");
  const grid = make("button", { type: "button", class: "maps-switch", "aria-pressed": "false" }, null, "on a grid");

  // State --------------------------------------------------------------------------------------------------------------

  let shift = 0, spread = 1, open = false, frame = 0, pause = 0;
  const widest = () => (PLACES - 1 - FIRST - shift) / (N - 1), farthest = () => PLACES - 1 - FIRST - (N - 1) * spread;
  const within = (value, low, high) => Math.min(Math.max(value, low), high);
  const marked = ({ guess }) => guess.getAttribute("aria-pressed") === "true";

  function mark(it) {
    if (open) return;
    it.guess.setAttribute("aria-pressed", String(!marked(it)));
    it.guess.textContent = marked(it) ? "✓ still" : "still?";
  }

  function show(it) { // the verdict and its reason
    it.verdict.textContent = moves(it.method) ? "moves" : "stands still";
    it.card.dataset.verdict = moves(it.method) ? "moves" : "still";
    it.why.replaceChildren(...reason.get(it.method).cloneNode(true).childNodes);
    it.why.querySelector("strong").remove();
    it.why.firstChild.textContent = it.why.firstChild.textContent.replace(/^:\s*/, "");
  }

  function reveal() {
    if (open) return;
    open = true;
    const right = cards.filter((it) => marked(it) === !moves(it.method)), guessed = cards.some(marked);
    for (const it of cards) {
      show(it);
      it.guess.hidden = true;
      if (guessed) it.card.dataset.guess = right.includes(it) ? "right" : "wrong";
    }
    lie.head.append(grid);
    root.classList.add("open");
    again.hidden = false;
    said.textContent = guessed ? `You were right (✓) on ${right.length} of ${cards.length}. ${TEXT.wider}` : TEXT.wider;
  }

  function reset() {
    [shift, spread, open] = [0, 1, false];
    lie.method = "liere";
    grid.setAttribute("aria-pressed", "false");
    grid.remove();
    root.classList.remove("open");
    again.hidden = true;
    for (const it of cards) {
      it.guess.hidden = false;
      if (marked(it)) it.guess.click();
      delete it.card.dataset.verdict;
      delete it.card.dataset.guess;
      it.verdict.textContent = "";
      it.why.replaceChildren();
    }
    said.textContent = TEXT.ask;
    clearTimeout(pause);
    rest();
    sled.focus({ preventScroll: true });
  }
  again.addEventListener("click", reset);
  grid.addEventListener("click", () => {
    lie.method = lie.method === "liere" ? "liere-grid" : "liere";
    grid.setAttribute("aria-pressed", String(lie.method === "liere-grid"));
    show(lie);
    rest();
  });

  // Drawing ------------------------------------------------------------------------------------------------------------

  let tones = [];
  function colours() { // the page's ground, and the colours of keys and queries for scores below and above 0
    const style = getComputedStyle(root), read = (tone) => style.getPropertyValue(tone).match(/[0-9a-f]{2}/gi)
      .map((part) => parseInt(part, 16));
    tones = [read("--ground"), read("--low"), read("--high")];
    tones.push(style.getPropertyValue("--ink"));
  }

  function paint({ canvas, method }, places) {
    const values = scores(method, places), never = fresh(method, places);
    const cell = Math.max(4, Math.round((canvas.clientWidth * (devicePixelRatio || 1)) / N)), side = cell * N;
    if (canvas.width !== side) canvas.width = canvas.height = side;
    const pen = canvas.getContext("2d"), [ground, low, high, ink] = tones;
    pen.clearRect(0, 0, side, side);
    pen.strokeStyle = ink;
    pen.lineWidth = Math.max(1, cell / 12);
    pen.beginPath();
    values.forEach((value, i) => {
      const x = (i % N) * cell, y = Math.floor(i / N) * cell, tone = value < 0 ? low : high;
      if (Number.isNaN(value)) {
        if (!never[i]) pen.rect(x + cell / 2 - 0.5, y + cell / 2 - 0.5, 1, 1);
      } else {
        const share = Math.round(1e6 * Math.min(Math.abs(value) / TOP, 1)) / 1e6; // rounding moves no pixel
        pen.fillStyle = `rgb(${ground.map((from, c) => Math.round(from + share * (tone[c] - from))).join()})`;
        pen.fillRect(x, y, cell, cell);
      }
      if (never[i]) {
        for (const part of [0.5, 1, 1.5]) {
          const [a, b] = [Math.max(0, part - 1) * cell, Math.min(1, part) * cell];
          pen.moveTo(x + a, y + b);
          pen.lineTo(x + b, y + a);
        }
      }
    });
    pen.stroke();
    return values;
  }

  function draw() {
    cancelAnimationFrame(frame);
    frame = 0;
    const places = placed(shift, spread), at = (place) => `calc(${place} * var(--step))`;
    sled.style.transform = `translateX(${at((places[0]).toFixed(3))})`;
    end.style.transform = `translateX(${at((places[N - 1] + 1).toFixed(3))})`;
    sled.style.width = at((places[N - 1] - places[0] + 1).toFixed(3));
    words.forEach((word, i) => { word.style.left = at((i * spread).toFixed(3)); });
    for (const it of cards) paint(it, places);
    for (const [part, now, text] of [[sled, shift, `moved by ${shift.toFixed(1)} places`],
      [end, spread, `${spread.toFixed(2)} places from word to word`]]) {
      part.setAttribute("aria-valuenow", now.toFixed(2));
      part.setAttribute("aria-valuetext", text.replace("-", "−"));
    }
    sled.setAttribute("aria-valuemax", farthest().toFixed(2));
    end.setAttribute("aria-valuemax", widest().toFixed(2));
  }
  function rest() { // once the hand rests: what a screen reader finds, and the answer
    draw();
    const [places, home] = [placed(shift, spread), placed(0, spread)];
    for (const { canvas, method } of cards) {
      const moved = change(scores(method, places), scores(method, home)).toFixed(2);
      canvas.setAttribute("aria-label", `${name(method)}: scores of ${N} words with each other${
        shift ? `, changed by the slide by up to ${moved}` : ""}`);
    }
    if (Math.abs(shift) >= 0.75) reveal();
    if (spread !== 1 && said.textContent.endsWith(TEXT.wider)) said.textContent = TEXT.hatch;
  }
  const soon = () => { frame ||= requestAnimationFrame(draw); };

  // Hands and keys -----------------------------------------------------------------------------------------------------

  const parts = [
    { element: sled, label: "The sentence along the ruler", low: -FIRST, by: 0.5, now: () => shift,
      go(to) { shift = within(to, -FIRST, farthest()); } },
    { element: end, label: "The last word away from the first", low: 0.5, by: 0.1, now: () => spread,
      go(to) { spread = within(to, 0.5, widest()); }, share: N - 1 },
  ];
  for (const { element, label, low, by, now, go, share = 1 } of parts) {
    for (const [attribute, value] of Object.entries({ role: "slider", tabindex: 0, "aria-label": label,
      "aria-valuemin": low })) element.setAttribute(attribute, value);
    let grip = null;
    element.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      element.setPointerCapture(event.pointerId);
      grip = { x: event.clientX, from: now(), step: ruler.firstChild.getBoundingClientRect().width };
    });
    element.addEventListener("pointermove", ({ clientX }) => {
      if (!grip) return;
      go(grip.from + (clientX - grip.x) / grip.step / share);
      soon();
    });
    for (const over of ["pointerup", "pointercancel"]) {
      element.addEventListener(over, () => {
        grip = null;
        rest();
      });
    }
    element.addEventListener("keydown", (event) => {
      const ways = { ArrowRight: by, ArrowUp: by, ArrowLeft: -by, ArrowDown: -by, Home: -99, End: 99 };
      if (!(event.key in ways)) return;
      event.preventDefault();
      go(now() + ways[event.key]);
      draw();
      clearTimeout(pause);
      pause = setTimeout(rest, 300);
    });
  }

  figure.prepend(root);
  const theme = () => { colours(); draw(); };
  theme();
  rest();
  new MutationObserver(theme).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  new ResizeObserver(soon).observe(wall);
})();
