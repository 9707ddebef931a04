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
})();
