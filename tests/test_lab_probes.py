"""Probes of trained models: planted parameters are read back, and each measurement is made by hand once more."""

import json
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from geolib.encodings import build
from geolib.lab import Config, train
from geolib.lab.data.documents import Bytes, pieces
from geolib.lab.gpt import GPT
from geolib.lab.probes import after_training, lm, vit
from geolib.lab.vit import ViT, patches
from geolib.rotations import document_frequencies

SHAPE = (1, 8, 8)

pytestmark = pytest.mark.usefixtures("one_thread")


def model_of(method, patch=2, shape=SHAPE, **options):
    """Three layers, two heads of eight features, patches of 2 x 2."""
    config = Config("digits", method, options, width=16, heads=2, layers=3, patch=patch)
    return ViT(config, shape, 10).double().eval()


def run_of(method, shifts=(), resolutions=(), blank=0, shape=SHAPE, **options):
    """As much of a run as the probes ask for, right on every test image as it is."""
    model = model_of(method, shape=shape, **options)
    images = torch.randint(1, 256, (60, *shape), dtype=torch.uint8)
    images[:, :, shape[1] - blank :], images[:, :, :, shape[2] - blank :] = 0, 0
    run = SimpleNamespace(model=model, scores=lambda images: model(images.double() / 255))
    model.head.bias.data -= run.scores(images).mean(0).detach()  # so that the classes come up evenly
    run.config = Config("digits", method, options, shifts=shifts, resolutions=resolutions)
    run.data = SimpleNamespace(shape=shape, classes=range(10))
    run.task = SimpleNamespace(x_test=images, y_test=run.scores(images).argmax(1))
    assert len(run.task.y_test.unique()) > 3
    return run


def trained(method, **options):
    settings = {"width": 16, "heads": 2, "layers": 1, "patch": 2, "epochs": 1, "train_size": 64, "test_size": 50}
    config = Config("digits", method, options, shifts=(3,), resolutions=(6, 16), seed=3, **settings)
    return train(config, quiet=True, device="cpu")


# Parameters of the encoding -----------------------------------------------------------------------------------------


def test_planted_scales_are_read_back_shared_and_of_each_layer_inside_focusing_too():  # RF-6a
    model, s = model_of("riemannformer", law="free"), torch.tensor([[0.9, 1.1], [0.8, 0.7]])
    model.encoding.raw_scale.data = s.log()  # the free law: s = e^w
    assert_close(vit.learned_parameters(model), {"scales": s[None]})
    for outside in ({}, {"per_layer": True}):
        model, w = model_of("riemannformer+lf", per_layer=True, lf=outside), torch.randn(3, 2, 2)
        for own, values in zip(model.encoding.encoding.layers, w):
            own.raw_scale.data = values
        assert_close(vit.learned_parameters(model)["scales"], w.exp() / (w.exp() + 0.1))


def test_angles_and_shift_deviation_are_those_of_the_generators_per_patch():  # LR-SHIFT, NT-1
    model = model_of("liere", block=4)
    generators = model.encoding.generators
    generators.data = torch.sin(torch.arange(144.0)).reshape(3, 2, 2, 2, 6)
    skew = model.encoding.skew().detach().double() / 3  # positions 0 ... 3 over [0, 1]
    expected = torch.linalg.eigvals(skew).imag.abs().sort(-1, descending=True).values[..., ::2]
    assert_close(vit.learned_parameters(model)["angles"].double(), expected, atol=1e-5, rtol=1e-5)
    # The value that these generators had with the draws of the records in book/results.
    assert vit.mean_shift_deviation(model) == pytest.approx(0.03245595, rel=1e-5)
    generators.data[:, :, :, 1] = 2 * generators[:, :, :, 0]  # along one line they commute
    assert vit.mean_shift_deviation(model) < 1e-6
    assert vit.mean_shift_deviation(model_of("rope-mixed")) < 1e-6


# Shuffled, moved and resized ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "patch"), [((3, 8, 4), 2), ((1, 4, 8, 8), (2, 4, 4))])
def test_shuffling_moves_patches_and_keeps_their_pixels(shape, patch):
    images = torch.arange(2 * math.prod(shape)).reshape(2, *shape)
    shuffled = vit.shuffle_patches(images, patch, torch.Generator().manual_seed(1))
    before, after = ([[tuple(p.tolist()) for p in image] for image in patches(x, patch)] for x in (images, shuffled))
    assert [sorted(image) for image in before] == [sorted(image) for image in after]
    orders = [[b.index(p) for p in a] for b, a in zip(before, after)]
    assert [*range(len(orders[0]))] != orders[0] != orders[1]
    with pytest.raises(ValueError, match="patch: got 3"):
        vit.shuffle_patches(images, 3)


def test_a_model_without_positions_keeps_its_accuracy_on_shuffled_patches_and_others_do_not():  # RF-PE, LR-T3
    for method, keeps in (("none", True), ("learned", False), ("rope", False), ("riemannformer+lf", False)):
        run = run_of(method)
        assert (vit.shuffled_accuracy(run) == 1.0) == keeps, method
        assert vit.shuffled_accuracy(run) == vit.shuffled_accuracy(run)
    run, seen = run_of("none"), []  # shuffles are those that the records rest on
    run.task.x_test, run.task.y_test = torch.arange(16.0).reshape(1, 1, 4, 4), torch.zeros(1)
    run.model = model_of("none", patch=1, shape=(1, 4, 4))
    run.scores = lambda images: seen.append(images) or torch.zeros(1, 10)
    assert vit.shuffled_accuracy(run) == 1.0
    assert seen[0].flatten().tolist() == [12, 2, 3, 13, 14, 4, 10, 11, 8, 6, 0, 15, 9, 5, 1, 7]


RELATIVE = ("none", "rope", "rope-axial", "rope-mixed", "alibi", "lf")


@pytest.mark.parametrize("method", [*RELATIVE, "sinusoidal", "learned", "riemannformer", "liere"])
def test_scores_of_differences_alone_do_not_see_all_positions_move(method):  # RF-13, RF-14
    run = run_of(method, **({"far": 0.5} if method == "riemannformer" else {}))
    before, seen = run.model.positions, []
    place = run.model.encoding.place
    run.model.encoding.place = lambda positions: seen.append(positions) or place(positions)
    assert (vit.moved_accuracy(run, 16) == 1.0) == (method in RELATIVE)
    assert torch.equal(seen[0], before + 16)
    assert run.model.positions is before
    assert vit.moved_accuracy(run, 0) == 1.0


@pytest.mark.parametrize("options", [{}, {"std": 0.5}])
@pytest.mark.parametrize(("probe", "by"), [(vit.moved_accuracy, 40), (vit.extended_accuracy, 88)])
def test_learned_vectors_beyond_the_grid_are_as_a_larger_table_would_hold_them(probe, by, options):
    run, seen = run_of("learned", **options), []
    table = run.model.encoding.vectors
    run.scores = lambda images: seen.append(run.model.encoding.vectors.detach()) or torch.zeros(len(images), 10)
    probe(run, by)
    assert run.model.encoding.vectors is table
    assert (seen[0].shape, seen[0].dtype) == ((44, 44, 16), torch.float64)
    assert torch.equal(seen[0][:4, :4], table.detach())
    start = build("learned", width=16, heads=2, grid=(44, 44), **options).vectors
    assert seen[0][4:].std() == pytest.approx(start.std().item(), rel=0.02)


def test_pictures_are_carried_within_their_field():
    run, seen = run_of("none", blank=4), []
    images = run.task.x_test
    assert vit.carried_accuracy(run, 0) == vit.carried_accuracy(run, 2) == 1.0  # a bag of patches has no place
    run.scores = lambda images: seen.append(images) or torch.zeros(len(images), 10)
    vit.carried_accuracy(run, 2)
    assert torch.equal(seen[0][:, :, 4:, 4:], images[:, :, :4, :4])
    assert not seen[0][:, :, :4].any()
    assert vit.carried_accuracy(run, 3) is vit.carried_accuracy(run, 9) is None  # pixels would leave the field
    images[0, 0, 4, 0] = 1
    assert vit.carried_accuracy(run, 1) is not None
    assert vit.carried_accuracy(run, 2) is None


@pytest.mark.parametrize("method", ["none", "learned", "rope-axial", "liere"])
def test_at_the_trained_size_nothing_changes(method):  # LR-F2
    run = run_of(method)
    before = run.model.positions
    assert vit.extended_accuracy(run, 8) == vit.rescaled_accuracy(run, 8) == 1.0
    assert vit.edge_accuracy(run, 8, True) == vit.edge_accuracy(run, 8, False) == 1.0
    assert run.model.positions is before
    with pytest.raises(ValueError, match="patch: got 2; it must divide the image, 9x9 pixels"):
        vit.extended_accuracy(run, 9)


def test_resized_images_get_positions_that_go_on_or_are_squeezed_and_tables_to_match():  # LR-F2
    cells = torch.cartesian_prod(torch.arange(8.0), torch.arange(8.0)).double()
    for method, squeezed in (("liere", cells / 2), ("learned", cells)):
        run, seen = run_of(method), []
        encoding, table = run.model.encoding, getattr(run.model.encoding, "vectors", torch.zeros(1))
        place = encoding.place
        encoding.place = lambda at, e=encoding, p=place, s=seen: s.append((at, getattr(e, "vectors", None))) or p(at)
        vit.extended_accuracy(run, 16)
        vit.rescaled_accuracy(run, 16)
        for grows, far in ((True, 6.0), (False, 3.0)) if method == "liere" else ():  # as torch.linspace(0, far, 8)
            vit.edge_accuracy(run, 16, grows)
            assert_close(seen.pop()[0], cells * far / 7)
        (extended, larger), (rescaled, stretched) = seen
        assert torch.equal(extended, cells)
        assert torch.equal(rescaled, squeezed)
        if method == "learned":
            assert larger.shape == stretched.shape == (8, 8, 16)
            assert torch.equal(larger[:4, :4], table)
            corner = 0.75**2 * table[0, 0] + 0.1875 * (table[0, 1] + table[1, 0]) + table[1, 1] / 16
            assert_close(stretched[1, 1], corner)
            assert encoding.vectors is table


@pytest.mark.parametrize(("method", "options"), [("learned", {}), ("liere", {"block": 4}), ("riemannformer+lf", {})])
def test_probes_repeat_whatever_was_drawn_before_and_leave_the_run_as_it_was(method, options):
    run = trained(method, **options)
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    torch.manual_seed(1)
    state, kept = torch.get_rng_state(), after_training(run)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert after_training(run) == kept == json.loads(json.dumps(kept, allow_nan=False))
    assert not run.model.training
    assert all(torch.equal(value, before[name]) for name, value in run.model.state_dict().items())
    torch.manual_seed(3)  # at the start the model is the seed's
    again = ViT(run.config, run.data.shape, len(run.data.classes))
    start = vit.model_at_start(run).state_dict()
    assert all(torch.equal(start[name], value) for name, value in again.state_dict().items())
    if method == "liere":
        assert kept["shift_deviation_start"] == vit.mean_shift_deviation(again)
        assert kept["shift_deviation"] == vit.mean_shift_deviation(run.model) != kept["shift_deviation_start"]
        assert_close(torch.tensor(kept["angles"]), vit.learned_parameters(run.model)["angles"])
        assert_close(torch.tensor(kept["angles_start"]), vit.learned_parameters(again)["angles"])


def test_a_record_keeps_each_measurement_that_its_configuration_asks_for():  # LR-F2
    run = run_of("sinusoidal", shifts=[1, 2, 3, 9], resolutions=[6, 12], blank=4)
    assert after_training(run) == {
        "shuffled_accuracy": vit.shuffled_accuracy(run),
        "moved_accuracy": [vit.moved_accuracy(run, shift) for shift in (1, 2, 3, 9)],
        "carried_accuracy": [vit.carried_accuracy(run, shift) for shift in (1, 2)],
        "extended_accuracy": [vit.extended_accuracy(run, pixels) for pixels in (6, 12)],
        "rescaled_accuracy": [vit.rescaled_accuracy(run, pixels) for pixels in (6, 12)],
        "extended_to_the_edge_accuracy": [vit.edge_accuracy(run, pixels, True) for pixels in (6, 12)],
        "rescaled_to_the_edge_accuracy": [vit.edge_accuracy(run, pixels, False) for pixels in (6, 12)],
    }
    no_room, volumes = run_of("none", shifts=[1]), run_of("none", shifts=[1], shape=(1, 4, 4, 4), blank=2)
    assert {*after_training(no_room)} == {*after_training(volumes)} == {"shuffled_accuracy", "moved_accuracy"}
    assert {*after_training(run_of("riemannformer+lf"))} == {"shuffled_accuracy", "scales"}
    assert after_training(run_of("none")) == {"shuffled_accuracy": 1.0}


# Language models ----------------------------------------------------------------------------------------------------


def text(seed, length):
    words = ["the", "cat", "of", "Anna", "and", "saw", "Boris", "in", "a", "house,"]
    draws = torch.randint(len(words), (length,), generator=torch.Generator().manual_seed(seed))
    return " ".join(words[i] for i in draws).encode()


def reader_of(method="conformal-sympow", context=64):
    """As much of a run on documents as the probes ask for; gates and rates of all sizes."""
    options = {} if method in ("none", "softmax") else {"gate_bias": 0.0}
    config = Config("documents", method, options, width=16, heads=2, layers=2, context=context)
    model, generator = GPT(config).eval(), torch.Generator().manual_seed(0)
    for p in model.parameters():
        p.data.copy_(0.2 * torch.randn(p.shape, generator=generator))
    data = SimpleNamespace(train=None, test=Bytes(["x", "y"], [text(5, 4000), text(6, 4000)]))
    made = {"config": config, "model": model, "data": data, "task": SimpleNamespace(context=context)}
    return SimpleNamespace(scores=lambda tokens: model(tokens).float(), device=torch.device("cpu"), **made)


def test_bits_are_those_of_windows_that_see_nothing_before():
    run = reader_of()
    tokens = pieces(run.data.test, 128, 1)
    found = lm.bits_of(run, tokens, 32)
    assert found.shape == (2, 128)
    x, y = tokens[1, 32:64], tokens[1, 33:65]
    expected = nn.functional.cross_entropy(run.model(x[None])[0], y, reduction="none") / math.log(2)
    assert_close(found[1, 32:64], expected.detach(), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(lm.bits_of(run, tokens, 64)[1, 32:64], expected, atol=1e-3)


def test_other_frequencies_last_as_long_as_asked():  # CS-N, CS-F2
    run = reader_of()
    tokens, rotation = pieces(run.data.test, 128, 1), run.model.attentions[0].turning
    before, own = lm.bits_of(run, tokens, 128), rotation.frequencies
    with lm.frequencies_of(run.model, 1000.0):
        assert_close(rotation.frequencies, document_frequencies(8, 1000.0).to(own))
        assert not torch.allclose(lm.bits_of(run, tokens, 128), before, atol=1e-4)
    assert rotation.frequencies is own
    with lm.frequencies_of(run.model, 64.0):  # N fixed at the training context is what it was trained with
        assert torch.equal(lm.bits_of(run, tokens, 128), before)


def test_each_context_has_the_bits_of_its_windows_and_longer_ones_those_of_their_frequencies():
    run = reader_of(context=256)
    tokens = pieces(run.data.test, 1024, 1)
    found = lm.extrapolation(run, tokens, torch.full((2, 1024), 1 / 3))
    mean = lambda context: round(float(lm.bits_of(run, tokens, context).mean()), 5)  # noqa: E731
    assert (found["contexts"], lm.contexts_of(8192)) == ([64, 256, 1024], [128, 512, 2048, 8192, 32768])
    assert found["bits"] == [mean(64), mean(256), 0.33333]
    with lm.frequencies_of(run.model, 1024):
        assert found["bits_current_N"] == [None, None, mean(1024)]


def test_names_have_the_distance_to_their_last_mention_and_the_bits_after_their_first_letter():
    found = list(lm.mentions(b"He met Emma, and Emma met Mr. Knightley. Emma saw Knightley"))
    assert found == [(7, 11, 0), (17, 21, 10), (30, 39, 0), (50, 59, 20)]  # a sentence's first word does not count
    window = b"so Emma came, and Emma went. so she and Anna sat with Emma now  "
    tokens = torch.tensor(list(window + b"!"))[None]
    bits = torch.arange(64.0)[None]  # the bits of byte i + 1 are i
    found = lm.names(tokens, bits, 64)
    assert found["distance"] == [1, 16, 32]
    assert (found["first_count"], found["count"]) == (2, [1, 0, 1])
    # Names begin at 3, 18, 40, 54: letters 2, 3, 4 of that at 18 are bytes 19, 20, 21, predicted at 18, 19, 20.
    assert (found["first_bits"], found["bits"]) == ((4 + 41) / 2, [19.0, None, 55.0])
    cut = lm.names(tokens[:, :61], bits[:, :60], 20)  # Emma, Emm up to the cut, Emma once more
    assert (cut["first_count"], cut["count"]) == (3, [0, 0])
    assert cut["first_bits"] == pytest.approx((4 + 18.5 + 55) / 3, abs=1e-5)


def test_gates_are_measured_as_the_layers_meet_them():  # CS-gate, CS-GATE0
    run = reader_of()
    tokens = pieces(run.data.test, 64, 1)[:, :64]
    found = lm.gates_and_rates(run, tokens)
    with torch.no_grad(), lm.layer_inputs(run.model.attentions) as given:
        run.scores(tokens)
    first, second = run.model.attentions
    gates = torch.sigmoid(given[1][0] @ second.W_gamma.weight[0] + second.gate_bias).detach()
    memory = sum(gates[:, j + 1 :].prod(-1) for j in range(64)).mean().item()
    assert found["gates"]["mean"][1][0] == pytest.approx(gates.mean().item(), rel=1e-4)
    assert found["gates"]["memory"][1][0] == pytest.approx(memory, rel=1e-3)
    assert found["gates"]["quantiles"][1][1][0] == pytest.approx(gates.quantile(0.5).item(), rel=1e-3)
    rates = 1 + torch.tanh(given[0][0] @ first.turning.W_beta.weight[1]).detach()
    assert found["rates"]["mean"][0][1] == pytest.approx(rates.mean().item(), rel=1e-4)
    assert found["rates"]["std"][0][1] == pytest.approx(rates.std().item(), rel=1e-3)


@pytest.mark.parametrize("method", ["none", "softmax", "conformal-sympow"])
def test_what_is_kept_of_a_language_model_is_json_and_the_same_twice(method, monkeypatch):
    for name, value in (("PIECE", 256), ("GENERATED", 20)):
        monkeypatch.setattr(lm, name, value)
    run = reader_of(method)
    kept = after_training(run)
    assert json.loads(json.dumps(kept, allow_nan=False)) == kept == after_training(run)
    assert (kept["extrapolation"]["bits_current_N"][1] is None) == (method == "none")
    assert ("gates" in kept, "rates" in kept) == (method == "conformal-sympow",) * 2
    assert kept["parameters"] == sum(p.numel() for p in run.model.parameters())
    tokens = pieces(run.data.test, 256, 2)
    bits = lm.bits_of(run, tokens, 256)
    assert kept["names"] == lm.names(tokens, bits, 256)
    assert kept["extrapolation"] == lm.extrapolation(run, tokens[::2], bits[::2])
    monkeypatch.setattr(lm, "MOST", 1)  # two pieces at least
    assert after_training(run)["names"] == lm.names(tokens[:2], bits[:2], 256)
    prompt = tokens[0, : lm.PROMPT]
    made = bytes(lm.generate(run.model, prompt, 20, lm.TEMPERATURE).tolist())
    assert kept["sample"] == {"prompt": bytes(prompt.tolist()).decode(), "text": made.decode("utf-8", "replace")}
