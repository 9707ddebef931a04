// What the page does besides showing itself; without it, all text, formulas, proofs and pictures are there.
(() => {
  // A section that waits with its layout is taken to be as high as its words and pictures ask for, so that the scrollbar
  // tells how much there is to read. Pixels a letter, a picture and a heading, fitted to the book's own sections.
  const narrow = Math.max(1, Math.sqrt(620 / (innerWidth - 40)));  // formulas, code and pictures grow less than text
  for (const section of document.querySelectorAll(".bd-article > section > section")) {
    const folded = [...section.querySelectorAll("details:not([open])")].map((box) => box.textContent.length);
    const letters = section.textContent.length - folded.reduce((sum, count) => sum + count, 0);
    const height = 200 + 0.46 * narrow * letters + 460 * section.querySelectorAll("img").length;
    section.style.setProperty("--guessed-height", `${Math.round(height)}px`);
  }

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

  // A plot's dark copy follows the page's theme, which need not be the system's; paper is always light.
  const plots = [...document.querySelectorAll("picture > source")];
  const follow = () => plots.forEach((plot) => {
    plot.media = { dark: "screen", light: "not all" }[document.documentElement.dataset.theme] ?? plot.media;
  });
  new MutationObserver(follow).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  follow();

  // Sections take their true heights when they come near, so what a link leads to moves once more: follow it.
  addEventListener("hashchange", () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
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
  });

  addEventListener("beforeprint", () => document.querySelectorAll("img").forEach((img) => { img.loading = "eager"; }));

  // One switch for the whole book, remembered: checks unfolded or folded; what a check found stays.
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
  const checks = [...document.querySelectorAll(".cell.tag_check")];
  function fold(folded) {
    document.documentElement.dataset.checks = folded ? "folded" : "shown";
    checks.forEach((check) => check.classList.remove("unfolded"));
  }
  if (checks.length) {
    const words = (folded) => (folded ? "Unfold all checks" : "Fold all checks");
    const folded = () => document.documentElement.dataset.checks === "folded";
    fold(remembered("checks") === "folded");
    document.querySelector(".bd-article h1")?.nextElementSibling?.append(" ", button(words(folded()), (pressed) => {
      fold(!folded());
      remember("checks", document.documentElement.dataset.checks);
      pressed.textContent = words(folded());
    }));
    checks.forEach((check) => check.prepend(button("Show this check", (pressed) => {
      pressed.textContent = check.classList.toggle("unfolded") ? "Fold this check" : "Show this check";
    })));
  }

  // Proofs fold, and are open at first.
  for (const proof of document.querySelectorAll(".bd-article .proof-body")) {
    const title = proof.querySelector("p > em:first-child");
    if (!title || title.textContent !== "Proof.") continue;
    const word = button("Proof.", () => word.setAttribute("aria-expanded", String(!proof.classList.toggle("folded"))));
    word.classList.add("proof-word");
    word.setAttribute("aria-expanded", "true");
    title.replaceWith(word);
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
