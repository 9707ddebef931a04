"""What of the lab works on a machine that it has not seen, how fast, and what does not: a report that can be sent.

``python -m geolib.lab first-contact --out DIR`` tries each part in a process of its own: an error of CUDA spoils the
process that it happens in, and a part that hangs is stopped. The report is rewritten after every part, so that it is
there whatever comes next.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from geolib.encodings import METHODS
from geolib.lab.config import Config, Options
from geolib.lab.experiments.registry import EXPERIMENTS
from geolib.lab.files import LabError, checkout, write_text
from geolib.lab.records import commit, device_name, versions
from geolib.lab.text_attention import METHODS as READERS
from geolib.lab.train import pick_device, train

PASSED, FAILED, SKIPPED, STOPPED = "passed", "failed", "skipped", "stopped"
USER_ERROR = 2  # of the lab's commands: data that is not here, say
CONTEXTS = (256, 1500)  # of documents: all pairs by the fused kernel, and the chunked form of heads of 16 features
AGREE = 1e-3  # between a GPU's and the CPU's mean loss of three steps, both in float32
KEPT = 12_000  # characters of what a part printed


@dataclass(frozen=True)
class Part:
    """Something to try: its name, the words after ``python``, and its seconds at most."""

    name: str
    words: Sequence[str]
    limit: float


@dataclass(frozen=True)
class Outcome:
    """How a part ended, after how many seconds, and the end of what it printed."""

    name: str
    status: str
    seconds: float
    said: str


def parts(folder: Path, device: torch.device) -> Iterator[Part]:
    """All parts, those first from which the others follow."""
    lab, gpu = ("-m", "geolib.lab"), device.type == "cuda"
    root = checkout()
    if gpu and root is not None:
        tests = [str(root / "tests" / f"test_{name}.py") for name in ("engine", "fused", "chunks", "kernels")]
        yield Part("tests that need a GPU", ("-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *tests), 240)
    steps_of = ("-m", "geolib.lab.first_contact")
    forms = ("eager", "captured") if gpu else ("eager",)
    for method in METHODS:
        yield Part(f"steps: {method}", (*steps_of, method, *forms), 120)
    for method in READERS:
        for context in CONTEXTS:
            yield Part(f"steps on documents: {method} at {context}", (*steps_of, f"{method}@{context}", *forms), 120)
    for bench in ("training", "sympow") if gpu else ():
        yield Part(f"bench: {bench}", (*lab, "bench", bench, "--record", str(folder / f"{bench}.json")), 240)
    for name in EXPERIMENTS:
        words = ("run", name, "--scale", "smoke", "--out", str(folder / "runs"), "--quiet", "--again")
        yield Part(f"run: {name}", (*lab, *words), 120)
    for method in METHODS if gpu else ():
        yield Part(f"compiled: {method}", (*steps_of, method, "compiled"), 180)


def attempt(part: Part) -> Outcome:
    """Try a part in a process of its own; one that outlasts its limit is stopped with all that it started."""
    before = time.monotonic()
    both = subprocess.STDOUT
    process = subprocess.Popen(
        [sys.executable, *part.words], stdout=subprocess.PIPE, stderr=both, start_new_session=True
    )
    try:
        said, _ = process.communicate(timeout=part.limit)
        status = {0: PASSED, USER_ERROR: SKIPPED}.get(process.returncode, FAILED)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, status = process.communicate()[0], STOPPED
    text = said.decode(errors="replace").strip()
    return Outcome(part.name, status, round(time.monotonic() - before, 1), text[-KEPT:])


def first_contact(folder: Path, words: Sequence[str] = ()) -> bool:
    """Try all parts, or those with one of the words in their names; whether none failed. The report is in the folder.

    ``first-contact.json`` has all of it, ``first-contact.txt`` a line a part and what the failed ones said.
    """
    device = pick_device(None)
    facts = {"device": device_name(device), "versions": versions(), "commit": commit()}
    outcomes: list[Outcome] = []
    for part in parts(folder, device):
        if words and not any(word in part.name for word in words):
            continue
        outcomes.append(attempt(part))
        print(line_of(outcomes[-1]), flush=True)
        record = json.dumps({**facts, "parts": [asdict(each) for each in outcomes]}, indent=1) + "\n"
        write_text(folder / "first-contact.json", record)
        write_text(folder / "first-contact.txt", report(str(facts["device"]), outcomes))
    if not outcomes:
        names = ", ".join(part.name for part in parts(folder, device))
        raise LabError(f"--only: got {', '.join(words)}; the parts are {names}")
    return not any(each.status in (FAILED, STOPPED) for each in outcomes)


def line_of(outcome: Outcome) -> str:
    """A part in a line, with what it said last."""
    last = outcome.said.splitlines()[-1][:120] if outcome.said else ""
    return f"{outcome.status:8s}{outcome.seconds:7.1f} s  {outcome.name}: {last}"


def report(device: str, outcomes: Sequence[Outcome]) -> str:
    """The lines of all parts, and under them all that those said which failed or were stopped."""
    failed = [each for each in outcomes if each.status in (FAILED, STOPPED)]
    counts = Counter(each.status for each in outcomes)  # a part without its data is skipped, and not passed
    head = f"{device}, torch {torch.__version__}: " + ", ".join(
        f"{counts[status]} {status}" for status in (PASSED, SKIPPED, FAILED, STOPPED) if counts[status]
    )
    words = [f"\n--- {each.name}\n{each.said}" for each in failed]
    return "\n".join([head, *map(line_of, outcomes), *words]) + "\n"


def steps(method: str, forms: Sequence[str]) -> Iterator[str]:
    """Three steps of a small model in each form on the device at hand, against the CPU's in float32; a line each.

    "softmax@512" is a method of documents, and its context. ValueError where a loss is another than the CPU's, or where
    a step fell back to a slower form.
    """
    name, _, context = method.partition("@")
    sizes: dict[str, Any] = {"width": 48, "heads": 2, "layers": 2, "batch": 32, "train_size": 96, "test_size": 32}
    if context:
        sizes |= {"width": 32, "context": int(context), "batch": 2, "train_size": 6, "test_size": 2}
    config = Config("documents" if context else "digits", name, epochs=1, **sizes)
    alone = Options(device="cpu", precision="float32", quiet=True)
    expected = train(config, options=alone).metrics[-1]["train_loss"]
    for form in forms:
        run = train(config, options=Options(step=form, precision="float32", quiet=True))
        loss, step = run.metrics[-1]["train_loss"], run.take_step
        yield f"{form}: was {step.form}, loss {loss:.6f}, the CPU's {expected:.6f} {step.why}".strip()
        if not abs(loss - expected) < AGREE:
            raise ValueError(f"{method}, {form}: loss {loss}, the CPU's {expected}")
        if step.why:
            raise ValueError(f"{method}, {form}: {step.why}")


if __name__ == "__main__":
    for told in steps(sys.argv[1], sys.argv[2:]):
        print(told, flush=True)
