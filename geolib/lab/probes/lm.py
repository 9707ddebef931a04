"""What a trained language model has learned: how far back it looks, what it forgets, and the text that it generates.

Everything is measured on pieces of the documents tested on, the same ones for all models of a data set.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geolib._checks import require
from geolib.lab.data.documents import pieces
from geolib.lab.gpt import GPT
from geolib.lab.probes.vit import replaced, significant
from geolib.lab.text_attention import DataRotation, Rotary
from geolib.lab.train import Run
from geolib.rotations import document_frequencies
from geolib.sympow import state_numbers

FURTHER, SHORTEST = 4, 64  # contexts to measure: so many times the trained one, and such parts of it, down to SHORTEST
PIECE, MOST = 4096, 2**17  # tokens of a piece, longer where the context asks for it, and of all pieces at most
PROMPT, GENERATED, TEMPERATURE = 120, 240, 0.7
BATCH = 8192  # tokens


def learned(run: Run) -> dict[str, Any]:
    """Measure what a record keeps of a language model beside its metrics, gates and rates where the method has them.

    names are measured at the longest context; sample is a prompt and its continuation. Source: CS-F2, CS-N, CS-size.
    """
    longest = FURTHER * run.task.context
    tokens = pieces(run.data.test, max(longest, PIECE), 2)
    tokens = tokens[: max(2, MOST // tokens.shape[1])]
    bits = bits_of(run, tokens, longest)
    prompt = tokens[0, :PROMPT]
    texts = {"prompt": prompt, "text": generate(run.model, prompt.to(run.device), GENERATED, TEMPERATURE)}
    return {
        "extrapolation": extrapolation(run, tokens[::2], bits[::2]),
        "state_numbers": state_numbers_of(run.model),
        "parameters": sum(p.numel() for p in run.model.parameters()),
        **gates_and_rates(run, tokens[:, : run.task.context]),
        "names": names(tokens, bits, longest),
        "sample": {name: bytes(text.tolist()).decode("utf-8", "replace") for name, text in texts.items()},
    }


@torch.no_grad()
def bits_of(run: Run, tokens: Tensor, context: int) -> Tensor:
    """Compute the bits of each token but the first, (pieces, n), in windows of a context that divides n."""
    inputs, targets = (t.reshape(-1, context).to(run.device) for t in (tokens[:, :-1], tokens[:, 1:]))
    batches = zip(*(t.split(max(1, BATCH // context)) for t in (inputs, targets)))
    nats = [F.cross_entropy(run.scores(x).mT, y, reduction="none") for x, y in batches]
    return torch.cat(nats).div(math.log(2)).view(len(tokens), -1).cpu()


def frequencies_of(model: GPT, longest: float) -> AbstractContextManager[None]:
    """Give the model's rotations, inside the context, the frequencies of another longest document. Source: CS-N."""
    rotations = [layer.turning for layer in model.attentions if isinstance(layer.turning, Rotary)]
    other = [document_frequencies(2 * len(each.frequencies), longest).to(each.frequencies) for each in rotations]
    return replaced(*((each, "frequencies", values) for each, values in zip(rotations, other)))


def contexts_of(trained: int) -> list[int]:
    """List the contexts at which a model is measured: 64, 256, 1024 and 4096 for one trained at 1024."""
    contexts = [trained, FURTHER * trained]
    while contexts[0] % FURTHER == 0 and contexts[0] // FURTHER >= SHORTEST:
        contexts.insert(0, contexts[0] // FURTHER)
    return contexts


def extrapolation(run: Run, tokens: Tensor, longest: Tensor) -> dict[str, Any]:
    """Average the bits per token at each context, on the same tokens.

    ``longest`` (pieces, n) are the bits at the longest of the contexts, which are known already. ``bits`` are those of
    the frequencies as trained, ``bits_current_N`` at the longest context those of its own frequencies: None at the
    others, and for a method without rotary embeddings. Source: CS-F2, CS-N.
    """
    *shorter, last = contexts_of(run.task.context)
    mean = lambda bits: round(float(bits.mean()), 5)  # noqa: E731
    means, current = [*(mean(bits_of(run, tokens, context)) for context in shorter), mean(longest)], None
    if any(isinstance(layer.turning, Rotary) for layer in run.model.attentions):
        with frequencies_of(run.model, last):
            current = mean(bits_of(run, tokens, last))
    return {"contexts": [*shorter, last], "bits": means, "bits_current_N": [None] * len(shorter) + [current]}


# For the most part names are words of three letters or more that are capitalised inside a sentence.
NAME = re.compile(rb"(?:(?<=[a-z,;]\s)|(?<=Mr. )|(?<=Mrs. )|(?<=Dr. )|(?<=Miss ))[A-Z][a-z]{2,}")


def mentions(text: bytes) -> Iterator[tuple[int, int, int]]:
    """Find where each name of a text starts and ends, and the distance to its last mention (0: none)."""
    last: dict[bytes, int] = {}
    for match in NAME.finditer(text):
        word, (start, end) = match.group(), match.span()
        yield start, end, start - last.get(word, start)
        last[word] = start


def names(tokens: Tensor, bits: Tensor, context: int) -> dict[str, Any]:
    """Average the bits of names after their first letter, by the distance to the last mention in the window.

    ``tokens`` (pieces, n + 1) are bytes, ``bits`` of ``bits_of``. ``distance`` has the starts of buckets in bytes, bits
    the mean over a bucket's names of their mean bits per byte, or None; first_* are those of names new in the window.
    """
    means, distances = [], []
    for piece, row in zip(tokens, bits):
        for first in range(0, len(row), context):
            # A window predicts each of its bytes but the first, and one more: bits[i] are those of byte i + 1.
            for start, end, distance in mentions(bytes(piece[first : first + context + 1].tolist())):
                means.append(float(row[first + start : first + end - 1].mean()))
                distances.append(distance)
    starts = [1, *(2**i for i in range(4, (context - 1).bit_length()))]
    bucket = torch.bucketize(torch.tensor(distances, dtype=torch.long), torch.tensor([0, *starts]), right=True) - 1
    inside = [torch.tensor(means)[bucket == i] for i in range(1 + len(starts))]
    unseen, *found = [round(float(each.mean()), 5) if len(each) else None for each in inside]
    new = {"first_bits": unseen, "first_count": len(inside[0])}
    return {"context": context, "distance": starts, "bits": found, "count": [*map(len, inside[1:])], **new}


@contextmanager
def layer_inputs(layers: Sequence[nn.Module]) -> Iterator[list[tuple[Any, ...]]]:
    """Collect, inside the context, the arguments of each layer's forward pass, in the order of the calls."""
    found: list[tuple[Any, ...]] = []
    handles = [layer.register_forward_pre_hook(lambda _, given: found.append(given)) for layer in layers]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def gates_and_rates(run: Run, tokens: Tensor) -> dict[str, Any]:
    """Compute statistics of gates and of rotation rates by layer and head; nothing where the method has neither.

    Of gates: mean, quantiles (5, 50 and 95 %) and memory, how many tokens the last one of a piece remembers: the sum
    over all tokens of what the gates after them leave. Source: CS-gate, CS-beta, CS-GATE0.
    """
    kept: dict[str, Any] = defaultdict(lambda: defaultdict(list))
    levels = torch.tensor([0.05, 0.5, 0.95]).double()
    with layer_inputs(run.model.attentions) as inputs:
        run.scores(tokens.to(run.device))
    keep = lambda part, name, values: kept[part][name].append(significant(values, 6))  # noqa: E731
    for layer, (given,) in zip(run.model.attentions, inputs):
        x = given.float()
        if (found := layer.log_gates(x)) is not None:
            logs = found.double().cpu().transpose(0, 1)  # (heads, pieces, tokens)
            flat, after = logs.exp().flatten(1), logs.flip(-1).cumsum(-1) - logs.flip(-1)
            few = flat[:, :: 1 + flat.shape[1] // 100_000]  # torch sorts no more than 16 million
            keep("gates", "mean", flat.mean(-1))
            keep("gates", "quantiles", few.quantile(levels, -1))
            keep("gates", "memory", after.exp().sum(-1).mean(-1))
        if isinstance(layer.turning, DataRotation):
            flat = layer.turning.rates(x).double().cpu().transpose(0, 1).flatten(1)
            keep("rates", "mean", flat.mean(-1))
            keep("rates", "std", flat.std(-1))
    return kept


@torch.no_grad()
def generate(model: GPT, prompt: Tensor, count: int, temperature: float = 1.0, seed: int = 0) -> Tensor:
    """Sample tokens that continue a prompt (tokens,), one at a time, by a seed: (count,) of int64 on the CPU."""
    require(temperature > 0, "temperature", temperature, "it must be above 0; a small one takes the likeliest token")
    generator = torch.Generator().manual_seed(seed)
    tokens, states, made = prompt, None, list[int]()
    for _ in range(count):
        scores, states = model.resume(tokens[None].to(prompt.device), states)
        shares = (scores[0, -1].float().cpu() / temperature).softmax(-1)
        tokens = torch.multinomial(shares, 1, generator=generator)
        made.append(int(tokens))
    return torch.tensor(made, dtype=torch.long)


def state_numbers_of(model: GPT) -> int | None:
    """Count the numbers that the model hands from one token to the next; None where they grow with the tokens."""
    first, heads = model.attentions[0], sum(layer.heads for layer in model.attentions)
    by_kernel = {"softmax": None, "power": state_numbers(first.dim, first.power), "linear": first.dim * (first.dim + 1)}
    each = by_kernel[first.kernel]
    return each and heads * each
