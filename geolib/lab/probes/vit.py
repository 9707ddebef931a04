"""What a trained model has learned: scales, widths, angles, and what it makes of patches that moved.

In a notebook, after ``run = train(config)``::

    learned_scales(run.model)                       # s, (layers or 1, heads or 1, axes)
    shuffled_accuracy(run, run.test_images, run.test_labels)

Sizes of layers or heads that are 1 mean that all of them share what is learned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geolib._checks import require
from geolib.attention import Encoding
from geolib.encodings import Learned, LieRE, LocalityFocusing, PerLayer, PerLayerFocusing, RiemannFormer
from geolib.lab.data.sets import Patch, patch_grid, patch_sides
from geolib.lab.probes.lm import after_reading
from geolib.lab.train import DocumentRun, Run
from geolib.lab.vit import ViT, patches
from geolib.lie import nearest_commuting, shift_deviation, skew_matrix, spectrum, upper_entries
from geolib.rotations import grid_positions, rescale_positions

_Nested = float | list["_Nested"]
"""A number, or lists of numbers in lists."""

BATCH = 500

# What is learned ----------------------------------------------------------------------------------------------------


def learned_scales(model: ViT) -> Tensor | None:
    """The scales s of RiemannFormer's metric, (layers or 1, heads or 1, axes); None where nothing has a scale.

    Of the diagonal and the general metric (layers or 1, heads or 1, pairs, 2). The metric at position m is s^m, of the
    slow law s to the logarithm of 1 + m.

    Source: RF-6, RF-6a.
    """
    return _by_layer(model, RiemannFormer, lambda encoding: encoding.raw_scale, lambda e: e.log_scale().exp())


def learned_sigmas(model: ViT) -> Tensor | None:
    """The widths sigma of locality focusing in patches, (layers or 1, heads, 1), or a width for each placed token.

    Source: RF-21.
    """
    return _by_layer(model, LocalityFocusing, lambda encoding: encoding.log_sigma, lambda e: e.sigma())


def learned_precisions(model: ViT) -> Tensor | None:
    """The matrices A of locality focusing's distance, (layers or 1, axes, axes); None without it.

    Source: RF-21.
    """
    return _by_layer(model, LocalityFocusing, lambda encoding: encoding.log_sigma, lambda e: e.precision())


def learned_angles(model: ViT) -> Tensor | None:
    """The angles of each of LieRE's generators: how fast the planes turn that it moves; None without LieRE.

    (layers or 1, heads or 1, blocks, axes, width // 2), radians per patch, largest first.

    Source: NT-1, NT-4.
    """
    skew = _generators(model)
    return None if skew is None else spectrum(skew).float()


_DRAWS = 100


def mean_shift_deviation(model: ViT) -> float | None:
    """The mean of ``shift_deviation`` over all generators and draws of two places and a shift; None without LieRE.

    Draws are uniform among those that keep both places inside the picture, and always the same ones.

    Source: LR-SHIFT.
    """
    skew = _generators(model)
    if skew is None:
        return None
    generator = torch.Generator().manual_seed(0)
    far = model.positions.amax(0).cpu().double()
    p, q, part = torch.rand(3, _DRAWS, len(far), generator=generator, dtype=torch.float64) * far
    low, high = -torch.minimum(p, q), far - torch.maximum(p, q)
    shift = low + (part / far) * (high - low)
    return float(torch.stack([shift_deviation(skew, *triple).mean() for triple in zip(p, q, shift)]).mean())


def _generators(model: ViT) -> Tensor | None:
    """LieRE's generators per patch, (layers or 1, heads or 1, blocks, axes, width, width), float64 on the CPU."""
    lie = _lie(model)
    if lie is None:
        return None
    return lie.skew().detach().cpu().double() / lie.unit.cpu().double()[:, None, None]


def _lie(model: ViT) -> LieRE | None:
    """The model's LieRE, which has the generators of all layers."""
    return next((module for module in model.encoding.modules() if isinstance(module, LieRE)), None)


def model_at_start(run: Run) -> ViT:
    """The run's model as it was before training, on the CPU: its seed drawn again."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.config.seed)
        return ViT(run.config, run.data.shape, len(run.data.classes))


def _by_layer(
    model: ViT, kind: type[Encoding], owner: Callable[[Any], Tensor], read: Callable[[Any], Tensor]
) -> Tensor | None:
    """One entry for each layer's encoding of a kind; one for all where they own the same parameter."""
    found = []
    for index in range(len(model.blocks)):
        # Focusing around focusing: the outermost is read.
        matching = (encoding for encoding in _nested(model.encoding, index) if isinstance(encoding, kind))
        encoding = next(matching, None)
        if encoding is None:
            return None
        found.append(encoding)
    shared = all(owner(encoding) is owner(found[0]) for encoding in found)
    return torch.stack([read(encoding).detach().float().cpu() for encoding in (found[:1] if shared else found)])


def _nested(encoding: Encoding, index: int) -> Iterator[Encoding]:
    """A layer's encoding and those inside it."""
    yield encoding
    if isinstance(encoding, PerLayer):
        each: Any = encoding.layers
        yield from _nested(each[index], index)
    if isinstance(encoding, LocalityFocusing | PerLayerFocusing):
        yield from _nested(encoding.encoding, index)


# Shuffled patches ---------------------------------------------------------------------------------------------------


@contextmanager
def _evaluating(model: ViT) -> Iterator[None]:
    """Inside, the model is as in evaluation."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def shuffle_patches(images: Tensor, patch: Patch, generator: torch.Generator | None = None) -> Tensor:
    """Each image (batch, channels, *sizes) with its patches in an order of its own, drawn uniformly.

    Source: LR-T3.
    """
    batch, channels, *sizes = images.shape
    axes, cells = len(sizes), patch_grid((channels, *sizes), patch)
    cut = patches(images, patch)  # (batch, patches, channels * pixels of a patch)
    order = torch.rand(cut.shape[:2], generator=generator).argsort(1).to(images.device)
    moved = cut.gather(1, order[..., None].expand_as(cut))
    moved = moved.reshape(batch, *cells, channels, *patch_sides(patch, axes))
    along = [dim for axis in range(axes) for dim in (1 + axis, 2 + axes + axis)]  # a cell, then the pixels inside it
    return moved.permute(0, 1 + axes, *along).reshape(images.shape)


def shuffled_accuracy(run: Run, images: Tensor, labels: Tensor) -> float:
    """Accuracy after the patches of every image are shuffled; the model's positions stay where they are.

    Images are as they are stored.

    Source: LR-T3, RF-PE.
    """
    generator = torch.Generator().manual_seed(0)
    parts = (shuffle_patches(part, run.model.patch, generator) for part in images.split(BATCH))
    return _accuracy(run.model, run.scores, labels, parts)


@torch.no_grad()
def _accuracy(net: ViT, score: Callable[[Tensor], Tensor], labels: Tensor, parts: Iterator[Tensor]) -> float:
    """The share of images whose highest score is their label's, in evaluation."""
    with _evaluating(net):
        right = sum(int((score(part).argmax(1) == truth).sum()) for part, truth in zip(parts, labels.split(BATCH)))
    return right / len(labels)


# Moved --------------------------------------------------------------------------------------------------------------


def moved_accuracy(run: Run, shift: int) -> float:
    """Accuracy on the test images when every coordinate of every position grows by the shift; the pixels stay.

    The shift is in patches. It changes nothing, up to rounding, where scores depend on differences of positions alone.
    Learned vectors of cells beyond the trained grid are drawn as their start was: a larger table would hold them
    untrained.

    Source: RF-13.
    """
    net = run.model
    with larger_tables(net, shift, run.config.method_options.get("std", 1.0)), standing_at(net, net.positions + shift):
        return _tested(run, run.test_images)


def _tested(run: Run, images: Tensor) -> float:
    """Accuracy on images whose labels are those of the test images."""
    return _accuracy(run.model, run.scores, run.test_labels, iter(images.split(BATCH)))


def larger_tables(net: ViT, cells: int, std: float) -> AbstractContextManager[None]:
    """Inside, each table of learned vectors has more cells along every axis, drawn as the table was at the start."""

    def larger(table: Learned) -> Tensor:
        size = [side + cells for side in table.grid]
        drawn = torch.randn(*size, table.vectors.shape[-1], generator=torch.Generator().manual_seed(0))
        vectors = (std * drawn).to(table.vectors)
        vectors[tuple(map(slice, table.grid))] = table.vectors.detach()
        return vectors

    return _replaced("vectors", {table: nn.Parameter(larger(table)) for table in _tables(net)})


@contextmanager
def _replaced(name: str, values: Mapping[Any, Tensor]) -> Iterator[None]:
    """Inside, a tensor that modules have under this name is another one."""
    before = {module: getattr(module, name) for module in values}
    for module, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, value in before.items():
            setattr(module, name, value)


def room(images: Tensor, patch: Patch = 1) -> int:
    """By how many patches the pictures, blank where 0, can move right and down before one of them leaves its field.

    >>> field = torch.zeros(1, 1, 5, 6)
    >>> field[0, 0, 2, 1] = 7
    >>> room(field)
    2
    """
    used = images.flatten(0, 1).ne(0).any(0)  # (height, width)
    below = used.any(1).flip(0).long().argmax() if used.any() else used.shape[0]
    right = used.any(0).flip(0).long().argmax() if used.any() else used.shape[1]
    high, wide = patch_sides(patch, 2)
    return min(int(below) // high, int(right) // wide)


def carried_accuracy(run: Run, shift: int) -> float:
    """Accuracy on the test images when every picture is carried right and down within its field; the positions stay.

    The shift is in patches, at most the ``room`` of the test images; what leaves on one side would enter on the other.
    """
    there = room(run.test_images, run.model.patch)
    require(0 <= shift <= there, "shift", shift, f"the pictures have room for 0 to {there}")
    steps = tuple(shift * side for side in patch_sides(run.model.patch, 2))
    carried = run.test_images.roll(steps, (2, 3))
    return _tested(run, carried)


# Without the order of turns ------------------------------------------------------------------------------------------


def without_order(run: Run) -> dict[str, Any]:
    """Accuracies on the test images once LieRE's generators have become the nearest that commute; none without blocks.

    commuting_accuracy: with ``nearest_commuting``, in place. commuting_share: the length of what that took away, as a
    share of the generators' own. shaken_accuracy: with generators changed by as much in a random direction instead.
    For a configuration with shifts also commuting_moved_accuracy and shaken_moved_accuracy, one number a shift, as
    ``moved_accuracy`` has them. Of pictures also resized_accuracy, that of ``extended_accuracy`` at ``half_as_large``
    with the trained generators, commuting_resized_accuracy and shaken_resized_accuracy.

    Source: LR-SHIFT.
    """
    lie = _lie(run.model)
    if lie is None or lie.width == 2:
        return {}
    trained = lie.generators
    commuting = upper_entries(nearest_commuting(skew_matrix(trained, lie.width)))
    gone = (trained - commuting).detach()
    drawn = torch.randn(trained.shape, generator=torch.Generator().manual_seed(0)).to(trained)
    sizes = [each.flatten(2).norm(dim=-1)[..., None, None, None] for each in (gone, drawn)]
    found: dict[str, Any] = {"commuting_share": float(f"{gone.norm() / trained.norm():.4g}")}
    pixels = half_as_large(run)
    found |= {} if pixels is None else {"resized_accuracy": extended_accuracy(run, pixels)}
    for name, other in {"commuting": commuting, "shaken": trained + drawn * sizes[0] / sizes[1]}.items():
        with _replaced("generators", {lie: nn.Parameter(other.detach())}):
            found[f"{name}_accuracy"] = _tested(run, run.test_images)
            if run.config.shifts:
                found[f"{name}_moved_accuracy"] = [moved_accuracy(run, shift) for shift in run.config.shifts]
            if pixels is not None:
                found[f"{name}_resized_accuracy"] = extended_accuracy(run, pixels)
    return found


def half_as_large(run: Run) -> int | None:
    """The pixels along a side of the run's pictures with half as many patches more along it; None without one side.

    Source: LR-F2.
    """
    sizes = run.data.shape[1:]
    sides = patch_sides(run.model.patch, len(sizes))
    cells = patch_grid(run.data.shape, run.model.patch)
    pixels = {side * (3 * count // 2) for side, count in zip(sides, cells)}
    return pixels.pop() if len(sizes) == 2 and len(pixels) == 1 else None


# Resized ------------------------------------------------------------------------------------------------------------


def extended_accuracy(run: Run, pixels: int) -> float:
    """Accuracy on the test images resized, when positions count on past the trained grid or stop before its end.

    ``pixels`` is along each side of the resized images; ValueError when no whole number of patches fits.
    Learned vectors of cells beyond the trained grid are drawn as their start was.

    Source: LR-F2.
    """
    net = run.model
    trained, grid = _grids(run, pixels)
    more = max(0, *(now - before for before, now in zip(trained, grid)))
    with larger_tables(net, more, run.config.method_options.get("std", 1.0)), standing_at(net, grid_positions(*grid)):
        return _accuracy(net, run.scores, run.test_labels, resized(run.test_images, pixels))


def rescaled_accuracy(run: Run, pixels: int) -> float:
    """Accuracy on the test images resized, when positions are squeezed or stretched into the trained range.

    ``pixels`` is along each side of the resized images; ValueError when no whole number of patches fits.
    A table of learned vectors is interpolated linearly between its cells.

    Source: LR-F2.
    """
    net = run.model
    trained, grid = _grids(run, pixels)
    cells = grid_positions(*grid)
    positions = cells if _tables(net) else rescale_positions(cells, trained, grid)
    with _stretched_tables(net, grid), standing_at(net, positions):
        return _accuracy(net, run.scores, run.test_labels, resized(run.test_images, pixels))


def resized(images: Tensor, pixels: int) -> Iterator[Tensor]:
    """Images with so many pixels a side, interpolated linearly, float32, a few at a time; smaller ones are smoothed.

    >>> next(resized(torch.full((1, 1, 4, 4), 7, dtype=torch.uint8), 2)).tolist()
    [[[[7.0, 7.0], [7.0, 7.0]]]]
    """
    axes = images.dim() - 2
    smooth = {"antialias": True} if axes == 2 else {}
    for part in images.split(BATCH):
        yield F.interpolate(part.float(), (pixels,) * axes, mode=_LINEAR[axes], align_corners=False, **smooth)


_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


def _grids(run: Run, pixels: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Patches along each axis, as trained and of the resized images."""
    channels, *sizes = run.data.shape
    trained, now = (patch_grid((channels, *each), run.model.patch) for each in (sizes, [pixels] * len(sizes)))
    return trained, now


def standing_at(net: ViT, positions: Tensor) -> AbstractContextManager[None]:
    """Inside, the model's tokens stand at these positions."""
    return _replaced("positions", {net: positions.to(net.positions)})


def _stretched_tables(net: ViT, grid: tuple[int, ...]) -> AbstractContextManager[None]:
    """Inside, each table of learned vectors is interpolated linearly onto a grid of another size."""

    def stretched(table: Learned) -> Tensor:
        rows = table.vectors.detach().movedim(-1, 0)[None]
        return F.interpolate(rows, grid, mode=_LINEAR[len(grid)], align_corners=False)[0].movedim(0, -1)

    return _replaced("vectors", {table: nn.Parameter(stretched(table)) for table in _tables(net)})


def _tables(net: ViT) -> list[Learned]:
    return [module for module in net.modules() if isinstance(module, Learned)]


# For the record -----------------------------------------------------------------------------------------------------


def after_training(run: Run) -> dict[str, Any]:
    """What a record keeps of a trained model beside its metrics; of a run on documents, what ``reading`` tells.

    shuffled_accuracy (on the test images, in [0, 1]) and, where the model has them, scales, sigmas and precisions:
    nested lists of numbers in the shapes of ``learned_scales``, ``learned_sigmas`` and ``learned_precisions``. With
    LieRE, angles and shift_deviation, and as they were before training angles_start and shift_deviation_start; where
    its generators need not commute, what ``without_order`` tells. For a configuration with shifts also moved_accuracy,
    one number a shift, and carried_accuracy for the shifts that the pictures have room for, and for one with
    resolutions extended_accuracy and rescaled_accuracy, one number a resolution. JSON can hold all of it.

    Source: RF-T1, RF-6a, RF-21, LR-T3, LR-F2, LR-SHIFT.
    """
    if isinstance(run, DocumentRun):
        return after_reading(run)
    learned = {
        "scales": learned_scales(run.model),
        "sigmas": learned_sigmas(run.model),
        "precisions": learned_precisions(run.model),
    }
    kept: dict[str, Any] = {name: seven_digits(values) for name, values in learned.items() if values is not None}
    kept |= _of_generators(run) | without_order(run)
    kept |= {"moved_accuracy": [moved_accuracy(run, shift) for shift in run.config.shifts]} if run.config.shifts else {}
    if run.config.shifts and run.test_images.dim() == 4:
        within = [shift for shift in run.config.shifts if shift <= room(run.test_images, run.model.patch)]
        kept |= {"carried_accuracy": [carried_accuracy(run, shift) for shift in within]} if within else {}
    if resolutions := run.config.resolutions:
        kept["extended_accuracy"] = [extended_accuracy(run, pixels) for pixels in resolutions]
        kept["rescaled_accuracy"] = [rescaled_accuracy(run, pixels) for pixels in resolutions]
    return {"shuffled_accuracy": shuffled_accuracy(run, run.test_images, run.test_labels)} | kept


def _of_generators(run: Run) -> dict[str, Any]:
    """The angles of LieRE's generators and their shift deviation, trained and before; nothing without LieRE."""
    kept: dict[str, Any] = {}
    models = {"": run.model, "_start": model_at_start(run)} if _generators(run.model) is not None else {}
    for when, model in models.items():
        if (angles := learned_angles(model)) is not None:
            kept[f"angles{when}"] = seven_digits(angles)
        kept[f"shift_deviation{when}"] = mean_shift_deviation(model)
    return kept


def seven_digits(values: Tensor) -> _Nested:
    """Nested lists with seven significant digits, all that float32 has."""
    if values.dim() == 0:
        return float(f"{values.item():.7g}")
    return [seven_digits(value) for value in values.detach()]
