"""Writing the models that a page holds: the command's files are what the explorable loads."""

import json
from dataclasses import replace

import pytest
import torch
from explorable_kit import restored
from torch.testing import assert_close

from geolib.encodings import build
from geolib.explorables import live
from geolib.lab import export, train
from geolib.lab.experiments.papers.page_models import LIVE
from geolib.lab.probes.vit import shuffle_patches, shuffled_accuracy

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


def test_what_is_held_out_is_what_the_record_was_tested_on(small):
    run = train(small.config("cpu", "none", "digits-varied", 0), quiet=True)
    told = export.held_out(run)
    assert told["labels"] == "".join(map(str, run.test_labels.tolist()))
    assert [ord(letter) - 97 for letter in told["images"]] == run.test_images.flatten().tolist()
    orders = torch.tensor([ord(letter) - 48 for letter in told["orders"]]).view(len(run.test_labels), -1)
    shuffled = run.test_images.flatten(1).gather(1, orders).view_as(run.test_images)
    scores = run.scores(shuffled).argmax(-1)
    assert float((scores == run.test_labels).float().mean()) == pytest.approx(
        shuffled_accuracy(run, run.test_images, run.test_labels)
    )
    assert torch.equal(shuffled, shuffle_patches(run.test_images, 1, torch.Generator().manual_seed(0)))


def test_a_page_is_told_the_mean_first_and_each_layers_own_generators(small):
    run = train(small.config("cpu", "none", "digits-varied", 0), quiet=True)
    pixels = run.images.float()
    assert export.moments_of(run) == pytest.approx((float(pixels.mean()), float(pixels.std(correction=0))), rel=1e-3)
    turning = build("liere", width=16, heads=2, grid=(3, 3), layers=3, block=4)
    for layer in range(3):
        told = torch.tensor(export._placing(turning, layer)["blocks"])
        assert_close(told, (turning.generators[layer] / turning.unit[:, None]).detach())
