"""A checker for the exercises: ``check("rotations: three mirrors", answer)``.

A file holds the checkers of one chapter. Each recomputes what it needs by its own means and
names a case in which a wrong answer fails.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from geolib._checks import require
from geolib.check._register import CHECKERS

for _file in pkgutil.iter_modules(__path__):  # a chapter's checkers are a file of this folder, and no other line
    importlib.import_module(f"{__name__}.{_file.name}")


def check(exercise: str, answer: Any) -> bool:
    """Whether an answer, a number or a function, to the exercise of this name is right; what was found is printed.

    ValueError for an unknown exercise.

    >>> check("rotations: smallest base", lambda dim, tokens: 10000.0)
    rotations: smallest base: not yet: dim 64 and 4096 tokens: at base 10000 the slowest pair makes 0.08693 turns
    False
    """
    require(exercise in CHECKERS, "exercise", repr(exercise), f"one of {', '.join(map(repr, CHECKERS))}")
    try:
        found = CHECKERS[exercise](answer)
    except Exception as error:  # the reader's function may fail in any way; say how instead of stopping the notebook
        found = f"your answer raised {type(error).__name__}: {error}"
    print(f"{exercise}: " + ("correct" if found is None else f"not yet: {found}"))
    return found is None
