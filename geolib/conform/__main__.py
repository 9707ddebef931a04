"""``python -m geolib.conform TARGET``: hold libraries to the laws, and write what came of it.

TARGET is timm, transformers, x_transformers, rotary_embedding_torch, fla, geolib, or module:object for one's own.
"""

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

from geolib.conform import LAWS, Target, hold, load


def tried(spec: str, name: str, target: Target, laws: list[str]) -> dict[str, Any]:
    """Hold a target to laws; what came of it is printed."""
    print(f"\n{spec}: {target.name} {target.version}")
    outcomes = [hold(target, LAWS[law], name) for law in laws]
    for x in outcomes:
        if x.outcome != "does not apply":
            print(f"  {x.outcome:<20} {x.law}" + (f": {x.why}" if x.why else ""))
            print("".join(f"      {line}\n" for line in x.snippet.splitlines() if line), end="")
    seconds, counts = sum(x.seconds for x in outcomes), Counter(x.outcome for x in outcomes)
    print(f"  {', '.join(f'{n} {kind}' for kind, n in counts.items())}; {seconds:.0f} s of a processor")
    about = {"target": spec, "method": target.name, "library": target.library, "version": target.version}
    return about | {"seconds": seconds, "outcomes": [asdict(x) for x in outcomes]}


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 1 where a law is broken."""
    parser = argparse.ArgumentParser("python -m geolib.conform", description=__doc__)
    add = parser.add_argument
    add("target", nargs="*", help="one or more of the names above")
    add("--only", action="append", choices=list(LAWS), metavar="LAW", help="this law alone")
    add("--record", type=Path, help="a JSON file in which the outcomes take the place of older ones")
    given = parser.parse_args(arguments)
    sys.path.insert(0, "")
    try:
        targets = [(spec, *one) for spec in given.target for one in load(spec)]
    except (ModuleNotFoundError, ValueError) as error:
        parser.error(str(error))  # which names the module that is not installed
    found = [tried(*one, given.only or list(LAWS)) for one in targets]
    if given.record:
        older = json.loads(given.record.read_text("utf-8"))["targets"] if given.record.is_file() else []
        kept = [one for one in older if one["target"] not in given.target]
        record: dict[str, Any] = {"date": datetime.now(UTC).date().isoformat(), "torch": torch.__version__}
        record |= {"python": platform.python_version(), "machine": platform.machine(), "targets": [*kept, *found]}
        given.record.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return int(any(x["outcome"] == "broken" for one in found for x in one["outcomes"]))


if __name__ == "__main__":
    sys.exit(main())
