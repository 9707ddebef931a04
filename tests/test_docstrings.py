"""Every example in a docstring of geolib runs, and every public name of the mathematics has one.

An example sees ``torch``, ``math`` and the names of its module (of a room: of its package too), so it imports none of
those. Numbers are compared, not their digits: rounding differs between machines.
"""

import doctest
import importlib
import inspect
import math
import re
from pathlib import Path

import pytest
import torch

import geolib

LIBRARY = Path(geolib.__file__).parent
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?")

# The mathematics: a module, or a package whose files are its rooms.
MODULES = [
    "geolib.attention", "geolib.check", "geolib.conformal", "geolib.connection", "geolib.encodings",
    "geolib.exponential", "geolib.figures",
    "geolib.flex", "geolib.lie", "geolib.locality", "geolib.manifolds", "geolib.masks",
    "geolib.recurrence", "geolib.rotations",
    "geolib.sympow", "geolib.transport",
]  # fmt: skip


def files_with_examples():
    """The modules of geolib, by name, whose source holds an example."""
    for path in sorted(LIBRARY.rglob("*.py")):
        if ">>> " in path.read_text("utf-8"):
            parts = path.relative_to(LIBRARY.parent).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class Numbers(doctest.OutputChecker):
    """Numbers agree to four digits or to 1e-6, as rounding differs between machines; all else agrees to the letter."""

    def check_output(self, want, got, optionflags):
        return super().check_output(want, got, optionflags) or self.agree(want, got)

    def agree(self, want, got):
        texts = [re.sub(r"\s", "", NUMBER.sub("#", text)) for text in (want, got)]
        pairs = zip(*(map(float, NUMBER.findall(text)) for text in (want, got)))
        return texts[0] == texts[1] and all(math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-6) for a, b in pairs)


def failures(module):
    """What the module's examples print when they do not come out as written, and how many were tried."""
    report, runner = [], doctest.DocTestRunner(Numbers(), verbose=False, optionflags=OPTIONS)
    package = importlib.import_module(module.__name__.rpartition(".")[0]) if "." in module.__name__ else module
    names = {"torch": torch, "math": math} | vars(package) | vars(module)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, module.__name__, globs=names):
        torch.manual_seed(0)
        runner.run(test, out=report.append)
    return "".join(report), runner.tries


def public(name):
    """The functions and classes of a module; of a package, those its rooms hand up to it."""
    for key, value in vars(importlib.import_module(name)).items():
        home = getattr(value, "__module__", None) or ""
        defined_here = home == name or home.startswith(f"{name}.")
        if defined_here and not key.startswith("_") and (inspect.isclass(value) or inspect.isroutine(value)):
            yield key, value


def has_example(value):
    """Whether the docstring holds an example; one of a class may stand at any of its public methods."""
    members = [v for k, v in vars(value).items() if not k.startswith("_")] if inspect.isclass(value) else []
    return any(">>> " in (getattr(member, "__doc__", None) or "") for member in [value, *members])


@pytest.mark.parametrize("name", list(files_with_examples()))
def test_every_example_runs(name):
    report, tried = failures(importlib.import_module(name))
    assert tried
    assert not report, report


@pytest.mark.parametrize("name", MODULES)
def test_public_names_have_an_example(name):
    found = dict(public(name))
    without = [key for key, value in found.items() if not has_example(value)]
    assert found, f"{name} has no public names"
    assert not without, f"write an example (>>> ...) for {sorted(without)} of {name}"
