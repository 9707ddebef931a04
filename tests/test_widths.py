"""Arguments of several precisions: the widest decides what is computed in, and the result is rounded once.

The oracle is the same call in float64, its result rounded to the precision that came out.
"""

import pytest
import torch

from geolib import attention, conformal, lie, locality, rotations, transport

F16, F32, F64 = torch.float16, torch.float32, torch.float64


def plain(*shape):
    return torch.randn(*shape, dtype=F64)


def skew(n):
    return lie.skew_matrix(plain(3, n * (n - 1) // 2), n)


def widths(*shape):
    return 0.5 + torch.rand(*shape, dtype=F64)


# Functions whose arguments may differ in precision, with arguments drawn in float64, and those of them that decide.
MIXED = {
    "conformal_map": (conformal.conformal_map, lambda: [plain(5, 6), plain(5), plain(5, 3)], (0, 1, 2)),
    "scale_features": (transport.scale_features, lambda: [plain(5, 6), plain(5, 1)], (0, 1)),
    "scale_features, one factor": (transport.scale_features, lambda: [plain(5, 6), plain(1)[0]], (0, 1)),
    "rotate_pairs": (rotations.rotate_pairs, lambda: [plain(5, 6), plain(5, 3)], (0, 1)),
    "rope": (rotations.rope, lambda: [plain(5, 6), plain(5, 2), plain(3, 2)], (1, 2)),
    "whiten": (locality.whiten, lambda: [plain(5, 2), torch.eye(2, dtype=F64) * widths(1)], (0, 1)),
    "log_attenuation": (locality.log_attenuation, lambda: [plain(5, 2), widths(5)], (0,)),
    "fused_focused_attention": (
        locality.fused_focused_attention,
        lambda: [plain(1, 5, 4), plain(1, 5, 4), plain(1, 5, 3), plain(5, 2), widths(5)],
        (3, 4),
    ),
    "fused_focused_attention, a precision": (
        locality.fused_focused_attention,
        lambda: [*(plain(1, 5, 4) for _ in range(3)), plain(5, 2), widths(1), torch.eye(2, dtype=F64) * widths(1)],
        (3, 4, 5),
    ),
    "position_rotations": (lie.position_rotations, lambda: [plain(5, 3), skew(4)], (0, 1)),
    "attention_weights": (attention.attention_weights, lambda: [plain(5, 4), plain(6, 4)], (0, 1)),
}
# And others, whose arguments may be half as wide as float32.
HALVES = {name: case[:2] for name, case in MIXED.items()} | {
    "attention": (attention.attention, lambda: [plain(5, 4), plain(6, 4), plain(6, 3)]),
    "exp_skew": (lie.exp_skew, lambda: [skew(5)]),
    "log_rotation": (lie.log_rotation, lambda: [lie.exp_skew(0.3 * skew(4))]),
    "reflect_pairs": (rotations.reflect_pairs, lambda: [plain(5, 6), plain(5, 3)]),
}


def once_rounded(function, arguments):
    """The result, and the one of the same numbers in float64 rounded to its precision."""
    result = function(*arguments)
    return result, function(*(a.double() for a in arguments)).to(result.dtype)


@pytest.mark.parametrize("name", MIXED)
def test_the_widest_argument_decides_what_is_computed_in(name):
    function, draw, decide = MIXED[name]
    drawn = draw()
    for wide in decide:
        result, wanted = once_rounded(function, [a if i == wide else a.float() for i, a in enumerate(drawn)])
        ulp = torch.finfo(result.dtype).eps / 2 if result.dtype == F32 else 1e-13
        assert (result - wanted).abs().max() <= 1.01 * ulp * wanted.abs().max(), f"argument {wide} in float64"


@pytest.mark.parametrize("name", HALVES)
def test_what_comes_in_half_precision_is_rounded_once(name):
    function, draw = HALVES[name]
    result, wanted = once_rounded(function, [a.half() for a in draw()])
    ulp = torch.finfo(result.dtype).eps if result.dtype == F16 else 1e-5
    assert (result - wanted).abs().max() <= 0.51 * ulp * wanted.abs().max()
