"""``python -m geolib.conform TARGET``: hold libraries to the laws, and write what came of it.

TARGET is timm, transformers, x_transformers, rotary_embedding_torch, fla, geolib, or module:object for one's own.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from geolib.conform import ABOUT, LAWS, hold, load, page, spec_of, version_of


def tried(spec: str, only: list[str]) -> list[dict[str, Any]]:
    """Hold all that a name stands for to the laws; what came of it is printed on the way."""
    found = []
    for target in load(spec):
        outcomes = [hold(target, LAWS[name], spec_of(spec, target)) for name in ABOUT if name in (only or ABOUT)]
        told = {"target": spec, "method": target.name, "library": target.library, "version": version_of(target)}
        found.append(told | {"seconds": sum(x.seconds for x in outcomes), "outcomes": [asdict(x) for x in outcomes]})
        print(f"\n{spec}: {target.name} {version_of(target)}")
        for x in outcomes:
            if x.outcome != "does not apply":
                print(f"  {x.outcome:<20} {x.law}" + (f": {x.why}" if x.why else ""))
                if x.snippet:
                    print("".join(f"      {line}\n" for line in x.snippet.splitlines() if line), end="")
        counts = Counter(x.outcome for x in outcomes)
        print(
            f"  {', '.join(f'{n} {kind}' for kind, n in counts.items())}; {found[-1]['seconds']:.0f} s of a processor"
        )
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 1 where a law is broken."""
    parser = argparse.ArgumentParser("python -m geolib.conform", description=__doc__)
    parser.add_argument("target", nargs="*", help="one or more of the names above")
    parser.add_argument(
        "--only", action="append", default=[], choices=list(ABOUT), metavar="LAW", help="this law alone"
    )
    parser.add_argument("--record", type=Path, help="a JSON file in which the outcomes take the place of older ones")
    parser.add_argument(
        "--page", type=Path, help="a page of Markdown: the record's tables take the place of older ones"
    )
    given = parser.parse_args(arguments)
    sys.path.insert(0, "")
    found = [one for spec in given.target for one in tried(spec, given.only)]
    if given.record:
        record = json.loads(given.record.read_text("utf-8")) if given.record.is_file() else {"targets": []}
        kept = [one for one in record["targets"] if one["target"] not in given.target]
        now = {"date": datetime.now(UTC).date().isoformat(), "torch": torch.__version__}
        record = {**now, "python": platform.python_version(), "machine": platform.machine(), "targets": [*kept, *found]}
        given.record.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
        if given.page:
            above = given.page.read_text("utf-8").partition(page.BELOW)[0] if given.page.is_file() else ""
            given.page.write_text(above + page.BELOW + page.written(record), "utf-8")
    return int(any(x["outcome"] == "broken" for one in found for x in one["outcomes"]))


if __name__ == "__main__":
    sys.exit(main())
