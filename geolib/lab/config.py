"""What a run is: a frozen configuration, its canonical JSON and its name; and how it is made, the options."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from geolib._checks import require
from geolib.encodings import check_name
from geolib.lab import text_attention
from geolib.lab.data.augmentation import AUGMENTATIONS, MAGNITUDES
from geolib.lab.data.sets import DATASETS, Patch


@dataclass(frozen=True)
class Config:
    """Everything that decides the numbers of a run, checked when it is made.

    A default here never changes: the hash covers only what differs from the defaults, so that a field added later
    leaves the name of every recorded run as it is.

    Parameters
    ----------
    dataset : str
        A key of ``geolib.lab.data.sets.DATASETS``.
    method : str
        A key of ``geolib.encodings.METHODS``; for documents one of ``geolib.lab.text_attention.METHODS``.
    method_options : mapping
        Passed to the method (``{"base": 100.0}``).
    width, heads, layers : int
    mlp_ratio : float
        Hidden features of a block's MLP over width.
    patch : int, sequence of int, or None
        Pixels along a patch's sides, one number for all axes or one for each; None takes the data set's own.
    pool : str
        "mean" (over all tokens) or "cls" (a class token in front, which has no position).
    dropout : float
        On the embedding and on each branch's output, never on attention weights.
    epochs, batch : int
    lr, weight_decay : float
        AdamW's; PyTorch's defaults.
    schedule : str
        "cosine" (to zero) or "constant".
    warmup : int
        Steps of linear warm-up.
    label_smoothing : float
    augment : str
        "none", "crop-flip" (crop after padding by 4, mirror left-right), "crop-flip-autoaugment" (then AutoAugment's
        policy for CIFAR-10) or "crop-flip-randaugment" (RandAugment first).
    randaugment : (int, int)
        RandAugment's operations for each image, and their magnitude, 0 ... 30.
    erase : float
        Probability that a random rectangle of an image gets the mean colour, after everything else.
    shifts : sequence of int
        The trained model is also tested moved by these many patches along every axis (``geolib.lab.probes.vit``).
    resolutions : sequence of int
        The trained model is also tested on images resized to these many pixels a side (``geolib.lab.probes.vit``).
    precision : str or None
        Of products: "float32" or "bfloat16", where that is what runs are compared by. None leaves it to
        ``Options.precision`` and so to the scale; the record says which it was.
    train_size, test_size : int or None
        A fixed random subset of each part; None takes all. Of documents: windows that an epoch reads, new ones as long
        as there are any, and windows tested on.
    eval_every : int
        Epochs between evaluations; the last epoch is always evaluated.
    seed : int
    context : int or None
        Tokens in a window of documents, of which a step reads ``batch``; None takes 256.

    Raises
    ------
    ValueError
        For an unknown name or a number outside its range.
    """

    dataset: str
    method: str = "none"
    method_options: Mapping[str, Any] = field(default_factory=dict)
    width: int = 64
    heads: int = 4
    layers: int = 2
    mlp_ratio: float = 2.0
    patch: Patch | None = None
    pool: str = "mean"
    dropout: float = 0.0
    epochs: int = 10
    batch: int = 128
    lr: float = 1e-3
    weight_decay: float = 0.01
    schedule: str = "cosine"
    warmup: int = 0
    label_smoothing: float = 0.0
    augment: str = "none"
    train_size: int | None = None
    test_size: int | None = None
    eval_every: int = 1
    seed: int = 0
    randaugment: tuple[int, int] = (2, 9)
    erase: float = 0.0
    shifts: tuple[int, ...] = ()
    precision: str | None = None
    resolutions: tuple[int, ...] = ()
    context: int | None = None

    def __post_init__(self):
        require(self.dataset in DATASETS, "dataset", repr(self.dataset), f"the data sets are {', '.join(DATASETS)}")
        if self.is_text:
            self._check_reading()
        else:
            check_name(self.method, "method")
            require(self.context is None, "context", self.context, "it is for data sets of documents")
        for names, is_valid, allowed in _RULES:
            for name in names:
                require(is_valid(getattr(self, name)), name, getattr(self, name), f"it must be {allowed}")
        for name, known in (("pool", _POOLS), ("schedule", _SCHEDULES), ("augment", AUGMENTATIONS)):
            came = getattr(self, name)
            require(came in known, name, repr(came), f"it is one of {', '.join(known)}")
        named = self.precision is None or self.precision in PRECISIONS
        require(named, "precision", repr(self.precision), f"it is None or one of {', '.join(PRECISIONS)}")
        pair = self.randaugment
        holds = isinstance(pair, list | tuple) and len(pair) == 2 and _whole(pair[0], 1) and _whole(pair[1], 0)
        meaning = f"it must be two whole numbers: operations above 0, a magnitude of 0 ... {MAGNITUDES - 1}"
        require(holds and pair[1] < MAGNITUDES, "randaugment", repr(pair), meaning)
        for name in ("shifts", "resolutions"):
            came = getattr(self, name)
            require(_all_whole(came), name, repr(came), "it must be a list of whole numbers above 0")
        patch = self.patch
        sides = patch is None or _whole(patch, 1) or (_all_whole(patch) and patch != () and patch != [])
        require(sides, "patch", repr(patch), "it must be None or whole numbers above 0, one or one for each axis")
        require(self.seed < 2**63, "seed", self.seed, "it must be below 2^63")
        require(self.width % self.heads == 0, "heads", self.heads, f"it must divide the width {self.width}")
        if self.patch is None:
            object.__setattr__(self, "patch", DATASETS[self.dataset].patch)
        if self.is_text and self.context is None:
            object.__setattr__(self, "context", CONTEXT)
        # One spelling for one value (4 and 4.0, a tuple and a list), so that equal settings have equal hashes.
        for name in ("mlp_ratio", "dropout", "lr", "weight_decay", "label_smoothing", "erase"):
            object.__setattr__(self, name, float(getattr(self, name)))
        object.__setattr__(self, "randaugment", tuple(pair))
        for name in ("shifts", "resolutions"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if isinstance(self.patch, list):
            object.__setattr__(self, "patch", tuple(self.patch))
        try:
            options = json.loads(json.dumps(dict(self.method_options), allow_nan=False))
        except (TypeError, ValueError):
            raise ValueError(
                f"method_options: got {self.method_options}; names with values that JSON can hold"
            ) from None
        object.__setattr__(self, "method_options", options)

    @property
    def is_text(self) -> bool:
        """Whether documents are read, and not images looked at."""
        return DATASETS[self.dataset].is_text

    def _check_reading(self) -> None:
        """A method of documents, a whole context, and none of what is for images alone."""
        known = ", ".join(text_attention.METHODS)
        require(self.method in text_attention.METHODS, "method", repr(self.method), f"for documents there are {known}")
        came = self.context
        require(came is None or _whole(came, 1), "context", came, "it must be None or a whole number above 0")
        for name in _IMAGES_ALONE:
            came, usual = getattr(self, name), type(self).__dataclass_fields__[name].default
            same = tuple(came) == usual if isinstance(usual, tuple) and isinstance(came, list) else came == usual
            require(same, name, came, "it is for images alone")

    def to_dict(self) -> dict[str, Any]:
        """All fields, as JSON can hold them."""
        return asdict(self)

    @cached_property
    def canonical(self) -> str:
        """The fields that differ from their defaults, as JSON with sorted keys and no spaces."""
        usual = Config(self.dataset).to_dict()
        chosen = {k: v for k, v in self.to_dict().items() if k == "dataset" or v != usual[k]}
        return json.dumps(chosen, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @cached_property
    def hash(self) -> str:
        """Ten hexadecimal digits that name this configuration, seed included."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()[:10]

    @property
    def name(self) -> str:
        """The run's name, made of data set, method, seed and hash."""
        return f"{self.dataset}-{self.method}-seed{self.seed}-{self.hash}"

    @cached_property
    def cell(self) -> str:
        """The hash without the seed; runs that differ in their seed alone share it."""
        return replace(self, seed=0).hash

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """A configuration from its fields; ValueError for a field that does not exist."""
        unknown = sorted(set(values) - {f.name for f in fields(cls)})
        require(not unknown, "config", f"unknown fields {unknown}", "it may hold the fields of Config alone")
        require("dataset" in values, "config", "no dataset", "it must name one")
        return cls(**values)


@dataclass(frozen=True)
class Options:
    """How a run is made, beside what it is: only device, form of a step and precision reach its digits.

    Parameters
    ----------
    device : str or None
        "cpu", "cuda", "cuda:1"; a GPU where there is one when None.
    step : str
        The form of a step on a GPU: "eager", "captured", "compiled" (and captured), or "auto", the fastest that pays.
    precision : str or None
        Of products, where the configuration names none: "float32", "bfloat16", or "auto", which is bfloat16 on a
        processor that multiplies in it and on a GPU that has it, else float32. When None: float32 on a CPU, so that the
        records of a table agree, and as "auto" on a GPU. A run that goes on keeps the precision it began with.
    checkpoint : Path or None
        The run continues from this file when it is there, and keeps its state in it. With None nothing is written and
        signals are left alone.
    checkpoint_seconds : float
        At most this much work is lost when the process is killed.
    time_budget : float or None
        Seconds from now. A run that cannot end in them is given up as soon as its speed is known.
    quiet : bool
        No progress bar.

    Examples
    --------
    >>> replace(Options(device="cpu"), quiet=True).quiet
    True
    """

    device: str | None = None
    step: str = "auto"
    precision: str | None = None
    checkpoint: Path | None = None
    checkpoint_seconds: float = 15.0
    time_budget: float | None = None
    quiet: bool = False


CONTEXT = 256
_IMAGES_ALONE = ("pool", "dropout", "label_smoothing", "augment", "randaugment", "erase", "shifts", "resolutions")
_POOLS = ("mean", "cls")
_SCHEDULES = ("cosine", "constant")
PRECISIONS = ("float32", "bfloat16")
STEP_FORMS = ("auto", "compiled", "captured", "eager")


_RULES: tuple[tuple[Sequence[str], Callable[[Any], bool], str], ...] = (
    (("width", "heads", "layers", "epochs", "batch", "eval_every"), lambda n: _whole(n, 1), "a whole number above 0"),
    (("train_size", "test_size"), lambda n: n is None or _whole(n, 1), "None or a whole number above 0"),
    (("warmup", "seed"), lambda n: _whole(n, 0), "a whole number, 0 or above"),
    (("mlp_ratio", "lr"), lambda x: 0 < x < float("inf"), "above 0"),
    (("weight_decay",), lambda x: x >= 0, "0 or above"),
    (("dropout", "label_smoothing"), lambda x: 0 <= x < 1, "in [0, 1)"),
    (("erase",), lambda x: 0 <= x <= 1, "in [0, 1]"),
)
"""Fields, what holds of a value of theirs, and the same in words."""


def _all_whole(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(_whole(value, 1) for value in values)


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
