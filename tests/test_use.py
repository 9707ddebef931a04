"""The page "Use it in your model": each cell by itself, and its examples in other libraries' models where these are."""

import json
import re
from pathlib import Path

import pytest
import torch
import vision

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
