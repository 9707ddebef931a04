"""MathJax in V8, without Sphinx: formulas in, HTML and MathML out.

MathJax comes from the package that ships it, V8 from the package mini-racer. Many formulas are typeset by several
processes, which import this file and nothing else of the book.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from py_mini_racer import MiniRacer

PARTS = ("core", "adaptors/liteDOM", "input/tex-full", "output/chtml")
START = """
var global = globalThis, console = {log() {}, warn() {}, error() {}};
var MathJax = {
  loader: {paths: {mathjax: "."}, load: %s, require: (name) => (0, eval)(PARTS[name.replace(/^.*?\\.\\//, "")])},
  startup: {typeset: false}, chtml: {adaptiveCSS: false, fontURL: "fonts"},
};
"""
GLUE = Path(__file__).with_name("formulas.js")
MANY = 500  # formulas, from which on to start further processes, each of which reads MathJax for a second
Formula = tuple[str, bool]  # its TeX, and whether it stands on its own
Made = dict[str, str]  # its html, its mathml, and the error, None where there is none


def mathjax() -> Path:
    """The folder that holds MathJax."""
    package = importlib.util.find_spec("sphinx-mathjax-offline")
    assert package is not None, "the package sphinx-mathjax-offline is missing"
    assert package.origin is not None
    return Path(package.origin).parent / "static" / "mathjax"


def start() -> MiniRacer:
    """V8 with MathJax in it."""
    engine = MiniRacer()
    files = {f"{name}.js": (mathjax() / f"{name}.js").read_text("utf-8") for name in PARTS}
    files["output/chtml/fonts/tex.js"] = (mathjax() / "output/chtml/fonts/tex.js").read_text("utf-8")
    engine.eval(f"var PARTS = {json.dumps(files)};{START % json.dumps(PARTS)}")
    engine.eval((mathjax() / "startup.js").read_text("utf-8"))
    engine.eval("var ready = false; MathJax.startup.promise.then(() => { ready = true; })")
    assert engine.eval("ready"), "MathJax has not started"  # nothing of it is fetched, so nothing is left to await
    engine.eval(GLUE.read_text("utf-8"))
    return engine


def some(formulas: list[Formula]) -> tuple[list[Made], str]:
    """The formulas, typeset, and MathJax's style, every glyph in it."""
    engine = start()
    try:
        call = f"JSON.stringify({json.dumps(formulas)}.map(([tex, display]) => JSON.parse(typeset(tex, display))))"
        made = json.loads(engine.eval(call))
        return made, engine.eval("MathJax.startup.adaptor.textContent(MathJax.chtmlStylesheet())")
    finally:
        engine.close()  # its thread would outlive the program


def all_of(formulas: list[Formula], processes: int) -> tuple[list[Made], str]:
    """The same for many, by several processes at a time."""
    count = min(processes, len(formulas) // MANY + 1)
    if count == 1:
        return some(formulas)
    parts = [formulas[i::count] for i in range(count)]  # long ones stand together, so each gets its share of them
    made: list[Made] = [{}] * len(formulas)
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as pool:
        done = list(pool.map(some, parts))
    for i, (part, _) in enumerate(done):
        made[i::count] = part
    return made, done[0][1]
