"""The registry that names the methods, and builds them for a model's width, heads, layers and grid."""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from geolib._checks import check_positive, require
from geolib._precision import numbered, wide_default
from geolib.attention import Encoding
from geolib.conformal import SCALE_LAWS
from geolib.connection.compass import TRANSPORTS, Compass
from geolib.encodings import riemannformer
from geolib.encodings.bias import ALiBi, GaussianGate, LocalityFocusing, ManhattanDecay, PerLayerFocusing
from geolib.encodings.composite import Composed, PerLayer
from geolib.encodings.embedded import Learned, Sinusoidal, check_grid
from geolib.encodings.liere import LieRE, SphericalRoPE
from geolib.encodings.rotary import RoPE
from geolib.encodings.sympow import PowerScores, SympowEncoding
from geolib.lie import check_width, entry_count, mixed_frequencies, uniform_entries
from geolib.locality import MANHATTAN_SLOPES
from geolib.recurrence import GATE_BIAS
from geolib.rotations import alternating_frequencies, axial_frequencies, document_frequencies, language_frequencies

__all__ = ["METHODS", "WRAPPERS", "Setting", "build", "check_name", "is_name", "options_of"]


@dataclass(frozen=True)
class Setting:
    """What a model tells a method about the place it will work in.

    >>> Setting(width=64, heads=4, grid=(8, 8)).head_dim
    16
    """

    width: int
    heads: int
    grid: tuple[int, ...]
    layers: int | None = None

    @property
    def head_dim(self) -> int:
        """Features of one head."""
        return self.width // self.heads

    @property
    def axes(self) -> int:
        """Number of position coordinates."""
        return len(self.grid)


def _rope(setting: Setting, base: float = 10000.0) -> RoPE:
    """One-dimensional RoPE; a token of a grid is placed by its index in reading order."""
    return RoPE(_in_reading_order(language_frequencies(setting.head_dim, base), setting))


def _in_reading_order(frequencies: Tensor, setting: Setting) -> Tensor:
    """Frequencies of one axis, (pairs, 1), for a grid whose cells count in reading order, (pairs, axes)."""
    # The index of a cell is linear in its coordinates, so reading order is one more frequency matrix.
    cells = [float(math.prod(setting.grid[i + 1 :])) for i in range(setting.axes)]
    return frequencies * torch.tensor(cells, dtype=frequencies.dtype)


def _sympow_gates(setting: Setting, longest: float = 65536.0, gate_bias: float = GATE_BIAS) -> SympowEncoding:
    """Data-dependent gates along the tokens' order, and the frequencies of the longest document."""
    frequencies = _in_reading_order(document_frequencies(setting.head_dim, longest), setting)
    return SympowEncoding(setting.width, setting.heads, frequencies, gate_bias)


def _compass(setting: Setting, transport: str = "paths", vectors: int = 3) -> Compass:
    """Turns read from the layer's input, shared by all layers."""
    require(transport in TRANSPORTS, "transport", repr(transport), f"the transports are {', '.join(TRANSPORTS)}")
    return TRANSPORTS[transport](setting.width, setting.heads, setting.grid, vectors)


def _riemannian(
    method: type[riemannformer.RiemannFormer],
    setting: Setting,
    base: float = 100.0,
    law: str = "bounded",
    law_options: dict[str, float] | None = None,
    far: float = 0.9,
    learn_angles: bool = False,
    per_head: bool = True,
    per_layer: bool = False,
) -> Encoding:
    """Scales that begin so that the metric at the far end of the longest axis is ``far`` times that at the origin.

    Angles are such that all the methods' scores turn alike: mirrors turn half as far as frames that rotate.
    """
    require(law in SCALE_LAWS, "law", repr(law), f"the scale laws are {', '.join(SCALE_LAWS)}")
    check_positive(far, "far")
    scale_law = SCALE_LAWS[law](**(law_options or {}))
    frequencies = axial_frequencies(setting.head_dim, setting.axes, base) / method.turns
    heads = setting.heads if per_head else 1
    start = far ** (1 / float(scale_law.exponent(torch.tensor(max(max(setting.grid) - 1.0, 1.0)))))
    make = partial(method, frequencies, heads, start, scale_law, learn_angles)
    return PerLayer(make() for _ in range(setting.layers or 1)) if per_layer else make()


def _focused(
    encoding: Encoding,
    setting: Setting,
    sigma: float | None = None,
    per_position: bool = False,
    per_layer: bool = False,
    learn_precision: bool = True,
    method: type[LocalityFocusing] = LocalityFocusing,
) -> Encoding:
    """Widths that begin at half of the longest axis."""
    width = max(setting.grid) / 2 if sigma is None else sigma
    tokens = math.prod(setting.grid) if per_position else 1

    def focusing(inside: Encoding) -> LocalityFocusing:
        return method(inside, setting.heads, setting.axes, width, tokens, learn_precision)

    if not per_layer:
        return focusing(encoding)
    return PerLayerFocusing(encoding, [focusing(Encoding()) for _ in range(setting.layers or 1)])


def _rope_pair(setting: Setting, turn: float = 0.5) -> RoPE:
    """One turning pair, the other features still: along each axis half as fast as along the one before."""
    return RoPE(turn * 0.5 ** torch.arange(setting.axes, dtype=wide_default())[None], rotary_dim=2)


def _manhattan(setting: Setting, slopes: str = "rmt") -> ManhattanDecay:
    """RMT's form, with its own slopes or, to compare the place alone, ALiBi's."""
    require(slopes in MANHATTAN_SLOPES, "slopes", repr(slopes), f"one of {', '.join(MANHATTAN_SLOPES)}")
    return ManhattanDecay(MANHATTAN_SLOPES[slopes](setting.heads), setting.axes)


def _visionllama(setting: Setting, base: float = 10000.0) -> RoPE:
    """Axes alternate from pair to pair; on a grid of another size, ``rescale_positions`` first."""
    # Pairs that do not fill a round of the axes (head_dim 64 in three dimensions) stay as they are.
    turned = setting.head_dim - setting.head_dim % (2 * setting.axes)
    rest = turned if turned < setting.head_dim else None
    return RoPE(alternating_frequencies(turned, setting.axes, base), rotary_dim=rest)


# What layers and heads share, by the rows of the paper's Table 2: (own per layer, own per head).
_SHARING = {"none": (True, True), "layers": (False, True), "heads": (True, False), "all": (False, False)}


def _owners(setting: Setting, share: str) -> tuple[int, int, int | None]:
    """How many layers and heads have generators of their own, and in how many layers they may be used at most."""
    require(share in _SHARING, "share", repr(share), f"one of {', '.join(_SHARING)}")
    by_layer, by_head = _SHARING[share]
    layers = setting.layers or (1 if by_layer else None)  # those of one layer in no second one
    return (layers or 1) if by_layer else 1, setting.heads if by_head else 1, layers


def _spherical(setting: Setting, base: float = 100.0) -> SphericalRoPE:
    """Frequencies of axial RoPE's base, one for each triple of features; at least three features a head."""
    triples = setting.head_dim // 3
    require(triples > 0, "heads", setting.heads, f"a head has {setting.head_dim} features; it needs at least 3")
    return SphericalRoPE(language_frequencies(2 * triples, base)[:, 0], setting.axes)


def _rope_mixed(setting: Setting, base: float = 10.0, share: str = "none") -> LieRE:
    """Block width 2, started from axial frequencies along one random direction for each layer and head."""
    axial = axial_frequencies(setting.head_dim, setting.axes, base)
    layers, heads, used = _owners(setting, share)
    return LieRE(-mixed_frequencies(axial, layers, heads)[..., None], 2, layers=used)


def _liere(setting: Setting, block: int | None = None, share: str = "none", scale: float = 2 * math.pi) -> LieRE:
    """Blocks of the given width (the whole head when None), started uniform on [0, scale)."""
    block = setting.head_dim if block is None else block
    check_width(setting.head_dim, block)
    layers, heads, used = _owners(setting, share)
    entries = uniform_entries(layers, heads, setting.head_dim // block, setting.axes, entry_count(block), high=scale)
    return LieRE(entries, block, layers=used, unit=[max(cells - 1, 1) for cells in setting.grid])


METHODS: dict[str, Callable[..., Encoding]] = {
    "none": lambda setting: Encoding(),
    "sinusoidal": lambda setting, base=10000.0: Sinusoidal(setting.width, setting.axes, base),
    "learned": lambda setting, std=1.0: Learned(setting.width, setting.grid, std),
    "rope": _rope,
    "rope-axial": lambda setting, base=100.0: RoPE.image(setting.head_dim, setting.axes, base),
    "alibi": lambda setting, slopes=None: ALiBi(setting.heads, slopes, setting.axes),
    "riemannformer": partial(_riemannian, riemannformer.RiemannFormer),
    "riemannformer-general": partial(_riemannian, riemannformer.RiemannFormerGeneral),
    "riemannformer-diagonal": partial(_riemannian, riemannformer.RiemannFormerDiagonal),
    "riemannformer-reflection": partial(_riemannian, riemannformer.RiemannFormerReflection),
    "riemannformer-relative": partial(_riemannian, riemannformer.RiemannFormerRelative),
    "lf": lambda setting, **options: _focused(Encoding(), setting, **options),
    "gauss": lambda setting, **options: _focused(Encoding(), setting, method=GaussianGate, **options),
    "rmt": _manhattan,
    "rope-pair": _rope_pair,
    "visionllama": _visionllama,
    "rope-mixed": _rope_mixed,
    "liere": _liere,
    "spherical": _spherical,
    "sympow-gates": _sympow_gates,
    "compass": _compass,
}
"""The registry of methods, each a name and what builds it from a ``Setting`` and the options of ``build``."""

# What may follow a method's name after a plus sign; its options are passed as a dictionary under the same name.
WRAPPERS: dict[str, Callable[..., Encoding]] = {
    "lf": _focused,
    "sympow": lambda encoding, setting, power=2: PowerScores(encoding, power),
    "gauss": partial(_focused, method=GaussianGate),
    "alibi": lambda encoding, setting, slopes=None: Composed([encoding, ALiBi(setting.heads, slopes, setting.axes)]),
    "rmt": lambda encoding, setting, slopes="rmt": Composed([encoding, _manhattan(setting, slopes)]),
}


def is_name(name: str) -> bool:
    """Whether ``build`` knows the name: a key of ``METHODS``, perhaps with keys of ``WRAPPERS`` after plus signs.

    >>> is_name("rope+lf"), is_name("lf+rope")
    (True, False)
    """
    method, *wrappers = name.split("+") if isinstance(name, str) else [name]
    return method in METHODS and set(wrappers) <= set(WRAPPERS)


def check_name(name: str, argument: str = "name") -> None:
    """ValueError for a name that ``build`` does not know.

    >>> check_name("ropes")
    Traceback (most recent call last):
    ValueError: name: got 'ropes'; the methods are ...
    """
    allowed = f"the methods are {', '.join(METHODS)}; after a plus sign: {', '.join(WRAPPERS)}"
    require(is_name(name), argument, repr(name), allowed)


def options_of(name: str) -> dict[str, Any]:
    """The options of a method by name with their defaults; those of a wrapper as a dictionary under its name.

    >>> options_of("rope-axial+alibi"), options_of("rope-pair+lf")["lf"]["sigma"] is None
    ({'base': 100.0, 'alibi': {'slopes': None}}, True)
    """
    check_name(name)
    method, *wrappers = name.split("+")
    return _defaults(WRAPPERS.get(method, METHODS[method])) | {key: _defaults(WRAPPERS[key]) for key in wrappers}


def _defaults(made: Callable[..., Encoding]) -> dict[str, Any]:
    """The parameters of a function that have a default, but for the class that it makes."""
    parameters = inspect.signature(made).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty and p.name != "method"}


@numbered
def build(
    name: str, *, width: int, heads: int, grid: tuple[int, ...], layers: int | None = None, **options: Any
) -> Encoding:
    """A method by name.

    Parameters
    ----------
    name : str
        A key of ``METHODS``; keys of ``WRAPPERS`` may follow after plus signs, the inner first:
        ``"riemannformer+lf"``. ``sympow`` goes around the others wherever it stands.
    width, heads, layers : int
        The model's. Methods that learn something for each layer are refused in a second one where it is not said.
    grid : tuple of int
        Cells along each axis; its length is the number of axes.
    **options
        The method's own (``base`` for RoPE); a wrapper's as a dictionary, ``lf={"sigma": 2.0}``;
        ``options_of(name)`` has them with their defaults.

    Raises
    ------
    ValueError
        For an unknown name, a grid that is no tuple, heads that do not divide the width, or options the method does not
        have.

    >>> encoding = build("rope-axial+lf", width=192, heads=3, grid=(8, 8), base=50.0, lf={"sigma": 2.0})
    >>> [name for name, _ in encoding.named_parameters()]
    ['log_sigma', 'raw_precision']
    """
    check_name(name)
    method, *wrappers = name.split("+")
    wrappers.sort(key=lambda wrapper: wrapper == "sympow")
    for argument, n in (("width", width), ("heads", heads), ("layers", 1 if layers is None else layers)):
        require(isinstance(n, Integral) and n > 0, argument, n, "it must be a whole number from 1 on")
    require(width % heads == 0, "heads", heads, f"it must divide the width {width}")
    check_grid(grid)
    setting = Setting(width, heads, tuple(grid), layers)
    known = options_of(name)
    for key, value in options.items():
        require(key in known, "options", options, f"{name} has no {key}; it has {known}")
        if isinstance(known[key], dict):
            require(isinstance(value, dict), "options", options, f"{key} takes a dictionary, as {known[key]}")
            for inner in value:
                require(inner in known[key], "options", options, f"{key} has no {inner}; it has {known[key]}")
    own = {key: value for key, value in options.items() if key not in wrappers}
    try:
        encoding = METHODS[method](setting, **own)
        for wrapper in wrappers:
            encoding = WRAPPERS[wrapper](encoding, setting, **options.get(wrapper, {}))
        return encoding
    except TypeError as error:
        allowed = f"values of another kind ({error}); the defaults are {known}"
        raise ValueError(f"options: got {options}; {allowed}") from None
