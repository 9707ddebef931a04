// A deck of slides: which one shows, how large the window lets it be, and letters small enough for the longest.
(() => {
  const slides = [...document.querySelectorAll(".slide")], count = document.querySelector(".count");
  const LARGEST = 34, SMALLEST = 12;
  const tooLong = (box) => box.scrollHeight > box.clientHeight + 1 || box.scrollWidth > box.clientWidth + 1;
  let now = Math.min(Math.max(Number(location.hash.slice(1)) - 1 || 0, 0), slides.length - 1);

  const fit = (slide) => {
    const box = slide.querySelector(".fit"), image = box.querySelector("figure img");
    let size = LARGEST, room = 470;
    box.style.justifyContent = "flex-start"; // what is centred overflows upwards unseen
    box.style.fontSize = `${size}px`;
    while (tooLong(box) && size > SMALLEST) { size -= 1; box.style.fontSize = `${size}px`; }
    while (image && tooLong(box) && room > 120) { room -= 20; image.style.maxHeight = `${room}px`; image.style.minWidth = "0"; }
    box.style.justifyContent = "";
  };
  const show = (to) => {
    now = Math.min(Math.max(to, 0), slides.length - 1);
    slides.forEach((slide, i) => {
      slide.classList.toggle("now", i === now);
      slide.inert = i !== now;
    });
    count.textContent = `${now + 1} / ${slides.length}`;
    history.replaceState(null, "", `#${now + 1}`);
  };
  const scale = () => document.body.style.setProperty("--scale", Math.min(innerWidth / 1280, innerHeight / 720));

  const KEYS = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1, Home: -1e6, End: 1e6 };
  addEventListener("keydown", (event) => {
    if (!(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    show(now + KEYS[event.key]);
  });
  let from = null;
  addEventListener("pointerdown", (event) => { from = event.clientX; });
  addEventListener("pointerup", (event) => {
    if (from === null || event.target.closest("a")) return;
    const moved = event.clientX - from;
    show(now + (moved > 40 || (Math.abs(moved) < 5 && event.clientX < innerWidth / 4) ? -1 : 1));
    from = null;
  });
  addEventListener("resize", scale);
  addEventListener("hashchange", () => show((Number(location.hash.slice(1)) || 1) - 1));
  scale();
  show(now);
  const pictures = [...document.images].map((image) => image.decode().catch(() => {}));
  Promise.all([document.fonts.ready, ...pictures]).then(() => {
    slides.forEach(fit);
    document.body.dataset.ready = "yes";
  });
})();
