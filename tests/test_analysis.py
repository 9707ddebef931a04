"""What a model has learned is read back, and shuffled accuracies are the model's own."""

import json
import types

import pytest
import torch
from torch.testing import assert_close

from geolib.encodings import build
from geolib.lab import Config, analysis, train
from geolib.lab.probes.vit import (
    after_training,
    carried_accuracy,
    extended_accuracy,
    half_as_large,
    learned_angles,
    learned_precisions,
    learned_scales,
    learned_sigmas,
    mean_shift_deviation,
    model_at_start,
    moved_accuracy,
    rescaled_accuracy,
    resized,
    room,
    shuffle_patches,
    shuffled_accuracy,
    without_order,
)
from geolib.lab.train import DocumentRun
from geolib.lab.vit import ViT, patches
from geolib.lie import nearest_commuting, skew_matrix, upper_entries
from geolib.rotations import grid_positions

SHAPE = (1, 8, 8)


def model_of(method, patch=2, pool="mean", shape=SHAPE, **options):
    """Three layers, two heads of eight features, 4x4 patches."""
    config = Config("digits", method, options, width=16, heads=2, layers=3, patch=patch, pool=pool)
    return ViT(config, shape, 10).double()


def asked(model):
    """A run of the model that takes images as the model does."""
    return types.SimpleNamespace(model=model, scores=model)


# What is learned ----------------------------------------------------------------------------------------------------


def test_planted_scales_are_read_back():  # RF-6a
    model = model_of("riemannformer", law="free")
    s = torch.tensor([[0.9, 1.1], [0.8, 0.7]])
    model.encoding.raw_scale.data = s.log()  # the free law: s = e^w
    assert_close(learned_scales(model), s[None])


@pytest.mark.parametrize("outside", [None, {}, {"per_layer": True}])
def test_planted_scales_of_each_layer_are_read_back_inside_focusing_too(outside):  # RF-6a
    wrapped = {} if outside is None else {"lf": outside}
    model = model_of("riemannformer" + "+lf" * len(wrapped), per_layer=True, **wrapped)
    w = torch.randn(3, 2, 2)
    for own, values in zip((model.encoding.encoding if wrapped else model.encoding).layers, w):
        own.raw_scale.data = values
    assert_close(learned_scales(model), w.exp() / (w.exp() + 0.1))


def test_planted_widths_and_shapes_are_read_back_inside_and_out():  # RF-21
    model = model_of("riemannformer+lf", lf={"per_position": True})
    sigma, root = torch.rand(2, 16) + 0.5, torch.tensor([[2.0, 0.0], [0.3, 0.5]])
    model.encoding.log_sigma.data = sigma.log()
    model.encoding.raw_precision.data = torch.tensor([[2.0, 1.0], [1.0, 0.5]]).log()
    model.encoding.raw_precision.data[1, 0] = 0.3  # below the diagonal as it is, on it the logarithm
    assert_close(learned_sigmas(model), sigma[None])
    assert_close(learned_precisions(model), (root @ root.mT)[None])
    assert learned_scales(model).shape == (1, 2, 2)


def test_widths_of_each_layer_are_read_back():  # RF-21
    model = model_of("lf", per_layer=True)
    for i, own in enumerate(model.encoding.layers):
        own.log_sigma.data.fill_(i)
    assert_close(learned_sigmas(model), torch.arange(3.0).exp()[:, None, None].expand(3, 2, 1))
    assert learned_precisions(model).shape == (3, 2, 2)


@pytest.mark.parametrize("method", ["none", "rope", "liere", "learned"])
def test_methods_without_scales_and_widths_have_none(method):
    model = model_of(method)
    assert (learned_scales(model), learned_sigmas(model), learned_precisions(model)) == (None, None, None)


def test_the_angles_and_the_shift_deviation_of_lie_re_are_those_of_its_generators():  # LR-SHIFT, NT-1
    model = model_of("liere", block=4)
    encoding = model.encoding
    skew = encoding.skew().detach().double() / 3  # positions 0 ... 3 over [0, 1]
    expected = torch.linalg.eigvals(skew).imag.abs().sort(-1, descending=True).values[..., ::2]
    assert_close(learned_angles(model).double(), expected, atol=1e-5, rtol=1e-5)
    assert learned_angles(model).shape == (3, 2, 2, 2, 2)
    assert 0.05 < mean_shift_deviation(model) < 1
    with torch.no_grad():
        encoding.generators[:, :, :, 1] = 2 * encoding.generators[:, :, :, 0]  # along one line they commute
    assert mean_shift_deviation(model) < 1e-6
    assert mean_shift_deviation(model_of("rope-mixed")) < 1e-6
    assert (learned_angles(model_of("rope")), mean_shift_deviation(model_of("rope"))) == (None, None)


def test_a_record_keeps_the_generators_as_they_are_and_as_they_were():
    settings = {"width": 16, "heads": 2, "layers": 1, "patch": 2, "epochs": 1, "train_size": 64, "test_size": 32}
    run = train(Config("digits", "liere", {"block": 4}, seed=3, **settings), quiet=True)
    torch.manual_seed(3)
    again = ViT(run.config, run.data.shape, len(run.data.classes))
    before = torch.get_rng_state()
    start = model_at_start(run)
    assert torch.equal(torch.get_rng_state(), before)
    for name, value in again.state_dict().items():
        assert torch.equal(start.state_dict()[name], value)
    kept = json.loads(json.dumps(after_training(run), allow_nan=False))
    assert kept["shift_deviation_start"] == mean_shift_deviation(again)
    assert kept["shift_deviation"] == mean_shift_deviation(run.model) != kept["shift_deviation_start"]
    assert_close(torch.tensor(kept["angles"]), learned_angles(run.model))
    assert_close(torch.tensor(kept["angles_start"]), learned_angles(again))


def test_places_of_the_shift_deviation_stay_inside_the_picture_and_reach_its_edges(monkeypatch):  # LR-SHIFT
    drawn = []
    monkeypatch.setattr(analysis, "shift_deviation", lambda skew, *triple: drawn.append(triple) or torch.zeros(1))
    model = model_of("liere", shape=(1, 8, 12))
    mean_shift_deviation(model)
    p, q, shift = (torch.stack(each) for each in zip(*drawn))
    far = model.positions.amax(0)
    for places in (p, q, p + shift, q + shift):
        assert (places >= 0).all()
        assert (places <= far).all()
        assert (places.amin(0) < 0.1 * far).all()
        assert (places.amax(0) > 0.9 * far).all()
    assert len(p) == 100


# Shuffled patches ---------------------------------------------------------------------------------------------------


def test_shuffling_moves_patches_and_keeps_their_pixels():
    images = torch.arange(2 * 3 * 8 * 4).reshape(2, 3, 8, 4)
    shuffled = shuffle_patches(images, 2, torch.Generator().manual_seed(1))
    assert shuffled.shape == images.shape
    before, after = ([[tuple(p.tolist()) for p in image] for image in patches(x, 2)] for x in (images, shuffled))
    assert [sorted(image) for image in before] == [sorted(image) for image in after]
    orders = [[b.index(p) for p in a] for b, a in zip(before, after)]
    assert orders[0] != list(range(8))
    assert orders[0] != orders[1]
    with pytest.raises(ValueError, match="patch: got 3"):
        shuffle_patches(images, 3)


def test_a_model_without_positions_keeps_its_accuracy_and_others_do_not():  # RF-PE, LR-T3
    images = torch.randn(200, *SHAPE).double()
    for method, keeps in (("none", True), ("learned", False), ("rope", False), ("riemannformer+lf", False)):
        model = model_of(method)
        model.head.bias.data -= model(images).mean(0).detach()  # so that the classes come up evenly
        labels = model(images).argmax(1)  # right on every image as it is
        assert len(labels.unique()) > 5
        accuracy = shuffled_accuracy(asked(model), images, labels)
        assert (accuracy == 1.0) == keeps, method
        assert accuracy == shuffled_accuracy(asked(model), images, labels)


def finished_run(method, shifts=(), resolutions=(), blank=0, shape=SHAPE, **options):
    """As much of a run as the analysis asks for: a model, its test images as stored, its scores."""
    model = model_of(method, shape=shape, **options)
    images = torch.randint(1, 256, (60, *shape), dtype=torch.uint8)
    images[:, :, shape[1] - blank :], images[:, :, :, shape[2] - blank :] = 0, 0

    def scores(images):
        return model(images.double() / 255)

    model.head.bias.data -= scores(images).mean(0).detach()  # so that the classes come up evenly
    made = {"model": model, "config": Config("digits", method, options, shifts=shifts, resolutions=resolutions)}
    stored = {"test_images": images, "test_labels": scores(images).argmax(1)}
    return types.SimpleNamespace(scores=scores, data=types.SimpleNamespace(shape=shape), **made, **stored)


# Moved --------------------------------------------------------------------------------------------------------------


RELATIVE = ("none", "rope", "rope-axial", "rope-mixed", "alibi", "lf")


@pytest.mark.parametrize("method", [*RELATIVE, "sinusoidal", "learned", "riemannformer", "liere"])
def test_scores_of_differences_alone_do_not_see_all_positions_move(method):  # RF-13, RF-14
    run = finished_run(method, **({"far": 0.5} if method == "riemannformer" else {}))
    before = run.model.positions.clone()
    assert (moved_accuracy(run, 16) == 1.0) == (method in RELATIVE)
    assert torch.equal(run.model.positions, before)
    assert moved_accuracy(run, 0) == 1.0


@pytest.mark.parametrize("std", [None, 0.5])
@pytest.mark.parametrize("read", [lambda run: moved_accuracy(run, 40), lambda run: extended_accuracy(run, 88)])
def test_learned_vectors_beyond_the_grid_are_as_a_larger_table_would_hold_them(read, std):
    run = finished_run("learned", **({} if std is None else {"std": std}))
    run.data = types.SimpleNamespace(shape=SHAPE)
    table = run.model.encoding.vectors
    seen = {}
    run.scores = lambda images: seen.update(vectors=run.model.encoding.vectors.detach()) or torch.zeros(len(images), 10)
    read(run)
    assert run.model.encoding.vectors is table
    assert seen["vectors"].shape == (44, 44, 16)
    assert torch.equal(seen["vectors"][:4, :4], table.detach())
    start = build("learned", width=16, heads=2, grid=(44, 44), **({} if std is None else {"std": std})).vectors
    assert seen["vectors"][4:].std() == pytest.approx(start.std().item(), rel=0.02)


def test_what_is_drawn_or_named_goes_to_where_the_model_is_and_has_its_precision(watch_draws):
    run, net = block_run(), finished_run("learned").model
    moved = watch_draws()
    with analysis.larger_tables(net, 3, 1.0):
        assert net.encoding.vectors.dtype == torch.float64
    without_order(run)
    places = [each.shape for each in moved if isinstance(each, torch.Tensor)]
    assert places == [net.encoding.vectors.shape, run.model.encoding.generators.shape]
    for place in (torch.float64, torch.device("meta")):
        net.positions = net.positions.to(place)
        with analysis.standing_at(net, grid_positions(2, 2)):
            assert (net.positions.dtype, net.positions.device) == (torch.float64, net.positions.to(place).device)


def test_draws_that_records_rest_on_stay_as_they_are():
    # What is read out of a trained model stands in book/results: with other draws it would be another measure.
    model, learned, seen = model_of("liere", block=4), model_of("learned").encoding, []
    model.encoding.generators.data = torch.sin(torch.arange(144.0)).reshape(3, 2, 2, 2, 6)
    assert mean_shift_deviation(model) == pytest.approx(0.03245595, rel=1e-5)
    run, shaken = block_run(), []
    lie = run.model.encoding
    lie.generators.data = torch.sin(torch.arange(float(lie.generators.numel()))).reshape(lie.generators.shape)
    run.scores = lambda part: shaken.append(lie.generators.detach().clone()) or torch.zeros(len(part), 10)
    without_order(run)
    assert shaken[-1].flatten()[:3].tolist() == pytest.approx([-0.0947209, 0.744519, 0.888215], rel=1e-3)
    bag = model_of("none", patch=1, shape=(1, 4, 4))
    bag.forward = lambda images: seen.append(images) or torch.zeros(1, 10)
    shuffled_accuracy(asked(bag), torch.arange(16.0).reshape(1, 1, 4, 4), torch.zeros(1))
    assert seen[0].flatten().tolist() == [12, 2, 3, 13, 14, 4, 10, 11, 8, 6, 0, 15, 9, 5, 1, 7]
    with analysis.larger_tables(torch.nn.Sequential(learned), 1, 1.0):
        assert learned.vectors[4, 4, :3].tolist() == pytest.approx([0.294201, 0.797322, 1.264215], rel=1e-4)


def test_pictures_are_carried_within_their_field():
    run = finished_run("none", blank=4)
    assert (room(run.test_images), room(run.test_images, 2)) == (4, 2)
    assert carried_accuracy(run, 0) == 1.0
    assert carried_accuracy(run, 2) == 1.0  # a bag of patches has no place
    seen = []
    run.scores = lambda images: seen.append(images) or torch.zeros(len(images), 10)
    carried_accuracy(run, 2)
    assert torch.equal(seen[0][:, :, 4:, 4:], run.test_images[:, :, :4, :4])
    assert not seen[0][:, :, :4].any()
    with pytest.raises(ValueError, match="shift: got 3; the pictures have room for 0 to 2"):
        carried_accuracy(run, 3)
    assert room(torch.zeros(1, 1, 3, 5)) == 3


@pytest.mark.parametrize("patch", [1, 2, (2, 1)])
def test_there_is_room_as_long_as_no_pixel_leaves(patch):
    high, wide = (patch, patch) if isinstance(patch, int) else patch
    for _ in range(30):
        images = torch.zeros(2, 3, 8, 6)
        lit = [(torch.randint(8, ()).item(), torch.randint(6, ()).item()) for _ in range(2)]
        for pixel, (i, j) in enumerate(lit):
            images[pixel, pixel, i // 2, j // 2] = 0.1
        inside = [s for s in range(9) if all(i // 2 + s * high < 8 and j // 2 + s * wide < 6 for i, j in lit)]
        assert room(images, patch) == inside[-1]
    assert room(torch.zeros(1, 1, 8, 6), patch) == min(8 // high, 6 // wide)


def triangles(before, after, smooth):
    """The weights that interpolate linearly along an axis, (after, before); of fewer pixels each a mean over more."""
    step = before / after
    reach = max(1.0, step) if smooth else 1.0
    centres, pixels = (torch.arange(after) + 0.5) * step, torch.arange(before) + 0.5
    weights = (1 - (centres[:, None] - pixels).abs() / reach).clamp(min=0)
    return weights / weights.sum(1, keepdim=True)


@pytest.mark.parametrize("pixels", [4, 8, 12])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_resized_images_are_interpolated_linearly_and_pictures_are_smoothed_where_they_shrink(axes, pixels):  # LR-F2
    images = torch.randint(0, 256, (3, 2, *[8] * axes), dtype=torch.uint8)
    expected = images.float()
    for axis in range(2, 2 + axes):
        expected = (expected.movedim(axis, -1) @ triangles(8, pixels, axes == 2).T).movedim(-1, axis)
    assert_close(torch.cat(list(resized(images, pixels))), expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize(("method", "options"), [("learned", {}), ("liere", {"block": 4}), ("riemannformer+lf", {})])
def test_what_is_read_out_is_the_same_whatever_was_drawn_before_and_leaves_the_run_as_it_was(method, options):
    settings = {"width": 16, "heads": 2, "layers": 1, "patch": 2, "epochs": 1, "train_size": 64, "test_size": 64}
    run = train(Config("digits", method, options, shifts=(3,), resolutions=(6, 12), **settings), quiet=True)
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    torch.manual_seed(1)
    drawn, read = torch.get_rng_state(), after_training(run)
    assert {"shuffled_accuracy", "moved_accuracy", "extended_accuracy", "rescaled_accuracy"} <= set(read)
    assert torch.equal(torch.get_rng_state(), drawn)
    torch.manual_seed(2)
    assert after_training(run) == read
    assert not run.model.training
    for name, value in run.model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_record_keeps_the_accuracy_at_every_shift():
    run = finished_run("sinusoidal", shifts=[1, 2, 3, 9], blank=4)
    kept = after_training(run)
    assert kept["moved_accuracy"] == [moved_accuracy(run, shift) for shift in (1, 2, 3, 9)]
    assert kept["carried_accuracy"] == [carried_accuracy(run, shift) for shift in (1, 2)]
    assert "carried_accuracy" not in after_training(finished_run("sinusoidal", shifts=[1]))


def test_volumes_are_moved_and_not_carried():
    run = finished_run("none", shifts=[1], shape=(1, 4, 4, 4), blank=2)
    assert set(after_training(run)) == {"shuffled_accuracy", "moved_accuracy"}


def test_a_record_keeps_the_accuracy_at_every_resolution_by_both_rules():  # LR-F2
    run = finished_run("sinusoidal", resolutions=[6, 12])
    kept, sizes = after_training(run), (6, 12)
    assert kept["extended_accuracy"] == [extended_accuracy(run, pixels) for pixels in sizes]
    assert kept["rescaled_accuracy"] == [rescaled_accuracy(run, pixels) for pixels in sizes]
    assert kept["extended_accuracy"] != kept["rescaled_accuracy"]


def test_of_a_run_on_documents_a_record_keeps_what_reading_tells(monkeypatch):
    monkeypatch.setattr(analysis, "after_reading", lambda run: {"of": run})
    run = DocumentRun.__new__(DocumentRun)
    assert after_training(run) == {"of": run}


def test_what_is_kept_after_training_fits_in_json():
    run = finished_run("riemannformer+lf")
    kept = json.loads(json.dumps(after_training(run), allow_nan=False))
    assert set(kept) == {"shuffled_accuracy", "scales", "sigmas", "precisions"}
    assert_close(torch.tensor(kept["scales"]), learned_scales(run.model))
    assert_close(torch.tensor(kept["sigmas"]), learned_sigmas(run.model))
    assert_close(torch.tensor(kept["precisions"]), torch.eye(2)[None])
    assert kept["shuffled_accuracy"] == shuffled_accuracy(run, run.test_images, run.test_labels)
    assert after_training(finished_run("none")) == {"shuffled_accuracy": 1.0}


# Without the order of turns ------------------------------------------------------------------------------------------


def block_run(shifts=(), **options):
    """A short run of LieRE in blocks of four."""
    settings = {"width": 16, "heads": 2, "layers": 2, "epochs": 1, "train_size": 64, "test_size": 64, "shifts": shifts}
    return train(Config("digits", "liere", {"block": 4} | options, **settings), quiet=True, device="cpu")


def test_generators_that_commute_already_lose_nothing_without_the_order():  # LR-SHIFT
    run = block_run()
    lie = run.model.encoding
    lie.generators.data[..., 1, :] = 0.5 * lie.generators.data[..., 0, :]
    found, right = without_order(run), run.metrics[-1]["test_accuracy"]
    before = lie.generators.clone()
    shown = shuffled_accuracy(run, run.test_images, run.test_labels)
    assert found["commuting_share"] < 1e-6
    assert found["commuting_accuracy"] == found["shaken_accuracy"]
    assert found["commuting_resized_accuracy"] == found["shaken_resized_accuracy"] == found["resized_accuracy"]
    assert torch.equal(lie.generators, before)
    assert shown == shuffled_accuracy(run, run.test_images, run.test_labels)
    assert 0 <= right <= 1


def test_without_order_the_model_reads_with_commuting_generators_and_shaken_ones_are_as_far():  # LR-SHIFT
    run, seen = block_run(scale=20.0), []
    scores = run.scores
    lie = run.model.encoding
    sizes = []
    run.scores = lambda part: (seen.append(lie.skew().detach().double()), sizes.append(part.shape[-1]), scores(part))[2]
    trained = lie.skew().detach().double()
    found = without_order(run)
    as_trained, calm, calm_resized, shaken, shaken_resized = seen
    assert sizes == [12, 8, 12, 8, 12]
    assert torch.equal(as_trained, trained)
    assert torch.equal(calm, calm_resized)
    assert torch.equal(shaken, shaken_resized)
    assert_close(calm[..., 0, :, :] @ calm[..., 1, :, :], calm[..., 1, :, :] @ calm[..., 0, :, :], atol=1e-3, rtol=0)
    gone, moved = ((each - trained).flatten(2).norm(dim=-1) for each in (calm, shaken))
    assert_close(moved, gone)
    assert found["commuting_share"] == pytest.approx(float((calm - trained).norm() / trained.norm()), rel=1e-3)


def test_without_order_pictures_are_also_moved_and_resized_with_the_generators_named():  # LR-SHIFT
    run = block_run(scale=20.0, shifts=(1, 3))
    found, lie = without_order(run), run.model.encoding
    assert half_as_large(run) == 12
    assert found["resized_accuracy"] == extended_accuracy(run, 12)
    commuting = upper_entries(nearest_commuting(skew_matrix(lie.generators, lie.width)))
    lie.generators = torch.nn.Parameter(commuting.detach())
    assert found["commuting_moved_accuracy"] == [moved_accuracy(run, shift) for shift in (1, 3)]
    assert found["commuting_resized_accuracy"] == extended_accuracy(run, 12)
    assert len(found["shaken_moved_accuracy"]) == 2
    assert not any("moved" in key for key in without_order(block_run()))


def test_half_as_large_is_in_whole_patches_and_of_pictures_with_one_side_alone():
    def sides(patch, *shape):
        return types.SimpleNamespace(data=types.SimpleNamespace(shape=shape), model=types.SimpleNamespace(patch=patch))

    assert half_as_large(sides(4, 3, 28, 28)) == 40  # 7 patches, then 10
    assert half_as_large(sides(1, 1, 8, 8)) == 12
    assert half_as_large(sides(1, 1, 8, 6)) is None
    assert half_as_large(sides(1, 1, 8, 8, 8)) is None


def test_only_generators_that_need_not_commute_are_tried_without_order():
    for method, options in (("rope-axial", {}), ("liere", {"block": 2})):
        run = types.SimpleNamespace(model=model_of(method, **options))
        assert without_order(run) == {}
