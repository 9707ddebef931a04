"""Build the wheel and the source distribution, look them over, and try both away from the checkout.

``make release-check`` runs it. The wheel is built from the source distribution. Each of the two is then installed into
a fresh environment, and there, in an empty folder, the lab lists its experiments, prints a table from the records that
ship, and trains at the smoke scale. Last, tests run in the unpacked source distribution.

    python release/check.py [--torch 2.6.0] [--tests tests/test_rotations.py ...]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
DIST = REPOSITORY / "_build" / "dist"
RECORDS = REPOSITORY / "book" / "results"
EXPERIMENT = "digits-encodings"  # its data come with scikit-learn, its records with the library
MOST_BYTES = 4_000_000  # a wheel that grew past this carries what it should not, or the records need another home


class Wrong(Exception):
    """What the check found; its text is for whoever makes the release."""


def main(arguments: list[str]) -> int:
    """Do it all; the exit status is 1 when anything is wrong."""
    options = parser().parse_args(arguments)
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="geolib-release-") as folder:
            check(Path(folder), options)
    except Wrong as wrong:
        print(f"NOT READY: {wrong}", file=sys.stderr)
        return 1
    print(f"ready, in {time.monotonic() - began:.0f} s: {', '.join(path.name for path in sorted(DIST.iterdir()))}")
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument(
        "--torch", default="newest", metavar="VERSION", help="in the fresh environments; newest if not said"
    )
    made.add_argument("--tests", nargs="*", default=[], metavar="FILE", help="to run in the source distribution")
    return made


def check(folder: Path, options: argparse.Namespace) -> None:
    """Build into _build/dist, look and try, in an empty folder away from the checkout."""
    tools = environment(folder / "tools", "-r", str(REPOSITORY / "release" / "tools.txt"))
    wheel, sdist = build(tools)
    look_over(tools, wheel, sdist)
    tables = []
    for archive in (wheel, sdist):
        name = "wheel" if archive == wheel else "sdist"
        python = environment(folder / name, *torch_of(options), f"{archive}[chapters]")
        tables.append(try_out(python, folder / f"away-{name}"))
    if tables[0] != tables[1]:
        raise Wrong("the wheel's table and the source distribution's differ")
    if options.tests:
        run_tests(folder, sdist, options)


def torch_of(options: argparse.Namespace) -> list[str]:
    """What pip is told about torch."""
    return [] if options.torch == "newest" else [f"torch=={options.torch}"]


def environment(folder: Path, *packages: str) -> Path:
    """A fresh virtual environment with these packages; its Python."""
    call([sys.executable, "-m", "venv", str(folder)])
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    call([python, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", *packages])
    return python


def call(command: list[object], at: Path | None = None) -> str:
    """Run a command and give what it printed; Wrong, with all of it, when it fails."""
    words = [str(word) for word in command]
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GEOLIB_"))}
    done = subprocess.run(words, cwd=at, env=surroundings, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Wrong(f"{' '.join(words)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(tools: Path) -> tuple[Path, Path]:
    """The wheel, made from the source distribution, and the source distribution."""
    shutil.rmtree(DIST, ignore_errors=True)
    call([tools, "-m", "build", "--outdir", DIST, REPOSITORY])
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def look_over(tools: Path, wheel: Path, sdist: Path) -> None:
    """What can be seen without installing: metadata, sizes, the records as files, and no link anywhere."""
    call([tools, "-m", "twine", "check", "--strict", wheel, sdist])
    call([tools, "-m", "check_wheel_contents", wheel])
    for archive in (wheel, sdist):
        print(f"{archive.name}: {archive.stat().st_size / 1e6:.2f} MB", flush=True)
        if archive.stat().st_size > MOST_BYTES:
            raise Wrong(f"{archive.name} is larger than {MOST_BYTES / 1e6:.0f} MB")
    files = wheel_files(wheel)
    print(f"{wheel.name}: {len(files)} files", flush=True)
    with zipfile.ZipFile(io.BytesIO(files["geolib/lab/results.zip"])) as packed:
        same_records({name: packed.read(name) for name in packed.namelist()}, "", wheel.name)
    same_records(sdist_files(sdist), "book/results/", sdist.name)


def same_records(files: dict[str, bytes], start: str, name: str) -> None:
    """Wrong unless the archive has every record of the book, byte by byte, and no other."""
    here = {path.relative_to(RECORDS).as_posix(): path.read_bytes() for path in RECORDS.rglob("*.json")}
    there = {path.removeprefix(start): text for path, text in files.items() if path.startswith(start)}
    there = {path: text for path, text in there.items() if path.endswith(".json")}
    if here != there:
        odd = sorted(path for path in here.keys() | there.keys() if here.get(path) != there.get(path))
        raise Wrong(f"{name}: {len(odd)} records are not those of book/results, the first {odd[0]}")
    print(f"{name}: {len(there)} records, {sum(map(len, there.values())) / 1e6:.2f} MB unpacked", flush=True)


def wheel_files(path: Path) -> dict[str, bytes]:
    """From the names in a wheel to their contents."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if (info.external_attr >> 16) & 0o170000 == 0o120000:
                raise Wrong(f"{path.name}: {info.filename} is a link")
        return {name: archive.read(name) for name in archive.namelist()}


def sdist_files(path: Path) -> dict[str, bytes]:
    """From the names in a source distribution, without its top folder, to their contents."""
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        for member in members:
            if member.issym() or member.islnk():
                raise Wrong(f"{path.name}: {member.name} is a link")
        files = [member for member in members if member.isfile()]
        return {member.name.partition("/")[2]: archive.extractfile(member).read() for member in files}


def try_out(python: Path, away: Path) -> str:
    """Use the installed library in an empty folder; the table that it printed."""
    away.mkdir()
    where = Path(call([python, "-c", "import geolib; print(geolib.__file__)"], away).strip())
    if python.parent.parent not in where.parents:
        raise Wrong(f"geolib was imported from {where}, not from the fresh environment")
    lab = python.parent / "geolib-lab"
    if f"\n{EXPERIMENT}:" not in "\n" + call([lab, "list"], away):
        raise Wrong(f"`geolib-lab list` does not name {EXPERIMENT}")
    table = call([lab, "table", EXPERIMENT, "--scale", "cpu"], away)
    if "All " not in table or "±" not in table:
        raise Wrong(f"`geolib-lab table {EXPERIMENT}` does not read the records that ship:\n{table}")
    call([lab, "run", EXPERIMENT, "--scale", "smoke", "--quiet", "--out", "records"], away)
    made = sorted((away / "records" / EXPERIMENT).glob("*.json"))
    if not made or any(not json.loads(path.read_text("utf-8"))["metrics"] for path in made):
        raise Wrong(f"`geolib-lab run {EXPERIMENT} --scale smoke` left no records")
    versions = json.loads(made[0].read_text("utf-8"))["versions"]
    print(f"{where.parent}: list, table, run ({len(made)} records); {versions}", flush=True)
    return table


def run_tests(folder: Path, sdist: Path, options: argparse.Namespace) -> None:
    """Run tests in the unpacked source distribution, where nothing is under version control."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (root,) = (folder / "unpacked").iterdir()
    python = environment(folder / "tests", *torch_of(options), f"{root}[test]")
    command = [python, "-m", "pytest", "-m", "not site", "-n", "auto", "--dist", "loadfile", *options.tests]
    print(call(command, root).splitlines()[-1], flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
