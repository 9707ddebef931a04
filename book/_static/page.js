// What the page does besides showing itself; without it, all text, formulas, proofs and pictures are there.
(() => {
  // What is wider than its place scrolls: then a key can reach it, and its end fades while more is to come.
  function mark(box) {
    const hidden = box.scrollWidth - box.clientWidth;
    box.classList.toggle("scrolls", hidden > 1);
    box.classList.toggle("at-end", hidden - Math.abs(box.scrollLeft) < 2);
    if (hidden > 1) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
  const boxes = [...document.querySelectorAll(".bd-article div.math > .formula")];
  boxes.forEach((box) => box.addEventListener("scroll", () => mark(box), { passive: true }));
  const resized = new ResizeObserver((changes) => changes.forEach(({ target }) => mark(target)));
  boxes.forEach((box) => resized.observe(box));

  // A plot's dark copies follow the page's theme, which need not be the system's; paper is always light.
  const plots = [...document.querySelectorAll("picture > source[data-dark]")];
  const follow = () => plots.forEach((plot) => {
    plot.media = { dark: plot.dataset.dark, light: "not all" }[document.documentElement.dataset.theme] ?? plot.media;
  });
  new MutationObserver(follow).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  follow();

  // Paper is light, whatever the screen is.
  const page = document.documentElement.dataset, paper = matchMedia("print");
  let kept = null;
  const lay = (on) => {
    if (on && page.theme === "dark") [kept, page.theme] = [page.theme, "light"];
    else if (!on && kept) [kept, page.theme] = [null, kept];
    follow();
  };
  paper.addEventListener("change", () => lay(paper.matches));
  addEventListener("beforeprint", () => lay(true));
  addEventListener("afterprint", () => lay(false));

  // What folds around a place opens when a link leads there: solutions, asides, tables, checks, proofs.
  function reveal(target) {
    for (let part = target; part && part !== document.body; part = part.parentElement) {
      if (part.matches("details")) part.open = true;
      part.classList.remove("counted");
      if (part.matches(".toggle-hidden")) part.querySelector(".admonition-title .toggle-button")?.click();
    }
    return target;
  }
  // A fold's title opens it wherever it is pressed: the script that makes folds knows the bare title alone.
  addEventListener("click", (event) => {
    const { target, pointerType } = event;
    const fold = target.closest?.(".admonition-title")?.querySelector(":scope > .toggle-button");
    if (!fold || target.matches(".admonition-title, .toggle-button, .toggle-button *")) return;
    event.stopPropagation();
    if (target.closest("a") && pointerType !== "touch") return; // a mouse follows a link in it
    event.preventDefault();
    fold.click();
  }, true);
  const meant = () => document.getElementById(decodeURIComponent(location.hash.slice(1)));

  // What opens on arrival moves what one came for: follow it, until a hand scrolls.
  function arrive() {
    const target = meant();
    if (!target) return;
    reveal(target);
    const end = performance.now() + 600, halt = new AbortController();
    for (const type of ["wheel", "touchstart", "pointerdown", "keydown"]) {
      addEventListener(type, () => halt.abort(), { signal: halt.signal, passive: true });
    }
    const align = () => {
      if (halt.signal.aborted || performance.now() > end) return halt.abort();
      target.scrollIntoView();
      requestAnimationFrame(align);
    };
    align();
  }
  addEventListener("hashchange", arrive);
  addEventListener("click", ({ target }) => { // the same address again is no change
    const link = target.closest?.("a[href*='#']");
    if (link && link.href === location.href) arrive();
  });

  addEventListener("load", () => { // folds have their buttons now
    if (location.hash) arrive();
  });

  // On paper all pictures are there; the style opens all checks.
  addEventListener("beforeprint", () => document.querySelectorAll("img").forEach((img) => { img.loading = "eager"; }));

  // Each check and each proof opens by itself; a switch for each kind opens all, in the whole book, and is remembered.
  const remembered = (key) => { try { return localStorage.getItem(key); } catch { return null; } };
  const remember = (key, value) => { try { localStorage.setItem(key, value); } catch { /* private browsing */ } };
  function button(text, press) {
    const made = document.createElement("button");
    made.type = "button";
    made.className = "quiet";
    made.textContent = text;
    made.addEventListener("click", () => press(made));
    return made;
  }
  function turnAll(kind, parts) {
    let shown = remembered(kind) === "shown";
    const words = () => `${shown ? "Fold" : "Open"} all ${kind}`;
    const turn = () => parts.forEach((part) => { shown ? reveal(part) : (part.open = false); });
    if (shown) turn();
    return button(words(), (pressed) => {
      shown = !shown;
      turn();
      remember(kind, shown ? "shown" : "folded");
      pressed.textContent = words();
    });
  }
  const checks = [...document.querySelectorAll("details.check")];
  const proofs = [...document.querySelectorAll("details.proof-body")];
  // A section with several checks counts them, where its last stands.
  for (const section of document.querySelectorAll(".bd-article section")) {
    const own = checks.filter((check) => check.closest("section, .admonition") === section);
    if (own.length < 2) continue;
    own.forEach((check) => check.classList.add("counted"));
    const line = document.createElement("p");
    line.className = "evidence count";
    line.append(`${own.length} checks of this section held. `, button("Show each", () => {
      own.forEach((check) => check.classList.remove("counted"));
      line.remove();
    }));
    own.at(-1).after(line);
  }
  if (checks.length || proofs.length) {
    const line = document.createElement("p");
    line.className = "reading";
    if (checks.length) line.append(`${checks.length} checks held when this page was built. `, turnAll("checks", checks), " ");
    if (proofs.length) line.append(turnAll("proofs", proofs));
    document.querySelector(".bd-article h1")?.after(line);
  }

  // A verdict that stands alone in a cell of a table, or in bold, is a word in a colour.
  for (const place of document.querySelectorAll(".bd-article :is(td, td strong, td em)")) {
    const word = place.childElementCount ? "" : place.textContent.trim();
    if (/^(seen|not seen|undecided|one seed|turned round)$/.test(word)) {
      const chip = document.createElement("span");
      chip.className = `verdict ${word.replace(" ", "-")}`;
      chip.textContent = word;
      place.replaceChildren(chip);
    }
  }

  // The ledger is filtered by words: of a statement, an id, a chapter, a function.
  const tables = [...document.querySelectorAll("table.ledger")];
  if (tables.length) {
    const rows = tables.flatMap((table) => [...table.tBodies[0].rows]);
    const texts = rows.map((row) => row.textContent.toLowerCase().replace(/\s+/g, " "));
    const label = document.createElement("label");
    label.className = "ledger-filter";
    label.innerHTML = `Show the rows that have <input type="search" placeholder="RF-13, holonomy, chapter 9, planned ...">
      <span role="status"></span>`;
    const [box, told] = label.children;
    const filter = () => {
      const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      const has = (text) => words.every((word) => (/^(rf|cs|lr|nt)-\w+$/.test(word)
        ? new RegExp(`(?<![\\w-])${word}(?!\\w)`).test(text) : text.includes(word)));
      rows.forEach((row, i) => { row.hidden = !has(texts[i]); });
      const kept = rows.filter((row) => !row.hidden).length;
      told.textContent = words.length ? `${kept} of ${rows.length}` : "";
    };
    box.addEventListener("input", filter);
    const first = tables[0].closest("section");
    first.parentElement.insertBefore(label, first);
  }

  // What a link points to, shown where the link is: a statement, formula, figure, work, or row of the ledger.
  const WHOLE = ".proof, .admonition, figure, div.math, table.ledger tr, .citation, dl.citation > div, dd, section";
  const pages = new Map(), here = location.href.split("#")[0];
  const box = document.createElement("div");
  box.className = "preview bd-article";
  box.setAttribute("role", "status");
  box.hidden = true;
  let waiting, shownFor;
  function read(address) {
    if (address === here) return Promise.resolve(document);
    if (!pages.has(address)) {
      const reading = fetch(address).then((reply) => reply.text());
      pages.set(address, reading.then((text) => new DOMParser().parseFromString(text, "text/html")));
    }
    return pages.get(address);
  }
  async function target(link) {
    const [address, anchor] = link.href.split("#");
    const found = (await read(address)).getElementById(decodeURIComponent(anchor));
    const whole = found?.closest(WHOLE);
    if (!whole || whole.matches("section")) return null;
    const copy = document.importNode(whole, true);
    copy.querySelectorAll(".headerlink, script, button").forEach((part) => part.remove());
    [copy, ...copy.querySelectorAll("[id]")].forEach((part) => part.removeAttribute("id"));
    copy.querySelectorAll("img").forEach((img) => { img.src = new URL(img.getAttribute("src"), address).href; });
    copy.querySelectorAll("a").forEach((each) => { each.href = new URL(each.getAttribute("href") ?? "", address).href; });
    return copy;
  }
  async function preview(link) {
    const copy = await target(link).catch(() => null);
    if (!copy || shownFor !== link) return;
    if (copy.matches("tr")) {
      const table = document.createElement("table");
      table.className = "table ledger";
      table.append(copy);
      box.replaceChildren(table);
    } else box.replaceChildren(copy);
    if (!box.isConnected) document.body.append(box);
    box.hidden = false;
    const at = link.getBoundingClientRect(), width = Math.min(480, innerWidth - 16);
    box.style.width = `${width}px`;
    box.style.left = `${Math.max(8, Math.min(at.left, innerWidth - width - 8)) + scrollX}px`;
    const below = at.bottom + box.offsetHeight + 16 < innerHeight || at.top < box.offsetHeight + 16;
    box.style.top = `${(below ? at.bottom + 6 : at.top - box.offsetHeight - 6) + scrollY}px`;
  }
  function hide() {
    clearTimeout(waiting);
    waiting = setTimeout(() => { box.hidden = true; shownFor = null; }, 200);
  }
  function show(link, delay) {
    clearTimeout(waiting);
    waiting = setTimeout(() => { shownFor = link; preview(link); }, delay);
  }
  for (const link of document.querySelectorAll(".bd-article a.internal[href*='#']:not(.headerlink)")) {
    let finger = false;
    link.addEventListener("pointerenter", ({ pointerType }) => pointerType === "mouse" && show(link, 250));
    link.addEventListener("pointerleave", hide);
    link.addEventListener("focus", () => finger || show(link, 250));
    link.addEventListener("blur", hide);
    link.addEventListener("pointerdown", ({ pointerType }) => { finger = pointerType === "touch"; });
    link.addEventListener("click", (event) => { // the first tap shows, the second follows
      if (!finger || shownFor === link) return;
      event.preventDefault();
      show(link, 0);
    });
  }
  box.addEventListener("pointerenter", () => clearTimeout(waiting));
  box.addEventListener("pointerleave", hide);
  document.addEventListener("keydown", ({ key }) => key === "Escape" && hide());
})();
