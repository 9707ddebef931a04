"""The page "Add a method, an experiment, a chapter": its code runs."""

import math
import re
from pathlib import Path

import methods
import pytest
import test_laws
import test_options

from geolib import encodings
from geolib.figures import COLOURS, method_style

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = (REPOSITORY / "book" / "add-to-it.md").read_text("utf-8")
BLOCKS = {re.match(r"# (.*)", block)[1]: block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S)}
NAME = "log-distance"


def run(block, names):
    """A block of the page, run among the names of its file."""
    exec(compile(BLOCKS[block], block, "exec"), names)
    return names


@pytest.fixture
def added(monkeypatch):
    """The page's method, added to the registry and to the tests' entries."""
    names = run("geolib/encodings/bias.py", dict(vars(encodings.bias)))
    lines = eval("{" + BLOCKS["geolib/encodings/registry.py, in METHODS"].partition("\n")[2] + "}", names)
    for name, make in lines.items():
        monkeypatch.setitem(encodings.METHODS, name, make)
    monkeypatch.setattr(methods, "METHODS", dict(methods.METHODS))
    run("tests/methods.py", dict(vars(methods)))


def test_the_pages_lines_fit_it():
    assert len(BLOCKS) == 4
    assert all(len(line) <= 76 for block in BLOCKS.values() for line in block.splitlines())
    assert len(BLOCKS["geolib/lab/experiments/papers/nearby.py"].splitlines()) <= 21  # its path above it


@pytest.mark.usefixtures("added")
def test_the_pages_method_obeys_the_laws():
    test_laws.test_every_method_and_wrapper_has_an_entry()
    for grid in ((5,), (3, 2)):
        test_laws.test_weights_are_those_of_the_oracle(NAME, grid)
    test_laws.test_gradients_are_the_numerical_ones(NAME)
    test_options.test_every_option_of_a_method_has_a_value_away_from_its_default(NAME)
    test_options.check_differences(test_options.of_name(NAME), methods.METHODS[NAME].options)
    state = encodings.build(NAME, **methods.SAVED).state_dict()
    assert {key: tuple(x.shape) for key, x in state.items()} == methods.METHODS[NAME].keys
    assert method_style(NAME)["color"] == COLOURS["gold"]


@pytest.mark.usefixtures("added")
def test_an_entry_with_another_formula_is_seen(monkeypatch):
    monkeypatch.setattr(methods.METHODS[NAME].oracle, "gate", lambda *place: -math.log1p(abs(place[1] - place[2])))
    with pytest.raises(AssertionError):
        test_laws.test_weights_are_those_of_the_oracle(NAME, (3, 2))


def test_the_pages_experiment_can_be_planned():
    (nearby,) = run("geolib/lab/experiments/papers/nearby.py", {})["EXPERIMENTS"]
    for scale, runs in (("smoke", 3), ("cpu", 9)):
        configs = nearby.configs(scale)
        assert len(configs) == runs
        assert all(encodings.is_name(config.method) for config in configs)
