"""Pages whose code runs: "Use it in your model", cell by cell and in others' models; "Add a method" to the registry."""

import json
import math
import re
from pathlib import Path

import methods
import pytest
import test_laws
import test_options
import torch
import vision

from geolib import encodings
from geolib.figures import COLOURS, method_style

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "book" / "use-in-your-model.ipynb"
CELLS = json.loads(PAGE.read_text("utf-8"))["cells"]
CODE = {cell["id"]: "".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code" and cell["id"] != "setup"}
EXAMPLES = [
    example
    for cell in CELLS
    if cell["cell_type"] == "markdown"
    for example in re.findall(r"```python\n# runs with: (\w+)\n(.*?)```", "".join(cell["source"]), re.S)
]


@pytest.mark.parametrize("name", sorted({*CODE} - {"longer-plot"}))
def test_each_cell_runs_by_itself(name):
    """As a reader does who copies it alone; the picture is left to the book."""
    torch.manual_seed(0)
    exec(compile(CODE[name], name, "exec"), {})


@pytest.mark.parametrize(("library", "example"), EXAMPLES, ids=[library for library, _ in EXAMPLES])
def test_examples_in_other_libraries_models_run(library, example):
    vision.import_torchvision()
    pytest.importorskip(library)
    torch.manual_seed(0)
    exec(compile(example, library, "exec"), {})


def test_there_is_an_example_for_each_library_that_is_promised():
    assert [library for library, _ in EXAMPLES] == ["transformers", "transformers", "timm", "timm"]
    assert all(len(line) <= 76 for _, example in EXAMPLES for line in example.splitlines())


def test_the_recipe_of_pope_is_its_formula_and_x_transformers():
    """One query and one key at a time, in float64; where that library is installed, also beside its module."""
    names = {}
    exec(CODE["pope-run"], names)
    q, k, theta, heads, dim = (names[name] for name in ("q", "k", "theta", "heads", "dim"))
    bias = -torch.rand(heads, 1, dim)
    got = torch.einsum(
        "bhmc,bhnc->bhmn", *names["placed"].to_reference(names["polar"](q, torch.zeros(())), names["polar"](k, bias))
    )
    size_q, size_k, angles = (torch.log1p(torch.exp(q.double())), torch.log1p(torch.exp(k.double())), theta.double())
    for m, n in ((0, 0), (7, 3), (2, 9)):
        turned = torch.cos((m - n) * angles - bias[:, 0].double())
        torch.testing.assert_close(
            got[..., m, n].double(), (size_q[..., m, :] * size_k[..., n, :] * turned).sum(-1), atol=1e-4, rtol=1e-5
        )
    theirs = pytest.importorskip("x_transformers.x_transformers")
    module = theirs.PolarEmbedding(dim, heads)
    with torch.no_grad():
        module.learned_bias.copy_(bias)
        turns, moved = module(torch.arange(q.shape[-2]))
        wanted = theirs.apply_polar_pos_emb(q, turns) @ theirs.apply_polar_pos_emb(k, turns + moved).mT
    torch.testing.assert_close(got, wanted, atol=1e-4, rtol=1e-5)


# Add a method, an experiment -----------------------------------------------------------------------------------------

ADDING = (ROOT / "book" / "add-to-it.md").read_text("utf-8")
BLOCKS = {re.match(r"# (.*)", block)[1]: block for block in re.findall(r"```python\n(.*?)```", ADDING, re.S)}
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
