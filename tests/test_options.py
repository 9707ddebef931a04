"""Options cannot be lost: every parameter with a default, of every public function and class of the mathematics.

``ROWS`` holds calls with values away from the defaults. Each value must make a difference twice: with all other options
at their defaults, and with all others away. A parameter that has no row is named; so is a row that nothing needs.
"""

import importlib
import inspect
import pkgutil
from functools import partial
from operator import attrgetter
from typing import is_typeddict

import methods
import pytest
import torch
from counted import Counting
from torch.nn.attention.flex_attention import create_block_mask

import geolib
from geolib import attention, conformal, connection, encodings, lie, locality, manifolds, recurrence, rotations, sympow
from geolib.attention import Encoding, MultiHeadAttention, Placed
from geolib.connection import compass
from geolib.encodings import Carried, Composite, FocusedByBlocks, Gaussian, ScoreBias, build, cis, turn_pairs
from geolib.encodings.rotary import PlacedHalfSplit
from geolib.encodings.sympow import Powered
from geolib.manifolds import charts
from geolib.recurrence import chunks, fused

ASIDE = ("lab", "explorables", "check", "figures", "adapters", "conform")  # these have tests of their own kinds

# Parameters that are there so that all of a kind can be called alike.
EXCUSED = {
    ("attention.Encoding.place", "keys"): "the encoding that ignores positions",
    ("encodings.bias.ScoreBias.as_score_mod", "x"): "a gate of positions alone",
    ("encodings.sympow.Powered.weights", "scale"): "a common factor of the scores cancels",
}


def optional():
    """(name, parameter) for each parameter with a default, of public functions, classes and methods."""
    for info in pkgutil.walk_packages(geolib.__path__, "geolib."):
        inside = info.name.split(".")[1:]
        if inside[0] in ASIDE or any(part.startswith("_") for part in inside):
            continue
        for name, thing in vars(importlib.import_module(info.name)).items():
            if getattr(thing, "__module__", None) != info.name or not callable(thing) or is_typeddict(thing):
                continue
            own = vars(thing).items() if inspect.isclass(thing) else ()
            for called, function in [(name, thing), *((f"{name}.{key}", getattr(f, "__func__", f)) for key, f in own)]:
                if callable(function) and not any(part.startswith("_") for part in called.split(".")):
                    given = inspect.signature(function).parameters.values()
                    yield from ((".".join([*inside, called]), p.name) for p in given if p.default is not p.empty)


OPTIONAL = {*optional()}


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


def worked(function):
    """The work of a call beside its result: the only thing that a chunk's length changes."""

    def call(**options):
        function(**options)  # tables are made once and kept
        with Counting() as counting:
            result = function(**options)
        return counting.operations.total(), result

    return call


def then(read):
    """What is read out of what a call gives."""
    return lambda call: lambda **options: read(call(**options))


def made(read):
    """The same of what is made with the same random numbers."""
    return lambda make: seeded(then(read)(make))


def of(function, *given, by=lambda call: call, **away):
    """A row: the name of a function, its call with what is given, and values away from its defaults."""
    name = f"{function.__module__.removeprefix('geolib.')}.{function.__qualname__}"
    return name, by(partial(function, *given)), away


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
ELSEWHERE = 0.5 * GRID + 0.3
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
FIRST = Q[:, :, 0], K[:, :, 0], V[:, :, 0]
CARRIED = {"log_gates": GATES, "turns": TURNS, "state": BEFORE}
X = torch.randn(1, 5, 16)
FIVE = torch.arange(5)
LAYER_STATE = recurrence.SympowAttention(16, 2)(X)[1]
START, END = torch.tensor([0.5, 0.2]), torch.tensor([0.6, 0.9])
SPECIAL = {"start": 0.5, "law": conformal.free_law(), "learn_angles": True}
FREQUENCIES = torch.tensor([[1.0, 0.0], [0.5, 0.0], [0.0, 1.0], [0.0, 0.5]])
TWO_AXES = torch.tensor([[0.4, 0.1], [0.2, 0.3]])
GENERATORS = lie.skew_matrix(torch.randn(2, 6, dtype=DOUBLE), 4)
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


def fitted(make):
    """A module of the registry's kind made with these options, and what it does."""
    return seeded(lambda **options: weighed(make(**options)))


class OfData(Placed):
    """A gate made of the layer's input, where there is one."""

    def log_gate(self, x):
        return None if x is None else -(x @ x.mT).abs()[:, None]


def scored(as_score_mod):
    """Scores as they leave the modification."""

    def call(**options):
        i = torch.arange(5)
        modify = as_score_mod(**options)
        pairs = torch.meshgrid(torch.arange(1), torch.arange(2), i, i)
        return Q @ K.mT if modify is None else modify(Q @ K.mT, *pairs)

    return call


def moved(placed):
    return placed.to_reference(Q, K)


def read_on(state):
    return recurrence.recurrent_form(Q, K, V, 2, state=state)


def at_start(chart):
    return chart.metric_at(START)


POWERED, BY_BLOCKS = Powered(Placed(), 2), FocusedByBlocks(Placed(), (CELLS, CELLS), WIDTHS)
OF_DATA = (
    *(OfData(), PlacedHalfSplit(OfData()), Composite([OfData()]), encodings.ByLayer([OfData()])),
    *(Composite([OfData(), ScoreBias(Gaussian(CELLS, CELLS, WIDTHS))]), Powered(OfData(), 2)),
)
PLACED = {  # what may have keys elsewhere, and is no method of the registry by itself
    "composite.Composed": placing("rope+alibi"),
    "composite.PerLayer": placing("riemannformer", per_layer=True),
    "bias.PerLayerFocusing": placing("lf", per_layer=True),
    "rotary.LengthRoPE": placing_of(encodings.LengthRoPE(FREQUENCIES, 3)),
    "rotary.HalfSplit": placing_of(encodings.HalfSplit(encodings.RoPE(FREQUENCIES))),
    "sympow.PowerScores": placing("rope+sympow"),
    "sympow.SympowEncoding": or_refused(placing("sympow-gates")),
}
WIDE, FORMS = torch.randn(3, 1, 2, 5, 16), (recurrence.attention_form, recurrence.one_chunk_form, recurrence.fused_form)
FOCUSED = locality.focused_attention, locality.fused_focused_attention
COMPASSES = [kind for name, kind in vars(compass).items() if name.endswith("Compass")]
BLOCK_MASK = create_block_mask(lambda b, h, i, j: i - j < 2, None, None, 5, 5, device="cpu")
ROWS = [
    of(attention.attention, Q, K, V, by=seeded, **ATTENDING),
    of(attention.attention, *NARROW, by=seeded, **ATTENDING),
    of(attention.attention, Q[..., :3, :], K, V, causal=True, scale=0.9),
    of(attention.attention_weights, Q, K, **WEIGHING),
    of(Placed().attend, Q, K, V, by=seeded, **ASKED, scale=0.9, dropout=0.5),
    of(Placed().weights, Q, K, **ASKED, scale=0.9),
    of(OfData().attention, Q, K, V, by=seeded, x=X, causal=True, mask=SEEN, scale=0.9, dropout=0.5),
    *(of(placed.with_prefix_tokens, 1, by=then(attrgetter("unplaced")), keys=3) for placed in OF_DATA[:4]),
    of(BY_BLOCKS.attend, Q, K, V, by=seeded, log_gate=GATE, causal=True),
    of(POWERED.attend, Q, K, V, by=seeded, dropout=0.5),
    of(POWERED.weights, Q, K, **ASKED),
    *(of(placed.as_score_mod, by=scored, x=X) for placed in (*OF_DATA[:3], *OF_DATA[4:])),
    of(geolib.flex.flex_attend, OfData(), *WIDE, x=X, scale=0.9, block_mask=BLOCK_MASK, causal=True),
    of(MultiHeadAttention, 16, 2, by=made(lambda layer: layer(X, Placed())), causal=True, dropout=0.5),
    of(MultiHeadAttention, 16, 2, by=made(lambda layer: layer.weights(X, Placed())), causal=True),
    of(MultiHeadAttention(16, 2).forward, X, Placed(), mask=SEEN),
    of(MultiHeadAttention(16, 2).weights, X, Placed(), mask=SEEN),
    of(attention.as_places, torch.zeros(4), None, by=or_refused, axes=2),
    of(conformal.bounded_log_scale, K, alpha=0.5),
    of(conformal.bounded_law, by=then(of_law), alpha=0.5, origin=1.5),
    of(conformal.bounded_law, by=then(lambda law: law.raw(OMEGA)), alpha=0.5),
    of(conformal.free_law, by=then(of_law), origin=1.5),
    of(conformal.slow_law, by=then(of_law), alpha=0.5, beta=2.0),
    of(conformal.slow_law, by=then(lambda law: law.raw(OMEGA)), alpha=0.5),
    of(conformal.unit_ball, SHAPE, samples=9),
    *(of(kind, 16, 2, (2, 2), by=fitted, vectors=2) for kind in COMPASSES),
    of(compass.Compass(16, 2, (2, 2)).scores, X[:, :4], still=torch.tensor([[True, False, True, False]])),
    ("connection.compass.Compass.place", or_refused(placing("compass", queries=2)), {"keys": GRID}),
    of(connection.plaquettes, SQUARE, first=2),
    of(connection.plaquettes, SQUARE, second=2),
    of(encodings.Sinusoidal, 16, by=lambda make: or_refused(fitted(make)), axes=2),
    *(
        of(getattr(encodings, f"RiemannFormer{kind}"), FREQUENCIES, 2, by=fitted, **SPECIAL)
        for kind in ("", "General", "Diagonal", "Reflection", "Relative")
    ),
    *(
        of(focusing, Encoding(), 2, 2, 0.7, by=fitted, tokens=4, learn_precision=False)
        for focusing in (encodings.LocalityFocusing, encodings.GaussianGate)
    ),
    of(encodings.LieRE, OMEGA[0, 0] * torch.ones(1, 1, 1, 2, 28), 8, by=fitted, unit=(3.0, 1.0)),
    of(encodings.LieRE, torch.rand(2, 1, 1, 2, 28), 8, by=lambda make: or_refused(fitted(make)), layers=2),
    *((f"encodings.{kind}.place", call, {"keys": ELSEWHERE}) for kind, call in PLACED.items()),
    of(encodings.RoPE, FREQUENCIES, by=fitted, length=2.0),
    of(encodings.RoPE, FREQUENCIES[:2], by=lambda make: or_refused(fitted(make)), rotary_dim=4),
    of(encodings.LengthRoPE, FREQUENCIES[:2], 1, by=lambda make: or_refused(fitted(make)), rotary_dim=4),
    of(encodings.LengthRoPE, FREQUENCIES, 1, by=fitted, longer=FREQUENCIES / 3, length=2.0),
    of(encodings.LengthRoPE, FREQUENCIES, 1, by=fitted, factor=3.0),
    of(encodings.RoPE.text, 16, by=then(attrgetter("frequencies")), base=50.0, rotary_dim=8),
    of(encodings.RoPE.image, 24, by=then(attrgetter("frequencies")), axes=3, base=50.0),
    of(encodings.ALiBi, 2, by=then(attrgetter("slopes")), slopes=(0.5, 0.1)),
    of(encodings.ALiBi, 2, by=then(attrgetter("axes")), axes=1),
    of(encodings.ManhattanDecay, torch.ones(2), by=then(attrgetter("axes")), axes=1),
    of(encodings.HalfSplit, encodings.RoPE(FREQUENCIES[:2], rotary_dim=4), by=fitted, turned=8),
    of(PlacedHalfSplit, encodings.RoPE(TWO_AXES[:1], rotary_dim=2).place(CELLS), by=then(moved), turned=2),
    of(Carried, turn_pairs, (cis(TURNS[0, 0]),) * 2, (5, 5), by=lambda make: or_refused(then(moved)(make)), heads=3),
    of(Carried, turn_pairs, (cis(TURNS[0, 0]),) * 2, (5, 5), by=lambda make: or_refused(then(moved)(make)), features=2),
    of(encodings.check_name, "ropes", by=or_refused, argument="y"),
    of(encodings.Setting, 16, 2, (4,), by=made(encodings.METHODS["liere"]), layers=2),
    ("encodings.registry.build", seeded(partial(build, "liere", width=16, heads=2, grid=(4,))), {"layers": 2}),
    *(of(lie.bch, *GENERATORS, order=order) for order in (1, 2)),
    of(lie.exp_pade, GENERATORS, degree=1, squarings=1),
    of(lie.initial_top_angle, 8, high=1.0),
    of(lie.uniform_entries, 3, by=random_by, high=1.0, generator=2),
    of(lie.mixed_frequencies, TWO_AXES, 2, by=random_by, generator=2),
    of(lie.position_rotations, GRID, GENERATORS, rays=RAYS),
    of(lie.placed_rotations, GRID, GENERATORS, rays=RAYS),
    *(of(f, CELLS, precision=SHAPE) for f in (locality.whiten, locality.squared_distances)),
    *(of(f, CELLS, WIDTHS, precision=SHAPE) for f in (locality.log_attenuation, locality.attenuation)),
    *(of(f, Q, K, V, CELLS, WIDTHS, precision=SHAPE) for f in FOCUSED),
    of(locality.gaussian_features, CELLS, WIDTHS, precision=SHAPE, parts=2, dtype=torch.bfloat16),
    of(locality.gated_by_features, *NARROW, APART, WIDTHS, precision=SHAPE, parts=2),
    of(locality.focused_by_features, *NARROW, APART, WIDTHS, precision=SHAPE, parts=2),
    of(locality.rmt_slopes, 4, first=1.0, span=2.0),
    ("manifolds.charts.Chart", chart_of, {"margin": lambda x: x[..., 0] * below(x), "name": "hills", "rtol": 1e-4}),
    ("manifolds.charts.Chart", chart_of, {"atol": 1e-4}),
    ("manifolds.charts.Chart", round_trip, {"periods": (2.0, 0.0)}),
    *(of(sphere, by=then(at_start), radius=2.0) for sphere in (charts.sphere_spherical, charts.sphere_stereographic)),
    of(charts.torus, by=then(at_start), major=3.0, minor=0.5),
    of(manifolds.conformally_flat, lambda x: x[0], by=then(attrgetter("dim")), dim=3),
    of(manifolds.power_metric, 0.5, by=then(attrgetter("dim")), dim=3),
    of(manifolds.torus_curvature, START, major=3.0, minor=0.5),
    of(recurrence.chunked_form, Q, K, V, 2, by=worked, **CARRIED, chunk=2),
    of(chunks.chunked_with, chunks.by_chunks, Q, K, V, 2, by=worked, **CARRIED, chunk=2),
    of(chunks.chunked_with, chunks.by_large_products, Q, K, V, 2, by=worked, **CARRIED, chunk=2),
    *(of(form, Q, K, V, 2, log_gates=GATES, turns=TURNS) for form in FORMS),
    of(recurrence.softmax_form, Q, K, V, 2, log_gates=GATES),
    of(recurrence.recurrent_form, Q, K, V, 2, **CARRIED),
    of(recurrence.recurrent_step, BEFORE, *FIRST, 2, log_gate=GATES[..., 0], turn=TURNS[..., 0, :]),
    of(recurrence.State, *BEFORE[:3], by=then(read_on), exponent=torch.full((1, 2), 3.0, dtype=DOUBLE)),
    of(fused.score_modifier, 2, by=scored, log_gates=GATES),
    of(recurrence.crossing_length, 8, 2, parts=("products",)),
    of(recurrence.log_gates, GATES, bias=1.0),
    of(recurrence.cumulative_angles, TURNS, start=TURNS[..., 0, :]),
    of(
        *(recurrence.SympowAttention, 16, 2),
        by=lambda make: seeded(worked(then(lambda layer: layer(X))(make))),
        **{"power": 4, "longest": 64.0, "gate_bias": 0.0, "chunk": 2, "key_heads": 1},
    ),
    of(recurrence.SympowAttention(16, 2).forward, X, state=LAYER_STATE, mask=FIVE[None] != 2, starts=FIVE == 3),
    of(encodings.SympowEncoding, 16, 2, FREQUENCIES, by=fitted, gate_bias=0.0),
    of(encodings.PowerScores, Encoding(), by=fitted, power=4),
    of(rotations.language_frequencies, 8, base=7.0),
    of(rotations.axial_frequencies, 8, 2, base=7.0),
    of(rotations.alternating_frequencies, 8, 2, base=7.0),
    of(rotations.ntk_by_parts, rotations.language_frequencies(16), 8.0, 100, slow=3.0, fast=8.0),
    of(rotations.yarn_frequencies, 16, 8.0, 1000, base=500.0, slow=12.0, fast=60.0, truncate=False),
    of(rotations.yarn_length, 8.0, mscale=0.7, mscale_all_dim=0.5),
    *(of(to, CELLS.mT.repeat(1, 2)[:, :8], turned=4) for to in (rotations.to_half_split, rotations.to_interleaved)),
    *(of(order, torch.arange(16.0), 2, turned=4) for order in (rotations.half_split_rows, rotations.interleaved_rows)),
    of(sympow.state_numbers, 4, 2, value_dim=3),
    of(sympow.state_bytes, 4, 2, 1, 1, bytes_per_number=4),
    *(
        (f"sympow.{f}", lambda f=f, **o: getattr(sympow, f)(4, 2, *o.values()), {"device": torch.device("meta")})
        for f in ("monomials", "norm_functional")
    ),
]


def rows_of_methods(written):
    """Rows for classes of registered methods where none is written: keys, and options that a name takes too."""
    for name, entry in methods.METHODS.items():
        kind = type(build(name, width=16, heads=2, grid=(2, 2)))
        where = f"{kind.__module__.removeprefix('geolib.')}.{kind.__name__}"
        if (f"{where}.place", "keys") in OPTIONAL - written - set(EXCUSED):
            yield f"{where}.place", placing(name), {"keys": ELSEWHERE}
        written = written | {(where, option) for option in entry.options} | {(f"{where}.place", "keys")}
        yield where, seeded(of_name(name)), entry.options
    for name, wrapper in methods.WRAPPERS.items():
        options = {f"{name}.{option}": value for option, value in wrapper.options.items()}
        yield name, seeded(of_wrapper(name)), options


def of_name(name):
    return lambda **options: weighed(build(name, width=16, heads=2, grid=(2, 2), layers=2, **options), 1)


def of_wrapper(name):
    """The options of a wrapper are given under its name."""
    return lambda **options: of_name(f"rope+{name}")(**{name: {k.partition(".")[2]: x for k, x in options.items()}})


WRITTEN = {(name, option) for name, _, away in ROWS for option in away}
REGISTERED = [*rows_of_methods(WRITTEN)]


def check_differences(call, away):
    """Each option makes a difference, the others at their defaults and away from them."""
    plain, all_away = call(), call(**away)
    assert not differ(plain, call()), "the call is not the same twice"
    for option, value in away.items():
        assert differ(plain, call(**{option: value})), f"{option} alone makes no difference"
        others = {key: other for key, other in away.items() if key != option}
        assert differ(all_away, call(**others)), f"{option} makes no difference beside {', '.join(others)}"


def test_every_option_has_a_row_and_every_row_an_option():
    registered = {(name, option) for name, _, away in REGISTERED for option in away}
    missing, spare = OPTIONAL - WRITTEN - registered - set(EXCUSED), (WRITTEN | set(EXCUSED)) - OPTIONAL
    assert not missing, f"give these a call and a value away from their defaults: {sorted(missing)}"
    assert not spare, f"no such option: {sorted(spare)}"


@pytest.mark.parametrize("name", methods.METHODS)
def test_every_option_of_a_method_has_a_value_away_from_its_default(name):
    assert methods.METHODS[name].options.keys() == encodings.options_of(name).keys()


@pytest.mark.parametrize(("name", "call", "away"), ROWS + REGISTERED, ids=lambda x: x if isinstance(x, str) else "")
def test_every_option_makes_a_difference(name, call, away):
    check_differences(call, away)
