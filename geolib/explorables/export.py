"""A small trained vision transformer as a page holds it: its numbers in 16 bits, and what they mean, in JSON.

In a notebook, after ``run = train(config)``::

    about, numbers = exported(run.model, (run.task.mean, run.task.std))   # a dict that JSON can hold, and bytes

``python -m geolib.explorables.export FOLDER`` trains the models of ``digits-live`` and writes two files for each.
"""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geolib import encodings as enc
from geolib._checks import require
from geolib.attention import Encoding
from geolib.lab.experiments import find
from geolib.lab.probes.vit import larger_table, layer_encodings, shuffle_patches, significant
from geolib.lab.train import Run, train
from geolib.lab.vit import ViT
from geolib.lie import skew_matrix, upper_entries

FIELD = 12  # positions along a side of the field in which a page moves digits


def exported(model: ViT, moments: tuple[Any, Any], **more: Any) -> tuple[dict[str, Any], bytes]:
    """Describe a model on grey images of two axes, pooled by the mean, to a page: what it is, and its numbers.

    Sizes, the names and shapes of its tensors in the order in which their numbers follow each other, 16 bits each, and
    under ``placed`` and ``embed`` what its encoding does at a position; ``more`` is added. ``moments`` are the mean and
    the deviation of the pixels that it was trained on. ValueError for a model that the page cannot hold.
    """
    grid = [int(side) + 1 for side in model.positions.amax(0)]
    inner, side = model.embedding.in_features, model.patch if isinstance(model.patch, int) else model.patch[0]
    fits = len(grid) == 2 and inner == side * side and model.cls is None
    came = f"{len(grid)} axes, {inner} numbers a patch"
    require(fits, "model", came, "it must be on grey images, pooled by the mean")
    half = copy.deepcopy(model).cpu().half().float().eval()  # every number rounded to 16 bits
    tensors = {
        name: values for name, values in half.state_dict().items() if name not in ("encoding.vectors", "encoding.unit")
    }
    layers: list[dict[str, Any]] = []
    embed: list[dict[str, Any]] = []
    for index in range(len(half.blocks)):
        layers.append({})
        for part in layer_encodings(half.encoding, index):
            told = _at_a_position(part, index)
            twice = ", ".join(set(told) & set(layers[-1]))
            require(not twice, "model", f"two encodings with {twice}", "the page knows one of a kind")
            layers[-1] |= told
    for part in layer_encodings(half.encoding, 0):
        if isinstance(part, enc.Sinusoidal):
            embed.append({"frequencies": significant(part.frequencies)})
        if isinstance(part, enc.Learned):
            embed.append({"table": True})
            tensors["table"] = larger_table(part, FIELD - max(grid), std=1.0)
    first: Any = half.blocks[0]
    about = {
        "width": half.embedding.out_features,
        "heads": first.attention.heads,
        "layers": len(half.blocks),
        "hidden": first.mlp[0].out_features,
        "classes": half.head.out_features,
        "grid": grid,
        "patch": side,
        "moments": [float(f"{float(value):.7g}") for value in moments],
        "tensors": [[name, list(values.shape)] for name, values in tensors.items()],
        "embed": embed,
        "placed": layers,
        **more,
    }
    return about, b"".join(values.detach().numpy().astype("<f2").tobytes() for values in tensors.values())


def _at_a_position(part: Encoding, layer: int) -> dict[str, Any]:
    """What a layer does at a position, by head: rates are for a step along each axis.

    turn, stretch: the angle and the logarithm of the factor of each pair of queries and keys. blocks: the entries above
    the diagonal of skew generators, and calm: of the part of the second one that commutes with the first. slopes: what
    a step costs a score. sigma, root: the width of the Gaussian after the softmax, and L of its metric L L^T.
    """
    found: dict[str, Tensor] = {}
    size = {}
    if isinstance(part, enc.RoPE) and part.length == 1:
        turn = part.frequencies if part.frequencies.dim() == 3 else part.frequencies[None]
        found = {"turn": turn, "stretch": torch.zeros_like(turn)}
    elif type(part) is enc.RiemannFormer:  # the classes made of it have other metrics
        steps = part.law.exponent(torch.arange(3.0))
        require(torch.equal(steps, torch.arange(3.0)), "model", "a scale law that bends", "s to the power of m alone")
        turn = -part.frequencies * part.follows
        stretch = part.follows * part.log_scale()[:, None, :] / 2
        found = {"turn": turn if turn.dim() == 3 else turn[None], "stretch": stretch}
    elif isinstance(part, enc.LieRE):
        own = part.generators[min(layer, len(part.generators) - 1)] / part.unit[:, None]
        if part.width == 2:
            found = {"turn": -own[..., 0], "stretch": torch.zeros_like(own[..., 0])}
        else:
            found, size = {"blocks": own, "calm": calm_part(own, part.width)}, {"size": part.width}
    elif isinstance(part, enc.ALiBi):
        found = {"slopes": part.slopes}
    elif type(part) is enc.LocalityFocusing and part.log_sigma.shape[1] == 1:  # a Gaussian gate is inside the softmax
        root = part.raw_precision.tril(-1) + torch.diag(part.raw_precision.diagonal().exp())
        found = {"sigma": part.sigma()[:, 0], "root": root}
    elif type(part) not in (Encoding, enc.PerLayer, enc.PerLayerFocusing, enc.Composed, enc.Sinusoidal, enc.Learned):
        known = "RoPE, LieRE, RiemannFormer, ALiBi, widths a head and tables"
        raise ValueError(f"model: got {part}; the page knows {known}")
    return {name: significant(values) for name, values in found.items()} | size


def calm_part(own: Tensor, width: int) -> Tensor:
    """Compute, of generators (..., 2, count), the part of the second that commutes with the first, (..., count).

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


def held_out(run: Run) -> dict[str, str]:
    """Write the images that a run was tested on as text: values, labels, and the order in which each is shuffled.

    A letter a pixel, "a" for 0; a figure a label; a letter a cell of the shuffled image for the cell it comes from,
    "0" for the first. The orders are those of ``shuffled_accuracy``.
    """
    images = run.task.x_test
    count, _, rows, columns = images.shape
    cells = torch.arange(rows * columns).view(1, 1, rows, columns).expand(count, -1, -1, -1)
    orders = shuffle_patches(cells, 1, torch.Generator().manual_seed(0)).flatten().tolist()
    return {
        "images": "".join(chr(97 + value) for value in images.flatten().tolist()),
        "labels": "".join(map(str, run.task.y_test.tolist())),
        "orders": "".join(chr(48 + cell) for cell in orders),
    }


def write(run: Run, row: str, title: str, folder: Path) -> None:
    """Write a run's two files, and the images that it was tested on."""
    config = run.config
    about, numbers = exported(
        run.model, (run.task.mean, run.task.std), title=title, record=config.name, config=config.to_dict()
    )
    (folder / f"{row}.bin").write_bytes(numbers)
    for name, content in ((row, about), ("digits", held_out(run))):
        (folder / f"{name}.json").write_text(json.dumps(content, separators=(",", ":")) + "\n", "utf-8")


def main(folder: str) -> None:
    """Train the models of ``digits-live`` and write their files."""
    live = find("digits-live")
    for row, title in live.methods.items():
        write(train(live.config("cpu", row, live.datasets[0], 0)), row, title, Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
