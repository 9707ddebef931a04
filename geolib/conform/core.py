"""What a law is, and what a target is."""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

ABOUT: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("laws.toml").read_text("utf-8"))
CHECKS: dict[str, Callable[..., str | None]] = {}
ABSENT: Any = None


class Broken(AssertionError):
    """A law does not hold for an input."""


class NotApplicable(Exception):
    """A law says nothing about a target, for this reason."""


class CannotTry(Exception):
    """A law cannot be tried on this machine, for this reason."""


class Target:
    """The base class of adapters, which say how a library's method is made, and what it can do.

    An adapter overrides ``make`` and those of the methods below that its library has; a law that needs another one
    does not apply. Shapes: queries, keys and values (batch, heads, tokens, head_dim), layer inputs (batch, tokens,
    width), masks of bool, True where a query may see a key.

    - ``turn(module, q, k, positions)``: queries and keys carried by their positions, (tokens,) or (tokens, axes).
    - ``grid(module, x, height, width)``: vectors of the cells of a grid in reading order, carried by their cells.
    - ``prefix(module, x, height, width, count)``: the same behind ``count`` tokens without a place.
    - ``count(module, x, offset)``: vectors carried by the positions offset, offset + 1, ...
    - ``resample(module, table, old, new)``: a table (rows, columns, width) for another grid, both (height, width).
    - ``attend(module, q, k, v, positions, mask)``: attention; a ``mask`` is (batch or 1, 1, queries, keys).
    - ``causal(module, q, k, v)``, ``windowed(module, q, k, v, window)``: attention to the last tokens, the own one
      among them; there may be fewer queries than keys, the last ones.
    - ``run(module, x, cache, positions, mask)``: one causal layer that returns its output and its cache; cache None
      is empty, positions (batch, tokens) and mask (batch, keys) or (batch, 1, queries, keys) may be None.
      ``positioned``, ``padded``, ``masked`` say which it takes, ``stateful`` that padding takes no place.
      ``static(module, batch, slots)``: a cache with empty slots. ``keep(cache, index)``: a cache of these tokens
      alone. ``join(caches)``: one cache of several.
    - ``fill(module)``: what the library asks for after ``to_empty``.
    - ``forms(module)``: by name, functions (q, k, v, log_gates, state) to an output and a state; the first is the slow
      one. ``log_gates`` is (batch, heads, tokens), ``chunk`` the tokens in a chunk; ``stateless`` names forms without
      a state.
    """

    title = library = ""
    """What its column is called, and the distribution whose version is told."""
    heads, head_dim, axes, chunk = 2, 8, 1, 4
    layout: str | None = None
    """``interleaved`` or ``half-split`` where it is promised."""
    base: float | None = None
    """The base of its frequencies for texts, where these are promised to be RoPE's."""
    first_axis: str | None = None
    """What turns the first features, ``rows``, ``columns`` or ``both axes``, where it is promised."""
    positioned = padded = masked = stateful = False
    stateless: Sequence[str] = ()
    not_promised: dict[str, str] = {}  # noqa: RUF012
    """By law, what the library does not promise, and where its documentation or source says so."""
    turn = grid = prefix = count = resample = attend = causal = windowed = run = static = keep = join = forms = ABSENT
    fill = ABSENT

    def __init__(self, **told: Any):
        self.__dict__.update(told)

    def make(self) -> nn.Module | None:
        """A fresh module; None for functions."""
        return None

    def cast(self, module: Any, dtype: torch.dtype) -> Any:
        """The module in another dtype, as its library makes it."""
        return module.to(dtype) if isinstance(module, nn.Module) else module

    @property
    def name(self) -> str:
        """What its column is called."""
        return self.title or type(self).__name__

    @property
    def version(self) -> str:
        """The version of its library, or nothing where that is not installed."""
        return next((found.version for found in distributions(name=self.library or "-")), "")

    def has(self, ability: str) -> bool:
        """Whether the adapter can do this."""
        return all(getattr(self, part) not in (None, False) for part in ability.split("+"))

    def made(self) -> Any:
        """A module made under a fixed seed, as every law begins."""
        torch.manual_seed(0)
        module = self.make()
        return module.eval() if isinstance(module, nn.Module) else module


@dataclass(frozen=True)
class Law:
    """A statement about every module with certain abilities, and its cases from small to large, as in ``laws.toml``."""

    name: str
    check: Callable[..., str | None]
    group: str
    theorem: str
    needs: Sequence[str]
    """Abilities of which one is needed, joined by + where several are needed together."""
    cases: Sequence[dict[str, Any]] = ({},)
    met: str = ""
    thread: str = ""
    """Where somebody met the fault in public, if that was found."""
    says: str = ""
    """The law in a sentence, where the docstring of what checks it speaks of several."""

    @property
    def statement(self) -> str:
        """The law in a sentence."""
        return self.says or (self.check.__doc__ or "").partition("\n")[0]

    def applies(self, target: Target) -> bool:
        """Whether the target has an ability that it needs."""
        return any(target.has(ability) for ability in self.needs)


@dataclass
class Outcome:
    """What came of a law for a target, why, and the smallest failing input as a program."""

    law: str
    outcome: str
    why: str
    snippet: str
    seconds: float
    """Of the processor."""


def law(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter what checks a law of ``laws.toml``."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        CHECKS[name] = function
        return function

    return enter


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal numbers that depend on the seed and the shape alone."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def near(got: Tensor, wanted: Tensor, what: str, atol: float = 1e-5) -> None:
    """Broken where two results differ by more than ``atol`` times the largest number of the wanted one, or 1."""
    if got.shape != wanted.shape:
        raise Broken(f"{what}: shapes {tuple(got.shape)} and {tuple(wanted.shape)}")
    if not got.numel():
        return
    away = (got.detach().double() - wanted.detach().double()).abs()
    bound = atol * max(1.0, wanted.detach().double().abs().max().item())
    if not bool((away <= bound).all()):
        worst = away.nan_to_num(nan=float("inf")).flatten().argmax().item()
        index = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), away.shape))
        a, b = got[index].item(), wanted[index].item()
        raise Broken(f"{what}: {a:.6g} is not {b:.6g}, at {index}; {bound:.1g} is allowed")
