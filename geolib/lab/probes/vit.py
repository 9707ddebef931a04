"""What a trained vision transformer has learned: scales, angles, and its accuracy on patches that moved.

After ``run = train(config)`` these are ``learned_parameters(run.model)`` and, for one, ``shuffled_accuracy(run)``.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geolib.attention import Encoding
from geolib.encodings import Composed, Learned, LieRE, LocalityFocusing, PerLayer, PerLayerFocusing, RiemannFormer
from geolib.lab.data.sets import Patch, patch_grid, patch_sides
from geolib.lab.train import Run
from geolib.lab.vit import ViT, patches
from geolib.lie import shift_deviation, spectrum
from geolib.rotations import grid_positions, rescale_positions

Value = tuple[nn.Module, str, Tensor]  # another tensor in place of the one that a module has under a name
BATCH = 500  # images
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}  # by the number of axes


def learned(run: Run) -> dict[str, Any]:
    """Measure what a record keeps of a vision transformer beside its metrics.

    shuffled_accuracy, and ``learned_parameters`` as nested lists; with LieRE also shift_deviation, and what it and the
    angles were before training. Of the configuration's shifts moved_accuracy, and carried_accuracy where the pictures
    have room; of its resolutions extended_accuracy and rescaled_accuracy, both as by ``edge_accuracy`` without tables.
    Source: RF-T1, RF-6a, LR-T3, LR-F2, LR-SHIFT.
    """
    kept: dict[str, Any] = {"shuffled_accuracy": shuffled_accuracy(run)}
    kept |= {name: significant(values) for name, values in learned_parameters(run.model).items()}
    if "angles" in kept:
        start = model_at_start(run)
        kept["angles_start"] = significant(learned_parameters(start)["angles"])
        kept["shift_deviation"] = mean_shift_deviation(run.model)
        kept["shift_deviation_start"] = mean_shift_deviation(start)
    if shifts := run.config.shifts:
        kept["moved_accuracy"] = [moved_accuracy(run, shift) for shift in shifts]
        carried = [found for shift in shifts if (found := carried_accuracy(run, shift)) is not None]
        kept |= {"carried_accuracy": carried} if carried else {}
    if resolutions := run.config.resolutions:
        kept["extended_accuracy"] = [extended_accuracy(run, pixels) for pixels in resolutions]
        kept["rescaled_accuracy"] = [rescaled_accuracy(run, pixels) for pixels in resolutions]
        for name, grows in (("extended", True), ("rescaled", False)) if not _tables(run.model) else ():
            kept[f"{name}_to_the_edge_accuracy"] = [edge_accuracy(run, pixels, grows) for pixels in resolutions]
    return kept


def significant(values: Tensor, digits: int = 7) -> Any:
    """Round to so many significant digits, in nested lists; seven are all that float32 has."""
    if values.dim() == 0:
        return float(f"{values.item():.{digits}g}")
    return [significant(value, digits) for value in values.detach()]


def learned_parameters(model: ViT) -> dict[str, Tensor]:
    """Read what the model's encoding has learned, by name, float32 on the CPU; a size of 1 means shared.

    scales: s of RiemannFormer, (layers or 1, heads or 1, axes), of its diagonal and general metric (..., pairs, 2); the
    metric at position m is s^m, of the slow law s to the logarithm of 1 + m. angles: how fast each generator of LieRE
    rotates its planes, (layers or 1, heads or 1, blocks, axes, width // 2), radians per patch, largest first.
    Source: RF-6, RF-6a, NT-1, NT-4.
    """
    found, layers = {}, [[*layer_encodings(model.encoding, index)] for index in range(len(model.blocks))]
    # The outermost of each layer, and a single one where the layers share it.
    owners = dict.fromkeys(next((each for each in layer if isinstance(each, RiemannFormer)), None) for layer in layers)
    if None not in owners:
        found["scales"] = torch.stack([owner.log_scale().exp().detach().float().cpu() for owner in owners if owner])
    if (skew := _generators(model)) is not None:
        found["angles"] = spectrum(skew).float()
    return found


def layer_encodings(encoding: Encoding, index: int) -> Iterator[Encoding]:
    """Yield an encoding and those inside it that act in a layer, outer ones first."""
    yield encoding
    inner: list[Any] = [encoding.layers[index]] if isinstance(encoding, PerLayer) else []  # type: ignore[index]
    inner += encoding.parts if isinstance(encoding, Composed) else []  # type: ignore[arg-type]
    inner += [encoding.encoding] if isinstance(encoding, LocalityFocusing | PerLayerFocusing) else []
    for each in inner:
        yield from layer_encodings(each, index)


def mean_shift_deviation(model: ViT) -> float | None:
    """Average ``shift_deviation`` over generators and 100 draws of places; None without LieRE. Source: LR-SHIFT."""
    skew = _generators(model)
    if skew is None:
        return None
    generator = torch.Generator().manual_seed(0)
    far = model.positions.amax(0).cpu().double()
    p, q, part = torch.rand(3, 100, len(far), generator=generator, dtype=torch.float64) * far
    low, high = -torch.minimum(p, q), far - torch.maximum(p, q)
    shift = low + (part / far) * (high - low)
    return float(torch.stack([shift_deviation(skew, *triple).mean() for triple in zip(p, q, shift)]).mean())


def _generators(model: ViT) -> Tensor | None:
    """LieRE's generators per patch, (layers or 1, heads or 1, blocks, axes, width, width), float64 on the CPU."""
    of_liere = (module for module in model.encoding.modules() if isinstance(module, LieRE))
    skews = (each.skew().detach().cpu().double() / each.unit.cpu().double()[:, None, None] for each in of_liere)
    return next(skews, None)


def model_at_start(run: Run) -> ViT:
    """Make the run's model as it was before training, on the CPU: its seed drawn again."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.config.seed)
        return ViT(run.config, run.data.shape, len(run.data.classes))


@torch.no_grad()
def _accuracy(run: Run, batches: Iterable[Tensor], *values: Value) -> float:
    """The share of test images, changed and in their order, classified rightly with these values ``replaced``."""
    labels = run.task.y_test
    with replaced(*values):
        right = [(run.scores(x).argmax(1) == y).sum() for x, y in zip(batches, labels.split(BATCH))]
    return int(torch.stack(right).sum()) / len(labels)


@contextmanager
def replaced(*values: Value) -> Iterator[None]:
    """Replace tensors of modules inside the context."""
    before = [(module, name, getattr(module, name)) for module, name, _ in values]
    try:
        for each in values:
            setattr(*each)
        yield
    finally:
        for each in before:
            setattr(*each)


def shuffle_patches(images: Tensor, patch: Patch, generator: torch.Generator | None = None) -> Tensor:
    """Shuffle the patches of each image (batch, channels, *sizes), in an order of its own. Source: LR-T3."""
    batch, channels, *sizes = images.shape
    axes, cells = len(sizes), patch_grid((channels, *sizes), patch)
    cut = patches(images, patch)  # (batch, patches, channels * pixels of a patch)
    order = torch.rand(cut.shape[:2], generator=generator).argsort(1).to(images.device)
    moved = cut.gather(1, order[..., None].expand_as(cut))
    moved = moved.reshape(batch, *cells, channels, *patch_sides(patch, axes))
    along = [dim for axis in range(axes) for dim in (1 + axis, 2 + axes + axis)]  # a cell, then the pixels inside it
    return moved.permute(0, 1 + axes, *along).reshape(images.shape)


def shuffled_accuracy(run: Run) -> float:
    """Compute the accuracy on test images with shuffled patches and positions that stay. Source: LR-T3, RF-PE."""
    generator = torch.Generator().manual_seed(0)
    return _accuracy(run, (shuffle_patches(x, run.model.patch, generator) for x in run.task.x_test.split(BATCH)))


def moved_accuracy(run: Run, shift: int) -> float:
    """Compute the accuracy on the test images when every coordinate of every position grows by the shift, in patches.

    It changes nothing where scores depend on differences of positions alone. Learned vectors of cells beyond the
    trained grid are drawn as their start was: a larger table would hold them untrained. Source: RF-13.
    """
    return _accuracy(run, run.task.x_test.split(BATCH), *_placed_at(run, run.model.positions + shift))


def _placed_at(run: Run, positions: Tensor) -> list[Value]:
    """Other positions of the tokens, for ``replaced``, and tables of learned vectors that are large enough for them."""
    positions, std = positions.to(run.model.positions), run.config.method_options.get("std", 1.0)
    cells = max(0, int((positions.amax(0) - run.model.positions.amax(0)).max()))
    tables = [(each, "vectors", nn.Parameter(larger_table(each, cells, std))) for each in _tables(run.model)]
    return [(run.model, "positions", positions), *tables]


def _tables(model: ViT) -> list[Learned]:
    return [module for module in model.modules() if isinstance(module, Learned)]


def larger_table(table: Learned, cells: int, std: float) -> Tensor:
    """Extend a table of learned vectors by cells along every axis, drawn as the table was at the start."""
    size = [side + cells for side in table.grid]
    drawn = torch.randn(*size, table.vectors.shape[-1], generator=torch.Generator().manual_seed(0))
    vectors = (std * drawn).to(table.vectors)
    vectors[tuple(map(slice, table.grid))] = table.vectors.detach()
    return vectors


def carried_accuracy(run: Run, shift: int) -> float | None:
    """Compute the accuracy when every test image moves right and down by so many patches; the positions stay.

    None where the field of some image has no room for that, its blank pixels being 0, and for volumes and clips.
    """
    images = run.task.x_test
    if images.dim() != 4:
        return None
    down, right = (shift * side for side in patch_sides(run.model.patch, 2))
    height, width = images.shape[2:]
    if images[:, :, max(0, height - down) :].any() or images[..., max(0, width - right) :].any():
        return None
    return _accuracy(run, images.roll((down, right), (2, 3)).split(BATCH))


def extended_accuracy(run: Run, pixels: int) -> float:
    """Compute the accuracy on resized test images when positions count on past the trained grid or stop before its end.

    ``pixels`` is along each side; ValueError when no whole number of patches fits. Source: LR-F2.
    """
    return _accuracy(run, resized(run.task.x_test, pixels), *_placed_at(run, grid_positions(*_grid(run, pixels))))


def rescaled_accuracy(run: Run, pixels: int) -> float:
    """Compute the accuracy on resized test images when positions are scaled into the trained range.

    Tables of learned vectors are interpolated linearly instead. Source: LR-F2.
    """
    grid, values = _grid(run, pixels), list[Value]()
    for table in _tables(run.model):
        rows = F.interpolate(table.vectors.detach().movedim(-1, 0)[None], grid, mode=LINEAR[len(grid)])[0]
        values.append((table, "vectors", nn.Parameter(rows.movedim(0, -1))))
    trained = grid if values else patch_grid(run.data.shape, run.model.patch)
    positions = rescale_positions(grid_positions(*grid), trained, grid).to(run.model.positions)
    return _accuracy(run, resized(run.task.x_test, pixels), (run.model, "positions", positions), *values)


def edge_accuracy(run: Run, pixels: int, grows: bool) -> float:
    """Compute the accuracy on resized test images with positions spaced as LieRE's released code spaces them.

    On n patches in place of L they run evenly from 0 to L - 1, the end of the trained range, or to n / L times that
    where it ``grows``, so that a step is not quite that of training. Source: LR-F2.
    """
    trained, grid = patch_grid(run.data.shape, run.model.patch), _grid(run, pixels)
    step = [(t - 1) / max(1, n - 1) * (n / t if grows else 1) for t, n in zip(trained, grid)]
    positions = (grid_positions(*grid) * torch.tensor(step)).to(run.model.positions)
    return _accuracy(run, resized(run.task.x_test, pixels), (run.model, "positions", positions))


def _grid(run: Run, pixels: int) -> tuple[int, ...]:
    return patch_grid((1, *[pixels] * (len(run.data.shape) - 1)), run.model.patch)


def resized(images: Tensor, pixels: int) -> Iterator[Tensor]:
    """Resize images to so many pixels a side, linearly and in float32, a batch at a time; pictures are antialiased."""
    axes = images.dim() - 2
    for part in images.split(BATCH):
        yield F.interpolate(part.float(), (pixels,) * axes, mode=LINEAR[axes], antialias=axes == 2)
