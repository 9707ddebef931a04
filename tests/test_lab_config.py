"""What a configuration of the lab may hold, how it refuses the rest, and the name that it gives to its run."""

import json
import math
import re
from dataclasses import fields

import pytest

from geolib.encodings import METHODS
from geolib.lab import Config, text_attention
from geolib.lab.data.augmentation import AUGMENTATIONS
from geolib.lab.data.sets import DATASETS

NAN, INF = math.nan, math.inf
NO_PAIRS = ((0, 0), (1, -1), (1, 31), (1,), (1, 0, 0), (1.0, 0), (1, 0.0), (True, 0), (1, False), 2, "12", None)
NO_SIDES = (0, (), [], (0, 1), (2, 0, 2), 1.5, (1.0,), True, "4")
# Fields, values at the edge of what they may be, values just beyond it, and how an error says what they may be.
EDGES = [
    (("heads", "layers", "epochs", "batch", "eval_every"), (1,), (0, 1.0, True, "1"), "must be a whole number above 0"),
    (("width",), (4,), (0, 4.0, True), "must be a whole number above 0"),
    (("width",), (4, 8), (6,), "must divide the width 6"),
    (("train_size", "test_size"), (None, 1), (0, 1.0, True), "must be None or a whole number above 0"),
    (("warmup",), (0,), (-1, 0.5, False), "must be a whole number, 0 or above"),
    (("seed",), (0, 2**63 - 1), (-1, 0.5, False, 2**63), "must be a whole number, 0 or above and below 2^63"),
    (("mlp_ratio", "lr"), (1e-9, 1e9), (0, -1.0, INF, NAN), "must be above 0"),
    (("weight_decay",), (0.0, 1e9), (-1e-9, NAN), "must be 0 or above"),
    (("dropout",), (0.0, 0.999), (1, -1e-9, NAN), "must be in [0, 1)"),
    (("erase",), (0.0, 1.0), (-1e-9, 1.001, NAN), "must be in [0, 1]"),
    (("pool",), ("mean", "cls"), ("max", None), "must be mean or cls"),
    (("schedule",), ("cosine", "constant"), ("step", None), "must be cosine or constant"),
    (("augment",), tuple(AUGMENTATIONS), ("crop", None), f"must be one of {', '.join(AUGMENTATIONS)}"),
    (("precision",), (None, "float32", "bfloat16"), ("float16", 32), "must be None or one of float32, bfloat16"),
    (("randaugment",), ((1, 0), (5, 30)), NO_PAIRS, "must be operations, above 0, and a magnitude of 0 ... 30"),
    (("shifts", "resolutions"), ((), (1,), (3, 1)), ((0,), (1, 0), (1.0,), 1, "1"), "must be a list of whole numbers"),
    (("patch",), (1, (1,), (2, 1)), NO_SIDES, "must be None or whole numbers above 0, one or one for each axis"),
    (("context",), (None,), (8,), "is for text alone"),
]
OF_TEXT = [
    (("context",), (None, 1), (0, 1.0, True, "1"), "must be None or a whole number above 0"),
    (("pool",), ("mean",), ("cls",), "is for images alone"),
    (("dropout", "erase"), (0.0,), (0.5,), "is for images alone"),
    (("augment",), ("none",), ("crop-flip",), "is for images alone"),
    (("shifts", "resolutions"), ((), []), ((4,), [4]), "is for images alone"),
    (("randaugment",), ((2, 9), [2, 9]), ([2, 8],), "is for images alone"),
]
FLOATS = [each.name for each in fields(Config) if each.type is float]
TUPLES = {"patch": (2, 1), "randaugment": (1, 0), "shifts": (2,), "resolutions": (4, 8)}


@pytest.mark.parametrize(
    ("usual", "names", "allowed", "beyond", "says"),
    [
        *(({"dataset": "digits"}, *row) for row in EDGES),
        *(({"dataset": "documents", "method": "softmax"}, *row) for row in OF_TEXT),
    ],
)
def test_what_a_field_may_be_ends_where_its_error_says(usual, names, allowed, beyond, says):
    for name in names:
        for value in allowed:
            kept = getattr(Config(**{**usual, name: value}), name)
            given = 256 if name == "context" and value is None and usual["dataset"] == "documents" else value
            assert kept == (tuple(given) if isinstance(given, list) else given)
        for value in beyond:
            named, came = ("heads", "4") if "divide" in says else (name, ".*")
            with pytest.raises(ValueError, match=f"^{named}: got {came}; it {re.escape(says)}"):
                Config(**{**usual, name: value})


def test_names_that_are_not_there_are_told_with_those_that_are():
    for given, says in (
        ({"dataset": "mnist"}, f"dataset: got 'mnist'; the data sets are {', '.join(DATASETS)}$"),
        ({"dataset": "digits", "method": "ropes"}, "method: got 'ropes'; the methods are none"),
        ({"dataset": "digits", "method": "sympow+gates"}, r"method: got 'sympow\+gates'"),
        ({"dataset": "books", "method": "riemannformer"}, "method: got 'riemannformer'; for text there are none, soft"),
        ({"dataset": "digits", "size": 1, "a": 2}, r"config: got unknown fields \['a', 'size'\]; it "),
        ({}, "config: got no dataset; it "),
    ):
        with pytest.raises(ValueError, match=f"^{says}"):
            Config.from_dict(given)


@pytest.mark.parametrize("options", [{"base": {1, 2}}, {"base": NAN}, {"base": INF}, {"base": b"9"}])
def test_options_that_json_cannot_hold_are_refused(options):
    with pytest.raises(ValueError, match=r"^method_options: got \{.*\}; names with values that JSON can hold$"):
        Config("digits", "rope", options)


# The name ------------------------------------------------------------------------------------------------------------


def test_a_record_from_before_a_field_was_retired_keeps_its_name():
    old = {**Config("digits", "rope", seed=3).to_dict(), "label_smoothing": 0.0}
    assert Config.from_dict(old).hash == Config("digits", "rope", seed=3).hash
    with pytest.raises(ValueError, match=r"^config: got unknown fields \['label_smoothing'\]"):
        Config.from_dict(old | {"label_smoothing": 0.1})


AWAY = {
    "method": "alibi", "method_options": {"base": 7.0}, "width": 8, "heads": 1, "layers": 3, "mlp_ratio": 1.0,
    "patch": 2, "pool": "cls", "dropout": 0.5, "epochs": 2, "batch": 5, "lr": 2e-2, "weight_decay": 0.9,
    "schedule": "constant", "warmup": 1, "augment": "crop-flip-autoaugment", "train_size": 24, "test_size": 20,
    "eval_every": 3, "seed": 1, "randaugment": (2, 30), "erase": 0.9, "shifts": (1,), "precision": "bfloat16",
    "resolutions": (16,),
}  # fmt: skip


def test_every_field_of_a_configuration_is_in_the_name_of_its_run():
    assert AWAY.keys() | {"dataset", "context"} == {each.name for each in fields(Config)}
    before = Config("digits")
    assert Config("books", "softmax", context=12).name != Config("books", "softmax").name
    for name, value in AWAY.items():
        after = Config("digits", **{name: value})
        assert after.name != before.name, name
        assert (after.cell == before.cell) == (name == "seed"), name
        assert Config.from_dict(json.loads(json.dumps(after.to_dict()))) == after


def test_a_value_has_one_spelling_whichever_way_it_is_given():
    for name in FLOATS:
        value = 0 if name == "dropout" else 1
        whole = Config("digits", **{name: value})
        assert whole.canonical == Config("digits", **{name: float(value)}).canonical
        assert type(getattr(whole, name)) is float, name
    for name, value in TUPLES.items():
        assert Config("digits", **{name: list(value)}) == Config("digits", **{name: value}), name
    numbered = Config("digits", "rope", {"a": (1, 2), 3: None})
    assert numbered.method_options == {"a": [1, 2], "3": None}


@pytest.mark.parametrize("dataset", DATASETS)
def test_what_is_left_open_is_what_the_data_set_says(dataset):
    config = Config(dataset)
    assert config.patch == DATASETS[dataset].patch
    assert config.is_text == DATASETS[dataset].is_text
    assert config.context == (256 if config.is_text else None)
    assert config == Config(dataset, patch=config.patch, context=config.context)
    assert "patch" not in config.canonical
    assert "context" not in config.canonical
    for name in METHODS if not config.is_text else text_attention.METHODS:
        assert Config(dataset, name).method == name
