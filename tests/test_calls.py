"""Calls of the library's functions, in one table, and the laws that hold for them.

A batch is its samples. What a call gives has the device and the precision of its arguments, whatever PyTorch takes by
default. Where arguments differ in precision, the widest decides what is computed in, and the result is rounded once.
"""

import contextlib
from functools import partial

import pytest
import test_laws
import torch
from torch.testing import assert_close

from geolib import attention, conformal, connection, lie, locality, masks, recurrence, rotations, sympow, transport
from geolib.encodings import build

F16, F32, F64 = torch.float16, torch.float32, torch.float64
LEAD = (2, 7)  # sizes that no other dimension has together
TABLES = (sympow.monomials, sympow.variables, sympow._root_weights, sympow._raised, sympow._entries)
PLACES = torch.tensor([[0.0, 1.0], [2.0, 0.5], [1.0, 3.0]])
M = PLACES[:, 0]
PATH = [(0, 0), (1, 0), (1, 1)]
CELLS = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [2.0, 1.0]])

# With two leading dimensions ------------------------------------------------------------------------------------------


def plain(*shape):
    return torch.randn(*LEAD, *shape, dtype=F64)


def skew(n):
    return lie.skew_matrix(plain(n * (n - 1) // 2), n)


def rotation(n):
    return lie.exp_skew(0.3 * skew(n))


def metric(n):
    return (0.2 * (a := plain(n, n)) + 0.2 * a.mT).matrix_exp()


def gates(*shape):
    return -torch.rand(*LEAD, *shape, dtype=F64)


def gated(function):
    """A function that takes a gate and an attenuation last."""
    return lambda *given: function(*given[:-2], log_gate=given[-2], attenuation=given[-1])


weights, attenuated = gated(attention.attention_weights), gated(attention.attention)


BATCHED = {
    "rotation_matrix": (rotations.rotation_matrix, lambda: [plain()]),
    "reflection_matrix": (rotations.reflection_matrix, lambda: [plain()]),
    "block_diagonal": (rotations.block_diagonal, lambda: [plain(3, 2, 2)]),
    "plane_generator": (rotations.plane_generator, lambda: [plain(3)]),
    "mixed_matrix": (rotations.mixed_matrix, lambda: [plain(4)]),
    "inverse_mixed_angles": (rotations.inverse_mixed_angles, lambda: [plain(4)]),
    "rotate_pairs": (rotations.rotate_pairs, lambda: [plain(6), plain(3)]),
    "rotate_pairs, some": (rotations.rotate_pairs, lambda: [plain(6), plain(2)]),
    "reflect_pairs": (rotations.reflect_pairs, lambda: [plain(6), plain(3)]),
    "pair_angles": (rotations.pair_angles, lambda: [plain(5, 2), plain(3, 2)]),
    "rope": (rotations.rope, lambda: [plain(5, 6), plain(5, 2), plain(3, 2)]),
    "to_half_split": (rotations.to_half_split, lambda: [plain(6)]),
    "to_interleaved": (rotations.to_interleaved, lambda: [plain(6)]),
    "unit_ball": (lambda m: conformal.unit_ball(m, samples=5), lambda: [metric(2)]),
    "metric_root": (conformal.metric_root, lambda: [metric(3)]),
    "conformal_matrix": (conformal.conformal_matrix, lambda: [plain(), rotation(3)]),
    "conformal_factor": (conformal.conformal_factor, lambda: [plain(3, 3)]),
    "conformal_deviation": (conformal.conformal_deviation, lambda: [plain(3, 3)]),
    "skew_matrix": (lambda entries: lie.skew_matrix(entries, 4), lambda: [plain(6)]),
    "upper_entries": (lie.upper_entries, lambda: [skew(4)]),
    "commutator": (lie.commutator, lambda: [plain(3, 3), plain(3, 3)]),
    "bch": (lie.bch, lambda: [skew(3), skew(3)]),
    "exp_skew, a plane": (lie.exp_skew, lambda: [skew(2)]),
    "exp_skew, space": (lie.exp_skew, lambda: [skew(3)]),
    "exp_skew": (lie.exp_skew, lambda: [skew(5)]),
    "cayley": (lie.cayley, lambda: [skew(4)]),
    "log_rotation": (lie.log_rotation, lambda: [rotation(4)]),
    "spectrum": (lie.spectrum, lambda: [skew(5)]),
    "small_rotation_error": (lie.small_rotation_error, lambda: [skew(4)]),
    "plane_weights": (lie.plane_weights, lambda: [plain(4), skew(4)]),
    "relativity_defect": (lie.relativity_defect, lambda: [skew(4), skew(4)]),
    "first_order_defect": (lie.first_order_defect, lambda: [skew(4), skew(4)]),
    "focus_one_query": (locality.focus_one_query, lambda: [plain(5), plain(5), plain(5, 3)]),
    "precision_root": (locality.precision_root, lambda: [plain(2, 2)]),
    "precision_matrix": (locality.precision_matrix, lambda: [plain(2, 2)]),
    "attention_weights": (weights, lambda: [plain(5, 4), plain(6, 4), plain(5, 6), plain(5, 6).abs()]),
    "attention": (attention.attention, lambda: [plain(5, 4), plain(6, 4), plain(6, 3)]),
    "attention, causal": (partial(attention.attention, causal=True), lambda: [plain(5, 4), plain(6, 4), plain(6, 3)]),
    "log_decay": (recurrence.log_decay, lambda: [gates(5)]),
    "cumulative_angles": (recurrence.cumulative_angles, lambda: [plain(5, 2), plain(2)]),
    "log_gates": (recurrence.log_gates, lambda: [plain(5)]),
    "turns_of": (lambda rates: recurrence.turns_of(rates, torch.tensor([[1.0], [0.1]])), lambda: [plain(5)]),
    "embed": (lambda v: sympow.embed(v, 4), lambda: [plain(3)]),
    "lift": (lambda m: sympow.lift(m, 2), lambda: [plain(3, 3)]),
    "to_tensor": (lambda s: sympow.to_tensor(s, 3, 2), lambda: [plain(6)]),
    "act": (lambda m, s: sympow.act(m, s, 2), lambda: [plain(3, 3), plain(6)]),
}

# In float64, any argument of which may be the widest ------------------------------------------------------------------


def wide(*shape):
    return torch.randn(*shape, dtype=F64)


def skews(n):
    return lie.skew_matrix(wide(3, n * (n - 1) // 2), n)


def widths(*shape):
    return 0.5 + torch.rand(*shape, dtype=F64)


def spd(*shape):
    root = wide(*shape, shape[-1])
    return root @ root.mT + torch.eye(shape[-1], dtype=F64)


def turns(*shape):
    return lie.exp_skew(lie.skew_matrix(wide(*shape, 3), 3))


def apart(q, k, v):
    """Queries, keys and values of these sizes at five tokens, one head."""
    return [wide(1, 5, q), wide(1, 5, k), wide(1, 5, v)]


def along(u, w, *entering):
    return connection.carried_scores(u, w, [turn.narrow(a, 1, 1) for a, turn in enumerate(entering)])


def pairs():
    """Queries, keys and values of five tokens; no score is near 0, where a state has fewer digits."""
    return [widths(1, 1, 5, 4), widths(1, 1, 5, 4), wide(1, 1, 5, 3)]


def after(form, q, k, v, before):
    """A form's output from a state on, whose last row counts."""
    state = recurrence.State(before[:, :, :-1], before[:, :, -1], before.new_zeros(1, 1, 2, dtype=F64))
    return form(q, k, v, 2, state=state)[0].output


def one_step(q, k, v, before):
    """The first token's output by the conformal form, from a state on."""
    state = recurrence.State(before[:, :, :-1], before[:, :, -1], before.new_zeros(1, 1, 2, dtype=F64))
    still = torch.zeros(1, 1), torch.zeros(1, 1, 2)
    return recurrence.conformal_step(state, *(t[:, :, 0] for t in (q, k, v)), 2, *still)[0]


MIXED = {
    "scalar_metric": (lambda p, s: conformal.scalar_metric(p, s, 3), lambda: [wide(5), wide(1)[0]]),
    "diagonal_metric": (conformal.diagonal_metric, lambda: [wide(5), wide(6)]),
    "general_metric": (conformal.general_metric, lambda: [wide(5), wide(6), wide(3)]),
    "scale_features": (transport.scale_features, lambda: [wide(5, 6), wide(5, 1)]),
    "scale_features, one factor": (transport.scale_features, lambda: [wide(5, 6), wide(1)[0]]),
    "squared_length": (transport.squared_length, lambda: [wide(5, 3), spd(5, 3)]),
    "pulled_back_metrics": (transport.pulled_back_metrics, lambda: [spd(5, 3), turns(5)]),
    "reference_metrics": (transport.reference_metrics, lambda: [spd(5, 3), turns(5)]),
    "compatibility": (transport.compatibility, lambda: [spd(5, 3), turns(5)]),
    "compatible_frames": (transport.compatible_frames, lambda: [spd(5, 3), turns(5)]),
    "literal_scores": (transport.literal_scores, lambda: [wide(5, 3), wide(5, 3), spd(5, 3), turns(5)]),
    "transposed_scores": (transport.transposed_scores, lambda: [wide(5, 3), wide(5, 3), turns(5)]),
    "whiten": (locality.whiten, lambda: [wide(5, 2), spd(2)]),
    "log_attenuation": (locality.log_attenuation, lambda: [wide(5, 2), widths(5)]),
    "attenuation, a precision": (locality.attenuation, lambda: [wide(5, 2), widths(5), spd(2)]),
    "bilateral_filter": (locality.bilateral_filter, lambda: [wide(4, 5), wide(4, 5), wide(5, 3)]),
    "focused_attention": (locality.focused_attention, lambda: [*apart(4, 4, 3), wide(5, 2), widths(5), spd(2)]),
    "focused_attention_by_lse": (locality.focused_attention_by_lse, lambda: [*apart(4, 4, 3), wide(5, 5)]),
    "fused_focused_attention": (locality.fused_focused_attention, lambda: [*apart(4, 4, 3), wide(5, 2), widths(5)]),
    "fused_focused_attention, A": (
        locality.fused_focused_attention,
        lambda: [*apart(4, 4, 4), wide(5, 2), widths(1), spd(2)],
    ),
    "position_rotations": (lie.position_rotations, lambda: [wide(5, 3), skews(4)]),
    "position_rotations, a grid": (lie.position_rotations, lambda: [0.1 * rotations.grid_positions(3, 3, 2), skews(4)]),
    "add_up": (attention.add_up, lambda: [wide(5, 6), wide(6, 4)]),
    "carried_scores": (along, lambda: [wide(2, 2, 1, 3), wide(2, 2, 1, 3), turns(2, 2), turns(2, 2)]),
    "attention, attenuated": (attenuated, lambda: [wide(5, 4), wide(6, 4), wide(6, 3), wide(5, 6), widths(5, 6)]),
    "attention_form": (lambda *qkv: recurrence.attention_form(*qkv, 2).output, pairs),
    "one_chunk_form": (lambda *qkv: recurrence.one_chunk_form(*qkv, 2), pairs),
    "recurrent_form": (partial(after, recurrence.recurrent_form), lambda: [*pairs(), widths(1, 1, 4, 10)]),
    "chunked_form": (partial(after, recurrence.chunked_form), lambda: [*pairs(), widths(1, 1, 4, 10)]),
    "conformal_step": (one_step, lambda: [*pairs(), widths(1, 1, 4, 10)]),
    "softmax_form": (
        lambda q, k, v, gates: recurrence.softmax_form(q, k, v, 2, gates),
        lambda: [*(x[None] for x in apart(4, 4, 3)), -widths(1, 1, 5)],
    ),
    "fused_form": (
        lambda q, k, v: recurrence.fused_form(q, k, v, 2, torch.full((1, 1, 5), -0.3)).output,
        lambda: [x[None] for x in apart(16, 16, 16)],
    ),
}
# Of the first table too. Those that compute angles, exponentials or weights may also come half as wide as float32.
SHARED = ("rotate_pairs", "rope", "attention_weights", "attention", "conformal_matrix", "focus_one_query")
MIXED |= {name: BATCHED[name] for name in (*SHARED, "commutator", "relativity_defect", "reflect_pairs")}
ANGLES = {
    *("scale_features", "rotate_pairs", "rope", "whiten", "log_attenuation", "attenuation", "attention", "exp_skew"),
    *("focused_attention", "fused_focused_attention", "position_rotations", "attention_weights", "add_up"),
    *("log_rotation", "reflect_pairs"),
}
HALVES = {name: case for name, case in (BATCHED | MIXED).items() if name.partition(",")[0] in ANGLES}


# And others, in float32 -----------------------------------------------------------------------------------------------


narrow = torch.randn


def small_skew(n, *lead):
    return lie.skew_matrix(0.3 * narrow(*lead, n * (n - 1) // 2), n)


def frames(preset, *arguments):
    """A preset's metrics, frames and scores."""

    def call(q, k, m, *given):
        made = preset(*given)
        return made.metrics(m), made.frames(m), made.scores(q, k, m), made.literal_scores(q, k, m)

    return call, lambda: [narrow(3, 8), narrow(3, 8), M, *(a() for a in arguments)]


def scale():
    return torch.tensor(-0.1)


def speeds():
    return 0.1 + torch.rand(4)


def attended(form):
    """A form's output and normaliser, and what it carries on from a state of keys before."""

    def call(q, k, v, gates, turns, *before):
        result = form(q, k, v, 4, gates, turns, *([recurrence.State(*before)] if before else []))
        return result if isinstance(result, recurrence.Attended) else [*result[0], *result[1]]

    return call


def texts(*more):
    """Queries, keys, values, gates and turns of seven tokens."""
    return [narrow(1, 2, 7, 4), narrow(1, 2, 7, 4), narrow(1, 2, 7, 3), -torch.rand(1, 2, 7), narrow(1, 2, 7, 2), *more]


def earlier():
    """A state."""
    q, k, v, gates, turns = texts()
    return list(recurrence.recurrent_form(q, k, v, 4, gates, turns)[1])


in_chunks = partial(recurrence.chunked_form, chunk=3)
in_large_products = partial(recurrence.chunks.chunked_with, recurrence.chunks.by_large_products, chunk=3)


def derivative(form):
    """The derivative of a form's output by all that it takes."""

    def call(*given):
        q, k, v, gates, turns = given = [t.detach().requires_grad_() for t in given]
        return torch.autograd.grad(form(q, k, v, 4, gates, turns)[0].output.sum(), given)

    return call


def of_connection(function):
    """A function of the connection with these steps."""

    def call(*steps):
        result = function(connection.Connection(steps))
        return result.steps if isinstance(result, connection.Connection) else result

    return call


def steps_of_a_grid():
    return [torch.eye(3) + 0.3 * narrow(2, 3, 3, 3), torch.eye(3) + 0.3 * narrow(3, 2, 3, 3)]


OTHERS = {
    "embed, power 1": (lambda v: sympow.embed(v, 1), lambda: [narrow(5)]),
    "embed, power 5": (lambda v: sympow.embed(v, 5), lambda: [narrow(5)]),
    "bounded_log_scale": (conformal.bounded_log_scale, lambda: [narrow(3)]),
    "bounded_law": (conformal.bounded_law().raw, lambda: [torch.rand(3)]),
    "slow_law": (conformal.slow_law().exponent, lambda: [M]),
    "reach": (lambda s: conformal.reach(s, torch.float16), lambda: [narrow(3)]),
    "mixed_pairs": (transport.mixed_pairs, lambda: [narrow(3, 8), narrow(3, 4)]),
    "equivalent_frequencies": (transport.equivalent_frequencies, lambda: [narrow(4)]),
    "rotation_preset": frames(transport.rotation_preset, scale, speeds),
    "skew_preset": frames(transport.skew_preset, scale, lambda: small_skew(8)),
    "diagonal_preset": frames(transport.diagonal_preset, lambda: 0.1 * narrow(8), speeds),
    "reflection_preset": frames(transport.reflection_preset, scale, speeds),
    "mixed_preset": frames(transport.mixed_preset, scale, speeds),
    "general_preset": frames(transport.general_preset, lambda: 0.1 * narrow(8), speeds),
    "interpolated": (lambda f: rotations.interpolated(f, 2.0), lambda: [speeds()[:, None]]),
    "ntk_aware": (lambda f: rotations.ntk_aware(f, 2.0), lambda: [speeds()[:, None]]),
    "ntk_by_parts": (lambda f: rotations.ntk_by_parts(f, 2.0, 100), lambda: [speeds()[:, None]]),
    "rescale_positions": (lambda p: rotations.rescale_positions(p, (4, 4), (8, 6)), lambda: [PLACES]),
    "half_split_rows": (lambda w: rotations.half_split_rows(w, 2, 4), lambda: [narrow(12, 3)]),
    "interleaved_rows": (lambda w: rotations.interleaved_rows(w, 2, 4), lambda: [narrow(12, 3)]),
    "exp_isoclinic": (lie.exp_isoclinic, lambda: [small_skew(4)]),
    "isoclinic_parts": (lie.isoclinic_parts, lambda: [small_skew(4)]),
    "exp_pade": (lambda A: lie.exp_pade(A, 6, 2), lambda: [small_skew(5)]),
    "decorrelation_length": (lie.decorrelation_length, lambda: [narrow(4)]),
    "shift_deviation": (lie.shift_deviation, lambda: [small_skew(4, 2), narrow(2), narrow(2), narrow(2)]),
    "position_rotations, lines": (
        lambda p, A: lie.position_rotations(p, A, lie.find_rays(p)),
        lambda: [CELLS, small_skew(4, 2)],
    ),
    "placed_rotations": (lie.placed_rotations, lambda: [CELLS, small_skew(3, 2)]),
    "placed_rotations, planes": (lie.placed_rotations, lambda: [CELLS, small_skew(2, 2)]),
    "turn_blocks": (lie.turn_blocks, lambda: [narrow(1, 1, 4, 8), lie.exp_skew(small_skew(4, 1, 4, 2))]),
    "attenuation, each query its own": (locality.attenuation, lambda: [PLACES, torch.ones(3)]),
    "document_mask": (masks.document_mask, lambda: [M]),
    "document_positions": (masks.document_positions, lambda: [M]),
    "padding_mask": (lambda lengths: masks.padding_mask(lengths.long(), 5), lambda: [M]),
    "attention, a mask": (
        lambda q, k, v: attention.attention(q, k, v, causal=True, mask=k[..., 0] < 9),
        lambda: [narrow(2, 3, 4), narrow(3, 4), narrow(2, 3, 4)],
    ),
    "empty_state": (lambda k, v: recurrence.empty_state(k, v, 2), lambda: [narrow(1, 2, 3, 4), narrow(1, 2, 3, 5)]),
    "recurrent_form, a state": (attended(recurrence.recurrent_form), lambda: texts(*earlier())),
    "chunked_form, a state": (attended(in_chunks), lambda: texts(*earlier())),
    "large products": (attended(in_large_products), texts),
    "large products, neither gates nor turns": (lambda *qkv: in_large_products(*qkv, 4)[0], lambda: texts()[:3]),
    "large products, their derivative": (derivative(in_large_products), texts),
    "chunked_form, its derivative": (derivative(in_chunks), texts),
    "large products, a state": (attended(in_large_products), lambda: texts(*earlier())),
    "cayley_rotation": (connection.cayley_rotation, lambda: [narrow(5, 3)]),
    "line_frames": (lambda steps: connection.line_frames(steps, 1), lambda: [narrow(2, 4, 3, 3)]),
    "transport_along": (of_connection(lambda grid: connection.transport_along(grid, PATH)), steps_of_a_grid),
    "plaquettes": (of_connection(connection.plaquettes), steps_of_a_grid),
    "flatness_defect": (of_connection(connection.flatness_defect), steps_of_a_grid),
    "to_frames": (of_connection(connection.to_frames), steps_of_a_grid),
    "from_frames": (lambda f: connection.from_frames(f, 2).steps, lambda: [torch.eye(3) + 0.3 * narrow(3, 4, 3, 3)]),
    "gauge_transform": (
        lambda change, *steps: of_connection(lambda grid: connection.gauge_transform(grid, change))(*steps),
        lambda: [torch.eye(3) + 0.3 * narrow(3, 3, 3, 3), *steps_of_a_grid()],
    ),
    "turning_steps": (
        lambda a, b, theta: connection.turning_steps([a, b], theta).steps,
        lambda: [narrow(2, 3), narrow(3, 2), narrow(2)],
    ),
    "conformal_steps": (
        lambda *x: connection.conformal_steps(*x).steps,
        lambda: [narrow(3, 3), narrow(3, 3), narrow(2)],
    ),
    "householder_steps": (lambda *x: connection.householder_steps(*x).steps, lambda: [narrow(5, 3), torch.rand(5) / 3]),
    "generator_steps": (lambda A: connection.generator_steps(A, (3, 3)).steps, lambda: [small_skew(3, 2)]),
}
ASIDE = {"turns_of", "conformal_step", "fused_form"}  # with tables of their own inside
CASES = {name: case for name, case in (BATCHED | MIXED | OTHERS).items() if name not in ASIDE}

# The laws -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BATCHED)
def test_a_batch_is_its_samples(name):
    function, draw = BATCHED[name]
    arguments = draw()
    whole = function(*arguments)
    for i in range(LEAD[0]):
        for j in range(LEAD[1]):
            one = function(*(a[i, j] for a in arguments))
            for got, wanted in zip(*(x if isinstance(x, tuple) else (x,) for x in (whole, one))):
                assert_close(got[i, j], wanted, atol=1e-12, rtol=1e-10)


def once_rounded(function, arguments):
    """The result, and the one of the same numbers in float64 rounded to its precision."""
    result = function(*arguments)
    return result, function(*(a.double() for a in arguments)).to(result.dtype)


@pytest.mark.parametrize("name", MIXED)
def test_the_widest_argument_decides_what_is_computed_in(name):
    function, draw = MIXED[name]
    drawn = draw()
    for wide in range(len(drawn)):
        result, wanted = once_rounded(function, [a.double() if i == wide else a.float() for i, a in enumerate(drawn)])
        ulp = torch.finfo(result.dtype).eps / 2 if result.dtype == F32 else 1e-13
        assert (result - wanted).abs().max() <= 1.01 * ulp * wanted.abs().max(), f"argument {wide} in float64"


@pytest.mark.parametrize("name", HALVES)
def test_what_comes_in_half_precision_is_rounded_once(name):
    function, draw = HALVES[name]
    result, wanted = once_rounded(function, [a.half() for a in draw()])
    ulp = torch.finfo(result.dtype).eps if result.dtype == F16 else 1e-5
    assert (result - wanted).abs().max() <= 0.51 * ulp * wanted.abs().max()


@contextlib.contextmanager
def other_defaults():
    """New tensors come in float64 without numbers, and no table is there from before."""
    for table in TABLES:
        table.cache_clear()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def parts(result):
    return result if isinstance(result, (tuple, list)) else (result,)


def same(call):
    """A call's results, where nothing has changed and where the defaults have."""
    wanted = parts(call())
    with other_defaults():
        got = parts(call())
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        assert (a.dtype, a.device) == (b.dtype, b.device)
        assert_close(a, b, equal_nan=True)


@pytest.mark.parametrize("name", CASES)
def test_the_arguments_decide_and_not_the_defaults(name):
    function, draw = CASES[name]
    arguments = [a.float() for a in draw()]
    same(lambda: function(*arguments))


def test_what_stands_on_a_device_stays_there():
    """The meta device has no numbers: of those that look at what they are given, these are as many as they were."""
    looking = []
    for name, (function, draw) in CASES.items():
        arguments = [a.float() for a in draw()]
        wanted = [(a.shape, a.dtype, "meta") for a in parts(function(*arguments))]
        try:
            got = parts(function(*(a.to("meta") for a in arguments)))
        except (NotImplementedError, RuntimeError):
            looking.append(name)
        else:
            assert [(a.shape, a.dtype, a.device.type) for a in got] == wanted, name
    assert len(looking) == 33, looking


@pytest.mark.parametrize("grid", [(4,), (2, 2)], ids=["1d", "2d"])
@pytest.mark.parametrize("name", test_laws.NAMES)
def test_methods_take_the_arguments_device_and_precision(name, grid):
    encoding, cells = test_laws.made(name, grid), rotations.grid_positions(*grid)
    q, k, x = narrow(1, 2, 4, 12), narrow(1, 2, 4, 12), narrow(1, 4, 24)

    def call():
        found = [encoding.embed(x, cells)]
        for placed in (encoding.place(cells).layer(1), encoding.place(cells, cells.clone()).layer(0)):
            found += [*test_laws.hooks(placed, q, k, x), test_laws.weights_of(placed, q, k, x)]
        return [y.detach() for y in found]

    same(call)


@pytest.mark.parametrize("name", ["rope", "sympow-gates", "rope-pair", "alibi", "rmt"])
def test_constants_keep_their_digits_where_models_are_built_in_bfloat16(name):
    """271 columns are 270 in bfloat16, and a row would begin a cell too early."""
    setting = {"width": 32, "heads": 4, "grid": (37, 271)}
    wanted = dict(build(name, **setting).named_buffers())
    torch.set_default_dtype(torch.bfloat16)
    try:
        made = dict(build(name, **setting).named_buffers())
    finally:
        torch.set_default_dtype(torch.float32)
    assert wanted.keys() == made.keys() != set()
    for key, x in wanted.items():
        assert_close(made[key], x)
