"""What the forms share: the precision and the units they compute in, and the checks of their arguments."""

from collections.abc import Iterable
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from geolib._checks import check_even, check_floating, check_whole, readable, require, wide
from geolib._compile import exported_up_to

UNIT, SMALL = 64, 16
"""State.exponent is a multiple of the first: 0 while the largest entry of K, to the power p, is 2^-16 to 2^48."""

RESET = -1e4
"""A log gate at or below it is a reset, as -inf is: the gate and its p-th root are 0 in every dtype."""

SHORT = 64
"""Up to so many tokens powers from 4 on go through the state in float64: there few keys count."""

FEW = 16
"""With fewer keys than that in the state, by what the gates leave of them, powers from 4 on do so, too."""


class Sums(NamedTuple):
    """What an engine of the chunked form returns."""

    total: Tensor  # (batch, heads, tokens, value_dim + 1): sum_j B_ij [V_j, 1]
    last: Tensor  # (batch, heads, value_dim + 1, D): S and Z after the last token
    floor: Tensor  # (batch, heads, tokens): below it a normaliser consists of rounding errors


class GateSums(NamedTuple):
    """Sums of log gates along the tokens, begun again at each reset, and from which token on keys count."""

    sums: Tensor  # (..., tokens), as ``wide``: over the gates after the last reset
    first: Tensor  # (..., tokens): the token of the last reset, -1 where there is none


def gate_sums(log_gates: Tensor) -> GateSums:
    """What log gates (..., tokens) add up to. A reset adds nothing and has no derivative: what it hides is hidden."""
    gates = wide(log_gates).contiguous()  # what a compiler expects of the strides of scans holds for these alone
    reset = gates <= RESET
    total = torch.where(reset, 0.0, gates).cumsum(-1)
    index = torch.arange(gates.shape[-1], device=gates.device)
    first = torch.where(reset, index, -1).cummax(-1).values
    before = torch.where(first < 0, 0.0, total.gather(-1, first.clamp(min=0)))
    return GateSums(total - before, first)


def decay_of(gates: GateSums) -> Tensor:
    """G_i - G_j on and below the diagonal, -inf above it and for keys before the query's last reset."""
    sums, first = gates
    index = torch.arange(sums.shape[-1], device=sums.device)
    hidden = (index > index[:, None]) | (index < first[..., None])
    return (sums[..., :, None] - sums[..., None, :]).masked_fill(hidden, float("-inf"))


def sides(gates: GateSums | None, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What gates keep from the chunk's start to a token and from there to its end; log of what a whole chunk keeps."""
    if gates is None:
        one = q.new_ones(q.shape[:3])
        return one, one, torch.zeros_like(one[..., 0])
    (sums, first), lost = gates, float("-inf")
    index = torch.arange(sums.shape[-1], device=sums.device)
    to_end = (sums[..., -1:] - sums).masked_fill(index < first[..., -1:], lost).exp()
    return sums.masked_fill(first >= 0, lost).exp(), to_end, sums[..., -1].masked_fill(first[..., -1] >= 0, lost)


def cut(t: Tensor, chunk: int) -> Tensor:
    """(batch, heads, tokens, features) as (heads, chunks, chunk, features), zeros after the last token."""
    if chunk == t.shape[2]:  # in an exported graph a length that varies has no remainder
        return t.flatten(0, 1)[:, None]
    t = nn.functional.pad(t.flatten(0, 1), (0, 0, 0, -t.shape[2] % chunk))
    return t.unflatten(1, (-1, chunk))


def precise(
    q: Tensor, dtype: torch.dtype, tokens: int, power: int, chunk: int = 1, log_gates: Tensor | None = None
) -> torch.dtype:
    """The dtype of what goes through the state, which is read after every ``chunk`` tokens.

    A state loses a power of a score below float32's epsilon times the lengths to that power. From the fourth on that
    is met among few keys: of two random ones with 16 features, in 4 heads of 1,000.
    """
    if power < 4:
        return dtype
    few = exported_up_to(tokens) is not None or tokens <= SHORT or fewest_keys(tokens, chunk, log_gates) < FEW
    return wide(q.new_empty(0)).dtype if few else dtype


def fewest_keys(tokens: int, chunk: int, log_gates: Tensor | None) -> float:
    """How many keys a state holds at the end of a chunk, by what the gates leave of them: the fewest of all heads.

    The state before the first chunk is not looked at. Where gates may not be read, they count as 1.
    """
    if chunk < FEW or log_gates is None or not readable(log_gates):
        return min(chunk, tokens)
    count, fewest = log_gates.new_zeros(()), float(tokens)
    for gates in log_gates.detach().split(chunk, -1):
        _, to_end, whole = sides(gate_sums(gates), gates)
        count = whole.exp() * count + to_end.sum(-1)
        fewest = min(fewest, float(count.min()))
    return fewest


def in_parts(sums: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Sums in float64 for computations in a dtype: as they are in float64, else in two parts of float32.

    Near one another the large parts have an exact difference, and the small ones hold what they lack.
    """
    if dtype == torch.float64:
        return (sums,)
    large = sums.float()
    return large, (sums - large).float()


def read_twice(parts: Iterable[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Each part for queries, and a copy of it for keys: FlexAttention derives by a tensor that is indexed once."""
    return [(part, part.clone()) for part in parts]


def following(q: Tensor, k: Tensor, sums: Tensor, power: int) -> tuple[Tensor, Tensor]:
    """The same queries and keys, times factors that are 1 and have the derivative by sums of log gates.

    b_ij multiplies Q_i by exp(G_i / p) and K_j by exp(-G_j / p): no sum over pairs is needed for it.
    """
    rate = ((sums - sums.detach()) / power).to(q.dtype)[..., None]
    return q * (1 + rate), k * (1 - rate)


def unit(q: Tensor, power: int) -> tuple[Tensor, Tensor]:
    """Queries at length 1, and p log of their length: it changes the normaliser and not the output.

    The length counts as a constant in derivatives. That is exact, because its effect cancels.
    """
    length = torch.linalg.vector_norm(q.detach(), dim=-1, dtype=wide(q.new_empty(0)).dtype)
    length = torch.where(length == 0, 1.0, length).to(q.dtype)
    return q / length[..., None], power * length.log()


def exponent_of(k: Tensor, before: Tensor, power: int) -> Tensor:
    """The unit in which the p-th power of the largest entry of K is 2^-16 to 2^48, or the state's where that is larger.

    More room above than below: sums of many keys are larger, pairs of nearly orthogonal vectors far smaller.
    """
    largest = torch.linalg.vector_norm(k.detach(), float("inf"), dim=(-2, -1))
    binade = torch.frexp(largest).exponent - 1  # floor of log2
    # In whole numbers: divided, they would come in the dtype of new tensors, and take K with them.
    return torch.maximum(before, UNIT * ((binade * power + SMALL) // UNIT))


def above_rounding(normaliser: Tensor, floor: Tensor) -> Tensor:
    """A normaliser read from a state, or the floor of its rounding errors where it is less and not exactly 0."""
    return torch.where(normaliser == 0, 0.0, torch.maximum(normaliser, floor))


def normalised(value: Tensor, normaliser: Tensor, log_scale: Tensor) -> tuple[Tensor, Tensor]:
    """value / normaliser, 0 where that is exactly 0; the logarithm of the normaliser with a factor put back."""
    nothing = normaliser == 0
    divisor = torch.where(nothing, 1.0, normaliser)
    logarithm = torch.where(nothing, float("-inf"), (divisor.log() + log_scale).to(log_scale.dtype))
    return torch.where(nothing[..., None], 0.0, value / divisor[..., None]), logarithm


def finite_part(v: Tensor, log_gates: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Values (..., tokens, width) with 0 for what is not finite, and what to add to all tokens that see it.

    In a product with a square of weights NaN and infinity reach every row, through weights of 0 too. What is added
    counts as a constant in derivatives. Behind a reset it is not seen.
    """
    finite = v.isfinite()
    if readable(v) and bool(finite.all()):
        return v, v.new_zeros(()).expand_as(v)
    # Along rows of the transpose: down the columns a processor takes three times as long.
    spoilt = torch.where(finite, 0.0, v.detach()).mT.cumsum(-1).mT
    if log_gates is not None:
        first = gate_sums(log_gates.detach()).first[..., None].expand_as(v)
        count = (~finite).mT.cumsum(-1).mT
        earlier = (count - (~finite).long()).gather(-2, first.clamp(min=0))
        spoilt = torch.where(count > torch.where(first < 0, 0, earlier), spoilt, 0.0)
    return torch.where(finite, v, 0.0), spoilt


def power_of(x: Tensor, power: int) -> Tensor:
    """x^p by repeated squaring: exact signs, no logarithm, a derivative at 0."""
    if power == 1:
        return x.clone()
    half = power_of(x, power // 2) if power > 3 else x
    return half * half if power % 2 == 0 else half * half * x


def check_power(power: Any) -> None:
    """An even whole number of at least 2."""
    even = isinstance(power, Integral) and int(power) >= 2 and int(power) % 2 == 0
    require(even, "power", power, "it must be a whole number, even and at least 2, so that no weight is negative")


def check_count(came: Any, argument: str) -> None:
    """A whole number of at least 1."""
    check_whole(came, argument)
    require(came >= 1, argument, came, "it must be a whole number of at least 1")


def check_gates(log_gates: Tensor, shape: tuple[int, ...]) -> None:
    """Log gates of one shape, at most 0, -inf for a reset; on a GPU and in a graph the numbers are not read back."""
    check_floating(log_gates, "log_gates")
    require(log_gates.shape == shape, "log_gates", log_gates.shape, lambda: f"it must be {shape}")
    if readable(log_gates):
        allowed = "gates lie in [0, 1]: logarithms at most 0, -inf where all that came before is forgotten"
        require(bool((log_gates <= 0).all()), "log_gates", "a number above 0 or NaN", allowed)


def check_forms(q: Tensor, k: Tensor, v: Tensor, power: int, log_gates: Tensor | None, turns: Tensor | None) -> None:
    """The arguments that all forms take."""
    check_power(power)
    for tensor, name in ((q, "q"), (k, "k"), (v, "v")):
        check_floating(tensor, name)
    allowed = "it must be (batch, heads, tokens, d), of at least one head and one feature"
    require(q.dim() == 4 and q.shape[1] * q.shape[3] > 0, "q", q.shape, allowed)
    require(k.shape == q.shape, "k", k.shape, lambda: f"it must be q's, {tuple(q.shape)}")
    fits = v.dim() == 4 and v.shape[:3] == q.shape[:3] and v.shape[3] > 0
    require(fits, "v", v.shape, lambda: f"it must be {(*q.shape[:3], 'value_dim')}")
    if log_gates is not None:
        check_gates(log_gates, tuple(q.shape[:3]))
    if turns is not None:
        check_floating(turns, "turns")
        check_even(q.shape[-1], "q's last dimension")
        wanted = (*q.shape[:-1], q.shape[-1] // 2)
        require(turns.shape == wanted, "turns", turns.shape, lambda: f"it must be {wanted}")
