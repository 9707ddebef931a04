"""The page "Use it in your model": its cells, and its examples in other libraries' models where those are installed."""

import json
import re
from pathlib import Path

import pytest
import torch
import vision

PAGE = Path(__file__).resolve().parent.parent / "book" / "use-in-your-model.ipynb"
CELLS = json.loads(PAGE.read_text("utf-8"))["cells"]
EXAMPLES = [
    example
    for cell in CELLS
    if cell["cell_type"] == "markdown"
    for example in re.findall(r"```python\n# runs with: (\w+)\n(.*?)```", "".join(cell["source"]), re.S)
]


def test_the_pages_cells_run():
    """In one namespace, from top to bottom, as a reader runs them; the set-up and the picture are left to the book."""
    names = {}
    for cell in CELLS:
        left_out = {"setup", "longer-plot"}
        if cell["cell_type"] == "code" and cell["id"] not in left_out:
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    assert names["library"] == "fla-core"  # the table's last


@pytest.mark.parametrize(("library", "example"), EXAMPLES, ids=[library for library, _ in EXAMPLES])
def test_examples_in_other_libraries_models_run(library, example, monkeypatch):
    vision.import_torchvision()
    pytest.importorskip(library)
    if library == "transformers":  # the example changes a function of the module; put it back
        from transformers.models.llama import modeling_llama

        monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", modeling_llama.apply_rotary_pos_emb)
    torch.manual_seed(0)
    exec(compile(example, library, "exec"), {})


def test_there_is_an_example_for_each_library_that_is_promised():
    assert [library for library, _ in EXAMPLES] == ["transformers", "timm"]
    assert all(len(line) <= 76 for _, example in EXAMPLES for line in example.splitlines())
