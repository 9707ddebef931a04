// The landing page's arrows: move all positions together, and the inner product of two columns stays what it is.
// Angles, places and colours are read off the drawing.
(() => {
  const svg = document.querySelector("svg.cover");
  if (!svg) return;
  const arrows = [...svg.querySelectorAll("path[transform]")].map((path) => {
    const [x, y, turn] = path.getAttribute("transform").match(/-?[\d.]+/g).map(Number);
    return { path, x, y, turn, colour: path.getAttribute("stroke") };
  });
  const rows = Map.groupBy ? Map.groupBy(arrows, ({ y }) => y) : arrows.reduce((map, arrow) =>
    map.set(arrow.y, [...(map.get(arrow.y) ?? []), arrow]), new Map());
  const near = (angle) => ((angle + 180) % 360 + 360) % 360 - 180;
  for (const row of rows.values()) {
    row.forEach((arrow) => { arrow.step = near(row[1].turn - row[0].turn); });
  }
  const wheel = arrows.map(({ turn, colour }) => [near(turn), colour]).sort(([a], [b]) => a - b);
  const colourAt = (turn) => (wheel.find(([angle]) => angle >= near(turn)) ?? wheel[0])[1];
  const columns = [8, 14];
  // On a phone half of the columns are shown, at twice the size.
  const whole = svg.viewBox.baseVal.width, phone = matchMedia("(max-width: 576px)");
  const crop = () => {
    const width = phone.matches ? 540 : whole, height = svg.viewBox.baseVal.height;
    for (const [name, value] of Object.entries({ viewBox: `0 0 ${width} ${height}`, width, height })) {
      svg.setAttribute(name, value);
    }
  };
  phone.addEventListener("change", crop);
  crop();

  const panel = document.createElement("div");
  panel.className = "cover-panel";
  panel.innerHTML = `<label>Move the whole text by <input type="range" min="0" max="40" step="0.1" value="0">
    <b>0.0</b> positions</label><output></output>`;
  svg.after(panel);
  const slider = panel.querySelector("input"), shown = panel.querySelector("b"), said = panel.querySelector("output");
  for (const column of columns) {
    const x = [...rows.values()][0][column].x;
    const frame = document.createElementNS(svg.namespaceURI, "rect");
    for (const [name, value] of Object.entries({ x: x - 14, y: 4, width: 28, height: 8 * 30 + 6, rx: 6, fill: "none",
      stroke: "#7a7f87", "stroke-width": 1.5 })) frame.setAttribute(name, value);
    svg.append(frame);
  }
  function draw() {
    const shift = Number(slider.value);
    for (const { path, x, y, turn, step } of arrows) {
      const now = turn + shift * step;
      path.setAttribute("transform", `translate(${x} ${y}) rotate(${now.toFixed(1)})`);
      path.setAttribute("stroke", colourAt(now));
    }
    const product = [...rows.values()].reduce((sum, row) => {
      const [a, b] = columns.map((column) => row[column].turn + shift * row[column].step);
      return sum + Math.cos((b - a) * Math.PI / 180);
    }, 0);
    shown.textContent = shift.toFixed(1);
    said.textContent = `The framed columns, 6 positions apart: inner product ${product.toFixed(2)}.`;
  }
  slider.addEventListener("input", draw);
  draw();
})();
