"""Formulas of docstrings: what is a formula becomes one, what is prose, code or a shape stays."""

import importlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "book" / "_ext"))
symbols = importlib.import_module("symbols")


@pytest.mark.parametrize(
    ("text", "tex"),
    [
        ("T_i^-1", r"T_{i}^{-1}"),
        ("P_{n->m} = T_m T_n^-1", r"P_{n\to m}=T_{m} T_{n}^{-1}"),
        ("T_n^T M_n T_n", r"T_{n}^{\top} M_{n} T_{n}"),
        ("<q_m, P_{n->m} k_n>", r"\langle q_{m}, P_{n\to m} k_{n}\rangle"),
        ("s^(-m/2) R(-m theta)", r"s^{-m/2} R(-m \theta )"),
        ("diag(R(a_1), ..., R(a_{d/2}))", r"\operatorname{diag}(R(a_{1}), \dots, R(a_{d/2}))"),
        ("2 pi / N^(2(i-1)/d)", r"2 \pi /N^{2(i-1)/d}"),
        ("-2^(-8h/H) |p_m - p_n|", r"-2^{-8h/H} |p_{m}-p_{n}|"),
        ("(k . k')^(2p)", r"(k\cdot {k^{\prime}})^{2p}"),
        ("s^-(m+n)", r"s^{-(m+n)}"),
        ("e^(i lambda_j)", r"e^{i \lambda_{j}}"),
        ("sqrt(v^T g v)", r"\sqrt{v^{\top} g v}"),
        ("log b_ij", r"\log b_{ij}"),
        ("(R - I)(R + I)^-1", r"(R-I)(R+I)^{-1}"),
    ],
)
def test_a_formula_is_typeset(text, tex):
    assert symbols.typeset(text) == rf"\ :math:`{tex}`\ "
    assert symbols.typeset(f"Take {text}, the first.") == rf"Take \ :math:`{tex}`\ , the first."


@pytest.mark.parametrize(
    "text",
    [
        "A query at m and a key at n; s = 1 is a case.",
        "x (..., tokens, d), from angles (..., d/2) in radians",
        "``s_1`` and ``theta``; log_scale, x_train, e^log_factor",
        "**mu** (*Tensor*)",
        "CS-beta, RF-9, so(n), a log of runs, exp of it",
        r"\|v\| is the length",
    ],
)
def test_prose_code_and_shapes_stay(text):
    assert symbols.typeset(text) == text


def test_examples_fields_and_blocks_of_code_stay():
    lines = [
        "The angle theta::",
        "",
        "    theta_1 = 2",
        "",
        ":param theta: The angle theta_1.",
        ">>> theta_1",
        "theta_1",
    ]
    kept = list(lines)
    symbols.typeset_docstring(None, "function", "f", None, None, lines)
    assert lines[0] == r"The angle \ :math:`\theta`\ ::"
    assert lines[4] == r":param theta: The angle \ :math:`\theta_{1}`\ ."
    assert lines[1:4] + lines[5:] == kept[1:4] + kept[5:]
