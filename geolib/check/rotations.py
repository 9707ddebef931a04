"""Checkers for the exercises of the chapter on rotations."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from geolib.check._register import checker, differs, far


@checker("rotations: three mirrors")
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
        if wrong := differs(got, expected, f"the mirror at your angle for ({a}, {b}, {c})"):
            return wrong
    return None


@checker("rotations: smallest base")
def _smallest_base(answer: Callable[[int, int], float]) -> str | None:
    """answer(dim, tokens): the base at which the slowest pair makes one full turn in that many tokens."""
    for dim, tokens in [(64, 4096), (32, 1000), (128, 65536)]:
        base = float(answer(dim, tokens))
        slowest = min(base ** (-2 * i / dim) for i in range(dim // 2))
        turns = slowest * tokens / (2 * math.pi)
        if far(turns, 1):
            return f"dim {dim} and {tokens} tokens: at base {base:.6g} the slowest pair makes {turns:.4g} turns"
    return None


@checker("rotations: which shift")
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
        if far(got, best, 1e-5):
            return f"at your shift the score is {got:.5f}, but {best:.5f} can be reached"
    return None
