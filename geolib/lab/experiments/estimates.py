"""How long runs should take, by method, and what that rests on.

A run's time is that of its steps. A step's time is that of its arithmetic and that of its operations, counted in the
method's own model; what a device needs for either is assumed, and corrected by what was measured on that device.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from geolib.lab.config import Config
from geolib.lab.counting import Counting
from geolib.lab.data.sets import DATASETS
from geolib.lab.gpt import GPT
from geolib.lab.records import Record
from geolib.lab.text_attention import METHODS
from geolib.lab.vit import ViT
from geolib.sympow import dimension

H100 = "one H100"  # the device of the full runs where there is no GPU at hand
_COUNTED_TOKENS = 256  # of a window in which operations are counted
_TEST_IMAGES = 10_000  # of CIFAR; fewer where the configuration says so


@dataclass(frozen=True)
class Speed:
    """What a kind of device is assumed to do, until it is measured."""

    flops: float  # floating-point operations a second in products of matrices
    operation: float  # seconds for one operation (a kernel), whatever it works on
    number: float  # seconds for each number that an operation writes
    preparing: float  # seconds to compile and record a step


# A GPU replays its kernels from a recording, where the smallest takes some 2 microseconds; a third of an H100's data
# sheet in bf16 is what such small products get. A core of a processor does some 50 billion float32 operations a second.
GPU = Speed(flops=3e14, operation=2e-6, number=0.0, preparing=40.0)
CPU = Speed(flops=5e10, operation=1e-5, number=2e-10, preparing=0.0)


@dataclass(frozen=True)
class Estimate:
    """A time and what it rests on, in words."""

    seconds: float
    basis: str


@dataclass(frozen=True)
class Kind:
    """What makes records comparable with a run that is planned: its experiment, scale, precision and kind of device."""

    experiment: str
    scale: str
    precision: str
    on_gpu: bool

    def holds(self, record: Record) -> bool:
        """Whether a record is of this kind."""
        on_gpu = record.peak_memory.get("of") == "device"
        return (record.experiment, record.scale, record.precision, on_gpu) == (
            self.experiment, self.scale, self.precision, self.on_gpu,
        )  # fmt: skip


def estimate(
    config: Config, records: Iterable[Record], device: str, speed: Speed, kind: Kind | None = None
) -> Estimate:
    """The time of a run on a device, named as records name it: the assumed time, corrected by what was measured.

    The correction is measured over assumed time: of the newest record of the same kind on this device, else on any,
    with this method where there is one; else the median over all records of this device with this method and size, else
    of this size, else with this method, else any. Without a record, what the assumptions say.

    >>> estimate(Config("digits", epochs=1), [], "some GPU", GPU).basis
    'assumed speeds, nothing measured here'
    """
    known = list(records)
    here = [record for record in known if record.device == device]
    expected = assumed_seconds(config, speed)
    alike = [] if kind is None else [record for record in known if kind.holds(record)]
    if alike:
        nearest = max(alike, key=lambda r: (r.device == device, _model(r.config) == _model(config), r.started))
        ratio = _alone(nearest) / assumed_seconds(nearest.config, speed)
        whose = "this method" if _model(nearest.config) == _model(config) else "another method"
        where = "here" if nearest.device == device else f"on {nearest.device}"
        return Estimate(expected * ratio, f"the newest run with {whose} in this experiment, measured {where}")
    kinds = (
        ("this method at this size", [r for r in here if _model(r.config) == _model(config)]),
        ("other methods at this size", [r for r in here if _size(r.config) == _size(config)]),
        ("this method at another size", [r for r in here if _method(r.config) == _method(config)]),
        ("other methods at another size", here),
    )
    for words, found in kinds:
        if found:
            ratio = statistics.median(_alone(r) / assumed_seconds(r.config, speed) for r in found)
            runs = f"{len(found)} run{'s' if len(found) > 1 else ''}"
            return Estimate(expected * ratio, f"{words}, measured here ({runs})")
    return Estimate(expected, "assumed speeds, nothing measured here")


def _alone(record: Record) -> float:
    """The seconds that a run would have taken alone: of several on one device each waits for the others.

    Two on a GPU took twice as long as one, and a processor's cores are all at work in one run already.
    """
    return record.wall_seconds / record.engine.get("jobs", 1)


def _method(config: Config) -> tuple[Any, ...]:
    return config.method, repr(config.method_options)


def _size(config: Config) -> tuple[Any, ...]:
    return tuple(getattr(config, name) for name in ("width", "heads", "layers", "mlp_ratio", "batch", "context"))


def _model(config: Config) -> tuple[Any, ...]:
    return *_method(config), *_size(config)


def assumed_seconds(config: Config, speed: Speed) -> float:
    """A run's time under assumed speeds: steps, evaluations (a third of a step's work an image) and preparation."""
    images = config.train_size or DATASETS[config.dataset].images // (config.context or 1)
    tested = min(config.test_size or _TEST_IMAGES, _TEST_IMAGES, images)
    evaluations = -(-config.epochs // config.eval_every)
    steps = config.epochs * -(-images // config.batch) + evaluations * tested / config.batch / 3
    operations, numbers = counted(config)
    step = flops(config) / speed.flops + operations * speed.operation + numbers * config.batch * speed.number
    return speed.preparing + steps * step


def flops(config: Config) -> float:
    """Floating-point operations of a training step: 6 for each weight of a matrix and token, and those of attention.

    >>> f"{flops(Config('cifar10', width=256, layers=6, mlp_ratio=4)):.3g}"  # RiemannFormer's table, one step
    '2.42e+11'
    """
    tokens = config.context or DATASETS[config.dataset].tokens(config.patch or 1)
    weights = config.layers * config.width**2 * (4 + 2 * config.mlp_ratio)
    return 6 * tokens * config.batch * (weights + 2 * config.layers * reach(config, tokens) * config.width)


def reach(config: Config, tokens: int) -> int:
    """The keys that a query meets: all tokens; of a power no more than what the state costs, twice its dimension.

    Source: CS-CROSS.
    """
    if not config.is_text or METHODS[config.method].kernel != "power":
        return tokens
    options = config.method_options
    dim = options.get("head_dim") or config.width // options.get("heads", config.heads)
    return min(tokens, 2 * dimension(dim, options.get("power", 2)))


def _narrow(config: Config) -> Config:
    """The configuration's model, made narrow, without what does not change it: equal models are counted once."""
    names = ["method", "method_options", "heads", "layers", "mlp_ratio"]
    names += [] if config.is_text else ["patch", "pool", "dropout"]
    block = 1 if config.is_text else config.method_options.get("block") or 1
    head = 16 + -16 % block  # blocks must fill it
    context = _COUNTED_TOKENS if config.is_text else None
    same = {name: getattr(config, name) for name in names}
    return Config(config.dataset, width=head * config.heads, context=context, **same)


def counted(config: Config) -> tuple[int, int]:
    """Operations of a forward and backward pass of a model, and the numbers that they write for one image.

    Views are not counted: they do no work. Neither are the loss and the optimiser, which are the same for all. A narrow
    model is counted, for its operations are those of a wide one and what they write grows with the width; and only with
    one layer and with two, for each further layer adds what the second added (of LieRE roughly: the draw decides how
    often an exponential squares).
    """
    narrow = _narrow(config)
    one, two = (_counted(replace(narrow, layers=layers).canonical) for layers in (1, 2))
    operations, numbers = (first + (config.layers - 1) * (second - first) for first, second in zip(one, two))
    longer = (config.context or 1) / (narrow.context or 1)  # what a long window writes grows with its tokens
    return operations, round(numbers * longer * config.width / narrow.width)


@cache
def _counted(canonical: str) -> tuple[int, int]:
    config = Config.from_dict(json.loads(canonical))
    shape = DATASETS[config.dataset].shape
    with torch.random.fork_rng():
        torch.manual_seed(0)  # how often an exponential squares depends on the generators drawn
        model = GPT(config) if config.is_text else ViT(config, shape, 10)
        inputs = torch.zeros(1, config.context or 1, dtype=torch.long) if config.is_text else torch.zeros(1, *shape)
        with Counting() as counting:
            model(inputs).sum().backward()
    return counting.kernels.total(), counting.numbers
