"""One version everywhere: the library's, the citation's and the changelog's; for a release also the tag's and its date.

``python release/versions.py`` compares the first three, ``python release/versions.py v0.1.0`` all of them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
UNRELEASED = "unreleased"


def found(pattern: str, name: str) -> re.Match[str]:
    """The first match in a file of the repository."""
    match = re.search(pattern, (REPOSITORY / name).read_text("utf-8"), re.MULTILINE)
    if match is None:
        raise SystemExit(f"{name}: nothing there matches {pattern}")
    return match


def library() -> str:
    """What ``geolib.__version__`` says."""
    return found(r'^__version__ = "(.+)"$', "geolib/__init__.py")[1]


def cited() -> str:
    """The version in CITATION.cff."""
    return found(r"^version: (\S+)$", "CITATION.cff")[1]


def newest() -> tuple[str, str]:
    """The version of the changelog's first entry, and its date or ``unreleased``."""
    match = found(r"^## (\S+) \((.+)\)$", "CHANGELOG.md")
    return match[1], match[2]


def problems(tag: str | None = None) -> list[str]:
    """What disagrees, a line each.

    Parameters
    ----------
    tag : str or None
        The tag of the release to be made, such as ``v0.1.0``; None between releases.
    """
    version, (entry, date) = library(), newest()
    found_wrong = []
    if cited() != version:
        found_wrong.append(f"CITATION.cff cites version {cited()}, and geolib/__init__.py has {version}")
    if entry != version:
        found_wrong.append(f"CHANGELOG.md's first entry is {entry}, and geolib/__init__.py has {version}")
    if date != UNRELEASED and not re.fullmatch(r"\d{4}-\d\d-\d\d", date):
        found_wrong.append(f"CHANGELOG.md's first entry has ({date}), not ({UNRELEASED}) nor a date like (2026-01-31)")
    if tag is not None:
        found_wrong += _of_release(tag, version, date)
    return found_wrong


def _of_release(tag: str, version: str, date: str) -> list[str]:
    """What a release asks for beside that."""
    found_wrong = []
    if tag != f"v{version}":
        found_wrong.append(f"the tag is {tag}, and geolib/__init__.py has {version}")
    if date == UNRELEASED:
        found_wrong.append(f"CHANGELOG.md's first entry is still ({UNRELEASED}); give it the day of the release")
    elif f"date-released: {date}\n" not in (REPOSITORY / "CITATION.cff").read_text("utf-8"):
        found_wrong.append(f"CITATION.cff has no line 'date-released: {date}', the day in CHANGELOG.md")
    return found_wrong


def main(arguments: list[str]) -> int:
    """Print what disagrees; the exit status is 1 when anything does."""
    found_wrong = problems(arguments[0] if arguments else None)
    print("\n".join(found_wrong) or f"version {library()} everywhere")
    return 1 if found_wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
