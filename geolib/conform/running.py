"""Targets by name, and how one is held to the laws."""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from geolib._checks import require
from geolib.conform.core import LAWS, Broken, CannotTry, Law, NotApplicable, Outcome, Target
from geolib.conform.targets import TARGETS

__all__ = ["check", "hold", "load", "spec_of", "version_of"]


def check(target: Target | str, name: str, **case: Any) -> str | None:
    """Try a law on one case; what was found out, or ``Broken``. This is what a failing input is printed as.

    >>> check("geolib:rope", "isometry", tokens=2)
    """
    held = load(target)[0] if isinstance(target, str) else target
    require(name in LAWS, "name", repr(name), f"the laws are {', '.join(LAWS)}")
    with torch.no_grad():
        return LAWS[name].check(held, **case)


def hold(target: Target, law: Law, spec: str) -> Outcome:
    """Hold a target to a law: all its cases from the smallest on, until one fails."""
    begun = sum(os.times()[:4])
    result = _held(target, law, spec)
    result.seconds = round(sum(os.times()[:4]) - begun, 2)
    return result


def _held(target: Target, law: Law, spec: str) -> Outcome:
    if not law.applies(target):
        missing = [part for ability in law.needs for part in ability.split("+") if not target.has(part)]
        reasons = [target.without[part] for part in missing if part in target.without]
        return Outcome(law.name, "does not apply", reasons[0] if reasons else f"it has no {' or '.join(missing)}")
    if law.name in target.without:
        return Outcome(law.name, "cannot be tried here", target.without[law.name])
    found = None
    for case in law.cases:
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                found = law.check(target, **case) or found
        except NotApplicable as reason:
            return Outcome(law.name, "does not apply", str(reason))
        except CannotTry as reason:
            return Outcome(law.name, "cannot be tried here", str(reason))
        except Exception as error:  # of any kind: the target's code is not ours
            said = str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
            said = said.strip().splitlines()[0][:300] if said.strip() else type(error).__name__
            told = {key: repr(value) if value == value else "float('nan')" for key, value in case.items()}
            given = "".join(f", {key}={value}" for key, value in told.items())
            snippet = f"from geolib.conform import check\n\ncheck({spec!r}, {law.name!r}{given})"
            outcome = "not promised" if law.name in target.not_promised else "broken"
            why = f"{target.not_promised[law.name]} Found: {said}" if outcome == "not promised" else said
            return Outcome(law.name, outcome, why, snippet)
    return Outcome(law.name, "kept", found or "")


def load(spec: str) -> list[Target]:
    """The targets that a name stands for: ``timm``, ``timm:axial``, or ``module:object`` for one's own.

    The object is a ``Target``, a class of them, or a list. ValueError for another one; ModuleNotFoundError where its
    library is not installed.

    >>> [target.name for target in load("geolib:rope")]
    ['rope']
    """
    module, _, attribute = spec.partition(":")
    if module in TARGETS:
        made = TARGETS[module]()
        known = ", ".join(target.name for target in made)
        chosen = [target for target in made if attribute in ("", target.name)]
        require(bool(chosen), "target", spec, f"{module} has {known}")
        return chosen
    allowed = f"one of {', '.join(TARGETS)}, or module:object"
    require(bool(attribute), "target", repr(spec), allowed)
    found: Any = getattr(import_module(module), attribute, None)
    targets = [found() if isinstance(found, type) else found] if not isinstance(found, (list, tuple)) else [*found]
    require(all(isinstance(x, Target) for x in targets), "target", repr(spec), "a geolib.conform.Target, or several")
    return targets


def spec_of(spec: str, target: Target) -> str:
    """The name of one target among those that a name stands for."""
    return f"{spec}:{target.name}" if spec in TARGETS else spec


def version_of(target: Target) -> str:
    """The version of the target's library, or nothing."""
    try:
        return version(target.library) if target.library else ""
    except PackageNotFoundError:
        return ""
