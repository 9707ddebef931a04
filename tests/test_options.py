"""Options cannot be lost: every parameter with a default, of every public function and class of the mathematics.

``ROWS`` holds calls with values away from the defaults. Each value must make a difference twice: with all other options
at their defaults, and with all others away. A parameter that has no row is named; so is a row that nothing needs.
"""

import importlib
import inspect
import pkgutil

import methods
import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask
from torch.utils._python_dispatch import TorchDispatchMode

import geolib
from geolib import (
    attention,
    conformal,
    connection,
    encodings,
    flex,
    lie,
    locality,
    manifolds,
    recurrence,
    rotations,
    sympow,
)
from geolib.attention import Encoding, MultiHeadAttention, Placed
from geolib.connection import compass, modules, rows
from geolib.encodings import build
from geolib.manifolds import charts
from geolib.placed import ByLayer, Carried, FocusedByBlocks, Gated, Reordered, Together, cis, turn_pairs
from geolib.recurrence import chunks, fused, layers

ASIDE = ("lab", "explorables", "check", "figures", "adapters")  # these have tests of their own kinds

# Parameters that are there so that all of a kind can be called alike.
EXCUSED = {
    ("attention.Encoding.place", "keys"): "the encoding that ignores positions",
    ("placed.Penalised.as_score_mod", "x"): "a gate of positions alone",
    ("recurrence.layers.Powered.attend", "scale"): "a common factor of the scores cancels",
    ("recurrence.layers.Powered.weights", "scale"): "a common factor of the scores cancels",
}


def public(kept):
    """Each public function, class and method of the library's modules that are kept, by module and name."""
    for info in pkgutil.walk_packages(geolib.__path__, "geolib."):
        inside = info.name.split(".")[1:]
        if any(part.startswith("_") for part in inside) or not kept(inside):
            continue
        module = importlib.import_module(info.name)
        for name, thing in vars(module).items():
            if name.startswith("_") or getattr(thing, "__module__", None) != info.name or not callable(thing):
                continue
            yield f"{'.'.join(inside)}.{name}", thing
            for method, function in vars(thing).items() if inspect.isclass(thing) else ():
                function = getattr(function, "__func__", function)
                if not method.startswith("_") and callable(function):
                    yield f"{'.'.join(inside)}.{name}.{method}", function


def optional(kept):
    """(name, parameter) for each parameter with a default."""
    return {
        (name, p.name)
        for name, thing in public(kept)
        for p in inspect.signature(thing).parameters.values()
        if p.default is not p.empty
    }


OPTIONAL = optional(lambda inside: inside[0] not in ASIDE)


# What a call gives, as something to compare ---------------------------------------------------------------------------


def leaves(x):
    """Tensors and plain values in what a call returns; of a module, what it holds and what of it is learned."""
    if isinstance(x, torch.nn.Module):
        held = {**dict(x.named_parameters()), **dict(x.named_buffers())}
        return [leaf for name, value in held.items() for leaf in (name, value.requires_grad, value)]
    if isinstance(x, (tuple, list)):
        return [leaf for part in x for leaf in leaves(part)]
    return [x]


def differ(a, b):
    """Whether two results differ by more than rounding."""
    a, b = leaves(a), leaves(b)
    return len(a) != len(b) or any(_apart(*pair) for pair in zip(a, b))


def _apart(x, y):
    if not (isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)):
        return type(x) is not type(y) or x != y
    if x.shape != y.shape or x.device != y.device:
        return True
    return not torch.allclose(x.double(), y.double(), rtol=1e-9, atol=1e-9, equal_nan=True)


def seeded(make):
    """The same random numbers at every call."""

    def call(**options):
        torch.manual_seed(5)
        return make(**options)

    return call


def or_refused(function):
    """The result, or the argument that is refused."""

    def call(**options):
        try:
            return function(**options)
        except ValueError as error:
            return str(error).split(":")[0]

    return call


class Counted(TorchDispatchMode):
    """How many operations run, and how many numbers they make."""

    def __init__(self):
        super().__init__()
        self.work = [0, 0]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        made = sum(leaf.numel() for leaf in leaves(result) if isinstance(leaf, torch.Tensor))
        self.work = [self.work[0] + 1, self.work[1] + made]
        return result


def worked(function):
    """The work of a call beside its result: the only thing that a chunk's length changes."""

    def call(**options):
        function(**options)  # tables are made once and kept
        with Counted() as counted:
            result = function(**options)
        return counted.work, result

    return call


def random_by(function):
    """A function whose ``generator`` is given by its seed."""

    def call(generator=None, **options):
        if generator is not None:
            options["generator"] = torch.Generator().manual_seed(generator)
        return seeded(function)(**options)

    return call


def of_law(law):
    m = torch.tensor([2.0, 3.0])
    return law.log_scale(m), law.exponent(m)


def of_row(row):
    m, n = torch.tensor([1.0, 1.0]), torch.tensor([0.0, 1.0])
    return row.bilinear_form(m, n), row.log_gate(m, n), row.log_attenuation(m, n)


def weighed(encoding, layer=0):
    """What a method with these options holds, and its weights for given vectors."""
    torch.manual_seed(6)
    q, k, x = (torch.randn(1, 2, 4, 8), torch.randn(1, 2, 4, 8), torch.randn(1, 4, 16))
    placed = encoding.place(GRID).layer(layer)
    gate = placed.log_gate(encoding.embed(x, GRID))
    return encoding, placed.weights(*placed.to_reference(q, k), gate), encoding.embed(x, GRID)


def placing(name, queries=4, **own):
    """A registered method placed at queries, its keys there or elsewhere."""
    return placing_of(seeded(build)(name=name, width=16, heads=2, grid=(2, 2), **own), queries)


def placing_of(encoding, queries=4):
    torch.manual_seed(6)
    q, k, x = torch.randn(1, 2, queries, 8), torch.randn(1, 2, 4, 8), torch.randn(1, 4, 16)

    def call(**options):
        placed = encoding.place(GRID[:queries], **options).layer(0)
        return placed.weights(*placed.to_reference(q, k), placed.log_gate(x))

    return call


# Numbers to call with -------------------------------------------------------------------------------------------------

torch.manual_seed(1)
DOUBLE = torch.float64
GRID = rotations.grid_positions(2, 2)
Q, K, V = torch.randn(3, 1, 2, 5, 4, dtype=DOUBLE)
GATE, OMEGA = -torch.rand(5, 5, dtype=DOUBLE), torch.rand(5, 5, dtype=DOUBLE)
SEEN = torch.rand(5, 5) < 0.6
SEEN.fill_diagonal_(True)
WEIGHING = {"log_gate": GATE, "attenuation": OMEGA, "causal": True, "scale": 0.9, "mask": SEEN}
ATTENDING = WEIGHING | {"dropout": 0.5}
NARROW = [t.bfloat16() for t in (Q, K, V)]
ASKED = {"log_gate": GATE, "causal": True, "mask": SEEN}  # of what is placed
SHAPE = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=DOUBLE)
CELLS, WIDTHS = torch.randn(5, 2, dtype=DOUBLE), torch.tensor([[0.7], [1.5]], dtype=DOUBLE)
APART = torch.cat([0.3 * CELLS[:4], 60 + CELLS[4:]])  # four neighbours far from the middle
GATES, TURNS = -torch.rand(1, 2, 5, dtype=DOUBLE), torch.rand(1, 2, 5, 2, dtype=DOUBLE)
BEFORE = recurrence.recurrent_form(K, Q, V, 2, GATES, TURNS)[1]
CARRIED = {"log_gates": GATES, "turns": TURNS, "state": BEFORE}
X = torch.randn(1, 5, 16)
LAYER_STATE = recurrence.SympowAttention(16, 2)(X)[1]
START, END = torch.tensor([0.5, 0.2]), torch.tensor([0.6, 0.9])
SPECIAL = {"start": 0.5, "law": conformal.free_law(), "learn_angles": True}
FREQUENCIES = torch.tensor([[1.0, 0.0], [0.5, 0.0], [0.0, 1.0], [0.0, 0.5]])
TWO_AXES = torch.tensor([[0.4, 0.1], [0.2, 0.3]])
GENERATORS = lie.skew_matrix(torch.randn(2, 6, dtype=DOUBLE), 4)
FAMILY = lie.skew_matrix(torch.randn(2, 28, generator=torch.Generator().manual_seed(0)).double(), 8)
RAYS = lie.find_rays(2 * GRID)
SQUARE = connection.from_frames(torch.linalg.matrix_exp(torch.randn(2, 2, 2, 2, 2, dtype=DOUBLE)), 3)
SQUARE = connection.Connection(tuple(step + 0.1 * torch.rand_like(step) for step in SQUARE.steps))
AXES_OF_SQUARE = SQUARE.axes


def chart_of(**options):
    """A hilly chart: what lies inside it, how it calls itself, and where a geodesic ends."""
    chart = charts.Chart(
        2, lambda x: torch.eye(2, dtype=x.dtype) * (1 + 0.3 * (x[0] + x[1].cos()) ** 2), **{"margin": below, **options}
    )
    with pytest.raises(ValueError, match="points") as refused:
        chart.metric_at(torch.tensor([50.0, 50.0]))
    inside = chart.contains(torch.tensor([[0.5, 0.2], [-0.5, 0.2]]))
    return inside, str(refused.value), manifolds.exponential(chart, START.double(), END.double())


def round_trip(**options):
    """The distance in a flat plane that may come round."""
    chart = charts.Chart(2, lambda x: torch.eye(2, dtype=x.dtype), **options)
    return manifolds.distance(chart, torch.tensor([0.1, 0.0]), torch.tensor([1.9, 0.0]))


def below(x):
    return 9 - x[..., 0]


def fitted(make, **arguments):
    """A module of the registry's kind made with these options, and what it does."""
    return seeded(lambda **options: weighed(make(**arguments, **options)))


def riemannian(method):
    return fitted(lambda **o: getattr(encodings, method)(FREQUENCIES, 2, **o))


def focusing(method):
    return fitted(lambda **o: getattr(encodings, method)(Encoding(), 2, 2, 0.7, **o))


def of_compass(name):
    return fitted(lambda **o: getattr(compass, name)(16, 2, (2, 2), **o))


def rows_of(name, layers=1, **given):
    encoding = seeded(build)(name=name, width=16, heads=2, grid=(2, 2), layers=layers)
    return lambda **o: [of_row(row) for row in modules.rows_of(encoding, 8, **given, **o)]


def modified(power, **options):
    i = torch.arange(5)
    return fused.score_modifier(power, **options)(Q @ K.mT, *torch.meshgrid(torch.arange(1), torch.arange(2), i, i))


def one_token(**options):
    return recurrence.recurrent_step(BEFORE, Q[:, :, 0], K[:, :, 0], V[:, :, 0], 2, **options)


def blocks(method):
    placed = FocusedByBlocks(Placed(), (CELLS, CELLS), torch.tensor([[1.0], [2.0]], dtype=DOUBLE))
    return getattr(placed, method)


def of_layer(forward, **options):
    return forward(MultiHeadAttention(16, 2, **options))


def chunked(form):
    return worked(lambda **o: form(Q, K, V, 2, **o))


class OfData(Placed):
    """A gate made of the layer's input, where there is one."""

    def log_gate(self, x):
        return None if x is None else -(x @ x.mT).abs()[:, None]


def scored(placed):
    """Scores as they leave the modification."""

    def call(**options):
        i = torch.arange(5)
        modify = placed.as_score_mod(**options)
        pairs = torch.meshgrid(torch.arange(1), torch.arange(2), i, i)
        return Q @ K.mT if modify is None else modify(Q @ K.mT, *pairs)

    return call


POWERED, SIGHT = layers.Powered(Placed(), 2), {"mask": SEEN}
WIDE = torch.randn(3, 1, 2, 5, 16)
BLOCK_MASK = create_block_mask(lambda b, h, i, j: i >= j, None, None, 5, 5, device="cpu")
ROWS = [
    ("attention.attention", seeded(lambda **o: attention.attention(Q, K, V, **o)), ATTENDING),
    ("attention.attention", seeded(lambda **o: attention.attention(*NARROW, **o)), ATTENDING),
    ("attention.attention", lambda **o: attention.attention(Q[..., :3, :], K, V, **o), {"causal": True, "scale": 0.9}),
    ("attention.attention_weights", lambda **o: attention.attention_weights(Q, K, **o), WEIGHING),
    (
        "attention.Placed.attend",
        seeded(lambda **o: Placed().attend(Q, K, V, **o)),
        ASKED | {"scale": 0.9, "dropout": 0.5},
    ),
    ("attention.Placed.weights", lambda **o: Placed().weights(Q, K, **o), ASKED | {"scale": 0.9}),
    (
        "attention.Placed.attention",
        seeded(lambda **o: OfData().attention(Q, K, V, **o)),
        {"x": X, "causal": True, "mask": SEEN, "scale": 0.9, "dropout": 0.5},
    ),
    *(
        (f"{name}.behind", lambda p=placed, **o: torch.tensor(p.behind(1, **o).unplaced), {"keys": 3})
        for name, placed in {
            "attention.Placed": OfData(),
            "placed.Around": Reordered(OfData()),
            "placed.Together": Together([OfData()]),
            "placed.ByLayer": ByLayer([OfData()]),
        }.items()
    ),
    (
        "placed.FocusedByBlocks.attend",
        seeded(lambda **o: blocks("attend")(Q, K, V, **o)),
        ASKED | {"scale": 0.9, "dropout": 0.5},
    ),
    ("recurrence.layers.Powered.attend", seeded(lambda **o: POWERED.attend(Q, K, V, **o)), ASKED | {"dropout": 0.5}),
    *(
        (f"{name}.as_score_mod", scored(placed), {"x": X})
        for name, placed in {
            "attention.Placed": OfData(),
            "placed.Around": Reordered(OfData()),
            "placed.Together": Together([OfData()]),
            "placed.Gated": Gated(OfData(), (CELLS, CELLS), WIDTHS),
            "recurrence.layers.Powered": layers.Powered(OfData(), 2),
        }.items()
    ),
    (
        "flex.flex_attend",
        lambda **o: flex.flex_attend(OfData(), *WIDE, **o),
        {"x": X, "scale": 0.9, "block_mask": BLOCK_MASK},
    ),
    ("flex.flex_attend", lambda **o: flex.flex_attend(OfData(), *WIDE, X, **o), {"unplaced": 1}),
    ("recurrence.layers.Powered.weights", lambda **o: POWERED.weights(Q, K, **o), ASKED),
    (
        "attention.MultiHeadAttention",
        seeded(lambda **o: of_layer(lambda m: m(X, Placed()), **o)),
        {"causal": True, "dropout": 0.5},
    ),
    ("attention.MultiHeadAttention.forward", seeded(lambda **o: MultiHeadAttention(16, 2)(X, Placed(), **o)), SIGHT),
    (
        "attention.MultiHeadAttention.weights",
        seeded(lambda **o: MultiHeadAttention(16, 2).weights(X, Placed(), **o)),
        SIGHT,
    ),
    (
        "attention.MultiHeadAttention",
        seeded(lambda **o: of_layer(lambda m: m.weights(X, Placed()), **o)),
        {"causal": True},
    ),
    ("conformal.bounded_log_scale", lambda **o: conformal.bounded_log_scale(K, **o), {"alpha": 0.5}),
    ("conformal.bounded_raw", lambda **o: conformal.bounded_raw(OMEGA, **o), {"alpha": 0.5}),
    ("conformal.slow_exponent", lambda **o: conformal.slow_exponent(OMEGA, **o), {"beta": 2.0}),
    ("conformal.bounded_law", lambda **o: of_law(conformal.bounded_law(**o)), {"alpha": 0.5, "origin": 1.5}),
    ("conformal.bounded_law", lambda **o: conformal.bounded_law(**o).raw(OMEGA), {"alpha": 0.5}),
    ("conformal.free_law", lambda **o: of_law(conformal.free_law(**o)), {"origin": 1.5}),
    ("conformal.slow_law", lambda **o: of_law(conformal.slow_law(**o)), {"alpha": 0.5, "beta": 2.0}),
    ("conformal.slow_law", lambda **o: conformal.slow_law(**o).raw(OMEGA), {"alpha": 0.5}),
    ("conformal.unit_ball", lambda **o: conformal.unit_ball(SHAPE, **o), {"samples": 9}),
    *((f"connection.compass.{c}", of_compass(c), {"vectors": 2}) for c in compass.__dict__ if c.endswith("Compass")),
    ("connection.compass.Compass.place", or_refused(placing("compass", queries=2)), {"keys": GRID}),
    ("connection.lattice.plaquettes", lambda **o: connection.plaquettes(SQUARE, **o), {"first": 2}),
    ("connection.lattice.plaquettes", lambda **o: connection.plaquettes(SQUARE, **o), {"second": 2}),
    ("connection.modules.rows_of", rows_of("liere", 2), {"head": 1, "layer": 1}),
    ("connection.modules.rows_of", or_refused(rows_of("sympow-gates", positions=GRID)), {"x": X[0, :4]}),
    ("connection.modules.rows_of", or_refused(rows_of("sympow-gates", x=X[0, :4])), {"positions": GRID}),
    (
        "connection.modules.Reading",
        lambda **o: modules.Reading(8, 0, **o),
        {"x": X, "positions": GRID, "layer": 1},
    ),
    *(
        (
            f"connection.rows.{name}",
            lambda name=name, **o: of_row(getattr(rows, name)(TWO_AXES[:1], TWO_AXES, **o)),
            {"exponent": torch.log1p},
        )
        for name in ("riemannformer_general_row", "riemannformer_diagonal_row")
    ),
    ("connection.rows.locality_row", lambda **o: of_row(rows.locality_row(2, 0.7, **o)), {"shape": SHAPE}),
    ("encodings.Sinusoidal", or_refused(fitted(lambda **o: encodings.Sinusoidal(16, **o))), {"axes": 2}),
    *(
        (f"encodings.RiemannFormer{kind}", riemannian(f"RiemannFormer{kind}"), SPECIAL)
        for kind in ("", "General", "Diagonal", "Reflection", "Relative")
    ),
    *(
        (f"encodings.{kind}", focusing(kind), {"tokens": 4, "learn_precision": False})
        for kind in ("LocalityFocusing", "GaussianGate")
    ),
    (
        "encodings.LieRE",
        fitted(lambda **o: encodings.LieRE(OMEGA[0, 0] * torch.ones(1, 1, 1, 2, 28), 8, **o)),
        {"unit": (3.0, 1.0)},
    ),
    (
        "encodings.LieRE",
        or_refused(fitted(lambda **o: encodings.LieRE(torch.rand(2, 1, 1, 2, 28), 8, **o))),
        {"layers": 2},
    ),
    ("encodings.Composed.place", placing("rope+alibi"), {"keys": 0.5 * GRID + 0.3}),
    *(
        (f"encodings.{kind}.place", placing(name, per_layer=True), {"keys": 0.5 * GRID + 0.3})
        for kind, name in {"PerLayer": "riemannformer", "PerLayerFocusing": "lf"}.items()
    ),
    ("encodings.RoPE", fitted(lambda **o: encodings.RoPE(FREQUENCIES, **o)), {"length": 2.0}),
    ("encodings.RoPE.text", lambda **o: encodings.RoPE.text(16, **o).frequencies, {"base": 50.0}),
    ("encodings.RoPE.image", lambda **o: encodings.RoPE.image(24, **o).frequencies, {"axes": 3, "base": 50.0}),
    ("encodings.ALiBi", lambda **o: encodings.ALiBi(2, **o).slopes, {"slopes": (0.5, 0.1)}),
    (
        "encodings.HalfSplit",
        fitted(lambda **o: encodings.HalfSplit(encodings.RoPE(FREQUENCIES[:2]), **o)),
        {"turned": 8},
    ),
    (
        "encodings.HalfSplit.place",
        placing_of(encodings.HalfSplit(encodings.RoPE(FREQUENCIES))),
        {"keys": 0.5 * GRID + 0.3},
    ),
    (
        "placed.Reordered",
        lambda **o: Reordered(encodings.RoPE(TWO_AXES[:1]).place(CELLS), **o).to_reference(Q, K),
        {"turned": 2},
    ),
    (
        "placed.Carried",
        or_refused(lambda **o: Carried(turn_pairs, (cis(TURNS[0, 0]),) * 2, (5, 5), **o).to_reference(Q, K)),
        {"heads": 3},
    ),
    ("encodings.check_name", or_refused(lambda **o: encodings.check_name("ropes", **o)), {"argument": "y"}),
    (
        "encodings.Setting",
        seeded(lambda **o: encodings.METHODS["liere"](encodings.Setting(16, 2, (4,), **o))),
        {"layers": 2},
    ),
    ("encodings.build", seeded(lambda **o: build("liere", width=16, heads=2, grid=(4,), **o)), {"layers": 2}),
    ("lie.bch", lambda **o: lie.bch(*GENERATORS, **o), {"order": 1}),
    ("lie.bch", lambda **o: lie.bch(*GENERATORS, **o), {"order": 2}),
    ("lie.exp_pade", lambda **o: lie.exp_pade(GENERATORS, **o), {"degree": 1, "squarings": 1}),
    ("lie.initial_top_angle", lambda **o: lie.initial_top_angle(8, **o), {"high": 1.0}),
    ("lie.nearest_commuting", lambda **o: lie.nearest_commuting(FAMILY, **o), {"steps": 1}),
    ("lie.nearest_commuting", lambda **o: lie.nearest_commuting(FAMILY, **{"steps": 2} | o), {"directions": 1}),
    ("lie.uniform_entries", random_by(lambda **o: lie.uniform_entries(3, **o)), {"high": 1.0, "generator": 2}),
    ("lie.mixed_frequencies", random_by(lambda **o: lie.mixed_frequencies(TWO_AXES, 2, **o)), {"generator": 2}),
    ("exponential.position_rotations", lambda **o: lie.position_rotations(GRID, GENERATORS, **o), {"rays": RAYS}),
    ("exponential.placed_rotations", lambda **o: lie.placed_rotations(GRID, GENERATORS, **o), {"rays": RAYS}),
    ("locality.whiten", lambda **o: locality.whiten(CELLS, **o), {"precision": SHAPE}),
    ("locality.squared_distances", lambda **o: locality.squared_distances(CELLS, **o), {"precision": SHAPE}),
    *(
        (f"locality.{f}", lambda f=f, **o: getattr(locality, f)(CELLS, WIDTHS, **o), {"precision": SHAPE})
        for f in ("log_attenuation", "attenuation")
    ),
    *(
        (
            f"locality.{f}",
            lambda f=f, **o: getattr(locality, f)(Q, K, V, CELLS, WIDTHS, **o),
            {"precision": SHAPE},
        )
        for f in ("focused_attention", "fused_focused_attention")
    ),
    (
        "locality.gaussian_features",
        lambda **o: locality.gaussian_features(CELLS, WIDTHS, **o),
        {"precision": SHAPE, "parts": 2, "dtype": torch.bfloat16},
    ),
    *(
        (
            f"locality.{f}",
            lambda f=f, **o: getattr(locality, f)(*torch.stack([Q, K, V]).bfloat16(), APART, WIDTHS, **o),
            {"precision": SHAPE, "parts": 2},
        )
        for f in ("gated_by_features", "focused_by_features")
    ),
    ("locality.rmt_slopes", lambda **o: locality.rmt_slopes(4, **o), {"first": 1.0, "span": 2.0}),
    (
        "manifolds.charts.Chart",
        chart_of,
        {"margin": lambda x: x[..., 0] * (9 - x[..., 0]), "name": "hills", "rtol": 1e-4},
    ),
    ("manifolds.charts.Chart", chart_of, {"atol": 1e-4}),
    ("manifolds.charts.Chart", round_trip, {"periods": (2.0, 0.0)}),
    ("manifolds.charts.sphere_spherical", lambda **o: charts.sphere_spherical(**o).metric_at(START), {"radius": 2.0}),
    (
        "manifolds.charts.sphere_stereographic",
        lambda **o: charts.sphere_stereographic(**o).metric_at(START),
        {"radius": 2.0},
    ),
    ("manifolds.charts.torus", lambda **o: charts.torus(**o).metric_at(START), {"major": 3.0, "minor": 0.5}),
    (
        "manifolds.conformal.conformally_flat",
        lambda **o: manifolds.conformally_flat(lambda x: x[0], **o).dim,
        {"dim": 3},
    ),
    ("manifolds.conformal.power_metric", lambda **o: manifolds.power_metric(0.5, **o).dim, {"dim": 3}),
    (
        "manifolds.models.torus_curvature",
        lambda **o: manifolds.torus_curvature(START, **o),
        {"major": 3.0, "minor": 0.5},
    ),
    ("recurrence.chunks.chunked_form", chunked(recurrence.chunked_form), CARRIED | {"chunk": 2}),
    *(
        ("recurrence.chunks.chunked_with", chunked(lambda *a, by=by, **o: chunks.chunked_with(by, *a, **o)), given)
        for by in (chunks.by_chunks, chunks.by_large_products)
        for given in (CARRIED | {"chunk": 2},)
    ),
    *(
        (f"recurrence.{f.__module__.split('.')[-1]}.{f.__name__}", lambda f=f, **o: f(Q, K, V, 2, **o), given)
        for f, given in (
            (recurrence.attention_form, {"log_gates": GATES, "turns": TURNS}),
            (recurrence.one_chunk_form, {"log_gates": GATES, "turns": TURNS}),
            (recurrence.fused_form, {"log_gates": GATES, "turns": TURNS}),
            (recurrence.softmax_form, {"log_gates": GATES}),
            (recurrence.recurrent_form, CARRIED),
        )
    ),
    ("recurrence.forms.recurrent_step", one_token, {"log_gate": GATES[..., 0], "turn": TURNS[..., 0, :]}),
    (
        "recurrence.forms.read_state",
        lambda **o: recurrence.read_state(BEFORE, Q, 2, **o),
        {"log_gates": GATES, "turns": TURNS},
    ),
    (
        "recurrence.state.State",
        lambda **o: recurrence.read_state(recurrence.State(BEFORE.S, BEFORE.Z, BEFORE.mu, **o), Q, 2),
        {"exponent": torch.full((1, 2), 3.0, dtype=DOUBLE)},
    ),
    ("recurrence.fused.score_modifier", lambda **o: modified(2, **o), {"log_gates": GATES}),
    ("recurrence.costs.crossing_length", lambda **o: recurrence.crossing_length(8, 2, **o), {"parts": ("products",)}),
    ("recurrence.gates.log_gates", lambda **o: recurrence.log_gates(GATES, **o), {"bias": 1.0}),
    (
        "recurrence.gates.cumulative_angles",
        lambda **o: recurrence.cumulative_angles(TURNS, **o),
        {"start": TURNS[..., 0, :]},
    ),
    (
        "recurrence.layers.SympowAttention",
        seeded(worked(lambda **o: recurrence.SympowAttention(16, 2, **o)(X))),
        {"power": 4, "longest": 64.0, "gate_bias": 0.0, "chunk": 2, "key_heads": 1},
    ),
    (
        "recurrence.layers.SympowAttention.forward",
        seeded(lambda **o: recurrence.SympowAttention(16, 2)(X, **o)),
        {"state": LAYER_STATE, "mask": torch.arange(5)[None] != 2, "starts": torch.arange(5) == 3},
    ),
    (
        "recurrence.layers.SympowEncoding",
        fitted(lambda **o: recurrence.SympowEncoding(16, 2, FREQUENCIES, **o)),
        {"gate_bias": 0.0},
    ),
    ("recurrence.layers.SympowEncoding.place", or_refused(placing("sympow-gates")), {"keys": 0.5 * GRID + 0.3}),
    ("recurrence.layers.PowerScores", lambda **o: weighed(recurrence.PowerScores(Encoding(), **o)), {"power": 4}),
    ("recurrence.layers.PowerScores.place", placing("rope+sympow"), {"keys": 0.5 * GRID + 0.3}),
    ("rotations.language_frequencies", lambda **o: rotations.language_frequencies(8, **o), {"base": 7.0}),
    ("rotations.axial_frequencies", lambda **o: rotations.axial_frequencies(8, 2, **o), {"base": 7.0}),
    ("rotations.alternating_frequencies", lambda **o: rotations.alternating_frequencies(8, 2, **o), {"base": 7.0}),
    (
        "rotations.ntk_by_parts",
        lambda **o: rotations.ntk_by_parts(rotations.language_frequencies(16), 8.0, 100, **o),
        {"slow": 3.0, "fast": 8.0},
    ),
    (
        "rotations.yarn_frequencies",
        lambda **o: rotations.yarn_frequencies(16, 8.0, 1000, **o),
        {"base": 500.0, "slow": 12.0, "fast": 60.0, "truncate": False},
    ),
    ("rotations.yarn_length", lambda **o: rotations.yarn_length(8.0, **o), {"mscale": 0.7, "mscale_all_dim": 0.5}),
    *(
        (
            f"rotations.to_{order}",
            lambda f=order, **o: getattr(rotations, f"to_{f}")(CELLS.mT.repeat(1, 2)[:, :8], **o),
            {"turned": 4},
        )
        for order in ("half_split", "interleaved")
    ),
    *(
        (
            f"rotations.{order}_rows",
            lambda f=order, **o: getattr(rotations, f"{f}_rows")(torch.arange(16.0), 2, **o),
            {"turned": 4},
        )
        for order in ("half_split", "interleaved")
    ),
    ("sympow.state_numbers", lambda **o: sympow.state_numbers(4, 2, **o), {"value_dim": 3}),
    ("sympow.state_bytes", lambda **o: sympow.state_bytes(4, 2, 1, 1, **o), {"bytes_per_number": 4}),
    *(
        (f"sympow.{f}", lambda f=f, **o: getattr(sympow, f)(4, 2, *o.values()), {"device": torch.device("meta")})
        for f in ("monomials", "norm_functional")
    ),
]


def rows_of_methods(written):
    """Rows for classes of registered methods where none is written: options that a name takes too, and keys."""
    for name, entry in methods.METHODS.items():
        kind = type(build(name, width=16, heads=2, grid=(2, 2)))
        where = f"{kind.__module__.removeprefix('geolib.')}.{kind.__name__}"
        if (f"{where}.place", "keys") in OPTIONAL - written - set(EXCUSED):
            yield f"{where}.place", placing(name), {"keys": 0.5 * GRID + 0.3}
        away = {option: value for option, value in entry.options.items() if (where, option) in OPTIONAL - written}
        if away:
            yield where, seeded(of_name(name)), away
        written = written | {(where, option) for option in away} | {(f"{where}.place", "keys")}


def of_name(name):
    return lambda **options: weighed(build(name, width=16, heads=2, grid=(2, 2), **options))


ROWS += rows_of_methods({(name, option) for name, _, away in ROWS for option in away})


def check_rows(rows, options, excused=()):
    """Each option has a row, and each row an option."""
    held = {(name, option) for name, _, away in rows for option in away}
    missing, spare = options - held - set(excused), (held | set(excused)) - options
    assert not missing, f"give these a call and a value away from their defaults: {sorted(missing)}"
    assert not spare, f"no such option: {sorted(spare)}"


def check_differences(call, away):
    """Each option makes a difference, the others at their defaults and away from them."""
    plain, all_away = call(), call(**away)
    assert not differ(plain, call()), "the call is not the same twice"
    for option, value in away.items():
        assert differ(plain, call(**{option: value})), f"{option} alone makes no difference"
        others = {key: other for key, other in away.items() if key != option}
        assert differ(all_away, call(**others)), f"{option} makes no difference beside {', '.join(others)}"


def ids_of(rows):
    return [f"{i}-{row[0]}" for i, row in enumerate(rows)]


def test_every_option_has_a_row_and_every_row_an_option():
    check_rows(ROWS, OPTIONAL, EXCUSED)


@pytest.mark.parametrize(("name", "call", "away"), ROWS, ids=ids_of(ROWS))
def test_every_option_makes_a_difference(name, call, away):
    check_differences(call, away)
