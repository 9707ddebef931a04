"""The laws are held to their own rule: each catches what is planted for it, and none fails on a right module."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import conform_faults
import pytest
from conform_faults import FAULTS, RIGHT, planted

from geolib.conform import LAWS, check, hold, load
from geolib.conform.__main__ import main
from geolib.conform.core import CHECKS
from geolib.conform.targets import TARGETS

UNSEEN = {"no float64 on the way"}  # what is planted there can be seen on a device without float64 alone
IN_TWO = {"DDP", "FSDP2"}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught_by_its_law(fault):
    law, target = planted(fault)
    found = hold(target, LAWS[law], "conform_faults:planted")
    assert found.outcome == "broken", found
    assert found.why
    assert f"check('conform_faults:planted', {law!r}" in found.snippet


@pytest.mark.parametrize("target", RIGHT)
def test_no_law_fails_on_a_right_module(target):
    spec = f"conform_faults:{target.__name__}"
    laws = [law for law in LAWS.values() if law.name not in IN_TWO or target is conform_faults.Decoder]
    outcomes = [hold(target(), law, spec) for law in laws]
    assert [found for found in outcomes if found.outcome == "broken"] == []
    assert sum(found.outcome == "kept" for found in outcomes) >= 7


def test_every_law_has_a_fault_and_an_entry():
    assert len(FAULTS) >= 40
    assert {law for law, *_ in FAULTS.values()} == set(LAWS) - UNSEEN
    assert set(CHECKS) == set(LAWS)


# The command, the plugin, the page -----------------------------------------------------------------------------------


ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book"))
page = importlib.import_module("conformance")
PAGE = (ROOT / "book" / "conformance.md").read_text("utf-8")
EXAMPLE = re.search(r"```python\n(# test_rope.py.*?)```", PAGE, re.S)[1]


def test_the_plugin_holds_the_example_of_the_page_to_the_laws(tmp_path):
    narrow = "torch.arange(0, d, 2)"
    assert narrow in EXAMPLE
    (tmp_path / "test_rope.py").write_text(EXAMPLE)
    (tmp_path / "mended.py").write_text(EXAMPLE.replace(narrow, f"{narrow[:-1]}, dtype=torch.float64)"))
    options = [
        "-p",
        "no:cacheprovider",
        "-p",
        "geolib.conform.plugin",
        "-k",
        "float64 or isometry or layout or autocast",
    ]
    targets = ["--geolib-conform", "test_rope:Mine", "--geolib-conform", "mended:Mine"]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, *targets], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert found.returncode == 1, found.stdout
    assert "check('test_rope:Mine', 'float64 in, float64 out')" in found.stdout
    assert "check('mended:Mine'" not in found.stdout
    assert "1 failed, 8 passed, 1 skipped" in found.stdout, found.stdout


def test_the_command_prints_what_it_found_and_keeps_it(tmp_path, capsys):
    record = tmp_path / "record.json"
    assert main(["conform_faults:Text", "--only", "isometry", "--record", str(record)]) == 0
    assert "kept                 isometry" in capsys.readouterr().out
    (one,) = json.loads(record.read_text("utf-8"))["targets"]
    assert one["outcomes"][0]["outcome"] == "kept"
    for spec, said in (("not_there:at_all", "error: No module named 'not_there'"), ("geolib:x", "error: target: got")):
        with pytest.raises(SystemExit):
            main([spec])
        assert said in capsys.readouterr().err
    with pytest.raises(ValueError, match="target: got 'nothing'; one of geolib, timm"):
        load("nothing")
    with pytest.raises(ValueError, match="target: got geolib:x; geolib has rope, axial"):
        load("geolib:x")
    with pytest.raises(ValueError, match=r"target: got 'math:pi'; a geolib\.conform\.Target"):
        load("math:pi")
    with pytest.raises(ValueError, match="name: got 'gravity'; the laws are"):
        check(conform_faults.Text(), "gravity")


def test_the_page_is_what_its_record_gives():
    record = json.loads((ROOT / "book" / "conformance.json").read_text("utf-8"))
    assert page.BELOW + page.written(record) == PAGE[PAGE.index(page.BELOW) :]
    assert {one["target"] for one in record["targets"]} == set(TARGETS)
    for one in record["targets"]:
        assert [x["law"] for x in one["outcomes"]] == list(LAWS)
        assert one["version"]
    assert f"`geolib.conform` has {len(LAWS)} of them" in PAGE
    assert f"tries {len(LAWS)}\nlaws" in (ROOT / "README.md").read_text("utf-8")
