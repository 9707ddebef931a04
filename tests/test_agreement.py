"""Other libraries' results and ours for the same numbers; each test runs where its library is installed.

``pip install -e ".[test,others]"`` brings them. The record that the book's page reads was made where all of them were.
"""

import math

import agreement
import pytest
import torch
import vision

from geolib.encodings import HalfSplit, RoPE
from geolib.lab.benches import saved
from geolib.rotations import language_frequencies

BOUND = 1e-5
"""Of the largest number compared: some eighty roundings of float32, through the layers of a model."""

NAMES = [f"{c.distribution}: {c.what}" for c in agreement.COMPARISONS]


@pytest.mark.parametrize("comparison", agreement.COMPARISONS, ids=NAMES)
def test_results_are_the_other_librarys(comparison):
    vision.import_torchvision()  # which timm and transformers import where it is, and which has to be helped here
    pytest.importorskip(comparison.package)
    away, largest = agreement.difference(comparison)
    assert 0.1 < largest < math.inf
    assert away <= BOUND * largest


@pytest.mark.parametrize("what", [what for what in agreement.SCALINGS if "four query heads" not in what])
def test_another_rotation_would_be_seen(what):
    vision.import_torchvision()
    pytest.importorskip("transformers")
    rope, _ = agreement.SCALINGS[what]
    ours, theirs = agreement.llamas(rope, RoPE(language_frequencies(agreement.DIM)))()
    assert (ours - theirs).abs().max() > 1000 * BOUND * theirs.abs().max()


def test_the_record_holds_every_comparison_and_every_one_agrees():
    rows = saved.read("agreement")["rows"]
    assert [f"{row['library']}: {row['what']}" for row in rows] == NAMES
    for row in rows:
        assert 0.1 < row["largest"] < math.inf
        assert row["difference"] <= BOUND * row["largest"], row
        assert row["version"]


def test_a_difference_is_seen():
    off = agreement.Comparison("", "", "", lambda: (torch.ones(3), torch.tensor([1.0, 1.0, 1.5])))
    assert agreement.difference(off) == (0.5, 1.5)
    other = agreement.Comparison("no_such_package", "", "", lambda: (torch.ones(3), torch.ones(1, 3)))
    assert math.isnan(agreement.difference(other)[0])
    assert agreement.installed(other) is None


# Without any of them -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turned", [None, 4])
def test_half_split_encodings_rotate_half_as_others_write_it(turned):
    dim, tokens = 12, 7
    last = dim if turned is None else turned
    q, positions = torch.randn(2, 3, tokens, dim, dtype=torch.float64), torch.rand(2, tokens, dtype=torch.float64) * 50
    theta = [10000.0 ** (-2 * j / last) for j in range(last // 2)]
    wanted = q.clone()
    for b in range(2):
        for t in range(tokens):
            for j in range(last // 2):
                angle = positions[b, t].item() * theta[j]
                x, y = q[b, :, t, j], q[b, :, t, j + last // 2]
                wanted[b, :, t, j] = math.cos(angle) * x - math.sin(angle) * y
                wanted[b, :, t, j + last // 2] = math.sin(angle) * x + math.cos(angle) * y
    placed = HalfSplit(RoPE(language_frequencies(last).double(), rotary_dim=last), turned).place(positions[..., None])
    for got in placed.to_reference(q, q):
        torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-6)
