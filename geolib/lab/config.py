"""What decides the numbers of a run: a frozen configuration, checked when it is made and named by its hash."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self

from geolib._checks import require
from geolib.encodings import check_name
from geolib.lab import text_attention
from geolib.lab.data.augmentation import AUGMENTATIONS, MAGNITUDES
from geolib.lab.data.sets import DATASETS, Patch
from geolib.lab.device import PRECISIONS

CONTEXT = 256  # tokens of a window of text where the configuration names none


@dataclass(frozen=True)
class Config:
    """Everything that decides the numbers of a run; ValueError for an unknown name or a number outside its range.

    A default here never changes: the hash covers what differs from them, so that a later field changes no run's name.

    Parameters
    ----------
    dataset, method : key of ``data.sets.DATASETS``; of ``geolib.encodings.METHODS``, for text of ``text_attention``'s
    method_options : mapping, passed to the method (``{"base": 100.0}``)
    width, heads, layers, mlp_ratio : sizes of the model; hidden features of a block's MLP over width
    patch : pixels along a patch's sides, one number for all axes or one for each; None takes the data set's own
    pool : "mean" (over all tokens) or "cls" (a class token in front, which has no position)
    dropout : on the embedding and on each branch's output, never on attention weights
    epochs, batch, lr, weight_decay : of AdamW
    schedule, warmup : "cosine" (to zero) or "constant", after so many steps of linear warm-up
    augment : "none"; "crop-flip" (crop after padding by 4, mirror left-right); "crop-flip-autoaugment" (then
        AutoAugment's policy for CIFAR-10); "crop-flip-randaugment" (RandAugment first)
    train_size, test_size : a fixed random subset of each part; None takes all. Of text: windows that an epoch reads,
        new ones as long as there are any, and windows tested on
    eval_every : epochs between evaluations; the last epoch is always evaluated
    randaugment : RandAugment's operations per image, and their magnitude, 0 ... 30
    erase : probability that a random rectangle of an image gets the mean colour, after everything else
    shifts, resolutions : the trained model is also tested at positions moved by these many patches along every axis,
        and on images resized to these many pixels a side (``geolib.lab.probes.vit``)
    precision : of matrix products, "float32" or "bfloat16", where runs are compared by it; None leaves it to ``train``
    context : tokens of a window of text, of which a step reads ``batch``; None takes 256

    >>> Config("digits", "rope", epochs=8).name
    'digits-rope-seed0-8aca540105'
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
            known = text_attention.METHODS
            require(self.method in known, "method", repr(self.method), f"for text there are {', '.join(known)}")
        else:
            check_name(self.method, "method")
        for names, (holds, allowed) in _RULES.items():
            for name in names.split():
                require(holds(getattr(self, name)), name, repr(getattr(self, name)), f"it must be {allowed}")
        require(self.width % self.heads == 0, "heads", self.heads, f"it must divide the width {self.width}")
        # One spelling for one value (4 and 4.0, a tuple and a list), so that equal settings have equal hashes.
        spelled: dict[str, Any] = {f.name: float(getattr(self, f.name)) for f in fields(self) if f.type is float}
        spelled |= {name: tuple(getattr(self, name)) for name in ("randaugment", "shifts", "resolutions")}
        patch = DATASETS[self.dataset].patch if self.patch is None else self.patch
        spelled["patch"] = tuple(patch) if isinstance(patch, list) else patch
        spelled["context"] = CONTEXT if self.is_text and self.context is None else self.context
        try:
            spelled["method_options"] = json.loads(json.dumps(dict(self.method_options), allow_nan=False))
        except (TypeError, ValueError):
            told = f"method_options: got {self.method_options}; names with values that JSON can hold"
            raise ValueError(told) from None
        for name, value in spelled.items():
            object.__setattr__(self, name, value)
        kind, refused = ("images", _IMAGES_ALONE) if self.is_text else ("text", ["context"])
        for f in fields(self):
            value = getattr(self, f.name)
            require(f.name not in refused or value == f.default, f.name, repr(value), f"it is for {kind} alone")

    @property
    def is_text(self) -> bool:
        """Whether the data set is text, read by a language model."""
        return DATASETS[self.dataset].is_text

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
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """A configuration from its fields; ValueError for a field that does not exist."""
        # Old records hold a field that has been retired; at its only value it changes nothing.
        kept = {name: value for name, value in values.items() if (name, value) != ("label_smoothing", 0.0)}
        unknown = sorted(kept.keys() - {f.name for f in fields(cls)})
        require(not unknown, "config", f"unknown fields {unknown}", "it may hold the fields of Config alone")
        require("dataset" in kept, "config", "no dataset", "it must name one")
        return cls(**kept)


_IMAGES_ALONE = ["pool", "dropout", "augment", "randaugment", "erase", "shifts", "resolutions"]


def _whole(value: Any, least: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _each_whole(values: Any, least: int = 1) -> bool:
    return isinstance(values, list | tuple) and all(_whole(value, least) for value in values)


def _within(low: float, value: Any, high: float = math.inf) -> bool:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    return real and math.isfinite(value) and low <= value <= high


# From fields to what holds of a value of theirs, and the same in words.
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "width heads layers epochs batch eval_every": (_whole, "a whole number above 0"),
    "train_size test_size context": (lambda n: n is None or _whole(n), "None or a whole number above 0"),
    "shifts resolutions": (_each_whole, "a list of whole numbers above 0"),
    "mlp_ratio lr": (lambda x: _within(0, x) and x > 0, "above 0"),
    "weight_decay": (lambda x: _within(0, x), "0 or above"),
    "dropout": (lambda x: _within(0, x, 1) and x < 1, "in [0, 1)"),
    "erase": (lambda x: _within(0, x, 1), "in [0, 1]"),
    "warmup": (lambda n: _whole(n, 0), "a whole number, 0 or above"),
    "seed": (lambda n: _whole(n, 0) and n < 2**63, "a whole number, 0 or above and below 2^63"),
    "pool": (("mean", "cls").__contains__, "mean or cls"),
    "schedule": (("cosine", "constant").__contains__, "cosine or constant"),
    "augment": (AUGMENTATIONS.__contains__, f"one of {', '.join(AUGMENTATIONS)}"),
    "precision": ((None, *PRECISIONS).__contains__, f"None or one of {', '.join(PRECISIONS)}"),
    "randaugment": (
        lambda pair: _each_whole(pair, 0) and len(pair) == 2 and pair[0] > 0 and pair[1] < MAGNITUDES,
        f"operations, above 0, and a magnitude of 0 ... {MAGNITUDES - 1}",
    ),
    "patch": (
        lambda sides: sides is None or _whole(sides) or (_each_whole(sides) and len(sides) > 0),
        "None or whole numbers above 0, one or one for each axis",
    ),
}
