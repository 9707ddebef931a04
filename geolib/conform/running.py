"""Targets by name, and how one is held to the laws."""

import os
import warnings
from importlib import import_module
from typing import Any

import torch

from geolib._checks import require
from geolib.conform import machinery, rotation, sequences  # noqa: F401
from geolib.conform.core import ABOUT, CHECKS, Broken, CannotTry, Law, NotApplicable, Outcome, Target
from geolib.conform.targets import TARGETS

LAWS = {name: Law(name, CHECKS[name], **about) for name, about in ABOUT.items()}


def check(target: Target | str, name: str, **case: Any) -> str | None:
    """Try a law on one case; what was found out, or ``Broken``. This is what a failing input is printed as.

    >>> check("geolib:rope", "isometry", tokens=2)
    """
    held = load(target)[0][1] if isinstance(target, str) else target
    require(name in LAWS, "name", repr(name), f"the laws are {', '.join(LAWS)}")
    with torch.no_grad():
        return LAWS[name].check(held, **case)


def hold(target: Target, law: Law, spec: str) -> Outcome:
    """Hold a target to a law: all its cases from the smallest on, until one fails."""
    begun = sum(os.times()[:4])
    outcome, why, snippet = _held(target, law, spec)
    return Outcome(law.name, outcome, why, snippet, round(sum(os.times()[:4]) - begun, 2))


def _held(target: Target, law: Law, spec: str) -> tuple[str, str, str]:
    if not law.applies(target):
        missing = [part for ability in law.needs for part in ability.split("+") if not target.has(part)]
        return "does not apply", f"it has no {' or '.join(missing)}", ""
    found = None
    for case in law.cases:
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                found = law.check(target, **case) or found
        except NotApplicable as reason:
            return "does not apply", str(reason), ""
        except CannotTry as reason:
            return "cannot be tried here", str(reason), ""
        except Exception as error:  # of any kind: the target's code is not ours
            said = str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
            said = said.strip().splitlines()[0][:300]
            given = "".join(f", {key}={value!r}" for key, value in case.items()).replace("=nan", "=float('nan')")
            snippet = f"from geolib.conform import check\n\ncheck({spec!r}, {law.name!r}{given})"
            if law.name in target.not_promised:
                return "not promised", f"{target.not_promised[law.name]} Found: {said}", snippet
            return "broken", said, snippet
    return "kept", found or "", ""


def load(spec: str) -> list[tuple[str, Target]]:
    """The targets that a name stands for, each after a name of its own: ``timm``, ``timm:axial``, or ``module:object``.

    The object is a ``Target``, a class of them, or a list. ValueError for another one; ModuleNotFoundError where its
    library is not installed.

    >>> [name for name, _ in load("geolib")]
    ['geolib:rope', 'geolib:axial', 'geolib:liere', 'geolib:sympow']
    """
    module, _, attribute = spec.partition(":")
    if module in TARGETS:
        made = TARGETS[module]()
        chosen = [target for target in made if attribute in ("", target.name)]
        require(bool(chosen), "target", spec, f"{module} has {', '.join(target.name for target in made)}")
        return [(f"{module}:{target.name}", target) for target in chosen]
    require(bool(attribute), "target", repr(spec), f"one of {', '.join(TARGETS)}, or module:object")
    found: Any = getattr(import_module(module), attribute, None)
    several = [*found] if isinstance(found, (list, tuple)) else [found() if isinstance(found, type) else found]
    require(all(isinstance(x, Target) for x in several), "target", repr(spec), "a geolib.conform.Target, or several")
    return [(spec, target) for target in several]
