"""What the book says it found: a verdict's word beside its interval, and figures beside the records that they name."""

import functools
import json
import re

import errors
import matplotlib.pyplot as plt
import numpy as np
import plant
import pytest

NOTEBOOKS = sorted(path.stem for folder in ("chapters", "book") for path in (plant.REPOSITORY / folder).glob("*.ipynb"))
VERDICT = re.compile(r"\*?(seen|not seen|undecided|turned round|one seed)\*?")
NUMBER = r"([+-]?\d+(?:\.\d+)?)"
INTERVAL = re.compile(rf"{NUMBER} (?:[(\[]|interval ){NUMBER}(?: to |,){NUMBER}[)\]]?")
SIZES = {"half a": 0.5, " a point": 1.0, "two": 2.0, "three": 3.0, "paper's": 1.96}


def findings():
    """(page, claim, verdict, intervals) of each row of a table that prints one verdict's word alone."""
    for page in NOTEBOOKS:
        for cell in json.loads(plant.chapter_path(page).read_text("utf-8"))["cells"]:
            for line in "".join(cell["source"]).splitlines() if cell["cell_type"] == "markdown" else ():
                row = [each.strip() for each in re.split(r"(?<!\\)\|", line)]
                if len(row) == 5 and (word := VERDICT.fullmatch(row[2])):
                    told = row[3].replace("\N{MINUS SIGN}", "-").replace("$", "").replace("\\ ", " ")
                    found = INTERVAL.findall(told) if INTERVAL.search(told.partition(";")[0]) else []  # else an aside
                    yield page, row[1], word[1], [tuple(map(float, each)) for each in found]


FINDINGS = [*findings()]


@pytest.mark.parametrize(("page", "claim", "word", "told"), FINDINGS, ids=[f"{x[0]}-{x[1][:40]}" for x in FINDINGS])
def test_a_verdicts_word_is_that_of_its_interval(page, claim, word, told):
    zero = [low <= 0 <= high for _, low, high in told]
    for mean, low, high in told:
        assert abs(2 * mean - low - high) <= 0.21 * max(1, 10 ** (2 - len(f"{high - low:.0f}")))
    if word == "one seed":
        assert not told
    elif word == "turned round" or (told and word == "seen"):
        assert not any(zero)
    elif told and word == "undecided":
        assert any(zero)
    elif told:
        sizes = [float(x) for x in re.findall(r"(?<!s)(?<![\w-])\d+(?:\.\d+)?", claim)]
        size = max(sizes, default=next((x for word, x in SIZES.items() if word in claim), 0.0))
        assert any(high < size or low > -size for _, low, high in told)


def test_there_are_findings_of_each_kind():
    assert {word for *_, word, _ in FINDINGS} == {"seen", "not seen", "undecided", "turned round", "one seed"}
    assert sum(bool(told) for *_, told in FINDINGS) > 20  # chapter 11 computes its own


# Figures --------------------------------------------------------------------------------------------------------------


def drawn(cells, name):
    """The numbers of each line of a figure, by what the line is called: its label, or its height's."""
    labels: dict[str, list] = {}
    space = {"__name__": "__main__"}
    with plt.rc_context():
        for cell, body in plant.needed(cells, {name}):
            plt.close("all")
            plant.run(cell, body, space, None, False)
        for axes in [axes for number in plt.get_fignums() for axes in plt.figure(number).axes]:
            heights = {at: text.get_text() for at, text in zip(axes.get_yticks(), axes.get_yticklabels())}
            for line in axes.lines:
                x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
                called = line.get_label() if line.get_label()[0] != "_" else heights.get(y[0]) if len({*y}) == 1 else ""
                labels.setdefault(called or "", []).append(np.stack([x, y]))
        plt.close("all")
    return labels


WORDS = {  # of a label, and the row that they mean
    "no positions": "none",
    "locality focusing alone": "lf",
    "RoPE": "rope",
    "axial RoPE": "rope-axial",
    "RiemannFormer": "riemannformer",
    "RiemannFormer with locality focusing": "riemannformer+lf",
    "VisionLLaMA": "visionllama",
    "width 2": "liere-2",
    "width 8": "liere-8",
    "block": "liere-64",
}


def named(label):
    """The rows of an experiment that a label names."""
    words = [" ".join(each.split()).removesuffix(" (ours)") for each in re.split("\N{MINUS SIGN}", label)]
    return {WORDS.get(each, each.replace(" ", "")) for each in words}


def only(row):
    """What reads an experiment's cells, with other numbers in the records of a row."""
    other = lambda each: errors.replace(  # noqa: E731
        each, metrics=errors.shaken(each.metrics, 0.9), learned=errors.shaken(each.learned, 0.9)
    )
    return errors.out(
        lambda cells: {key: [*map(other, x)] if key[0].split("@")[0] == row else x for key, x in cells.items()}
    )


FIGURES = {
    "11_riemannformer": ["glance-figure"],
    "12_liere": ["resolutions"],
    "13_documents": ["glance-picture", "figure-one-picture", "curves-picture", "figure-two-picture"],
}


@pytest.fixture(scope="module")
def kept_records():
    """Records are read once."""

    def once(read):
        cached = functools.cache(read)
        return lambda *given: cached(*given)

    with plant.broken("geolib.lab.read_all", once):
        yield


@pytest.mark.usefixtures("kept_records")
@pytest.mark.parametrize(("chapter", "figure"), [(a, b) for a, figures in FIGURES.items() for b in figures])
def test_a_line_of_a_figure_is_drawn_from_the_records_that_it_names(chapter, figure):
    cells = [
        plant.Cell(c.name, c.text, (c.name,)) if c.name == figure else c for c in plant.code_cells(plant.read(chapter))
    ]
    right = drawn(cells, figure)
    rows = {row for label in right if label for row in named(label)}
    assert len(rows) > 2
    for row in rows:
        with plant.broken("geolib.lab.experiments.cells_of", only(row)):
            other = drawn(cells, figure)
        assert other.keys() == right.keys()
        moved = {label for label in right if label and any(map(np.any, map(np.not_equal, right[label], other[label])))}
        assert moved == {label for label in right if row in named(label)}
