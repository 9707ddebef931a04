"""What the mutants of a module are: each one's name, the lines it replaces, and why it may change nothing."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HARMLESS = Path(__file__).with_name("harmless.yml")


@dataclass(frozen=True)
class Mutant:
    """One change: its name, the file, the lines replaced and what by, the function's fingerprint, and a reason to
    leave it alone."""

    name: str
    file: str
    old: str
    new: str
    function: str
    harmless: str | None


def mutants_of(patterns: Iterable[str]) -> list[Mutant]:
    """The mutants of the files with these patterns, in a mutated copy, the present folder."""
    excuses = yaml.safe_load(HARMLESS.read_text("utf-8")) or []
    return [
        mutant for pattern in patterns for path in sorted(Path().glob(pattern)) for mutant in of_file(path, excuses)
    ]


def of_file(path: Path, excuses: list[dict[str, str]]) -> list[Mutant]:
    """The mutants of one file."""
    meta = Path(f"{path}.meta")
    if not meta.exists():
        return []
    known = json.loads(meta.read_text("utf-8"))
    spans: dict[str, Any] = json.loads(Path(f"{path}.spans").read_text("utf-8"))["spans"]
    lines = path.read_text("utf-8").splitlines()
    found = []
    for name in known["exit_code_by_key"]:
        short = name.rpartition(".")[2]
        function = short.partition("__mutmut_")[0]
        plain = function.rpartition("ǁ")[2] if "ǁ" in function else function.removeprefix("x_")
        texts = []
        for key in (f"{function}__mutmut_orig", short):
            start, end = spans[key]
            texts.append([line.replace(key, plain) for line in lines[start - 1 : end]])
        old, new = difference(*texts)
        why = reason(qualified(function), old, new, excuses)
        found.append(Mutant(name, str(path), old, new, known["hash_by_function_name"][function], why))
    return found


def qualified(function: str) -> str:
    """A function's name, of a method with its class, from the name that mutmut gives it.

    >>> qualified("x_exp_skew"), qualified("xǁALiBiǁplace")
    ('exp_skew', 'ALiBi.place')
    """
    return function.removeprefix("x").strip("ǁ").replace("ǁ", ".") if "ǁ" in function else function.removeprefix("x_")


def difference(before: list[str], after: list[str]) -> tuple[str, str]:
    """The lines that one has and the other has not, each joined to one."""
    lines = list(difflib.unified_diff(before, after, n=0, lineterm=""))[2:]
    old, new = (" ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")
    return old, new


def only_words(old: str, new: str) -> bool:
    """Whether the two differ in nothing but a text with a space in it: a message, and not an argument's name.

    What a seed is for is no message: the seed is drawn from it.

    >>> only_words('f("s", "a zero matrix")', 'f("s", "XXa zero matrixXX")')
    True
    >>> only_words('f("s", "a zero matrix")', 'f("S", "a zero matrix")')
    False
    >>> only_words('f("s", s, "a zero matrix")', 'f("s", s, "A ZERO MATRIX")')
    True
    >>> only_words('derived_seed(0, "the order")', 'derived_seed(0, "THE ORDER")')
    False
    """
    if "derived_seed(" in old or "purpose =" in old:
        return False
    without = [re.sub(r'f?"([^"]*)"', lambda text: '""' if " " in text[1] else text[0], line) for line in (old, new)]
    return without[0] == without[1]


def reason(function: str, old: str, new: str, excuses: list[dict[str, Any]]) -> str | None:
    """Why a mutant of a function changes nothing, where that is known."""
    if only_words(old, new):
        return "words of a message"
    for entry in excuses:
        applies = function in functions_of(entry) and entry["old"] in old
        if applies and old.replace(entry["old"], entry["new"], 1) == new:
            return entry["why"]
    return None


def functions_of(excuse: dict[str, Any]) -> list[str]:
    """The functions that an entry of ``harmless.yml`` is for."""
    return [excuse["in"]] if isinstance(excuse["in"], str) else excuse["in"]
