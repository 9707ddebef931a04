"""The page *Who keeps which law*: ``python book/conformance.py`` writes its tables anew from conformance.json.

The record is made by ``python -m geolib.conform TARGET ... --record book/conformance.json``.
"""

import json
import re
from pathlib import Path
from typing import Any

from geolib.conform import LAWS

PAGE = Path(__file__).with_suffix(".md")

BELOW = "<!-- What follows was written by python book/conformance.py. -->\n\n"
WORDS = {
    "kept": "kept",
    "broken": "no",
    "not promised": "not promised",
    "cannot be tried here": "not tried",
    "does not apply": "does not apply",
}


def anchor(one: dict[str, Any], law: str) -> str:
    """Where the failing input stands."""
    return "conform-" + re.sub(r"[^a-z0-9]+", "-", f"{one['target']}-{one['method']}-{law}".lower()).strip("-")


def cell(methods: list[dict[str, Any]], law: str) -> str:
    """What is said of a law for a library: a word where its methods agree; a failure links to its input."""
    said = {}
    for one in methods:
        outcome = next(x["outcome"] for x in one["outcomes"] if x["law"] == law)
        word = "**no**" if outcome == "broken" else WORDS[outcome]
        if outcome != "does not apply":
            failed = outcome in ("broken", "not promised")
            said[one["method"]] = f"[{word}](#{anchor(one, law)})" if failed else word
    alike = len(set(said.values())) <= 1
    return next(iter(said.values()), "–") if alike else ", ".join(f"{method} {word}" for method, word in said.items())


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """A table of Markdown."""
    return [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]] + [""]


def written(record: dict[str, Any]) -> str:
    """The parts of the page that come from a record: counts, a table for each group of laws, and the failing inputs."""
    libraries: dict[str, list[dict[str, Any]]] = {}
    rows = []
    for one in record["targets"]:
        libraries.setdefault(one["target"], []).append(one)
        counts = [str(sum(x["outcome"] == kind for x in one["outcomes"])) for kind in WORDS]
        rows.append([f"{one['target']} {one['version']}", one["method"], *counts, f"{one['seconds']:.0f} s"])
    lines = [f"Tried on {record['date']} with PyTorch {record['torch']} and Python {record['python']} on a CPU.", ""]
    lines += ["(conform-counts)=", "## The counts", ""]
    lines += table(["library", "method", *WORDS.values(), "processor time"], rows)
    lines += ["(conform-table)=", "## The table", ""]
    for group in dict.fromkeys(law.group for law in LAWS.values()):
        laws = [law for law in LAWS.values() if law.group == group]
        rows = [[law.name, *(cell(methods, law.name) for methods in libraries.values())] for law in laws]
        lines += [f"### {group.capitalize()}", "", *table(["law", *libraries], rows)]
        for law in laws:
            met = f" Met in public: [{law.met}]({law.thread})" if law.thread else ""
            lines.append(f"- *{law.name[0].upper()}{law.name[1:]}*: {law.statement} {law.theorem}{met}")
        lines.append("")
    lines += ["(conform-inputs)=", "## The failing inputs", "", "The smallest input of each, as a program.", ""]
    for one in record["targets"]:
        for x in one["outcomes"]:
            if x["snippet"]:
                title = f"**{one['target']}, {one['method']}, {x['law']}: {WORDS[x['outcome']]}.**"
                lines += [f"({anchor(one, x['law'])})=", f"{title} {x['why']}", ""]
                lines += ["```python", x["snippet"], "```", ""]
    return "\n".join(lines)


def main() -> None:
    """Write what stands below the line, from the record beside the page."""
    record = json.loads(PAGE.with_suffix(".json").read_text("utf-8"))
    above = PAGE.read_text("utf-8").partition(BELOW)[0]
    PAGE.write_text(above + BELOW + written(record), "utf-8")


if __name__ == "__main__":
    main()
