"""What a call gives has the device and the precision of its arguments, whatever PyTorch takes by default.

Each call is made twice: as things stand, and where new tensors come in float64 on the meta device, which holds no
numbers and lets nothing of another device near it. A third call has the arguments themselves there, where nothing of
theirs may be left on the processor.
"""

import contextlib

import pytest
import test_batches
import test_laws
import torch
from torch.testing import assert_close

from geolib import attention, conformal, connection, lie, locality, masks, recurrence, rotations, sympow, transport
from geolib.encodings import build
from geolib.recurrence import _chunks_cpu

TABLES = (
    sympow.monomials,
    sympow.variables,
    sympow._root_weights,
    sympow._raised,
    sympow._entries,
    _chunks_cpu._layout,
)
PLACES = torch.tensor([[0.0, 1.0], [2.0, 0.5], [1.0, 3.0]])
M = PLACES[:, 0]
CELLS = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [2.0, 1.0]])


def plain(*shape):
    return torch.randn(*shape)


def skew(n, *lead):
    return lie.skew_matrix(0.3 * plain(*lead, n * (n - 1) // 2), n)


def frames(preset, *arguments):
    """A preset's metrics, frames and scores."""

    def call(q, k, m, *given):
        made = preset(*given)
        return made.metrics(m), made.frames(m), made.scores(q, k, m), made.literal_scores(q, k, m)

    return call, lambda: [plain(3, 8), plain(3, 8), M, *(a() for a in arguments)]


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
    return [plain(1, 2, 7, 4), plain(1, 2, 7, 4), plain(1, 2, 7, 3), -torch.rand(1, 2, 7), plain(1, 2, 7, 2), *more]


def earlier():
    """A state."""
    q, k, v, gates, turns = texts()
    return list(recurrence.recurrent_form(q, k, v, 4, gates, turns)[1])


def in_chunks(*arguments):
    return recurrence.chunked_form(*arguments, chunk=3)


def in_large_products(*arguments):
    return recurrence.chunks.chunked_with(recurrence.chunks.by_large_products, *arguments, chunk=3)


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
    return [torch.eye(3) + 0.3 * plain(2, 3, 3, 3), torch.eye(3) + 0.3 * plain(3, 2, 3, 3)]


# Beside the functions that take a batch: (function, arguments).
CASES = {name: case for name, case in test_batches.CASES.items() if name != "turns_of"} | {
    "embed, power 1": (lambda v: sympow.embed(v, 1), lambda: [plain(5)]),
    "embed, power 5": (lambda v: sympow.embed(v, 5), lambda: [plain(5)]),
    "scalar_metric": (lambda m, s: conformal.scalar_metric(m, s, 3), lambda: [M, scale()]),
    "diagonal_metric": (conformal.diagonal_metric, lambda: [M, plain(4)]),
    "general_metric": (conformal.general_metric, lambda: [M, plain(4), plain(2)]),
    "bounded_log_scale": (conformal.bounded_log_scale, lambda: [plain(3)]),
    "bounded_raw": (conformal.bounded_raw, lambda: [torch.rand(3)]),
    "slow_exponent": (conformal.slow_exponent, lambda: [1 + M]),
    "reach": (lambda s: conformal.reach(s, torch.float16), lambda: [plain(3)]),
    "mixed_pairs": (transport.mixed_pairs, lambda: [plain(3, 8), plain(3, 4)]),
    "scale_features": (transport.scale_features, lambda: [plain(3, 8), plain(3, 1)]),
    "equivalent_frequencies": (transport.equivalent_frequencies, lambda: [plain(4)]),
    "rotation_preset": frames(transport.rotation_preset, scale, speeds),
    "skew_preset": frames(transport.skew_preset, scale, lambda: skew(8)),
    "diagonal_preset": frames(transport.diagonal_preset, lambda: 0.1 * plain(8), speeds),
    "reflection_preset": frames(transport.reflection_preset, scale, speeds),
    "mixed_preset": frames(transport.mixed_preset, scale, speeds),
    "general_preset": frames(transport.general_preset, lambda: 0.1 * plain(8), speeds),
    "transposed_scores": (transport.transposed_scores, lambda: [plain(3, 4), plain(3, 4), plain(3, 4, 4)]),
    "interpolated": (lambda f: rotations.interpolated(f, 2.0), lambda: [speeds()[:, None]]),
    "ntk_aware": (lambda f: rotations.ntk_aware(f, 2.0), lambda: [speeds()[:, None]]),
    "ntk_by_parts": (lambda f: rotations.ntk_by_parts(f, 2.0, 100), lambda: [speeds()[:, None]]),
    "rescale_positions": (lambda p: rotations.rescale_positions(p, (4, 4), (8, 6)), lambda: [PLACES]),
    "half_split_rows": (lambda w: rotations.half_split_rows(w, 2, 4), lambda: [plain(12, 3)]),
    "interleaved_rows": (lambda w: rotations.interleaved_rows(w, 2, 4), lambda: [plain(12, 3)]),
    "exp_isoclinic": (lie.exp_isoclinic, lambda: [skew(4)]),
    "isoclinic_parts": (lie.isoclinic_parts, lambda: [skew(4)]),
    "exp_pade": (lambda A: lie.exp_pade(A, 6, 2), lambda: [skew(5)]),
    "decorrelation_length": (lie.decorrelation_length, lambda: [plain(4)]),
    "shift_deviation": (lie.shift_deviation, lambda: [skew(4, 2), plain(2), plain(2), plain(2)]),
    "position_rotations, lines": (
        lambda p, g: lie.position_rotations(p, g, lie.find_rays(p)),
        lambda: [CELLS, skew(4, 2)],
    ),
    "position_rotations": (lie.position_rotations, lambda: [CELLS, skew(5, 2)]),
    "placed_rotations": (lie.placed_rotations, lambda: [CELLS, skew(3, 2)]),
    "placed_rotations, planes": (lie.placed_rotations, lambda: [CELLS, skew(2, 2)]),
    "turn_blocks": (lie.turn_blocks, lambda: [plain(1, 1, 4, 8), lie.exp_skew(skew(4, 1, 4, 2))]),
    "whiten": (locality.whiten, lambda: [PLACES, torch.eye(2)]),
    "log_attenuation": (locality.log_attenuation, lambda: [PLACES, torch.ones(1), torch.eye(2)]),
    "attenuation, each query its own": (locality.attenuation, lambda: [PLACES, torch.ones(3)]),
    "pad_unplaced": (lambda omega: locality.pad_unplaced(omega, 5), lambda: [plain(3, 3)]),
    "focused_attention": (
        locality.focused_attention,
        lambda: [plain(2, 5, 4), plain(2, 5, 4), plain(2, 5, 3), PLACES, torch.ones(1), torch.eye(2)],
    ),
    "fused_focused_attention": (
        locality.fused_focused_attention,
        lambda: [plain(2, 5, 4), plain(2, 5, 4), plain(2, 5, 3), PLACES, torch.ones(1), torch.eye(2)],
    ),
    "extended": (lambda x, q: attention.extended(x, q, q, 1.0), lambda: [plain(3, 3), plain(5, 4)]),
    "future": (attention.future, lambda: [plain(3, 4), plain(5, 4)]),
    "document_mask": (masks.document_mask, lambda: [M]),
    "document_positions": (masks.document_positions, lambda: [M]),
    "padding_mask": (lambda lengths: masks.padding_mask(lengths.long(), 5), lambda: [M]),
    "attention, a mask": (
        lambda q, k, v: attention.attention(q, k, v, causal=True, mask=k[..., 0] < 9),
        lambda: [plain(2, 3, 4), plain(3, 4), plain(2, 3, 4)],
    ),
    "empty_state": (lambda k, v: recurrence.empty_state(k, v, 2), lambda: [plain(1, 2, 3, 4), plain(1, 2, 3, 5)]),
    "attention_form": (attended(recurrence.attention_form), texts),
    "softmax_form": (lambda q, k, v, gates, turns: recurrence.softmax_form(q, k, v, 4, gates), texts),
    "one_chunk_form": (lambda *a: recurrence.one_chunk_form(*a[:3], 4, *a[3:]), texts),
    "recurrent_form": (attended(recurrence.recurrent_form), texts),
    "recurrent_form, a state": (attended(recurrence.recurrent_form), lambda: texts(*earlier())),
    "chunked_form": (attended(in_chunks), texts),
    "chunked_form, a state": (attended(in_chunks), lambda: texts(*earlier())),
    "large products": (attended(in_large_products), texts),
    "large products, neither gates nor turns": (lambda *qkv: in_large_products(*qkv, 4)[0], lambda: texts()[:3]),
    "large products, their derivative": (derivative(in_large_products), texts),
    "chunked_form, its derivative": (derivative(in_chunks), texts),
    "large products, a state": (attended(in_large_products), lambda: texts(*earlier())),
    "cayley_rotation": (connection.cayley_rotation, lambda: [plain(5, 3)]),
    "line_frames": (lambda steps: connection.line_frames(steps, 1), lambda: [plain(2, 4, 3, 3)]),
    "carried_scores": (
        lambda u, w, *entering: connection.carried_scores(u, w, entering),
        lambda: [plain(2, 3, 1, 3), plain(2, 3, 1, 3), plain(2, 3, 3, 3), plain(2, 3, 3, 3)],
    ),
    "transport_along": (
        of_connection(lambda grid: connection.transport_along(grid, [(0, 0), (1, 0), (1, 1)])),
        steps_of_a_grid,
    ),
    "plaquettes": (of_connection(connection.plaquettes), steps_of_a_grid),
    "flatness_defect": (of_connection(connection.flatness_defect), steps_of_a_grid),
    "to_frames": (of_connection(connection.to_frames), steps_of_a_grid),
    "from_frames": (
        lambda frames: connection.from_frames(frames, 2).steps,
        lambda: [torch.eye(3) + 0.3 * plain(3, 4, 3, 3)],
    ),
    "gauge_transform": (
        lambda change, *steps: of_connection(lambda grid: connection.gauge_transform(grid, change))(*steps),
        lambda: [torch.eye(3) + 0.3 * plain(3, 3, 3, 3), *steps_of_a_grid()],
    ),
    "turning_steps": (
        lambda a, b, theta: connection.turning_steps([a, b], theta).steps,
        lambda: [plain(2, 3), plain(3, 2), plain(2)],
    ),
    "conformal_steps": (
        lambda *data: connection.conformal_steps(*data).steps,
        lambda: [plain(3, 3), plain(3, 3), plain(2)],
    ),
    "householder_steps": (
        lambda w, beta: connection.householder_steps(w, beta).steps,
        lambda: [plain(5, 3), 0.3 * torch.rand(5)],
    ),
    "generator_steps": (lambda A: connection.generator_steps(A, (3, 3)).steps, lambda: [skew(3, 2)]),
}
# These look at the numbers they are given, and the meta device has none.
LOOKING = {
    *("unit_ball", "metric_root", "conformal_deviation", "bounded_raw", "slow_exponent", "cayley", "log_rotation"),
    *("exp_skew", "exp_skew, a plane", "exp_skew, space", "exp_pade", "exp_isoclinic", "isoclinic_parts"),
    *("spectrum", "small_rotation_error", "plane_weights", "relativity_defect", "first_order_defect"),
    *("position_rotations", "position_rotations, lines", "placed_rotations", "placed_rotations, planes"),
    *("shift_deviation", "decorrelation_length", "skew_preset", "whiten", "log_attenuation", "focused_attention"),
    *("attenuation, each query its own", "fused_focused_attention", "rotation_preset", "diagonal_preset"),
    *("reflection_preset", "mixed_preset", "general_preset", "one_chunk_form", "transport_along", "plaquettes"),
    *("flatness_defect", "to_frames", "from_frames", "gauge_transform", "turning_steps", "conformal_steps"),
    *("householder_steps", "generator_steps"),
}


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


@pytest.mark.parametrize("name", [name for name in CASES if name not in LOOKING])
def test_what_stands_on_a_device_stays_there(name):
    function, draw = CASES[name]
    arguments = [a.float() for a in draw()]
    wanted, got = parts(function(*arguments)), parts(function(*(a.to("meta") for a in arguments)))
    assert [(a.shape, a.dtype, "meta") for a in wanted] == [(a.shape, a.dtype, a.device.type) for a in got]


@pytest.mark.parametrize("grid", [(4,), (2, 2)], ids=["1d", "2d"])
@pytest.mark.parametrize("name", test_laws.NAMES)
def test_methods_take_the_arguments_device_and_precision(name, grid):
    encoding = build(name, width=24, heads=2, grid=grid, layers=2)
    q, k, x, cells = plain(1, 2, 4, 12), plain(1, 2, 4, 12), plain(1, 4, 24), rotations.grid_positions(*grid)

    def call():
        found = [encoding.embed(x, cells)]
        for placed in (encoding.place(cells).layer(1), encoding.place(cells, cells.clone()).layer(0)):
            found += [*placed.to_reference(q, k), test_laws.weights_of(placed, q, k, x)]
            found += [y for y in (placed.log_gate(x), placed.attenuation()) if y is not None]
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
