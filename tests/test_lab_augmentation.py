"""Augmentation of batches: crops and flips by brute force, full recipes against torchvision's transforms one by one."""

import hashlib
import random
import sys
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from vision import import_torchvision

from geolib.lab.data.augmentation import AUGMENTATIONS, PADDING, channel_moments, crop_and_flip, full_recipe
from geolib.lab.files import LabError

import_torchvision()
from torchvision.transforms import v2  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
MEAN = torch.tensor([99.5, 120.25, 7.0]).view(3, 1, 1)


def asked(augment, erase=0.0):
    """A configuration, as far as recipes read it."""
    return SimpleNamespace(augment=augment, erase=erase, randaugment=(3, 14))


def pictures(count, shape=(3, 32, 32)):
    """Smooth images, and noise."""
    images = torch.randint(0, 256, (count, *shape), dtype=torch.uint8)
    smooth = torch.nn.functional.interpolate(torch.rand(count, shape[0], 4, 4), size=shape[1:], mode="bilinear")
    images[1::2] = (255 * smooth[1::2]).to(torch.uint8)
    return images


def seeded(seed, make, *given):
    torch.manual_seed(seed)
    return make(*given)


def test_each_image_is_a_crop_of_itself_with_a_margin_of_zeros_perhaps_mirrored_and_all_are_as_frequent():
    image, batch = pictures(1, (2, 5, 7)), 5000
    padded = np.pad(image[0].numpy(), ((0, 0), (PADDING, PADDING), (PADDING, PADDING)))
    cuts = [padded[:, i : i + 5, j : j + 7] for i, j in np.ndindex(2 * PADDING + 1, 2 * PADDING + 1)]
    possible = {crop.tobytes() for cut in cuts for crop in (cut, cut[:, :, ::-1])}
    counts = Counter(each.tobytes() for each in crop_and_flip(image.expand(batch, -1, -1, -1)).numpy())
    assert {*counts} == possible
    assert 1e-4 < chisquare([*counts.values()]).pvalue < 1 - 1e-4


def test_crops_and_flips_are_drawn_as_in_recorded_runs_from_the_default_generator_or_from_ones_own():
    images = torch.arange(3 * 32 * 32).remainder(251).to(torch.uint8).view(3, 32, 32).expand(64, -1, -1, -1)
    before, own = torch.get_rng_state(), crop_and_flip(images, torch.Generator().manual_seed(5))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(seeded(5, crop_and_flip, images), own)
    assert hashlib.sha256(own.numpy().tobytes()).hexdigest()[:16] == "50774359f1e37d49"


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 17, 24)])
@pytest.mark.parametrize("erased", [0.0, 0.9])
@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_a_recipe_has_the_order_of_its_name_a_policy_is_drawn_in_fours_and_erasing_for_each(name, erased, shape):
    images, recipe = pictures(10, shape), full_recipe(asked(name, erased), shape, MEAN[: shape[0]])
    first, last = v2.RandAugment(3, 14), v2.AutoAugment(v2.AutoAugmentPolicy.CIFAR10)
    erase = v2.RandomErasing(erased, value=MEAN[: shape[0]].flatten().tolist())
    assert (recipe is None) == (name in ("none", "crop-flip") and not erased), "a crop alone is no recipe"

    def one_by_one(policy, batch):
        """Neighbours in fours begin at the same state of the generator."""
        changed = []
        for group in batch.split(4):
            state = torch.get_rng_state()
            changed += [(torch.set_rng_state(state), policy(image))[1] for image in group]
        return torch.stack(changed)

    def by_hand():
        batch = one_by_one(first, images) if name == "crop-flip-randaugment" else images
        batch = batch if name == "none" else crop_and_flip(batch)
        batch = one_by_one(last, batch) if name == "crop-flip-autoaugment" else batch
        return torch.stack([erase(image.float()) for image in batch]) if erased else batch

    for seed in range(5 if recipe else 0):  # each from the same images, which stay what they are
        made = seeded(seed, recipe, images)
        assert made.dtype == (torch.float32 if erased else torch.uint8)
        assert torch.equal(made, seeded(seed, by_hand))


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_torchs_seed_alone_decides_all_draws(name):
    images, recipe = pictures(24), full_recipe(asked(name, erase=0.5), (3, 32, 32), MEAN)
    one, other = (seeded(seed, recipe, images) for seed in (1, 2))
    random.seed(7)
    np.random.seed(7)
    assert torch.equal(seeded(1, recipe, images), one)
    assert not torch.equal(one, other)


def test_what_is_erased_is_one_rectangle_that_is_zero_once_standardised():
    images = pictures(400)
    mean, deviation = channel_moments(images)
    standard = (full_recipe(asked("none", erase=0.25), (3, 32, 32), mean)(images) - mean) / deviation
    hidden = (standard != (images.float() - mean) / deviation).any(1)
    assert (standard.movedim(1, -1)[hidden] == 0).all()
    hit = hidden.flatten(1).any(1)
    assert 65 < hit.sum() < 135
    boxes = [[side.nonzero().flatten() for side in (mask.any(1), mask.any(0))] for mask in hidden[hit]]
    assert all(mask.sum() == len(rows) * len(columns) for mask, (rows, columns) in zip(hidden[hit], boxes))
    assert len({(int(rows[0]), int(columns[0])) for rows, columns in boxes}) > 50, "for each image another"


def test_images_that_a_recipe_is_not_for_are_named():
    clips, boards = torch.zeros(1, 1, 1, 1), torch.full((4, 1, 1), 3.5)
    for config in (asked("crop-flip"), asked("crop-flip-randaugment"), asked("none", erase=0.5)):
        with pytest.raises(
            ValueError, match=f"augment: got '{config.augment}'; volumes and clips are taken as they are"
        ):
            full_recipe(config, (1, 8, 16, 16), clips)
    assert full_recipe(asked("none"), (1, 8, 16, 16), clips) is None
    for name in ("crop-flip-randaugment", "crop-flip-autoaugment"):
        with pytest.raises(ValueError, match=f"augment: got '{name}'; it takes 1 or 3 channels, not 4"):
            full_recipe(asked(name), (4, 6, 6), boards)
    assert full_recipe(asked("none", erase=1.0), (4, 6, 6), boards)(pictures(3, (4, 6, 6))).shape == (3, 4, 6, 6)


@pytest.mark.parametrize("says", ["No module named 'torchvision'", "operator torchvision::nms does not exist"])
def test_a_torchvision_that_is_missing_or_does_not_fit_is_told_with_what_helps(monkeypatch, tmp_path, says):
    kind = "ModuleNotFoundError" if says.startswith("No") else "RuntimeError"
    (tmp_path / "torchvision.py").write_text(f'raise {kind}("{says}\\nin detail")\n')
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    assert full_recipe(asked("crop-flip"), (3, 32, 32), MEAN) is None, "what needs none of it asks for none"
    with pytest.raises(LabError) as raised:
        full_recipe(asked("crop-flip", erase=0.1), (3, 32, 32), MEAN)
    problem = f"torchvision is missing, or does not fit torch {torch.__version__} ({says})"
    assert str(raised.value) == f"{problem}; pip install --upgrade torch torchvision, both from one index"


@pytest.mark.parametrize("sizes", [(5, 7), (4, 4, 4)])
def test_moments_are_those_of_each_channels_pixels(sizes):
    images = torch.randint(0, 256, (30, 3, *sizes), dtype=torch.uint8)
    images[:, 1], images[:, 2] = images[:, 1] // 9, 77
    mean, deviation = channel_moments(images)
    flat = images.double().transpose(0, 1).flatten(1)
    assert mean.shape == deviation.shape == (3, *[1] * len(sizes))
    expected = flat.std(1, correction=0) + torch.tensor([0, 0, 1])  # a constant channel is only moved
    torch.testing.assert_close(mean.flatten(), flat.mean(1).float())
    torch.testing.assert_close(deviation.flatten(), expected.float())
