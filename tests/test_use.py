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
    names = {}
    exec(compile(CODE[name], name, "exec"), names)
    assert name != "agreement-table" or names["library"] == "fla-core"  # the table's last


@pytest.mark.parametrize(("library", "example"), EXAMPLES, ids=[library for library, _ in EXAMPLES])
def test_examples_in_other_libraries_models_run(library, example):
    vision.import_torchvision()
    pytest.importorskip(library)
    torch.manual_seed(0)
    exec(compile(example, library, "exec"), {})


def test_there_is_an_example_for_each_library_that_is_promised():
    assert [library for library, _ in EXAMPLES] == ["transformers", "timm", "timm"]
    assert all(len(line) <= 76 for _, example in EXAMPLES for line in example.splitlines())
