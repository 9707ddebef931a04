// Brings the page's explorables to life without a kernel, a widget manager or another host.
// The page holds each widget's state as JSON; an explorable's state carries its own code (_esm) and style (_css).
(() => {
  const MIME = "application/vnd.jupyter.widget-";
  const models = new Map(), modules = new Map(), styles = new Set(), used = new Set();

  function makeModel(state) {
    const listeners = new Map();
    const fire = (name, ...args) => (listeners.get(name) ?? []).forEach((call) => call(...args));
    return {
      get: (key) => state[key],
      set(key, value) {
        for (const [k, v] of typeof key === "object" ? Object.entries(key) : [[key, value]]) {
          if (Object.is(state[k], v)) continue;
          state[k] = v;
          fire(`change:${k}`, this, v);
          fire("change", this);
        }
      },
      on(names, call) {
        for (const name of names.split(/\s+/)) listeners.set(name, [...(listeners.get(name) ?? []), call]);
      },
      off(name, call) {
        if (!name) return listeners.clear();
        listeners.set(name, call ? (listeners.get(name) ?? []).filter((f) => f !== call) : []);
      },
      save_changes() {}, // there is no kernel to tell
      send() {},
    };
  }

  function load(code) {
    if (!modules.has(code)) {
      const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
      modules.set(code, import(url).then(async ({ default: made }) => (typeof made === "function" ? made() : made)));
    }
    return modules.get(code);
  }

  // Large pieces of a page's states, code and records, lie in scripts of their own, which are asked for when they are
  // needed. They are classic scripts, because nothing else loads from a file:// address.
  const home = document.currentScript?.src, pieces = (window.geoPieces ??= {}), asked = new Map();

  function piece(name) {
    if (!asked.has(name)) {
      asked.set(name, new Promise((done, fail) => {
        const script = document.createElement("script");
        script.src = new URL(`explorables/${name}.js`, home);
        script.onload = () => done(pieces[name]);
        script.onerror = () => fail(new Error("its code did not load"));
        document.head.append(script);
      }));
    }
    return asked.get(name);
  }

  async function whole(state) {
    const far = Object.entries(state).filter(([, value]) => value?.pieces);
    await Promise.all(far.map(async ([key, { pieces: names }]) => {
      const fetched = async () => {
        const parts = await Promise.all(names.map(piece));
        return parts.length > 1 ? parts.join("") : parts[0];
      };
      state[key] = key.startsWith("_later") ? fetched : await fetched(); // the explorable asks for these itself
    }));
  }

  // What explorables tied by a shared name said before others of them woke.
  const shared = new Map();
  window.addEventListener("geo-share", ({ detail }) => shared.set(detail.shared, detail.value));

  async function open(id, state) {
    await whole(state);
    for (const [name, common] of Object.entries(state.share ?? {})) {
      if (shared.has(common)) state[name] = shared.get(common);
    }
    const model = makeModel(state), widget = await load(state._esm);
    await widget.initialize?.({ model });
    return { model, widget };
  }

  // The still picture that stands before this widget, and before no other.
  function stillOf(el) {
    const before = [...document.querySelectorAll(".explorable-still")].filter(
      (still) => still.compareDocumentPosition(el) & Node.DOCUMENT_POSITION_FOLLOWING && !used.has(still));
    const still = before.at(-1);
    before.forEach((each) => used.add(each));
    return still && (still.closest("figure, .cell_output") ?? still);
  }

  // A still's caption, with its number, stays on the screen below the explorable that takes its place.
  function caption(still, el) {
    const words = still?.querySelector("figcaption");
    if (!words) return;
    const copy = document.createElement("div");
    copy.className = "explorable-caption";
    copy.innerHTML = words.innerHTML.replace(/\s*(With scripts[^.]*|It moves with scripts)\./, "");
    copy.querySelectorAll("[id]").forEach((each) => each.removeAttribute("id"));
    copy.querySelectorAll(".headerlink").forEach((each) => each.remove());
    el.after(copy);
  }

  // An empty box for each view, with its still before it, which keeps its place. It is filled when it comes near the
  // window, or when a link or the address calls it; then the still goes.
  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting) target.wake();
  }, { rootMargin: "600px 0px" });

  function prepare(script, states) {
    const { model_id: id } = JSON.parse(script.textContent), state = states[id]?.state;
    const el = document.createElement("div"), name = state?._anywidget_id?.split(".").at(-2);
    el.className = "explorable";
    if (name) el.dataset.explorable = name;
    script.after(el);
    const still = el.still = stillOf(el);
    let woken = null;
    el.wake = () => (woken ??= show(el, id, state, still));
    near.observe(el);
  }

  async function show(el, id, state, still) {
    near.unobserve(el);
    try {
      if (!state?._esm) throw new Error("this page holds no code for it");
      if (state._css && !styles.has(state._css)) {
        styles.add(state._css);
        document.head.appendChild(document.createElement("style")).textContent = state._css;
      }
      if (!models.has(id)) models.set(id, open(id, state));
      const { model, widget } = await models.get(id);
      await widget.render({ model, el });
      el.dataset.alive = "yes";
      caption(still, el);
      still?.classList.add("explorable-replaced");
    } catch (error) {
      el.classList.add("explorable-broken");
      el.textContent = `This explorable could not start: ${error.message}`;
    }
  }

  // The figures that an address means, all of its name, awake.
  const called = (hash) => {
    const name = /^#(?:move|drag)-([a-z]+)/i.exec(hash)?.[1];
    const boxes = name ? [...document.querySelectorAll(`.explorable[data-explorable="${name}"]`)] : [];
    return boxes.filter((box) => !box.dataset.alive).map((box) => box.wake());
  };
  const press = (event) => {
    if (event.type === "keydown" && event.key !== " ") return;
    const link = event.target.closest?.('a[href^="#move-"][href*="?"]'), sleeping = link ? called(link.hash) : [];
    if (link && !sleeping.length) return bring(link, link.hash);
    if (!sleeping.length) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    Promise.all(sleeping).then(() => link.click());
  };

  // A sentence that sets a figure, or a number of it, shows the figure where one reads: beside the text where there is
  // room, otherwise below or above it, where there is more. It is the figure itself; its place is kept, by its still. It
  // goes back by its button, by Escape, by the browser's Back, and when one scrolls to its place.
  let docked = null;
  const picture = (box) => box.querySelector("[data-picture]")
    ?? [...box.querySelectorAll("svg, canvas")].find((each) => each.clientHeight > 60) ?? box;
  // Question, guess, number and most of the picture, from the box's top; the picture alone where a window has no room.
  const needed = (box) => {
    const home = box.getBoundingClientRect().top, { top, height } = picture(box).getBoundingClientRect();
    const ends = [top - home, top - home + 0.6 * Math.min(height, innerHeight)];
    const all = [".geo-ask", ".geo-wager", ".geo-say"].flatMap((kind) => {
      const part = [...box.querySelectorAll(kind)].find((each) => each.checkVisibility())?.getBoundingClientRect();
      return part ? [part.top - home, part.bottom - home] : [];
    });
    const span = [Math.min(...all, ...ends), Math.max(...all, ...ends)];
    return span[1] - span[0] < innerHeight - 48 ? span : ends;
  };
  const seen = (place, [first, last]) => {
    const { top } = place.getBoundingClientRect();
    return top + first > 40 && top + last < innerHeight;
  };

  function bring(link, hash) {
    const [, name, copy] = /^#(?:move|drag)-([a-z_]+)(?:\.(\d+))?/i.exec(hash) ?? [];
    const boxes = [...document.querySelectorAll(`.explorable[data-explorable="${name}"]`)];
    const away = (box) => Math.abs(box.getBoundingClientRect().top - link.getBoundingClientRect().top);
    const box = copy ? boxes[copy - 1] : boxes.sort((a, b) => away(a) - away(b))[0];
    if (box?.dataset.alive && docked?.box !== box && !seen(box, needed(box))) dock(box, link);
  }

  function dock(box, link) {
    if (docked) undock();
    else {
      history.scrollRestoration = "manual"; // Back takes the figure away and leaves the page where it is
      history.pushState({ docked: true }, "");
      history.scrollRestoration = "manual";
    }
    const place = document.createElement("div"), back = document.createElement("button"), span = needed(box);
    const { height } = box.getBoundingClientRect(), { marginTop, marginBottom } = getComputedStyle(box);
    const article = document.querySelector(".bd-article")?.getBoundingClientRect();
    const text = document.querySelector(".bd-article section > p")?.getBoundingClientRect();
    const left = (text?.right ?? innerWidth) + 24, room = Math.min(520, innerWidth - left - 16), beside = room >= 360;
    const [from, width] = beside ? [left, room]
      : [Math.max(0, article?.left ?? 0), Math.min(innerWidth, article?.width ?? innerWidth)];
    const { top, bottom } = link.getBoundingClientRect(), over = top - 64, under = innerHeight - bottom - 12;
    back.type = "button";
    back.className = "explorable-back";
    back.textContent = "Put the figure back";
    back.addEventListener("click", () => {
      link.focus({ preventScroll: true }); // where one was; else the page would follow the button's place
      history.back();
    });
    place.className = "explorable-place";
    const still = box.still?.querySelector("img")?.cloneNode();
    if (still) place.append(still);
    // Nothing is measured until all of this is done: the page must not see the figure in both places.
    Object.assign(place.style, { height: `${height}px`, marginTop, marginBottom });
    Object.assign(box.style, { left: `${from}px`, width: `${width}px` });
    box.dataset.docked = beside ? "beside" : over > under ? "above" : "below";
    box.style.setProperty("--room", `${Math.max(over, under)}px`);
    box.before(place);
    box.prepend(back);
    const shown = new AbortController();
    addEventListener("scroll", () => seen(place, span) && undock(), { signal: shown.signal, passive: true });
    docked = { box, link, place, back, shown };
  }

  function undock() {
    const { box, link, place, back, shown } = docked;
    shown.abort();
    if (box.contains(document.activeElement)) link.focus({ preventScroll: true });
    delete box.dataset.docked;
    Object.assign(box.style, { left: "", width: "" });
    place.remove();
    back.remove();
    docked = null;
  }

  window.addEventListener("popstate", () => {
    if (!docked) return;
    const { link } = docked, at = link.getBoundingClientRect().top;
    const stay = () => scrollBy({ top: link.getBoundingClientRect().top - at, behavior: "instant" });
    undock();
    stay(); // the figure may be higher than when it was taken from its place
    requestAnimationFrame(() => requestAnimationFrame(stay));
  });
  document.addEventListener("keydown", ({ key }) => key === "Escape" && docked && history.back());
  const reach = (event) => { // a number in the text that is dragged, or moved by keys
    const link = event.target.closest?.("[data-geo-drag]");
    if (link && (event.type === "pointerdown" || /^(Arrow|Page|Home|End)/.test(event.key))) bring(link, link.dataset.geoDrag);
  };
  for (const type of ["pointerdown", "keydown"]) document.addEventListener(type, reach, true);

  for (const type of ["click", "keydown"]) document.addEventListener(type, press, true);
  window.addEventListener("hashchange", () => called(location.hash));

  const saved = document.querySelector(`script[type="${MIME}state+json"]`);
  const states = saved ? JSON.parse(saved.textContent).state : {};
  for (const { state, buffers = [] } of Object.values(states)) {
    for (const { path, data } of buffers) { // binary traits travel as base64
      const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
      path.slice(0, -1).reduce((at, key) => at[key], state)[path.at(-1)] = new DataView(bytes.buffer);
    }
  }
  for (const { state } of Object.values(states)) { // a page holds once the style that several widgets share
    if (state._css?.of) state._css = states[state._css.of].state._css;
  }
  document.querySelectorAll(`script[type="${MIME}view+json"]`).forEach((script) => prepare(script, states));
  document.querySelectorAll('a[href^="#drag-"]').forEach((link) => called(link.hash)); // numbers must be true
  called(location.hash);
})();
