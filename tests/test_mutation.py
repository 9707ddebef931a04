"""The changes that ``make mutants`` leaves alone: each is still one that could be made."""

import ast
import importlib.util
import sys
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).resolve().parent


def load(name):
    """A file of tests/mutation."""
    spec = importlib.util.spec_from_file_location(name, HERE / "mutation" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


changes, modules = load("changes"), load("modules")
EXCUSES = yaml.safe_load(changes.HARMLESS.read_text("utf-8"))


def functions(path):
    """(name, text as one line) for each function and method of a file."""
    lines, tree = path.read_text("utf-8").splitlines(), ast.parse(path.read_text("utf-8"))
    classes = [(f"{node.name}.", node.body) for node in tree.body if isinstance(node, ast.ClassDef)]
    for prefix, body in [("", tree.body), *classes]:
        for node in body:
            if isinstance(node, ast.FunctionDef):
                yield prefix + node.name, " ".join(x.strip() for x in lines[node.lineno - 1 : node.end_lineno])


def test_what_is_left_alone_stands_in_the_functions_named():
    texts = {}
    for pattern in {pattern for module in modules.MODULES.values() for pattern in module.files}:
        for path in HERE.parent.glob(pattern):
            for name, text in functions(path):
                texts[name] = texts.get(name, "") + text
    gone = [
        (name, excuse["old"])
        for excuse in EXCUSES
        for name in changes.functions_of(excuse)
        if excuse["old"] not in texts.get(name, "")
    ]
    assert gone == []
    assert all(excuse["why"] and excuse["old"] != excuse["new"] for excuse in EXCUSES)


@pytest.mark.parametrize(
    ("function", "new", "why"),
    [("turned", "a / s", "the signs are 1 and -1"), ("turned", "a // s", None), ("other", "a / s", None)],
)
def test_a_change_is_left_alone_in_the_functions_named_and_nowhere_else(function, new, why):
    excuse = {"in": ["turned", "ALiBi.place"], "old": "a * s", "new": "a / s", "why": "the signs are 1 and -1"}
    assert changes.reason(function, "return a * s", f"return {new}", [excuse]) == why


def test_a_method_is_named_with_its_class():
    assert [changes.qualified(name) for name in ("x__polar", "xǁALiBiǁplace")] == ["_polar", "ALiBi.place"]
