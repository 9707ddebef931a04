// The landing page's words: slide the whole sentence and the score of two words stays; slide one of the two and it
// changes. Words, places, angles and rates are read off the drawing.
(() => {
  const svg = document.querySelector("svg.cover");
  if (!svg) return;
  const { step, edge } = svg.dataset, at = (place) => Number(edge) + place * step;
  const words = [...svg.querySelectorAll(".word")].map((group) => ({ group, home: Number(group.dataset.place), own: 0,
    text: group.querySelector("text").textContent, arrows: [...group.querySelectorAll("[data-start]")].map((path) => ({
      path, start: Number(path.dataset.start), rate: Number(path.dataset.rate),
      row: /translate\(0 ([\d.]+)/.exec(path.getAttribute("transform"))[1] })) }));
  const named = (name) => words.find(({ group }) => group.classList.contains(name));
  const query = named("query"), key = named("key"), sled = svg.querySelector(".sentence");
  const last = svg.querySelectorAll(".places text").length - 1;
  let shift = 0;
  const place = (word) => word.home + word.own + shift;
  const angle = (word, i) => word.arrows[i].start + place(word) * word.arrows[i].rate;
  const score = () => query.arrows.reduce((sum, _, i) => sum + Math.cos(angle(key, i) - angle(query, i)), 0)
    / query.arrows.length;
  const number = (value, digits) => value.toFixed(digits).replace("-", "\u2212");
  const first = score();

  const panel = document.createElement("div");
  panel.className = "cover-panel";
  panel.innerHTML = `<p class="cover-score"><b></b> <span>score of <i class="query"></i> and <i class="key"></i></span></p>
    <p class="cover-said" role="status"></p>`;
  svg.after(panel);
  const [shown, said] = [panel.querySelector("b"), panel.querySelector(".cover-said")];
  for (const word of [query, key]) panel.querySelector(word === query ? ".query" : ".key").textContent = word.text;
  said.textContent = "Slide the whole sentence: will the score change? Then slide one of the two words.";

  // What a hand or the arrow keys move: the two words and all six. `go` puts it somewhere, within the ruler.
  const within = (value, group) => {
    const free = group.map((word) => place(word) - value.now);
    return Math.min(Math.max(value.to, -Math.min(...free)), last - Math.max(...free));
  };
  const parts = [query, key].map((word) => ({ element: word.group, name: `the word ${word.text}: its position`,
    low: 0, high: last, now: () => place(word),
    go(to) { word.own += within({ to, now: place(word) }, [word]) - place(word); } }));
  parts.push({ element: sled, name: "the whole sentence: moved by", low: -2, high: last - 7, now: () => shift,
    go(to) { shift = within({ to, now: shift }, words); } });

  function draw() {
    for (const word of words) {
      word.group.setAttribute("transform", `translate(${at(place(word)).toFixed(1)} 0)`);
      word.arrows.forEach(({ path, row }, i) => {
        const turn = (angle(word, i) * 180) / Math.PI % 360;
        path.setAttribute("transform", `translate(0 ${row}) rotate(${(-turn).toFixed(1)})`);
      });
    }
    sled.setAttribute("transform", sled.getAttribute("transform").replace(/\([-\d.]+/,
      `(${(at(words[0].home + shift) - step / 2).toFixed(1)}`));
    shown.textContent = number(score(), 2);
    for (const { element, now, name } of parts) {
      element.setAttribute("aria-valuenow", now().toFixed(2));
      element.setAttribute("aria-valuetext", `${name} ${number(now(), 1)}, score ${number(score(), 2)}`);
    }
  }
  function tell() {
    const far = place(query) - place(key), was = query.home - key.home;
    said.textContent = Math.abs(far - was) > 0.02
      ? `${number(Math.abs(far), 1)} places ${far < 0 ? "before" : "after"} it, no longer ${was} after: the score was ${
        number(first, 2)}.`
      : Math.abs(shift) > 0.02 ? "All arrows have turned. The difference is the same, and so is the score."
      : "Slide the whole sentence: will the score change? Then slide one of the two words.";
  }

  let playing = 0;
  const halt = () => { cancelAnimationFrame(playing); playing = 0; };
  const move = (part, to) => { halt(); part.go(to); draw(); tell(); };
  for (const part of parts) {
    const { element } = part;
    for (const [name, value] of Object.entries({ role: "slider", tabindex: 0, "aria-label": part.name,
      "aria-valuemin": part.low, "aria-valuemax": part.high })) element.setAttribute(name, value);
    let grip = null;
    element.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      halt();
      element.setPointerCapture(event.pointerId);
      grip = { x: event.clientX, from: part.now() };
    });
    element.addEventListener("pointermove", ({ clientX }) => {
      if (grip) move(part, grip.from + ((clientX - grip.x) * svg.viewBox.baseVal.width) / svg.clientWidth / step);
    });
    // Browsers heed touch-action on the whole drawing alone: without this, a finger's second move would scroll.
    element.addEventListener("touchmove", (event) => event.preventDefault(), { passive: false });
    for (const end of ["pointerup", "pointercancel"]) element.addEventListener(end, () => { grip = null; });
    element.addEventListener("keydown", (event) => {
      const ways = { ArrowRight: 0.5, ArrowUp: 0.5, ArrowLeft: -0.5, ArrowDown: -0.5, Home: -99, End: 99 };
      if (!(event.key in ways)) return;
      event.preventDefault();
      move(part, part.now() + ways[event.key]);
    });
  }
  svg.setAttribute("role", "group");
  draw();

  // Once, for four seconds, it moves by itself: all words, then one.
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  const wave = (time) => Math.sin(Math.PI * Math.min(Math.max(time, 0), 1)) ** 2;
  const watch = new IntersectionObserver(([{ isIntersecting }]) => {
    if (!isIntersecting) return;
    watch.disconnect();
    const begun = performance.now() + 800;
    const show = (now) => {
      const time = (now - begun) / 2000;
      parts[2].go(1.5 * wave(time));
      parts[0].go(query.home + shift + 2 * wave(time - 1));
      draw();
      if (time < 2) playing = requestAnimationFrame(show);
    };
    playing = requestAnimationFrame(show);
    for (const type of ["pointerdown", "keydown"]) svg.addEventListener(type, halt, { once: true });
  }, { threshold: 0.6 });
  watch.observe(svg);
})();
