"""Writing the models that a page holds: the command's files are what the explorable loads."""

import functools
import json
from types import SimpleNamespace

import pytest
import torch
from explorable_kit import restored
from torch.testing import assert_close

from geolib.explorables import export, live
from geolib.lab import Config, train
from geolib.lab.experiments import find
from geolib.lab.probes.vit import shuffle_patches, shuffled_accuracy
from geolib.lab.vit import ViT

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_command_writes_what_the_explorable_loads(tmp_path, monkeypatch):
    whole, rows = find("digits-live"), ("none", "learned", "riemannformer+lf")
    config = functools.partial(whole.config, "smoke", dataset="digits-varied", seed=0)
    small = SimpleNamespace(
        methods={row: whole.methods[row] for row in rows},
        datasets=whole.datasets,
        config=lambda scale, row, dataset, seed: config(row=row),
    )
    monkeypatch.setattr(export, "find", lambda name: small)
    export.main(str(tmp_path))
    names = {"digits.json", *(f"{row}.{kind}" for row in rows for kind in ("json", "bin"))}
    assert {path.name for path in tmp_path.iterdir()} == names
    told = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert told["digits"].keys() == live.held_out().keys()
    for row in rows:
        about, shipped = told[row], live.model_of(row)["about"]
        assert about.keys() == shipped.keys()
        for key in ("tensors", "grid", "patch", "width", "heads", "layers", "classes"):
            assert about[key] == shipped[key], key
        assert [part.keys() for part in about["placed"]] == [part.keys() for part in shipped["placed"]]
        held = sum(torch.Size(shape).numel() for _, shape in about["tensors"])
        assert (tmp_path / f"{row}.bin").stat().st_size == 2 * held
        assert about["record"] == config(row=row).name

    run = train(config(row="learned"), quiet=True, device="cpu")
    back = restored(told["learned"], (tmp_path / "learned.bin").read_bytes())
    for (name, mine), theirs in zip(run.model.state_dict().items(), back.state_dict().values(), strict=True):
        assert torch.equal(mine.half().float(), theirs), name
    pixels, images, labels = run.task.x.float(), run.task.x_test, run.task.y_test
    moments = [float(pixels.mean()), float(pixels.std(correction=0))]
    assert told["learned"]["moments"] == pytest.approx(moments, rel=1e-3)
    assert told["digits"]["labels"] == "".join(map(str, labels.tolist()))
    assert [ord(letter) - 97 for letter in told["digits"]["images"]] == images.flatten().tolist()
    orders = torch.tensor([ord(letter) - 48 for letter in told["digits"]["orders"]]).view(len(labels), -1)
    shuffled = images.flatten(1).gather(1, orders).view_as(images)
    assert torch.equal(shuffled, shuffle_patches(images, 1, torch.Generator().manual_seed(0)))
    right = (run.scores(shuffled).argmax(-1) == labels).float().mean()
    assert float(right) == pytest.approx(shuffled_accuracy(run))


def told_of(method, **options):
    """A model of three layers on 3 x 3 cells, its numbers drawn, and what a page is told of its layers."""
    model = ViT(Config("digits", method, options, width=16, heads=2, layers=3), (1, 3, 3), 10)
    for p in model.encoding.parameters():
        p.data.add_(0.1 * torch.randn_like(p))
    told = export.exported(model, (0.0, 1.0))[0]["placed"]
    return model.half().float(), told  # what a page has of it is rounded


@pytest.mark.parametrize("method", ["rope", "rope-axial", "rope-mixed", "riemannformer"])
def test_a_page_turns_and_stretches_as_the_model_does(method):
    """A step along each axis turns a pair of queries and keys by the angle told, and stretches it by the factor."""
    model, told = told_of(method)
    for layer in range(3):
        turn, stretch = (torch.tensor(told[layer][key]) for key in ("turn", "stretch"))
        rates = torch.view_as_complex(torch.stack(torch.broadcast_tensors(stretch, turn), -1)).exp()
        q, k = torch.randn(2, 1, 2, 9, 8)
        a, b = model.encoding.place(model.positions).layer(layer).to_reference(q, k)
        powers = (rates[:, None] ** model.positions[None, :, None, :]).prod(-1)  # (heads or 1, tokens, pairs)
        pairs = (torch.view_as_complex(x.unflatten(-1, (4, 2)).contiguous()) * powers for x in (q, k))
        mine, theirs = (torch.view_as_real(each).flatten(-2) for each in pairs)
        assert_close(mine @ theirs.mT, a @ b.mT, atol=1e-4, rtol=1e-4)


def test_a_page_is_told_each_layers_own_generators():
    model, told = told_of("liere", block=4)
    for layer in range(3):
        own = model.encoding.generators[layer] / model.encoding.unit[:, None]
        assert_close(torch.tensor(told[layer]["blocks"]), own.detach(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("method", ["spherical", "rope+rmt", "compass", "alibi+alibi"])
def test_a_model_that_the_page_cannot_hold_is_an_error(method):
    with pytest.raises(ValueError, match=r"^model: got"):
        told_of(method)
