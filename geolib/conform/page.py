"""The page *Who keeps which law*, from a record."""

from __future__ import annotations

import re
from typing import Any

from geolib.conform.core import ABOUT, LAWS

BELOW = "<!-- What follows was written by python -m geolib.conform. -->\n\n"
WORDS = {"kept": "kept", "does not apply": "–", "cannot be tried here": "not tried"}
LINKED = {"broken": "**no**", "not promised": "not promised"}


def anchor(one: dict[str, Any], law: str) -> str:
    """Where the failing input stands."""
    return "conform-" + re.sub(r"[^a-z0-9]+", "-", f"{one['target']}-{one['method']}-{law}".lower()).strip("-")


def cell(one: dict[str, Any], law: str) -> str:
    """What is said of a law for a method; a failure links to its input."""
    outcome = next(x["outcome"] for x in one["outcomes"] if x["law"] == law)
    return WORDS.get(outcome) or f"[{LINKED[outcome]}](#{anchor(one, law)})"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """A table of Markdown."""
    return [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]] + [""]


def written(record: dict[str, Any]) -> str:
    """The parts of the page that come from a record: counts, a table for each group of laws, and the failing inputs."""
    libraries: dict[str, list[dict[str, Any]]] = {}
    for one in record["targets"]:
        libraries.setdefault(one["target"], []).append(one)
    lines = [f"Tried on {record['date']} with PyTorch {record['torch']} and Python {record['python']} on a CPU.", ""]
    kinds = ["kept", "broken", "not promised", "cannot be tried here", "does not apply"]
    rows = []
    for one in record["targets"]:
        counts = [str(sum(x["outcome"] == kind for x in one["outcomes"])) for kind in kinds]
        rows.append([f"{one['target']} {one['version']}", one["method"], *counts, f"{one['seconds']:.0f} s"])
    head = ["library", "method", "kept", "no", "not promised", "not tried", "does not apply", "processor time"]
    lines += ["(conform-counts)=", "## The counts", "", *table(head, rows)]
    lines += ["(conform-table)=", "## The table", ""]
    for group in dict.fromkeys(entry["group"] for entry in ABOUT.values()):
        laws = [name for name, entry in ABOUT.items() if entry["group"] == group]
        lines += [f"### {group.capitalize()}", ""]
        rows = []
        for law in laws:
            cells = []
            for methods in libraries.values():
                said = {one["method"]: cell(one, law) for one in methods}
                apply = {method: word for method, word in said.items() if word != "–"}
                same = len(set(apply.values())) <= 1
                cells.append(
                    next(iter(apply.values()), "–") if same else ", ".join(f"{m} {w}" for m, w in apply.items())
                )
            rows.append([law, *cells])
        lines += table(["law", *libraries], rows)
        for law in laws:
            entry = ABOUT[law]
            met = f" Met in public: [{entry['met']}]({entry['thread']})" if "thread" in entry else ""
            lines.append(f"- *{law[0].upper()}{law[1:]}*: {LAWS[law].statement} {entry['theorem']}{met}")
        lines.append("")
    lines += ["(conform-inputs)=", "## The failing inputs", "", "The smallest input of each, as a program.", ""]
    for one in record["targets"]:
        for x in one["outcomes"]:
            if x["outcome"] in LINKED:
                word = "not promised" if x["outcome"] == "not promised" else "no"
                title = f"**{one['target']}, {one['method']}, {x['law']}: {word}.**"
                lines += [
                    f"({anchor(one, x['law'])})=",
                    f"{title} {x['why']}",
                    "",
                    "```python",
                    x["snippet"],
                    "```",
                    "",
                ]
    return "\n".join(lines)
