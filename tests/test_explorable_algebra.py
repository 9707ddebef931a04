"""The algebra that explorables share, and functions that their own tests do not call, against NumPy and geolib.

Each entry of ``PARITY`` names a JavaScript function, draws its arguments and computes the same in Python.
"""

import math
import random

import numpy as np
import pytest
import scipy.linalg
import torch
from explorable_kit import float64 as tensor
from explorable_kit import node_functions
from scipy.spatial.transform import Rotation

from geolib import conformal, lie, locality, rotations

TIMES = 8
METRIC_STATE = ("n", "m", "key_angle", "query_angle", "theta", "s1", "s2")


def numbers(draw, *shape, most=2.0):
    """An array of random numbers, as lists."""
    return (
        [numbers(draw, *shape[1:], most=most) for _ in range(shape[0])]
        if shape
        else round(draw.uniform(-most, most), 6)
    )


def of_metric(draw):
    """A state of the metric's explorable."""
    n, m, key, query, theta = (draw.uniform(-3, 3) for _ in METRIC_STATE[:5])
    return dict(
        zip(METRIC_STATE, (n, m, 60 * key, 60 * query, 20 * theta, draw.uniform(0.7, 1.4), draw.uniform(0.7, 1.4)))
    )


def metric_at(state, position):
    theta = tensor([math.radians(state["theta"])])
    scales = tensor([state["s1"], state["s2"]]).log()
    return conformal.general_metric(tensor([position]), scales, theta)[0].numpy()


def pulled_back(state, position, x):
    """S^(p/2) R(p theta) x."""
    turned = rotations.rotate_pairs(tensor(x), tensor([math.radians(position * state["theta"])])).numpy()
    return np.array([state["s1"], state["s2"]]) ** (position / 2) * turned


def shape_of(pattern):
    """The contents of the patches of an 8 by 8 image."""
    p = rotations.grid_positions(8, 8).double()
    if pattern == "stripes":
        return 1 - 2 * (p[:, 1] // 2 % 2)
    if pattern == "blobs":
        centres = torch.tensor([[1.5, 1.5], [5.5, 5.5]], dtype=torch.float64)
        kernels = [locality.attenuation(torch.cat([p, c[None]]), tensor([math.sqrt(2)]))[-1, :-1] for c in centres]
        return 2 * torch.stack(kernels).amax(0) - 1
    return 0 * p[:, 0]


def turned_by(matrix):
    """Degrees: with a sign in the plane, without one in space."""
    entries = lie.upper_entries(lie.log_rotation(tensor(matrix)))
    return math.degrees(-float(entries[0]) if len(matrix) == 2 else float(entries.norm()))


def any_rotation(draw):
    """Of the plane or of space, less than half a turn."""
    entries = numbers(draw, *draw.choice([(1,), (3,)]), most=1.6)
    return lie.exp_skew(lie.skew_matrix(tensor(entries), 2 if len(entries) == 1 else 3)).tolist()


PEAKS = 3 * np.cos(2.4 * np.arange(16))
PARITY = {
    # Shared.
    "algebra.dot": (lambda d: [numbers(d, 5), numbers(d, 5)], np.dot),
    "algebra.plus": (
        lambda d: [d.uniform(-2, 2), numbers(d, 3), d.uniform(-2, 2), numbers(d, 3)],
        lambda s, a, t, b: s * np.array(a) + t * np.array(b),
    ),
    "algebra.cross": (lambda d: [numbers(d, 3), numbers(d, 3)], np.cross),
    "algebra.norm": (lambda d: [numbers(d, 5)], np.linalg.norm),
    "algebra.transpose": (lambda d: [numbers(d, 2, 3)], np.transpose),
    "algebra.multiply": (lambda d: [numbers(d, 2, 3), numbers(d, 3, 4)], np.matmul),
    "algebra.apply": (lambda d: [numbers(d, 2, 3), numbers(d, 3)], np.matmul),
    "algebra.combine": (
        lambda d: [numbers(d), numbers(d, 2, 3), numbers(d), numbers(d, 2, 3)],
        lambda s, a, t, b: s * np.array(a) + t * np.array(b),
    ),
    "algebra.identity": (lambda d: [d.randrange(1, 5)], np.eye),
    "algebra.rotation": (lambda d: [numbers(d, most=7)], lambda a: rotations.rotation_matrix(tensor(a))),
    "algebra.skew": (lambda d: [numbers(d, 6), 4], lambda e, n: lie.skew_matrix(tensor(e), n)),
    "algebra.expm": (lambda d: [numbers(d, 4, 4)], scipy.linalg.expm),
    "algebra.softmax": (lambda d: [numbers(d, 6, most=900)], lambda x: tensor(x).softmax(0)),
    "common.clamp": (lambda d: [numbers(d), -0.5, 0.7], np.clip),
    "common.wrap": (lambda d: [numbers(d, most=20)], lambda a: math.atan2(math.sin(a), math.cos(a))),
    # Of one explorable.
    "clock.agreements": (
        lambda d: [numbers(d, most=8), d.randrange(1, 9), d.choice([10, 1e4])],
        lambda delta, pairs, base: (delta * rotations.language_frequencies(2 * pairs, base)[:, 0]).double().cos(),
    ),
    "conformal.exponents": (
        lambda d: [{"law": d.choice(["bounded", "free", "slow"]), "tokens": 9}],
        lambda s: conformal.SCALE_LAWS[s["law"]]().exponent(torch.arange(9.0)),
    ),
    "conformal.exampleScores": (lambda d: [16], lambda n: PEAKS),
    "scale.plainScores": (lambda d: [], lambda: PEAKS),
    "gates.cumulativeLogs": (lambda d: [[d.uniform(0.01, 1) for _ in range(7)]], lambda g: [0, *np.log(np.cumprod(g))]),
    "locality.content": (lambda d: [d.choice(["stripes", "blobs", "plain"])], shape_of),
    "metric.pullBack": (lambda d: [of_metric(d), d.uniform(-3, 3), numbers(d, 2)], pulled_back),
    "metric.inner": (
        lambda d: [of_metric(d), d.uniform(-3, 3), numbers(d, 2), numbers(d, 2)],
        lambda s, p, x, y: np.array(x) @ metric_at(s, p) @ np.array(y),
    ),
    "spaces.inner": (
        lambda d: [{"scale": d.uniform(0.7, 1.4), "angle": 0.0}, d.uniform(-3, 3), numbers(d, 2), numbers(d, 2)],
        lambda s, p, x, y: s["scale"] ** p * np.dot(x, y),
    ),
    "plaquettes.degreesOf": (lambda d: [any_rotation(d)], turned_by),
    "sphere.placeOf": (
        lambda d: [(v := np.array(numbers(d, 3)), (v / np.linalg.norm(v)).tolist())[1]],
        lambda v: [math.degrees(math.atan2(v[1], v[0])), 90 - math.degrees(math.acos(v[2]))],
    ),
    "sphere.trianglePoints": (
        lambda d: [[d.uniform(-180, 180) if i % 2 == 0 else d.uniform(-90, 90) for i in range(6)]],
        lambda c: [Rotation.from_euler("ZY", [c[i], -c[i + 1]], degrees=True).apply([1, 0, 0]) for i in (0, 2, 4)],
    ),
}
FILES = sorted({name.split(".")[0] for name in PARITY})


def same(got, wanted, where):
    """Numbers to rounding, all else exactly."""
    if isinstance(wanted, dict):
        assert got.keys() == wanted.keys(), where
        for key in wanted:
            same(got[key], wanted[key], where)
    elif isinstance(wanted, list) and wanted and isinstance(wanted[0], (dict, str, list)):
        assert got == wanted, where
    else:
        np.testing.assert_allclose(np.array(got), np.array(wanted), rtol=1e-6, atol=1e-6, err_msg=where)


@pytest.mark.parametrize("file", FILES)
def test_functions_agree_with_python_on_random_arguments(file, tmp_path):
    own = [name.split(".")[1] for name in PARITY if name.startswith(f"{file}.")]
    host = {"algebra": "skew", "common": "skew"}.get(file, file)  # shared ones travel with what imports them
    many = f"export const many = ([name, values]) => ({{{', '.join(own)}}})[name](...values);"
    draw = random.Random(file)
    jobs = [(name, PARITY[f"{file}.{name}"][0](draw)) for name in own for _ in range(TIMES)]
    with node_functions(f"{host}.js", tmp_path, many) as call:
        for (name, values), got in zip(jobs, call("many", [[job] for job in jobs]), strict=True):
            same(got, PARITY[f"{file}.{name}"][1](*values), f"{name}{values}")
