"""A small trained model as a page can hold it: its numbers in 16 bits, and what they mean, in JSON.

In a notebook, after ``run = train(config)``::

    about, numbers = exported(run.model, moments_of(run))   # a dict that JSON can hold, and bytes

``python -m geolib.lab.export FOLDER`` trains the models of ``digits-live`` and writes two files for each.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geolib._checks import require
from geolib.attention import Encoding
from geolib.encodings import (
    ALiBi,
    Composed,
    Learned,
    LieRE,
    LocalityFocusing,
    PerLayer,
    PerLayerFocusing,
    RiemannFormer,
    RoPE,
    Sinusoidal,
)
from geolib.lab.experiments.papers.page_models import LIVE
from geolib.lab.probes.vit import larger_tables, seven_digits, shuffle_patches
from geolib.lab.train import Run, train
from geolib.lab.vit import ViT
from geolib.lie import skew_matrix, upper_entries

FIELD = 12
"""Positions along a side of the field in which a page moves digits."""


def moments_of(run: Run) -> tuple[float, float]:
    """The mean and the deviation by which a run of grey images standardises them."""
    return float(run.mean), float(run.deviation)


def exported(model: ViT, moments: tuple[float, float], **more: Any) -> tuple[dict[str, Any], bytes]:
    """What a page needs of a model on grey images of two axes, pooled by the mean: what it is, and its numbers.

    Sizes, the names and shapes of its tensors in the order in which their numbers follow each other, 16 bits each, and
    under ``placed`` and ``embed`` what its encoding does at a position; ``more`` is added. ``moments`` are the mean and
    the deviation of the pixels that it was trained on. ValueError for a model that the page cannot hold.
    """
    grid = [int(side) + 1 for side in model.positions.amax(0)]
    inner = model.embedding.in_features
    side = model.patch if isinstance(model.patch, int) else model.patch[0]
    fits = len(grid) == 2 and inner == side * side and model.cls is None
    require(
        fits, "model", f"{len(grid)} axes, {inner} numbers a patch", "it must be on grey images, pooled by the mean"
    )
    half = rounded(model)
    tensors = {
        name: values for name, values in half.state_dict().items() if name not in ("encoding.vectors", "encoding.unit")
    }
    for table in (part for part in half.modules() if isinstance(part, Learned)):
        with larger_tables(half, FIELD - max(grid), 1.0):
            tensors["table"] = table.vectors.detach().half().float()
    first: Any = half.blocks[0]
    about = {
        "width": half.embedding.out_features,
        "heads": first.attention.heads,
        "layers": len(half.blocks),
        "hidden": first.mlp[0].out_features,
        "classes": half.head.out_features,
        "grid": grid,
        "patch": side,
        "moments": [float(f"{value:.7g}") for value in moments],
        "tensors": [[name, list(values.shape)] for name, values in tensors.items()],
        "embed": [each for part in _parts(half.encoding, 0) if (each := _embedding(part))],
        "placed": [_placed(half, layer) for layer in range(len(half.blocks))],
        **more,
    }
    return about, b"".join(values.detach().numpy().astype("<f2").tobytes() for values in tensors.values())


def rounded(model: ViT) -> ViT:
    """A copy of the model with every number rounded to 16 bits, on the CPU."""
    half = copy.deepcopy(model).cpu().float().eval()
    with torch.no_grad():
        for values in half.parameters():
            values.copy_(values.half().float())
    return half


def _parts(encoding: Encoding, layer: int) -> Iterator[Encoding]:
    """The simple encodings that a layer's consists of."""
    inner: list[Any] = []
    if isinstance(encoding, PerLayerFocusing):
        inner = [encoding.encoding]
    if isinstance(encoding, PerLayer):
        inner.append(encoding.layers[layer])
    elif isinstance(encoding, Composed):
        inner = list(encoding.parts)
    elif isinstance(encoding, LocalityFocusing):
        inner = [encoding.encoding]
        yield encoding
    elif type(encoding) is not Encoding:
        yield encoding
    for each in inner:
        yield from _parts(each, layer)


def _embedding(part: Encoding) -> dict[str, Any]:
    """What is added to the embeddings: sines and cosines of these frequencies, or a table among the tensors."""
    if isinstance(part, Sinusoidal):
        return {"frequencies": seven_digits(part.frequencies)}
    return {"table": True} if isinstance(part, Learned) else {}


def _placing(part: Encoding, layer: int) -> dict[str, Any]:
    """What a layer does at a position, by head: rates are for a step along each axis.

    turn, stretch: the angle and the logarithm of the factor of each pair of queries and keys. blocks: the entries above
    the diagonal of skew generators, and calm: of the part of the second one that commutes with the first. slopes: what
    a step costs a score. sigma, root: the width of the Gaussian after the softmax, and L of its metric L L^T.
    """
    if isinstance(part, Sinusoidal | Learned):
        return {}
    if isinstance(part, RoPE) and part.length == 1:
        rates = part.frequencies if part.frequencies.dim() == 3 else part.frequencies[None]
        return {"turn": seven_digits(rates), "stretch": seven_digits(torch.zeros_like(rates))}
    if type(part) is RiemannFormer:  # the classes made of it have other metrics
        steps = part.law.exponent(torch.arange(3.0))
        require(torch.equal(steps, torch.arange(3.0)), "model", "a scale law that bends", "s to the power of m alone")
        follows, scale = part.follows, part.log_scale()[:, None, :] / 2
        turn = -part.frequencies * follows
        turn = turn if turn.dim() == 3 else turn[None]
        return {"turn": seven_digits(turn), "stretch": seven_digits(follows * scale)}
    if isinstance(part, LieRE):
        own = part.generators[min(layer, len(part.generators) - 1)] / part.unit[:, None]
        if part.width == 2:
            return {"turn": seven_digits(-own[..., 0]), "stretch": seven_digits(torch.zeros_like(own[..., 0]))}
        calm = calm_part(own, part.width)
        return {"blocks": seven_digits(own), "calm": seven_digits(calm), "size": part.width}
    if isinstance(part, ALiBi):
        return {"slopes": seven_digits(part.slopes)}
    if type(part) is LocalityFocusing and part.log_sigma.shape[1] == 1:  # a Gaussian gate is inside the softmax
        root = part.raw_precision.tril(-1) + torch.diag(part.raw_precision.diagonal().exp())
        return {"sigma": seven_digits(part.sigma()[:, 0]), "root": seven_digits(root)}
    raise ValueError(f"model: got {part}; the page knows RoPE, LieRE, RiemannFormer, ALiBi, widths a head and tables")


def calm_part(own: Tensor, width: int) -> Tensor:
    """Of generators (..., 2, count), the part of the second that commutes with the first, (..., count).

    In a basis in which the first one's planes are coordinate planes it is the second one's entries in these planes: the
    nearest matrix that commutes, where no two planes turn alike.

    >>> first, second = torch.tensor([1.0, 0, 0, 0, 0, 0.3]), torch.tensor([0.5, 7, 7, 7, 7, 2])
    >>> calm_part(torch.stack([first, second]), 4).add(0.0).round(decimals=4)
    tensor([0.5000, 0.0000, 0.0000, 0.0000, 0.0000, 2.0000])
    """
    first, second = skew_matrix(own.detach().double(), width).unbind(-3)
    _, basis = torch.linalg.eigh(1j * first)  # i A is Hermitian; its eigenvectors are those of A
    inside = basis.mH @ second.to(basis.dtype) @ basis
    kept = torch.diag_embed(inside.diagonal(dim1=-2, dim2=-1))
    return upper_entries((basis @ kept @ basis.mH).real).float()


def _placed(model: ViT, layer: int) -> dict[str, Any]:
    """What all parts of a layer's encoding do at a position; ValueError where two are of one kind."""
    whole: dict[str, Any] = {}
    for part in (_placing(each, layer) for each in _parts(model.encoding, layer)):
        require(not set(part) & set(whole), "model", f"two of {', '.join(part)}", "the page knows one of a kind")
        whole |= part
    return whole


def held_out(run: Run) -> dict[str, str]:
    """The images that a run was tested on as text: values, labels, and the order in which each is shuffled.

    A letter a pixel, "a" for 0; a figure a label; a letter a cell of the shuffled image for the cell it comes from,
    "0" for the first. The orders are those of ``shuffled_accuracy``.
    """
    count, _, rows, columns = run.test_images.shape
    cells = torch.arange(rows * columns).view(1, 1, rows, columns).expand(count, -1, -1, -1)
    orders = shuffle_patches(cells, 1, torch.Generator().manual_seed(0)).flatten().tolist()
    return {
        "images": "".join(chr(97 + value) for value in run.test_images.flatten().tolist()),
        "labels": "".join(map(str, run.test_labels.tolist())),
        "orders": "".join(chr(48 + cell) for cell in orders),
    }


def write(run: Run, row: str, title: str, folder: Path) -> None:
    """Two files for a finished run: its numbers, and what is said about them."""
    about, numbers = exported(
        run.model, moments_of(run), title=title, record=run.config.name, config=run.config.to_dict()
    )
    (folder / f"{row}.json").write_text(json.dumps(about, separators=(",", ":")) + "\n", "utf-8")
    (folder / f"{row}.bin").write_bytes(numbers)
    (folder / "digits.json").write_text(json.dumps(held_out(run), separators=(",", ":")) + "\n", "utf-8")


def main(folder: str) -> None:
    """Train the models of ``digits-live`` and write their files."""
    for row, title in LIVE.methods.items():
        write(train(LIVE.config("cpu", row, LIVE.datasets[0], 0)), row, title, Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
