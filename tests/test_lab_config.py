"""What a configuration of the lab may hold, how it refuses the rest, and the name that it gives to its run."""

import json
import math
import re
from dataclasses import fields

import pytest
from test_lab_options import AWAY, AWAY_READING, READ, SEEN

from geolib.encodings import METHODS
from geolib.lab import Config, text_attention
from geolib.lab.data.augmentation import AUGMENTATIONS
from geolib.lab.data.sets import DATASETS

NAN, INF = math.nan, math.inf
# Fields, values at the edge of what they may be, values just beyond it, and how an error says what they may be.
EDGES = [
    (("heads", "layers", "epochs", "batch", "eval_every"), (1,), (0, 1.0, True, "1"), "must be a whole number above 0"),
    (("width",), (4,), (0, 4.0, True), "must be a whole number above 0"),
    (("width",), (4, 8), (6,), "must divide the width 6"),
    (("train_size", "test_size"), (None, 1), (0, 1.0, True), "must be None or a whole number above 0"),
    (("warmup", "seed"), (0,), (-1, 0.5, False), "must be a whole number, 0 or above"),
    (("seed",), (2**63 - 1,), (2**63,), "must be below 2^63"),
    (("mlp_ratio", "lr"), (1e-9, 1e9), (0, -1.0, INF, NAN), "must be above 0"),
    (("weight_decay",), (0.0, 1e9), (-1e-9, NAN), "must be 0 or above"),
    (("dropout", "label_smoothing"), (0.0, 0.999), (1, -1e-9, NAN), "must be in [0, 1)"),
    (("erase",), (0.0, 1.0), (-1e-9, 1.001, NAN), "must be in [0, 1]"),
    (("pool",), ("mean", "cls"), ("max", None), "is one of mean, cls"),
    (("schedule",), ("cosine", "constant"), ("step", None), "is one of cosine, constant"),
    (("augment",), tuple(AUGMENTATIONS), ("crop", None), f"is one of {', '.join(AUGMENTATIONS)}"),
    (("precision",), (None, "float32", "bfloat16"), ("float16", 32), "is None or one of float32, bfloat16"),
    (
        ("randaugment",),
        ((1, 0), (5, 30)),
        ((0, 0), (1, -1), (1, 31), (1,), (1, 0, 0), (1.0, 0), (1, 0.0), (True, 0), (1, False), 2, "12", None),
        "must be two whole numbers: operations above 0, a magnitude of 0 ... 30",
    ),
    (
        ("shifts", "resolutions"),
        ((), (1,), (3, 1)),
        ((0,), (1, 0), (1.0,), 1, "1"),
        "must be a list of whole numbers above 0",
    ),
    (
        ("patch",),
        (1, (1,), (2, 1)),
        (0, (), [], (0, 1), (2, 0, 2), 1.5, (1.0,), True, "4"),
        "must be None or whole numbers above 0, one or one for each axis",
    ),
    (("context",), (None,), (8,), "is for data sets of documents"),
]
OF_DOCUMENTS = [
    (("context",), (1,), (0, 1.0, True, "1"), "must be None or a whole number above 0"),
    (
        ("method",),
        tuple(text_attention.METHODS),
        ("riemannformer",),
        f"documents there are {', '.join(text_attention.METHODS)}",
    ),
    *(((name,), (), (AWAY[name][0],), "is for images alone") for name in ("pool", "dropout", "label_smoothing")),
    *(((name,), (), (AWAY[name][0],), "is for images alone") for name in ("augment", "randaugment", "erase")),
    *(((name,), ((), []), ((4,), [4], 4), "is for images alone") for name in ("shifts", "resolutions")),
    (("randaugment",), ((2, 9), [2, 9]), ([2, 8],), "is for images alone"),
]
FLOATS = [each.name for each in fields(Config) if each.type == "float"]
TUPLES = {"patch": (2, 1), "randaugment": (1, 0), "shifts": (2,), "resolutions": (4, 8)}


@pytest.mark.parametrize(
    ("usual", "names", "allowed", "beyond", "says"),
    [
        *(({"dataset": "digits"}, *row) for row in EDGES),
        *(({"dataset": "documents", "method": "softmax"}, *row) for row in OF_DOCUMENTS),
    ],
)
def test_what_a_field_may_be_ends_where_its_error_says(usual, names, allowed, beyond, says):
    for name in names:
        for value in allowed:
            kept = getattr(Config(**{**usual, name: value}), name)
            assert kept == (tuple(value) if isinstance(value, list) else value)
        for value in beyond:
            named = "heads" if "divide" in says else name
            came = 4 if "divide" in says else value
            with pytest.raises(
                ValueError, match=f"^{named}: got '?{re.escape(str(came))}'?; (it|for) {re.escape(says)}$"
            ):
                Config(**{**usual, name: value})


def test_names_that_are_not_there_are_told_with_those_that_are():
    with pytest.raises(ValueError, match=f"^dataset: got 'mnist'; the data sets are {', '.join(DATASETS)}$"):
        Config("mnist")
    with pytest.raises(ValueError, match=r"^method: got 'ropes'; the methods are none"):
        Config("digits", "ropes")
    with pytest.raises(ValueError, match=r"^method: got 'sympow\+gates'"):
        Config("digits", "sympow+gates")
    for values, says in (
        ({"dataset": "digits", "size": 1, "a": 2}, r"unknown fields \['a', 'size'\]"),
        ({}, "no dataset"),
    ):
        with pytest.raises(ValueError, match=rf"^config: got {says}; it "):
            Config.from_dict(values)


@pytest.mark.parametrize("options", [{"base": {1, 2}}, {"base": NAN}, {"base": INF}, {"base": b"9"}])
def test_options_that_json_cannot_hold_are_refused(options):
    with pytest.raises(ValueError, match=r"^method_options: got \{.*\}; names with values that JSON can hold$"):
        Config("digits", "rope", options)


# The name ------------------------------------------------------------------------------------------------------------


def test_the_hash_is_stable():
    # These names stand in records: a change here orphans them.
    assert Config("digits").canonical == '{"dataset":"digits"}'
    assert Config("digits").hash == "8872d00f74"
    full = Config("cifar10", "rope", {"base": 100.0}, epochs=200, seed=2)
    assert (
        full.canonical == '{"dataset":"cifar10","epochs":200,"method":"rope","method_options":{"base":100.0},"seed":2}'
    )
    assert full.name == f"cifar10-rope-seed2-{full.hash}"


@pytest.mark.parametrize("kind", [SEEN, READ], ids=["images", "documents"])
def test_every_field_of_a_configuration_is_in_the_name_of_its_run(kind):
    dataset, usual = kind
    before = Config(dataset, **usual)
    for name, (value, _) in (AWAY if kind is SEEN else AWAY_READING).items():
        after = Config(dataset, **{**usual, name: value})
        assert after.name != before.name, name
        assert (after.cell == before.cell) == (name == "seed"), name
        assert Config.from_dict(json.loads(json.dumps(after.to_dict()))) == after


def test_a_value_has_one_spelling_whichever_way_it_is_given():
    for name in FLOATS:
        value = 0 if name in ("dropout", "label_smoothing") else 1
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
