"""What the site says under a check: that it held, which clauses, and how large the difference was."""

import ast

import numpy as np
import pytest
import torch

with pytest.MonkeyPatch.context() as patch:
    patch.setattr("IPython.get_ipython", lambda: None)  # a shell of this process would stay watched
    import evidence

AGREE = {"close": evidence.watched(torch.allclose), "near": evidence.watched(np.allclose)}
KEPT = {"_kept_assertion": evidence.HELD.append, "_kept_bound": evidence.keep_bound}


def told(cell):
    """What is told of a cell that ran."""
    evidence.HELD.clear()
    evidence.GAPS.clear()
    tree = evidence.Keep(cell.splitlines()).visit(ast.parse(cell))
    exec(compile(ast.fix_missing_locations(tree), "cell", "exec"), {"torch": torch, "np": np} | AGREE | KEPT)
    return evidence.told()


def test_assertions_are_counted_and_their_comments_are_the_clauses():
    said = told("assert True  # rule 1\nfor i in range(2):\n    assert i < 5, 'no'  # rule 2\nassert not False")
    assert said == "4 assertions held. Clauses: rule 1; rule 2."


def test_what_is_said_to_tools_is_no_clause():
    said = told("assert True  # 3  # fmt: skip\nassert (1 ==\n        1)  # fmt: skip\nassert True  # skew,")
    assert said == "3 assertions held. Clauses: 3; skew."


def test_the_largest_difference_is_told():
    assert ", largest difference 0.0002." in told("assert close(torch.ones(2), torch.ones(2) + 2e-4, atol=1e-3)")
    assert ", largest difference 0.2." in told("assert near([1.0, 2.0], [1.0, 2.25], atol=1)")
    halves = "assert close(torch.ones(1, dtype=torch.bfloat16), torch.tensor([1.5]).bfloat16(), atol=1)"
    assert ", largest difference 0.5." in told(halves)
    assert ", largest difference 3e-07." in told("assert near(1, 1)\nassert abs(torch.tensor(3e-7)) < 1e-6")
    assert told("assert near(1, 1)") == "One assertion held, no difference."


def test_a_difference_that_should_be_large_is_not_told():
    assert "difference" not in told("assert not close(torch.ones(1), torch.zeros(1))\nassert torch.tensor(0.5) < 1")
    assert "difference" not in told("assert torch.tensor(2.0) > 1e-6")


@pytest.mark.parametrize(
    "cell", ["assert 2 < 1", "assert 1 > 2", "assert torch.tensor(2.0) < 1", "assert close(*torch.eye(2))"]
)
def test_what_fails_still_fails(cell):
    with pytest.raises(AssertionError):
        told(cell)
