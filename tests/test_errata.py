"""The errata keep to the papers' words, and to what we compute.

The papers' texts are not in the repository. Set GEOLIB_PAPERS to a folder that holds them as text files, and every
quotation is looked up there; a quotation that is found earns its seal. Without the texts the seal tells that the words
are those that were found.
"""

import hashlib
import importlib
import math
import os
import re
import sys
from pathlib import Path

import pytest
import torch
from often import close, double, vec
from scipy.linalg import expm

from geolib import rotations
from geolib.lab.experiments import find, sampling_error
from geolib.lie import entry_count, exp_skew, shift_deviation, skew_matrix, uniform_entries

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "book" / "_ext"))
ledger = importlib.import_module("ledger")

PATH = REPOSITORY / "book" / "errata.yml"
SOURCES = {source["key"]: source for source in ledger.contents(PATH)["sources"]}
ENTRIES = ledger.contents(PATH)["entries"]
QUOTATIONS = [(entry, each) for entry in ENTRIES for each in entry["words"]]
PAPERS = os.environ.get("GEOLIB_PAPERS")
GAP = 260  # characters that a text may put between the pieces of a quotation: formulas come in several renderings


# Quotations -----------------------------------------------------------------------------------------------------------


def plain(text):
    """A text without what its web or Markdown form adds: breaks of long formulas, tags, bold, runs of white space."""
    text = re.sub(r"%\s", "", text)
    text = re.sub(r"</?[a-z]+/?>|\*\*", " ", text)
    return re.sub(r"\s+", " ", text).strip()


def pieces(quote):
    """A quotation cut at its formulas: words and formulas in turn, as they must follow each other in the text."""
    return [plain(piece) for piece in re.split(r"\$", quote) if piece.strip()]


def stands_in(quote, text):
    """Whether the pieces of a quotation follow each other in a text."""
    between = f".{{0,{GAP}}}?"
    return re.search(between.join(map(re.escape, pieces(quote))), plain(text)) is not None


def seal(entry, each):
    """Eight characters that change with a quotation and with its paper."""
    return hashlib.sha256(f"{entry['id'].split('-')[0]} {each['quote']}".encode()).hexdigest()[:8]


@pytest.mark.parametrize(("entry", "each"), QUOTATIONS, ids=[f"{e['id']}-{i}" for i, (e, _) in enumerate(QUOTATIONS)])
def test_a_quotation_has_the_words_that_were_found(entry, each):
    assert len(each["quote"]) >= 10
    assert each["quote"].count("$") % 2 == 0
    assert each["seal"] == seal(entry, each), "the words are not those that were found in the paper: set GEOLIB_PAPERS"


@pytest.mark.skipif(not PAPERS, reason="GEOLIB_PAPERS names no folder with the papers' texts")
@pytest.mark.parametrize("key", SOURCES)
def test_quotations_stand_in_the_papers(key):
    texts = [path.read_text("utf-8") for path in sorted(Path(PAPERS).glob("*.txt"))]
    texts = [text for text in texts if SOURCES[key]["known_by"] in text[:1500]]
    assert texts, f"no file of {PAPERS} is {SOURCES[key]['title']}"
    of_paper = [(entry, each) for entry, each in QUOTATIONS if entry["id"].startswith(f"{key}-")]
    assert of_paper
    missing = [each["quote"] for _, each in of_paper if not any(stands_in(each["quote"], text) for text in texts)]
    assert missing == []
    wanted = {each["quote"]: seal(entry, each) for entry, each in of_paper if each["seal"] != seal(entry, each)}
    assert wanted == {}, "found; these are their seals"


# Entries --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry['id']}, {entry['place']}")
def test_an_entry_is_whole(entry):
    assert entry.keys() == {"id", "kind", "place", "words", "finds", "shown"}
    assert entry["kind"] in ("slip", "remark")
    assert entry["id"] in ledger.rows(REPOSITORY / "book" / "ledger.yml")
    assert entry["words"]
    assert entry["finds"].strip().endswith(".")
    assert entry["finds"].count("$") % 2 == 0
    assert entry["shown"] or "{cite}" in entry["finds"]  # what cannot be computed is a matter of record


def test_the_page_shows_every_entry_and_every_version():
    page = (REPOSITORY / "book" / "errata.md").read_text("utf-8")
    kinds = {(entry["id"].split("-")[0], entry["kind"]) for entry in ENTRIES}
    assert sorted(re.findall(r"\{errata\} (\w+) (\w+)", page)) == sorted(kinds)
    assert re.findall(r"\{version-read\} (\w+)", page) == list(SOURCES)
    ledger_page = (REPOSITORY / "book" / "ledger.md").read_text("utf-8")
    assert re.findall(r"\{version-read\} (\w+)", ledger_page) == list(SOURCES)


# What the entries say, computed. Numbers of the papers are read from the quotations. ---------------------------------


def quoted(ledger_id, opening):
    """The quotation of an id that starts with a word or number."""
    said = [each["quote"] for entry, each in QUOTATIONS if entry["id"] == ledger_id]
    return next(quote for quote in said if quote.startswith(opening))


def numbers(text):
    """The numbers of a quotation in order, signs of intervals and percents left out."""
    return [float(number) for number in re.findall(r"\d+\.\d+", text)]


def test_locality_focusing_gains_more_alone_than_on_top():  # RF-T1
    said = next(entry["finds"] for entry in ENTRIES if entry["id"] == "RF-T1")
    for data in ("cifar10", "cifar100"):
        paper = {row: accuracy for (row, of), accuracy in find("riemannformer-table1").paper.items() if of == data}
        both, ahead = paper["riemannformer+lf"], paper["lf"] - paper["rope"]
        alone, on_top = paper["lf"] - paper["none"], both - paper["riemannformer"]
        assert alone > 3 * on_top
        gap = f"{abs(ahead):.2f} {'ahead' if ahead > 0 else 'behind'} on CIFAR-{data[5:]}"
        for number in (f"{paper['lf']:.2f} %", f"{both:.2f} %", f"{alone:.2f}", f"{on_top:.2f}", gap):
            assert number in said


def test_the_weights_of_the_gate_are_a_row_as_long_as_the_embedding():  # CS-gate
    layers, heads, head, width = 12, 12, 64, 768
    by_query, by_embedding = layers * heads * head, layers * heads * width
    assert (by_query, by_embedding) == (9_216, 110_592)
    assert round(100 * by_query / 124e6, 4) == 0.0074
    assert [round(100 * by_embedding / 124e6, 2)] == numbers(quoted("CS-gate", "Adding"))


def test_the_exponential_is_not_one_to_one_and_no_diffeomorphism_even_locally():  # LR-1
    about = lambda a, b, c: skew_matrix(vec(-c, b, -a), 3)  # noqa: E731 - the generator of turns about an axis
    for axis in ((0, 0, 1), (0, 0.6, 0.8), (1, 0, 0)):
        close(exp_skew(2 * math.pi * about(*axis)), torch.eye(3).double(), 1e-12)
    # All full turns about all axes are the identity: near one of them exp takes a whole sphere to a point.
    at, step = about(0, 0, 2 * math.pi), 1e-4 * about(1, 0, 0)
    assert (exp_skew(at + step) - exp_skew(at - step)).abs().max() < 2e-4 * 1e-3  # the derivative's kernel
    assert (exp_skew(step) - exp_skew(-step)).abs().max() > 2e-4 * 0.9  # at zero it has none


def test_the_exponential_is_not_onto():  # LR-1
    # A real X has real eigenvalues, and exp's are positive, or a pair a +- ib, and both of exp's have the length e^a.
    # Those of diag(-2, -1/2), whose determinant is 1, are negative, with the lengths 2 and 1/2.
    for _ in range(40):
        X = 3 * double(2, 2)
        found = torch.linalg.eigvals(torch.from_numpy(expm((X - X.trace() / 2 * torch.eye(2)).numpy())))
        both_positive = bool((found.imag.abs() < 1e-9).all() and (found.real > 0).all())
        assert both_positive or math.isclose(float(found[0].abs()), float(found[1].abs()), rel_tol=1e-6)


@pytest.mark.parametrize(("width", "printed"), [(2, 0.0), (8, 0.24), (64, 0.60)])
def test_a_shift_at_the_papers_initialisation(width, printed):  # LR-SHIFT
    draws = 2000 if width < 64 else 100
    entries = uniform_entries(draws, 2, entry_count(width), generator=torch.Generator().manual_seed(7)).double()
    deviation = shift_deviation(skew_matrix(entries, width), vec(0.1, 0.2), vec(0.4, 0.3), vec(0.2, 0.2))
    assert float(deviation.mean()) == pytest.approx(printed, abs=0.005)


def test_the_row_with_both_ticks_is_the_unshared_model():  # LR-T2, LR-T1
    main = [68.8, float(quoted("LR-T4", "70.0 (69.1-70.9)").split()[0]), 70.3]
    assert numbers(quoted("LR-T2", "5.684G"))[1:] == main != numbers(quoted("LR-T2", "5.613G"))[1:]
    assert f"{12 * 12 * 2 * entry_count(64) // 1000}k" in quoted("LR-T2", "580k")


def test_drops_after_shuffling():  # LR-T3
    table = {
        "Abs. Pos. E.": numbers(quoted("LR-T3", "Abs.")),
        "VisionLlama RoPE": [65.5, 29.7, 54.8, 45.0, 37.0, 17.7],
        "RoPE-Mixed": [68.8, 17.1, 75.1, 46.3, 28.2, 39.1],
        "LieRE8": [70.3, 12.3, 82.5, 47.0, 27.8, 40.9],
        "LieRE64": [70.0, 10.8, 84.6, 44.7, 28.0, 37.4],
    }
    wrong = []
    for name, row in table.items():
        for before, after, printed in (row[:3], row[3:]):
            # Accuracies are rounded to 0.05 either way, and so is the drop.
            low, high = (100 * (1 - (after - d) / (before + d)) + d for d in (-0.05, 0.05))
            if not low <= printed <= high:
                wrong.append((name, printed, round(100 * (1 - after / before), 1)))
    assert wrong == [("Abs. Pos. E.", 0.0, 3.4)]


def test_an_accuracy_lies_in_its_interval():  # LR-T4, LR-T1
    printed, meant = (numbers(quoted("LR-T4", f"70.0 (69.1-{end}")) for end in (69, 70))
    absolute = numbers(quoted("LR-T1", "63.9"))
    assert not printed[1] <= printed[0] <= printed[2]
    assert meant[1] <= meant[0] <= meant[2]
    for accuracy, low, high in (meant, [absolute[0], absolute[1], 64.8]):
        half = 1.96 * sampling_error(accuracy / 100, 10_000)
        assert low == pytest.approx(accuracy - half, abs=0.1)
        assert high == pytest.approx(accuracy + half, abs=0.1)
    assert absolute[2] - absolute[0] > 1.8 * (absolute[0] - absolute[1])


def test_the_lead_over_rope_mixed_at_three_sizes():  # LR-T4
    mixed, liere = (numbers(quoted("LR-T4", name))[::3] for name in ("RoPE-Mixed", "LieRE 8"))
    leads = [b - a for a, b in zip(mixed, liere)]
    for a, b, lead, ratio, correlation in zip(mixed, liere, leads, [0.3, 2.3, 1.7], [0.98, -0.38, 0.26]):
        one, other = (sampling_error(each / 100, 10_000) for each in (a, b))
        assert round(lead / math.hypot(one, other), 1) == ratio
        # The correlation of the two models' errors at which the lead is just significant.
        enough = (one**2 + other**2 - (lead / 1.96) ** 2) / (2 * one * other)
        assert round(enough, 2) == correlation
        # With the most disagreement there can be, it is not: if exactly one of the two is right on a share u of the
        # images, the standard error is sqrt(u / N), about.
        assert lead / 100 < 1.96 * math.sqrt(min(2 - (a + b) / 100, 1.0) / 10_000)
    assert 0.01 < 10_000 * (leads[0] / 100 / 1.96) ** 2 < 0.011  # the largest share at which the first one is
    assert [65.3 - mixed[0], 68.9 - mixed[2]] == pytest.approx([-0.1, 0.1])  # LieRE64 at ViT-Tiny and ViT-Large


def test_increases_of_operations():  # LR-T5
    base = numbers(quoted("LR-T5", "Abs."))
    rows = {
        "RoPE-Mixed": [0.964, 0.104, 5.609, 0.036, 19.863, 0.035],
        "LieRE8": numbers(quoted("LR-T5", "LieRE 8")),
        "LieRE64": [0.970, 0.727, 5.684, 1.375, 20.061, 1.033],
    }
    wrong = []
    for name, row in rows.items():
        for zero, total, printed in zip(base, row[::2], row[1::2]):
            low, high = ((total + d) / (zero - d) * 100 - 100 for d in (-0.0005, 0.0005))
            if not low - 0.0005 <= printed <= high + 0.0005:
                wrong.append((name, printed, round(100 * (total / zero - 1), 3), round(low, 3), round(high, 3)))
    assert wrong == [("LieRE8", 0.065, 0.131, 0.126, 0.136)]


def test_parameters_of_the_base_model():  # LR-cfg
    from torch import nn

    def count(hidden):  # a ViT without learned positions
        outside = nn.ModuleList([nn.Linear(48, 768), nn.LayerNorm(768), nn.Linear(768, 100)])
        inside, around = (
            sum(p.numel() for p in part.parameters()) for part in (nn.TransformerEncoderLayer(768, 12, hidden), outside)
        )
        return 12 * inside + around + 768

    unbiased = [(count(hidden) - 12 * 3 * 768) / 1e6 for hidden in (3072, 3096)]
    assert [round(each, 2) for each in unbiased] == [85.14, 85.59]
    assert numbers(quoted("LR-cfg", "All models")) == [85.1]


def test_operations_for_each_parameter_and_their_quadratic_part():  # LR-T4, LR-T5
    operations, parameters = numbers(quoted("LR-T5", "Abs.")), [22, 85.1, 302]
    rates = [1000 * each / count for each, count in zip(operations, parameters)]
    assert rates[1:] == pytest.approx([65.8, 65.8], abs=0.15)
    assert rates[0] < 45
    assert 1000 * operations[0] / 65.8 == pytest.approx(14.6, abs=0.05)
    assert round(12 * (4 * 384**2 + 2 * 384 * 768) / 1e6, 1) == 14.2  # weights of the released ViT-Tiny's blocks
    tokens, width, layers = 65, 768, 12  # the base model
    linear, quadratic = layers * 12 * tokens * width**2, layers * 2 * tokens**2 * width
    assert round((linear + quadratic) / 1e9, 2) == 5.60
    assert (linear + quadratic) / 1e9 == pytest.approx(operations[1], rel=0.003)
    assert round(100 * quadratic / (linear + quadratic), 1) == 1.4


@pytest.mark.parametrize("frequency", [0.05, 0.4, 3.0])
@pytest.mark.parametrize("distance", [1.0, 7.0, 40.0])
def test_any_frequency_can_look_at_any_distance(frequency, distance):  # NT-4
    q, distances = vec(0.6, 0.8), torch.arange(64).double()
    k = rotations.rotation_matrix(vec(-distance * frequency)[0]) @ q
    scores = rotations.rotation_matrix(distances * frequency) @ k @ q
    assert scores[int(distance)] == pytest.approx(float(scores.max()), abs=1e-12)
    assert float(scores.max()) == pytest.approx(1.0)
