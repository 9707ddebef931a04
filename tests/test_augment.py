"""Augmentation in batches: operation by operation and draw by draw what torchvision does to one image at a time."""

import hashlib
import itertools
import json
import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from vision import import_torchvision

from geolib.lab import Config
from geolib.lab.benches import augment as bench
from geolib.lab.data import augmentation as augmentations
from geolib.lab.data.augmentation import AUGMENTATIONS, augmentation, crop_and_flip, random_erasing
from geolib.lab.data.policies import (
    OPERATIONS,
    SIGNED,
    Move,
    _darker,
    _darker_by_sorting,
    apply_moves,
    auto_augment,
    auto_augment_moves,
    move,
    rand_augment,
    rand_augment_moves,
    size_of,
)

import_torchvision()
from torchvision.transforms import v2  # noqa: E402

SHAPES = ((3, 32, 32), (1, 8, 8), (3, 17, 24), (3, 2, 5))
STEPS = (31, 10)  # of RandAugment's and of AutoAugment's magnitudes
UNSIZED = ("Identity", "AutoContrast", "Equalize", "Invert")
AUTO_AUGMENT = v2.AutoAugment(v2.AutoAugmentPolicy.CIFAR10)


pytestmark = pytest.mark.usefixtures("one_thread")


def pictures(shape, count=24, seed=0):
    """Noise, smooth images, few grey levels, low contrast, greys, and one of a single colour."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=generator)
    coarse = torch.rand(count, shape[0], 4, 4, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=shape[1:], mode="bilinear")
    images[6::2] = (255 * smooth[6::2]).to(torch.uint8)
    images[1] = images[1] // 200 * 200
    images[2] = images[2] // 4 + 60
    images[3:5] = images[3:5, :1]
    images[5] = torch.randint(0, 256, (shape[0], 1, 1), dtype=torch.uint8, generator=generator)
    return images


def by_torchvision(images, name, magnitude):
    """The images under torchvision's own operation of this name, all with the same magnitude."""
    return v2.RandAugment()._apply_image_or_video_transform(
        images, name, magnitude, interpolation=v2.InterpolationMode.NEAREST, fill={torch.Tensor: None}
    )


def torchvision_magnitudes(name, steps, shape):
    """Those of one operation, from the least on, in float64; [0] without one."""
    magnitudes, signed = v2.AutoAugment._AUGMENTATION_SPACE.get(name, (lambda *_: None, False))
    values = magnitudes(steps, *shape[1:])
    return ([0.0] if values is None else [float(value) for value in values]), signed


def differing(ours, theirs, name):
    """Where two images differ, (batch, height, width).

    Colour and contrast are sums of two products, cut to whole grey levels: where the sum is whole but for its rounding,
    one level more or less is the same answer.
    """
    level = 1 if name in ("Color", "Contrast") else 0
    return ((ours.int() - theirs.int()).abs() > level).any(1)


def half_way(name, magnitude, shape):
    """Pixels whose source lies in the middle between two, where rounding errors decide, (height, width)."""
    _, height, width = shape
    down, across = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) + 0.5 for n in (height, width)), indexing="ij")
    if name == "Rotate":
        angle = math.radians(magnitude)
        down, across = down - height / 2, across - width / 2
        sources = math.cos(angle) * across - math.sin(angle) * down, math.sin(angle) * across + math.cos(angle) * down
        sources = sources[0] + width / 2, sources[1] + height / 2
    else:
        sources = {"ShearX": (across + magnitude * down,), "ShearY": (down + magnitude * across,)}.get(name, ())
    near = torch.zeros(height, width, dtype=torch.bool)
    for source in sources:  # pixels have their centres at halves and meet at whole numbers
        near |= (source - source.round()).abs() < 1e-4
    return near


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_is_torchvisions_at_every_magnitude(name, shape):
    images, unequal, pixels = pictures(shape), 0, 0
    for steps in STEPS:
        magnitudes, signed = torchvision_magnitudes(name, steps, shape)
        for value, sign in itertools.product(magnitudes, (1, -1) if signed else (1,)):
            ours = apply_moves(images, torch.tensor([move(name, sign * value, shape)]).expand(len(images), -1))
            theirs = by_torchvision(images, name, sign * value)
            different = differing(ours, theirs, name) & ~half_way(name, sign * value, shape)
            assert not different.any(), sign * value
            unequal, pixels = unequal + (ours != theirs).sum().item(), pixels + ours.numel()
    assert unequal < 0.005 * pixels


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 3), st.integers(3, 20), st.integers(3, 20), st.randoms(use_true_random=False))
def test_images_in_one_batch_have_their_own_operations_and_magnitudes(batch, height, width, random):
    shape = (3, height, width)
    images = pictures(shape, 24, seed=random.randrange(1000))[: 8 * batch]
    chosen = []
    for _ in images:
        name = random.choice(OPERATIONS)
        magnitudes, signed = torchvision_magnitudes(name, 31, shape)
        chosen.append((name, random.choice(magnitudes) * (random.choice((1, -1)) if signed else 1)))
    ours = apply_moves(images, torch.tensor([move(*each, shape) for each in chosen]))
    expected = torch.stack([by_torchvision(image, *each) for image, each in zip(images, chosen)])
    assert ours.dtype == torch.uint8
    for i, each in enumerate(chosen):
        different = differing(ours[i : i + 1], expected[i : i + 1], each[0]) & ~half_way(*each, shape)
        assert not different.any(), each


@pytest.mark.parametrize("shape", SHAPES)
def test_magnitudes_and_signs_are_torchvisions(shape):
    assert set(OPERATIONS) == set(v2.AutoAugment._AUGMENTATION_SPACE) | {"Identity"}
    assert set(OPERATIONS) == set(v2.RandAugment._AUGMENTATION_SPACE) | {"Invert"}
    for name, steps in itertools.product(OPERATIONS, STEPS):
        magnitudes, signed = torchvision_magnitudes(name, steps, shape)
        assert signed == (name in SIGNED)
        if len(magnitudes) > 1 or name in UNSIZED:
            assert [size_of(name, step, steps, shape) for step in range(steps)] == magnitudes * (
                steps // len(magnitudes)
            )


def test_pixels_darker_than_each_level_are_counted():
    images = pictures((3, 9, 11))
    pixels = images.flatten(2).long()
    expected = (images.numpy().reshape(24, 3, 1, -1) < np.arange(256)[:, None]).sum(3)
    np.testing.assert_array_equal(_darker(pixels), expected)
    np.testing.assert_array_equal(_darker_by_sorting(pixels), expected)
    assert _darker_by_sorting(pixels.to("meta")).device.type == "meta"


class OnGpu(torch.Tensor):
    """Says that it lies on a GPU."""

    is_cuda = True


def test_on_a_gpu_they_are_counted_by_sorting(monkeypatch):
    pixels = pictures((3, 9, 11)).flatten(2).long()
    expected = _darker(pixels)
    monkeypatch.setattr(torch.Tensor, "scatter_add_", None)  # what adds atomically there
    assert torch.equal(_darker(pixels.as_subclass(OnGpu)), expected)


# Distributions. Each possible outcome on one image is made with torchvision's operations, so its probability is known;
# images that agree are one outcome.


def key(image):
    return image.numpy().tobytes()


def outcomes_of(stages, image):
    """Probability of each outcome of a list of stages, each a list of (probability, operation, magnitude)."""
    images, found = {key(image): image}, {key(image): 1.0}
    for stage in stages:
        before, found = found, Counter()
        names, batch = list(before), torch.stack([images[name] for name in before])
        for probability, operation, magnitude in stage:
            for name, changed in zip(names, by_torchvision(batch, operation, magnitude)):
                images[key(changed)] = changed
                found[key(changed)] += before[name] * probability
    return found


def rand_augment_outcomes(image, ops, magnitude):
    stage = []
    for name, (magnitudes, signed) in v2.RandAugment._AUGMENTATION_SPACE.items():
        values = magnitudes(31, *image.shape[1:])
        value = 0.0 if values is None else float(values[magnitude])
        share = 1 / len(v2.RandAugment._AUGMENTATION_SPACE)
        stage += [(share / 2, name, value), (share / 2, name, -value)] if signed else [(share, name, value)]
    return outcomes_of([stage] * ops, image)


def auto_augment_outcomes(image):
    total = Counter()
    for policy in AUTO_AUGMENT._policies:
        stages = []
        for name, probability, step in policy:
            magnitudes, signed = torchvision_magnitudes(name, 10, image.shape)
            value = magnitudes[step or 0]
            stage = [(1 - probability, "Identity", 0.0)]
            if signed:
                stage += [(probability / 2, name, value), (probability / 2, name, -value)]
            else:
                stage += [(probability, name, value)]
            stages.append(stage)
        for outcome, share in outcomes_of(stages, image).items():
            total[outcome] += share / len(AUTO_AUGMENT._policies)
    return total


def surprise(images, probabilities):
    """Pearson's chi-square as a probability: below 1e-4 the draws are not from this distribution."""
    counts = Counter(map(key, images))
    assert set(counts) <= {outcome for outcome, p in probabilities.items() if p > 0}
    common = [outcome for outcome, p in probabilities.items() if p * len(images) >= 5]
    rare_expected = len(images) * (1 - sum(probabilities[outcome] for outcome in common))
    expected = [len(images) * probabilities[outcome] for outcome in common]
    observed = [counts[outcome] for outcome in common]
    if rare_expected >= 5:
        expected, observed = [*expected, rare_expected], [*observed, len(images) - sum(observed)]
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected))
    return chi2.sf(statistic, len(expected) - 1)


PICTURE = pictures((3, 16, 18))[8]  # large enough for Equalize, which leaves 255 pixels as they are


def many(draw, image=PICTURE, count=20_000, batch=200):
    """Draws on copies of one image; small batches stay in the processor's cache."""
    return torch.cat([draw(image.expand(batch, -1, -1, -1)) for _ in range(count // batch)])


@pytest.mark.parametrize(("ops", "magnitude"), [(1, 14), (2, 9)])
def test_randaugment_draws_as_torchvision_does(ops, magnitude):
    probabilities = rand_augment_outcomes(PICTURE, ops, magnitude)
    assert sum(probabilities.values()) == pytest.approx(1)
    moves = rand_augment_moves(PICTURE.shape, magnitude)
    assert surprise(many(lambda images: rand_augment(images, moves, ops)), probabilities) > 1e-4
    transform = v2.RandAugment(ops, magnitude)
    assert surprise([transform(PICTURE) for _ in range(300)], probabilities) > 1e-4  # the probabilities are right


def test_autoaugment_draws_as_torchvision_does():
    probabilities = auto_augment_outcomes(PICTURE)
    assert sum(probabilities.values()) == pytest.approx(1)
    policy = auto_augment_moves(PICTURE.shape)
    assert surprise(many(lambda images: auto_augment(images, *policy)), probabilities) > 1e-4
    assert surprise([AUTO_AUGMENT(PICTURE) for _ in range(300)], probabilities) > 1e-4


def test_what_has_no_probability_never_happens(monkeypatch):
    images, (moves, probabilities) = pictures((3, 8, 8)), auto_augment_moves((3, 8, 8))
    assert (probabilities == 0).any()
    monkeypatch.setattr(torch, "rand", lambda *shape, device: torch.zeros(shape, device=device))  # the least draw
    assert torch.equal(auto_augment(images, moves, torch.zeros_like(probabilities)), images)
    assert torch.equal(random_erasing(images, torch.zeros(3, 1, 1), 0.0), images.float())


def test_autoaugments_policy_is_torchvisions():
    shape = (3, 32, 32)
    moves, probabilities = auto_augment_moves(shape)
    assert len(AUTO_AUGMENT._policies) == len(moves) == len(probabilities)
    for policy, rows, likely in zip(AUTO_AUGMENT._policies, moves, probabilities):
        for (name, probability, step), (plus, minus, none), p in zip(policy, rows, likely):
            magnitudes, signed = torchvision_magnitudes(name, 10, shape)
            value = magnitudes[step or 0]
            assert p == torch.tensor(probability)
            for row, expected in ((plus, value), (minus, -value if signed else value)):
                torch.testing.assert_close(row, torch.tensor(move(name, expected, shape)), rtol=0, atol=0)
            assert tuple(none.tolist()) == Move()


def test_neighbours_in_a_batch_draw_independently():
    moves = rand_augment_moves(PICTURE.shape)
    images = many(lambda images: rand_augment(images, moves, 1))
    _, kind = images.flatten(1).unique(dim=0, return_inverse=True)
    pairs = torch.zeros(kind.max() + 1, kind.max() + 1)
    pairs.index_put_((kind[0::2], kind[1::2]), torch.ones(10_000), accumulate=True)
    expected = pairs.sum(1, keepdim=True) * pairs.sum(0) / 10_000
    statistic = ((pairs - expected) ** 2 / expected).sum().item()
    assert 1e-4 < chi2.sf(statistic, (len(pairs) - 1) ** 2) < 1 - 1e-4


def test_crop_and_flip_draws_what_it_always_drew():
    torch.manual_seed(5)
    images = crop_and_flip(
        torch.arange(3 * 32 * 32).remainder(251).to(torch.uint8).view(3, 32, 32).expand(64, -1, -1, -1)
    )
    assert hashlib.sha256(images.numpy().tobytes()).hexdigest()[:16] == "50774359f1e37d49"


# Random erasing


def rectangles(height, width, scale, ratio, grid=1500):
    """Probability of each (height, width) of a rectangle, by summing over a fine grid of shares and ratios."""
    u = (np.arange(grid) + 0.5) / grid
    area = height * width * (scale[0] + (scale[1] - scale[0]) * u)[:, None]
    aspect = np.exp(np.log(ratio[0]) + (np.log(ratio[1]) - np.log(ratio[0])) * u)
    high, wide = np.round(np.sqrt(area * aspect)).astype(int), np.round(np.sqrt(area / aspect)).astype(int)
    fits = (high < height) & (wide < width)
    shares = Counter(zip(high[fits].tolist(), wide[fits].tolist()))
    some = 1 - (1 - fits.mean()) ** 10  # one of ten attempts fits
    return {size: some * count / fits.sum() for size, count in shares.items()}


@pytest.mark.parametrize(("probability", "scale"), [(0.3, (0.02, 0.33)), (1.0, (0.6, 1.0))])
def test_erased_rectangles_are_distributed_as_torchvisions(monkeypatch, probability, scale):
    height, width, ratio = 6, 8, (0.3, 3.3)
    assert ((0.02, 0.33), ratio) == (augmentations.SHARE, augmentations.RATIO)
    monkeypatch.setattr(augmentations, "SHARE", scale)
    image = torch.ones(1, height, width)
    expected = Counter()
    for (high, wide), share in rectangles(height, width, scale, ratio).items():
        for top, left in itertools.product(range(height - high + 1), range(width - wide + 1)):
            erased = v2.functional.erase(image, top, left, high, wide, torch.zeros(1, 1, 1))
            expected[key(erased)] += probability * share / ((height - high + 1) * (width - wide + 1))
    expected[key(image)] += 1 - sum(expected.values())
    ours = many(lambda images: random_erasing(images, torch.zeros(1, 1, 1), probability), image)
    assert surprise(ours, expected) > 1e-4
    transform = v2.RandomErasing(probability, scale, ratio)
    assert surprise([transform(image) for _ in range(1000)], expected) > 1e-4


def test_what_is_erased_is_zero_once_standardised():
    images = pictures((3, 32, 32), 200)
    mean, deviation = images.float().mean((0, 2, 3))[:, None, None], torch.tensor([50.0, 60.0, 70.0])[:, None, None]
    erased = random_erasing(images, mean, 0.5)
    standard, before = (erased - mean) / deviation, (images.float() - mean) / deviation
    hidden = (standard == 0).all(1, keepdim=True).expand_as(standard)
    torch.testing.assert_close(standard, before.masked_fill(hidden, 0.0), rtol=0, atol=0)
    hit = hidden.flatten(1).any(1)
    assert 70 < hit.sum() < 130
    for image, mask in zip(erased[hit], hidden[hit, 0]):
        rows, columns = mask.any(1).nonzero(), mask.any(0).nonzero()
        assert mask.sum() == len(rows) * len(columns)  # one rectangle
        assert 0.01 < mask.double().mean() < 0.4
        assert (image == mean)[:, mask].all()


# The factory


def test_each_name_has_its_order():
    images, mean, shape = pictures((3, 32, 32)), torch.full((3, 1, 1), 99.5), (3, 32, 32)
    chosen, policy = rand_augment_moves(shape, 14), auto_augment_moves(shape)
    by_hand = {
        "none": lambda: images,
        "crop-flip": lambda: crop_and_flip(images),
        "crop-flip-autoaugment": lambda: auto_augment(crop_and_flip(images), *policy),
        "crop-flip-randaugment": lambda: crop_and_flip(rand_augment(images, chosen, 3)),
    }
    assert set(by_hand) == set(AUGMENTATIONS)
    for name, expected in by_hand.items():
        config = Config("cifar10", augment=name, randaugment=(3, 14))
        augment = augmentation(config, mean, shape)
        torch.manual_seed(3)
        came = augment(images)
        torch.manual_seed(3)
        assert torch.equal(came, expected())
        assert came.dtype == torch.uint8
        erase = augmentation(Config("cifar10", augment=name, randaugment=(3, 14), erase=0.9), mean, shape)
        torch.manual_seed(3)
        came = erase(images)
        torch.manual_seed(3)
        assert torch.equal(came, random_erasing(expected(), mean, 0.9))


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_a_generators_state_brings_the_same_images_back(name):
    images = pictures((3, 32, 32))
    before = images.clone()
    augment = augmentation(Config("cifar10", augment=name, erase=0.5), torch.zeros(3, 1, 1), (3, 32, 32))
    torch.manual_seed(1)
    augment(images)
    state = torch.get_rng_state()
    second = augment(images)
    third = augment(images)
    torch.set_rng_state(state)
    assert torch.equal(augment(images), second)
    assert torch.equal(augment(images), third)
    assert not torch.equal(second, third)
    assert torch.equal(images, before)


class StaysOn(TorchDispatchMode):
    """Raises as soon as a tensor is made on another device, or from one."""

    def __init__(self, device):
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        came = func(*args, **(kwargs or {}))
        for tensor in tree_leaves((args, kwargs, came)):
            if isinstance(tensor, torch.Tensor):
                assert tensor.device.type == self.device, func
        return came


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_no_step_leaves_the_device_or_asks_for_a_value_there(name):
    # Tensors on "meta" have shapes alone: whatever needs a number on the host raises.
    augment = augmentation(Config("cifar10", augment=name, erase=0.5), torch.zeros(3, 1, 1, device="meta"), (3, 32, 32))
    images = torch.zeros(7, 3, 32, 32, dtype=torch.uint8, device="meta")
    with StaysOn("meta"):
        assert augment(images).shape == images.shape
    with StaysOn("meta"), pytest.raises(AssertionError):
        images + torch.zeros((), dtype=torch.uint8)
    assert _darker_by_sorting(images.flatten(2).long()).shape == (7, 3, 256)
    with pytest.raises(RuntimeError):
        images.sum().item()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_any_shape_and_a_batch_of_one(name, shape):
    augment = augmentation(Config("digits", augment=name, erase=0.9), torch.zeros(shape[0], 1, 1), shape)
    for batch in (1, 3):
        images = pictures(shape)[:batch].transpose(2, 3).contiguous().transpose(2, 3)
        came = augment(images)
        assert came.shape == images.shape
        assert came.min() >= 0
        assert came.max() <= 255


@pytest.mark.parametrize("first", ["Equalize", "AutoContrast"])
def test_a_move_with_a_table_and_a_blend_does_one_after_the_other(first):
    images, shape = pictures((3, 32, 32)), (3, 32, 32)
    both = move("Brightness", -0.5, shape)._replace(**{first.lower(): 1.0})
    ours = apply_moves(images, torch.tensor([both]).expand(len(images), -1))
    assert torch.equal(ours, by_torchvision(by_torchvision(images, first, None), "Brightness", -0.5))


def test_a_move_changes_nothing_by_default():
    images = pictures((3, 32, 32))
    assert torch.equal(apply_moves(images, torch.tensor([Move()]).expand(len(images), -1)), images)


def test_the_bench_has_three_forms_of_each_policy():
    rows = list(bench.run(batch=4, repeats=1))
    assert [(row["policy"], row["form"]) for row in rows] == list(
        itertools.product(bench.POLICIES, ("batched", "tensor", "pil"))
    )
    assert all(row["images_per_second"] > 0 for row in rows)


# Settings


def test_new_settings_leave_the_names_of_old_runs_as_they_are():
    assert Config("digits").canonical == '{"dataset":"digits"}'
    assert Config("digits", randaugment=[2, 9], erase=0) == Config("digits")
    changed = Config("cifar10", augment="crop-flip-randaugment", randaugment=[2, 14], erase=0.25)
    assert changed.canonical == (
        '{"augment":"crop-flip-randaugment","dataset":"cifar10","erase":0.25,"randaugment":[2,14]}'
    )
    assert Config.from_dict(json.loads(json.dumps(changed.to_dict()))) == changed


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"augment": "autoaugment"}, "augment: got 'autoaugment'; it is one of none, crop-flip, crop-flip-autoaugment"),
        ({"erase": 1.5}, "erase: got 1.5; it must be in"),
        ({"erase": math.nan}, "erase: got nan"),
        ({"randaugment": 2}, "randaugment: got 2; it must be two whole numbers"),
        ({"randaugment": (2,)}, r"randaugment: got \(2,\)"),
        ({"randaugment": (0, 9)}, r"randaugment: got \(0, 9\)"),
        ({"randaugment": (2, 31)}, r"randaugment: got \(2, 31\).* 0 ... 30"),
        ({"randaugment": (2, 9.5)}, r"randaugment: got \(2, 9.5\)"),
    ],
)
def test_settings_that_cannot_be_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        Config("cifar10", **settings)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: move("Blur", 1.0, (3, 8, 8)), "name: got 'Blur'; it is one of Identity, ShearX"),
        (lambda: move("Color", 1.0, (4, 8, 8)), r"shape: got \(4, 8, 8\); .* 1 or 3 channels"),
        (lambda: rand_augment_moves((3, 8, 8), 31), "magnitude: got 31; it must be a whole number, 0 ... 30"),
        (
            lambda: augmentation(Config("cifar10", augment="crop-flip"), PICTURE, (1, 8, 8, 8)),
            "augment: got 'crop-flip'; volumes and clips are taken as they are",
        ),
        (lambda: augmentation(Config("cifar10", erase=0.5), PICTURE, (1, 8, 8, 8)), "augment: got 'none'"),
    ],
)
def test_arguments_that_cannot_be_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_two_operations_are_usual_and_bounds_are_allowed(monkeypatch):
    images, moves = PICTURE[None].repeat(9, 1, 1, 1), rand_augment_moves(PICTURE.shape)
    drawn = []
    assert torch.equal(moves, rand_augment_moves(PICTURE.shape, 9))
    for ops in ((), (2,)):
        torch.manual_seed(3)
        drawn.append(rand_augment(images, moves, *ops))
    assert torch.equal(*drawn)
    mean = torch.zeros(3, 1, 1)
    assert torch.equal(random_erasing(images, mean, 0.0), images.float())
    for share in ((0.0, 0.0), (1.0, 1.0)):  # nothing, and as high or as wide as the image: never
        monkeypatch.setattr(augmentations, "SHARE", share)
        assert torch.equal(random_erasing(images, mean, 1.0), images.float())


def test_volumes_and_clips_are_left_as_they_are():
    clips = torch.randint(0, 256, (2, 1, 3, 8, 8), dtype=torch.uint8)
    assert augmentation(Config("cifar10"), torch.zeros(1, 1, 1, 1), clips.shape[1:])(clips) is clips
