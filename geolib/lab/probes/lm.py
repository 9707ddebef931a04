"""What a trained reader of documents has learned: how far back it looks, what it forgets, and how it goes on alone.

Everything is measured on pieces of the documents tested on, all cut from the same places, so that two records of one
data set stand beside each other byte by byte.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geolib.lab.data.documents import pieces
from geolib.lab.gpt import GPT
from geolib.lab.text_attention import Rotary, TurnedByData
from geolib.lab.train import DocumentRun
from geolib.rotations import document_frequencies

FURTHER = 4  # a model is read out at this many times its training context, and at such parts of it
_SHORTEST = 64  # the shortest context that it is read out at
PIECE, READ = 4096, 2**17  # tokens of a piece, longer where the context asks for it, and of all pieces at most
PROMPT, GENERATED, TEMPERATURE = 120, 240, 0.7
TOKENS = 8192  # read at a time


@torch.no_grad()
def bits_of(run: DocumentRun, tokens: Tensor, context: int) -> Tensor:
    """The bits of each token but the first, (pieces, n), read in windows of a context that divides n.

    What came before a window is not seen in it.
    """
    inputs, following = (t.reshape(-1, context).to(run.device) for t in (tokens[:, :-1], tokens[:, 1:]))
    rows = []
    for x, y in zip(*(t.split(max(1, TOKENS // context)) for t in (inputs, following))):
        rows.append(F.cross_entropy(run.scores(x).mT, y, reduction="none") / math.log(2))
    return torch.cat(rows).view(len(tokens), -1).cpu()


@contextmanager
def frequencies_of(model: GPT, longest: float) -> Iterator[None]:
    """Inside, rotations turn by the frequencies of another longest document.

    Source: CS-N.
    """
    turning = [layer.turning for layer in model.attentions if isinstance(layer.turning, Rotary)]
    before = [each.frequencies.clone() for each in turning]
    try:
        for each in turning:
            each.frequencies.copy_(document_frequencies(2 * len(each.frequencies), longest))
        yield
    finally:
        for each, kept in zip(turning, before):
            each.frequencies.copy_(kept)


def doublings(limit: int, first: int = 1) -> list[int]:
    """first, 2 first, 4 first ... below a limit.

    >>> doublings(8)
    [1, 2, 4]
    """
    found = []
    while first < limit:
        found.append(first)
        first *= 2
    return found


def _in_buckets(values: Tensor, places: Tensor, starts: list[int]) -> tuple[list[float | None], list[int]]:
    """The mean of values whose place is in each bucket, from a start up to the next, and how many there are.

    >>> _in_buckets(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 1, 3]), [0, 1, 8])
    ([1.0, 3.0, None], [1, 2, 0])
    """
    number = torch.bucketize(places, torch.tensor(starts), right=True) - 1
    counts = [int((number == i).sum()) for i in range(len(starts))]
    means = [round(float(values[number == i].mean()), 5) if n else None for i, n in enumerate(counts)]
    return means, counts


# How far back it looks ----------------------------------------------------------------------------------------------


def contexts_of(trained: int) -> list[int]:
    """The contexts that a model is read out at.

    >>> contexts_of(1024)
    [64, 256, 1024, 4096]
    """
    shorter = [trained]
    while shorter[-1] % FURTHER == 0 and shorter[-1] // FURTHER >= _SHORTEST:
        shorter.append(shorter[-1] // FURTHER)
    return [*reversed(shorter), FURTHER * trained]


def extrapolation(run: DocumentRun, tokens: Tensor, longest: Tensor) -> dict[str, Any]:
    """Bits a token by the context that it is read in, on the same tokens; beyond the training context, twice.

    ``longest`` (pieces, n) are the bits at the longest of the contexts, which are known already. ``bits`` has the
    frequencies as trained, ``bits_current_N`` those of each longer context: None for a method without rotations, and up
    to the training context.

    Source: CS-F2, CS-N.
    """
    contexts = contexts_of(run.context)
    turns = any(isinstance(layer.turning, Rotary) for layer in run.model.attentions)
    bits, current = [], list[float | None]()
    for context in contexts:
        own = longest if context == contexts[-1] else bits_of(run, tokens, context)
        bits.append(round(float(own.mean()), 5))
        if context <= run.context or not turns:
            current.append(None)
            continue
        with frequencies_of(run.model, context):
            current.append(round(float(bits_of(run, tokens, context).mean()), 5))
    return {"contexts": contexts, "bits": bits, "bits_current_N": current}


def by_position(bits: Tensor, context: int) -> dict[str, Any]:
    """Bits by the position in the window, in buckets that begin at 0, 1, 2, 4, ...

    Source: CS-F2.
    """
    starts = [0, *doublings(context)]
    places = torch.arange(context).repeat(bits.numel() // context)
    means, counts = _in_buckets(bits.flatten(), places, starts)
    return {"context": context, "from": starts, "bits": means, "count": counts}


# Names --------------------------------------------------------------------------------------------------------------

NAME = re.compile(rb"(?:(?<=[a-z,;]\s)|(?<=Mr. )|(?<=Mrs. )|(?<=Dr. )|(?<=Miss ))[A-Z][a-z]{2,}")


class _Mention(NamedTuple):
    """A capitalised word inside a sentence: where it starts and ends, and how far back it was last mentioned."""

    start: int
    end: int
    distance: int | None


def mentions(text: bytes) -> list[_Mention]:
    """The names of a text, for the most part: words of three letters or more, capitalised inside a sentence.

    >>> [(m.start, m.distance) for m in mentions(b"and Emma saw Harriet, so Emma went")]
    [(4, None), (13, None), (25, 21)]
    """
    last: dict[bytes, int] = {}
    found = []
    for match in NAME.finditer(text):
        word, start = match.group(), match.start()
        found.append(_Mention(start, match.end(), start - last[word] if word in last else None))
        last[word] = start
    return found


def names(tokens: Tensor, bits: Tensor, context: int) -> dict[str, Any]:
    """Bits of names after their first letter, by how far back the name was last mentioned in the window.

    ``tokens`` (pieces, n + 1) are bytes; ``bits`` (pieces, n) those of every byte but the first, read in windows of the
    context. ``distance`` has the starts of buckets in bytes; ``bits`` the mean over a bucket's names of their mean bits
    a byte, None in an empty one; first_bits and first_count are those of names that the window has not mentioned
    before.
    """
    means, distances = [], []
    for piece, row in zip(tokens, bits):
        for start in range(0, len(row), context):
            # A window reads the bytes start ... start + context - 1 and tells each but the first, and one more.
            window = bytes(piece[start : start + context + 1].tolist())
            for mention in mentions(window):
                told = row[start + mention.start : start + mention.end - 1]  # bits[i] are those of byte i + 1
                means.append(float(told.mean()))
                distances.append(mention.distance or 0)
    starts = [1, *doublings(context, 16)]
    values, counts = _in_buckets(torch.tensor(means), torch.tensor(distances, dtype=torch.long), [0, *starts])
    return {
        "context": context,
        "distance": starts,
        "bits": values[1:],
        "count": counts[1:],
        "first_bits": values[0],
        "first_count": counts[0],
    }


# What it forgets ----------------------------------------------------------------------------------------------------


@contextmanager
def inputs_noted(layers: Sequence[nn.Module]) -> Iterator[list[tuple[Any, ...]]]:
    """Inside, what each layer is given is noted as the model itself meets it, not by a copy of its forward pass."""
    noted: list[tuple[Any, ...]] = []
    handles = [layer.register_forward_pre_hook(lambda _, given: noted.append(given)) for layer in layers]
    try:
        yield noted
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def gates_and_rates(run: DocumentRun, tokens: Tensor) -> dict[str, Any]:
    """Statistics of gates and of rotation rates by layer and head; nothing where the method has neither.

    Of gates: mean, quantiles (5, 50 and 95 %) and memory, how many tokens the last one of a piece remembers: the sum
    over all tokens of what the gates after them leave.

    Source: CS-gate, CS-beta, CS-GATE0.
    """
    kept: dict[str, Any] = {}
    gates, rates = [], []
    with inputs_noted(run.model.attentions) as inputs:
        run.scores(tokens.to(run.device))
    for layer, (given,) in zip(run.model.attentions, inputs):
        x = given.float()
        if (logs := layer.log_gates(x)) is not None:
            gates.append(logs.double().cpu().transpose(0, 1))  # (heads, pieces, tokens)
        if isinstance(layer.turning, TurnedByData):
            rates.append(layer.turning.rates(x).double().cpu().transpose(0, 1).flatten(1))
    if gates:
        flat = [logs.exp().flatten(1) for logs in gates]
        left = [(logs.flip(-1).cumsum(-1) - logs.flip(-1)).exp().sum(-1).mean(-1) for logs in gates]
        kept["gates"] = {
            "mean": [_numbers(g.mean(-1)) for g in flat],
            "quantiles": [[_numbers(row) for row in _quantiles(g)] for g in flat],
            "memory": [_numbers(each) for each in left],
        }
    if rates:
        kept["rates"] = {"mean": [_numbers(r.mean(-1)) for r in rates], "std": [_numbers(r.std(-1)) for r in rates]}
    return kept


def _quantiles(gates: Tensor) -> Tensor:
    """The levels 5, 50 and 95 % of each row of (heads, tokens), (3, heads); of every few where there are very many."""
    few = gates[:, :: 1 + gates.shape[1] // 100_000]
    return few.quantile(torch.tensor([0.05, 0.5, 0.95], dtype=gates.dtype), -1)


def _numbers(values: Tensor) -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]


# How it goes on alone -----------------------------------------------------------------------------------------------


@torch.no_grad()
def generate(model: GPT, prompt: Tensor, count: int, temperature: float = 1.0, seed: int = 0) -> Tensor:
    """Tokens that go on from a prompt (tokens,), one at a time from what the layers carry: (count,) of int64.

    A temperature of 0 takes the most likely token; ``seed`` is that of the draws.
    """
    draw = torch.Generator().manual_seed(seed)
    scores, carries = model.resume(prompt[None])
    tokens: list[Tensor] = []
    for _ in range(count):
        row = scores[0, -1].float().cpu()
        if temperature == 0:
            token = row.argmax(keepdim=True)
        else:
            token = torch.multinomial((row / temperature).softmax(-1), 1, generator=draw)
        tokens.append(token)
        if len(tokens) < count:
            scores, carries = model.resume(token[None].to(prompt.device), carries)
    return torch.cat(tokens) if tokens else torch.zeros(0, dtype=torch.long)


def state_numbers_of(model: GPT) -> int | None:
    """How many numbers the model carries from one token to the next; None where they grow with the tokens."""
    each = [layer.kernel.numbers(layer.dim) for layer in model.attentions]
    heads = [layer.heads for layer in model.attentions]
    return None if None in each else sum(n * h for n, h in zip(each, heads) if n is not None)


def after_reading(run: DocumentRun) -> dict[str, Any]:
    """What a record keeps of a trained reader beside its metrics.

    extrapolation, position and names (``extrapolation``, ``by_position``, ``names``), the latter two at the longest
    context of the first; gates and rates where there are any; state_numbers (None: they grow), parameters; of bytes,
    sample: a prompt from the first document tested on and what the model made of it.

    Source: CS-F2, CS-N, CS-size.
    """
    run.model.eval()
    longest = FURTHER * run.context
    tokens = pieces(run.data.test, max(longest, PIECE), 2)
    tokens = tokens[: max(2, READ // tokens.shape[1])]
    bits = bits_of(run, tokens, longest)
    kept = {
        "extrapolation": extrapolation(run, tokens[::2], bits[::2]),
        "position": by_position(bits, longest),
        "state_numbers": state_numbers_of(run.model),
        "parameters": sum(p.numel() for p in run.model.parameters()),
    }
    kept |= gates_and_rates(run, tokens[:, : run.context])
    kept["names"] = names(tokens, bits, longest)
    prompt = tokens[0, :PROMPT].to(run.device)
    text = bytes(generate(run.model, prompt, GENERATED, TEMPERATURE).tolist())
    kept["sample"] = {"prompt": _text(bytes(prompt.tolist())), "text": _text(text)}
    return kept


def _text(text: bytes) -> str:
    return text.decode("utf-8", "replace")
