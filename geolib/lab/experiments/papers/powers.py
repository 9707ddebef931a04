"""What a power does in softmax's place: the digits' models with scores (q . k)^p, everything else as it is."""

from __future__ import annotations

from geolib.lab.experiments.papers.digits import ENCODINGS
from geolib.lab.experiments.plan import Experiment, Variant

EVEN = (2, 4, 8)

POWERS = Experiment(
    name="digits-powers",
    about="even powers of the scores in softmax's place: 8x8 digits as 64 tokens of one pixel",
    datasets=("digits",),
    methods={"rope-axial": "softmax"} | {f"power-{p}": f"power {p}" for p in EVEN},
    variants={f"power-{p}": Variant("rope-axial+sympow", {"sympow": {"power": p}}) for p in EVEN},
    against=tuple((f"power-{p}", "rope-axial") for p in EVEN),
    settings=ENCODINGS.settings,
    seeds=ENCODINGS.seeds,
    importance=4,
)

EXPERIMENTS = (POWERS,)
