"""Writing the models that a page holds: the command's files are what the explorable loads."""

import json
from dataclasses import replace

import pytest
import torch
from explorable_kit import restored

from geolib.explorables import live
from geolib.lab import export, train
from geolib.lab.experiments.papers.live import LIVE

ROWS = ("none", "learned", "riemannformer+lf")
WRITTEN_TO = {"images", "labels", "orders"}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def small(monkeypatch):
    """The experiment with three rows, at the size of a smoke test."""
    chosen = replace(LIVE, methods={row: LIVE.methods[row] for row in ROWS}, settings={"cpu": LIVE.settings["smoke"]})
    monkeypatch.setattr(export, "LIVE", chosen)
    return chosen


def test_the_command_writes_what_the_explorable_loads(small, tmp_path, monkeypatch):
    shipped = {row: live.model_of(row)["about"] for row in ROWS}
    held_out = {key: len(text) for key, text in live.held_out().items()}
    export.main(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {
        "digits.json",
        *(f"{row}.{kind}" for row in ROWS for kind in ("json", "bin")),
    }
    monkeypatch.setattr(live, "WEIGHTS", tmp_path)
    for function in (live.model_of, live.held_out):
        getattr(function, "cache_clear", lambda: None)()
    digits = live.held_out()
    assert digits.keys() == held_out.keys() == WRITTEN_TO
    count = small.settings["cpu"]["test_size"]
    assert [len(digits[key]) for key in ("images", "labels", "orders")] == [64 * count, count, 64 * count]
    for row in ROWS:
        about = live.model_of(row)["about"]
        assert about.keys() == shipped[row].keys()
        for key in ("tensors", "grid", "patch", "width", "heads", "layers", "classes"):
            assert about[key] == shipped[row][key], key
        assert [part.keys() for part in about["placed"]] == [part.keys() for part in shipped[row]["placed"]]
        numbers = (tmp_path / f"{row}.bin").read_bytes()
        assert len(numbers) == 2 * sum(torch.Size(shape).numel() for _, shape in about["tensors"])
        assert about["record"] == small.config("cpu", row, "digits-varied", 0).name
        json.dumps(about, allow_nan=False)
    for function in (live.model_of, live.held_out):
        getattr(function, "cache_clear", lambda: None)()


def test_a_model_comes_back_from_its_files_rounded_and_nothing_else(small, tmp_path):
    run = train(small.config("cpu", "learned", "digits-varied", 0), quiet=True)
    export.write(run, "learned", "learned", tmp_path)
    about = json.loads((tmp_path / "learned.json").read_text())
    back = restored(about, (tmp_path / "learned.bin").read_bytes())
    for (name, mine), theirs in zip(run.model.state_dict().items(), back.state_dict().values(), strict=True):
        assert torch.equal(mine.half().float(), theirs), name
