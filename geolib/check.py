"""A checker for the exercises: ``check("rotations: three mirrors", answer)``.

Each checker recomputes what it needs by its own means and names a case in which a wrong answer fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from geolib._checks import require

_CHECKERS: dict[str, Callable[[Any], str | None]] = {}


def check(exercise: str, answer: Any) -> bool:
    """Say whether an answer to an exercise is right.

    Parameters
    ----------
    exercise : str
        The name given in the exercise.
    answer : a number or a function, as the exercise asks

    Returns
    -------
    bool
        True when right. What was found is printed.

    Raises
    ------
    ValueError
        For an unknown exercise.
    """
    require(exercise in _CHECKERS, "exercise", repr(exercise), f"one of {', '.join(map(repr, _CHECKERS))}")
    try:
        found = _CHECKERS[exercise](answer)
    except Exception as error:  # the reader's function may fail in any way; say how instead of stopping the notebook
        found = f"your answer raised {type(error).__name__}: {error}"
    print(f"{exercise}: " + ("correct" if found is None else f"not yet: {found}"))
    return found is None


def _checker(exercise: str) -> Callable[[Callable[[Any], str | None]], Callable[[Any], str | None]]:
    def register(function: Callable[[Any], str | None]) -> Callable[[Any], str | None]:
        _CHECKERS[exercise] = function
        return function

    return register


def _differs(got: Any, expected: Tensor, case: str) -> str | None:
    got = torch.as_tensor(got, dtype=torch.float64)
    if got.shape != expected.shape:
        return f"{case} gives shape {tuple(got.shape)}, it should be {tuple(expected.shape)}"
    gap = float((got - expected).abs().max())
    return None if gap < 1e-5 else f"{case} is off by {gap:.2g}"


@_checker("rotations: three mirrors")
def _three_mirrors(answer: Callable[[float, float, float], float]) -> str | None:
    """The angle of the mirror that S(a) S(b) S(c) is, by following two vectors."""
    for a, b, c in [(0.0, 0.0, 0.3), (0.2, 1.1, -0.4), (2.0, -3.0, 0.5)]:
        images = []
        for z in (1 + 0j, 1j):
            for line in (c, b, a):  # a mirror at angle t sends z to e^{2it} conj(z)
                z = complex(math.cos(2 * line), math.sin(2 * line)) * z.conjugate()
            images.append([z.real, z.imag])
        t = float(answer(a, b, c))
        expected = torch.tensor(images, dtype=torch.float64)
        got = [[math.cos(2 * t), math.sin(2 * t)], [math.sin(2 * t), -math.cos(2 * t)]]
        if wrong := _differs(got, expected, f"the mirror at your angle for ({a}, {b}, {c})"):
            return wrong
    return None


@_checker("rotations: complex RoPE")
def _complex_rope(answer: Callable[[Tensor, Tensor, Tensor], Tensor]) -> str | None:
    """answer(x, positions, theta) against a loop over tokens and pairs."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(5, 8, generator=generator, dtype=torch.float64)
    positions = torch.tensor([0.0, 1.0, 2.5, -4.0, 100.0], dtype=torch.float64)
    theta = torch.tensor([1.0, 0.3, 0.02, -0.7], dtype=torch.float64)
    expected = torch.empty_like(x)
    for m in range(5):
        for j in range(4):
            turn = float(positions[m] * theta[j])
            a, b = float(x[m, 2 * j]), float(x[m, 2 * j + 1])
            expected[m, 2 * j] = math.cos(turn) * a - math.sin(turn) * b
            expected[m, 2 * j + 1] = math.sin(turn) * a + math.cos(turn) * b
    return _differs(answer(x, positions, theta), expected, "a random x at positions 0, 1, 2.5, -4, 100")


@_checker("rotations: smallest base")
def _smallest_base(answer: Callable[[int, int], float]) -> str | None:
    """answer(dim, tokens): the base at which the slowest pair makes one full turn in that many tokens."""
    for dim, tokens in [(64, 4096), (32, 1000), (128, 65536)]:
        base = float(answer(dim, tokens))
        slowest = min(base ** (-2 * i / dim) for i in range(dim // 2))
        turns = slowest * tokens / (2 * math.pi)
        if abs(turns - 1) > 1e-6:
            return f"dim {dim} and {tokens} tokens: at base {base:.6g} the slowest pair makes {turns:.4g} turns"
    return None


@_checker("rotations: which shift")
def _which_shift(answer: Callable[[Tensor, Tensor, Tensor], float]) -> str | None:
    """answer(q, k, theta): the shift n - m at which the score of one pair is largest, within one turn."""
    generator = torch.Generator().manual_seed(5)
    for _ in range(4):
        q, k = torch.randn(2, 2, generator=generator, dtype=torch.float64)
        theta = 0.2 + torch.rand((), generator=generator, dtype=torch.float64)
        shifts = torch.linspace(0, 2 * math.pi / float(theta), 20001, dtype=torch.float64)
        turned = torch.stack(
            [(theta * shifts).cos() * k[0] - (theta * shifts).sin() * k[1],
             (theta * shifts).sin() * k[0] + (theta * shifts).cos() * k[1]], -1
        )  # fmt: skip
        best = float((turned @ q).max())
        shift = float(answer(q, k, theta)) * float(theta)
        x, y = float(k[0]), float(k[1])
        got = float(q[0]) * (math.cos(shift) * x - math.sin(shift) * y)
        got += float(q[1]) * (math.sin(shift) * x + math.cos(shift) * y)
        if best - got > 1e-5:
            return f"at your shift the score is {got:.5f}, but {best:.5f} can be reached"
    return None


@_checker("riemannformer: start of the slow law")
def _slow_start(answer: Callable[[float, int, float], float]) -> str | None:
    """answer(share, tokens, beta): the scale whose metric at the last position is the share."""
    for share, tokens, beta in [(0.9, 64, 2.0), (0.5, 65536, 2.0), (0.9, 1000, math.e)]:
        metric = float(answer(share, tokens, beta)) ** math.log(tokens, beta)
        if abs(metric - share) > 1e-6:
            return f"share {share}, {tokens} tokens, beta {beta:.3g}: at your scale the last metric is {metric:.5g}"
    return None


@_checker("riemannformer: symmetries of a distance")
def _symmetries(answer: Callable[[Tensor], int]) -> str | None:
    """answer(A): how many of the square's eight symmetries keep |p|_A, by moving the cells of a grid."""
    cells = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    moves: list[Callable[[int, int], tuple[int, int]]] = [
        lambda i, j: (i, j), lambda i, j: (-i, j), lambda i, j: (i, -j), lambda i, j: (-i, -j),
        lambda i, j: (j, i), lambda i, j: (-j, i), lambda i, j: (j, -i), lambda i, j: (-j, -i),
    ]  # fmt: skip
    for a, b, c in [(1.0, 0.0, 1.0), (1.0, 0.0, 2.0), (1.0, 0.3, 2.0), (1.0, 0.3, 1.0)]:
        length = {(i, j): a * i * i + 2 * b * i * j + c * j * j for i, j in cells}
        expected = sum(all(math.isclose(length[move(*cell)], length[cell]) for cell in cells) for move in moves)
        matrix = torch.tensor([[a, b], [b, c]])
        if int(answer(matrix)) != expected:
            return f"for A = {matrix.tolist()} your count is {int(answer(matrix))}, it should be {expected}"
    return None


@_checker("riemannformer: paired difference")
def _paired_difference(answer: Callable[[dict[int, float], dict[int, float]], tuple[float, float]]) -> str | None:
    """answer(a, b): mean and standard error of a - b over the common seeds."""
    for a, b in [({0: 0.5, 1: 0.6}, {0: 0.4, 1: 0.3}), ({0: 9.0, 2: 5.0, 7: 1.0, 3: 0.0}, {7: 4.0, 0: 6.0, 2: 5.0})]:
        differences = [a[seed] - b[seed] for seed in a if seed in b]
        count, mean = len(differences), math.fsum(differences) / len(differences)
        # Half the mean squared difference of all pairs is the variance with n - 1.
        spread = math.fsum((x - y) ** 2 for x in differences for y in differences) / (2 * count * (count - 1))
        expected = torch.tensor([mean, math.sqrt(spread / count)], dtype=torch.float64)
        if wrong := _differs([float(x) for x in answer(a, b)], expected, f"a = {a}, b = {b}"):
            return wrong
    return None
