"""Arguments refused that no other test has refused; ``tests/refusals.py`` says which are left."""

import re

import pytest
import torch

from geolib.attention import MultiHeadAttention, as_places, attention, attention_weights
from geolib.conformal import bounded_law, free_law, metric_root, slow_law
from geolib.encodings import (
    ALiBi,
    Carried,
    Composed,
    HalfSplit,
    Learned,
    LieRE,
    LocalityFocusing,
    ManhattanDecay,
    PerLayer,
    PowerScores,
    RiemannFormer,
    RoPE,
    Sinusoidal,
    SphericalRoPE,
    SympowEncoding,
    build,
    cis,
    options_of,
    turn_pairs,
)
from geolib.flex import flex_attend
from geolib.lie import (
    bch,
    entry_count,
    exp_pade,
    find_rays,
    first_order_defect,
    initial_top_angle,
    isoclinic_parts,
    log_rotation,
    position_rotations,
    skew_matrix,
)
from geolib.locality import log_attenuation
from geolib.manifolds import conformal_curvature, sphere_stereographic, torus
from geolib.masks import document_mask, padding_mask, starts_of
from geolib.recurrence import attention_form, empty_state, recurrent_form, score_modifier, softmax_form
from geolib.recurrence.chunks import by_chunks, chunked_with, one_chunk_form
from geolib.recurrence.layers import SympowAttention
from geolib.rotations import (
    alternating_frequencies,
    axial_frequencies,
    block_diagonal,
    grid_positions,
    half_split_rows,
    language_frequencies,
    ntk_by_parts,
    rescale_positions,
    yarn_frequencies,
    yarn_length,
)
from geolib.sympow import embed, lift, state_bytes
from geolib.transport import equivalent_frequencies, tangent_mappings

ABOVE_0 = "it must be a finite number above 0"
WHOLE = torch.ones(4, 4, dtype=torch.long)
PLACES = torch.zeros(3, 2)
Q = torch.ones(1, 1, 3, 4)
STATE = empty_state(Q, Q, 2)
FOCUSED = build("lf", width=4, heads=1, grid=(32, 32))

REFUSED = [
    (lambda: attention(Q, Q, Q[..., :2, :]), "v: got 2 tokens; k has 3; they must be equal"),
    (lambda: MultiHeadAttention(12, 3.0), "heads: got 3.0; it must be a whole number"),
    (lambda: MultiHeadAttention(10, 3), "heads: got 3; it must divide the width 10"),
    (lambda: MultiHeadAttention(10, 0), "heads: got 0; it must divide the width 10"),
    (lambda: attention_weights(Q, Q[..., :2]), "k: got shape (1, 1, 3, 2)"),
    (lambda: bounded_law(alpha=0.0), f"alpha: got 0.0; {ABOVE_0}"),
    (lambda: slow_law(alpha=-0.1), f"alpha: got -0.1; {ABOVE_0}"),
    (lambda: metric_root(torch.ones(2, 3)), "metric: got shape (2, 3); it must be (..., d, d)"),
    (lambda: Sinusoidal(8, 2).embed(torch.zeros(1, 3, 8), PLACES[:, :1]), "positions: got shape (3, 1)"),
    (lambda: Learned(8, (3, 3), std=0.0), f"std: got 0.0; {ABOVE_0}"),
    (lambda: Learned(8, (3, 3)).embed(torch.zeros(1, 3, 8), PLACES[:, :1]), "positions: got shape (3, 1)"),
    (lambda: RoPE(torch.ones(1, 2)).place(PLACES, [0.0]), "keys: got list; it must be a tensor"),
    (
        lambda: SphericalRoPE(torch.ones(2), axes=2).place(PLACES).to_reference(Q, Q),
        "frequencies: got 2 triples; x has 4 features",
    ),
    (lambda: entry_count(1), "width: got 1; a block has at least 2 rows"),
    (lambda: isoclinic_parts(WHOLE), "A: got torch.int64"),
    (lambda: isoclinic_parts([1.0]), "A: got list; it must be a tensor"),
    (lambda: exp_pade(WHOLE, 3, 1), "A: got torch.int64"),
    (lambda: first_order_defect(WHOLE, WHOLE), "V: got torch.int64"),
    (lambda: initial_top_angle(1), "width: got 1; a block has at least 2 rows"),
    (lambda: initial_top_angle(4, high=0.0), f"high: got 0.0; {ABOVE_0}"),
    (lambda: find_rays(torch.ones(3)), "positions: got shape (3,); it must be (tokens, axes)"),
    (
        lambda: position_rotations(PLACES, torch.zeros(2, 2)),
        "generators: got shape (2, 2); it must be (..., axes, b, b)",
    ),
    (lambda: sphere_stereographic(radius=0.0), f"radius: got 0.0; {ABOVE_0}"),
    (lambda: torus(minor=-1.0), f"minor: got -1.0; {ABOVE_0}"),
    (lambda: conformal_curvature(lambda x: x[0], torch.ones(3)), "points: got shape (3,)"),
    (
        lambda: recurrent_form(Q, Q, Q[..., :3], 2, state=STATE),
        "state: got S of shape (1, 1, 4, 10); it must be (1, 1, 3, 10)",
    ),
    (lambda: recurrent_form(Q, Q, Q, 2, state=STATE._replace(Z=STATE.Z.long())), "state: got torch.int64"),
    (lambda: chunked_with(by_chunks, Q, Q, Q, 3), "power: got 3"),
    (lambda: one_chunk_form(Q, Q, Q, 3), "power: got 3"),
    (lambda: softmax_form(Q, Q, Q, 3), "power: got 3"),
    (lambda: score_modifier(1), "power: got 1"),
    (lambda: empty_state(Q, Q, 3), "power: got 3"),
    (lambda: attention_form(Q, Q, Q, 0), "power: got 0"),
    (lambda: axial_frequencies(7, 2), "dim: got 7; it must be a positive even number"),
    (lambda: alternating_frequencies(7, 2), "dim: got 7; it must be a positive even number"),
    (lambda: rescale_positions([[1.0]], (8,), (8,)), "positions: got list"),
    (lambda: rescale_positions(PLACES, (8, 8), (8, 0)), f"trained and size: got 0; {ABOVE_0}"),
    (
        lambda: rescale_positions(PLACES, (8,), (8,)),
        "positions: got shape (3, 2); it must be (tokens, axes) with axes = 1",
    ),
    (
        lambda: ManhattanDecay(torch.tensor([0.5, 0.0])),
        "slopes: got tensor([0.5000, 0.0000]); one number above 0 for each head",
    ),
    (lambda: Sinusoidal(8, 2).embed(torch.zeros(1, 3, 8), PLACES[:, 0]), "positions: got shape (3,)"),
    (lambda: embed(torch.ones(2, dtype=torch.complex64), 2), "v: got torch.complex64; it must hold real numbers"),
    (lambda: embed([1.0], 2), "v: got list; it must be a tensor"),
    (lambda: log_attenuation(PLACES, torch.tensor(1.0)), "sigma: got shape ()"),
    (lambda: log_attenuation(PLACES, torch.zeros(1)), "sigma: got a width that is not"),
    (lambda: bch(torch.zeros(3, 3), torch.zeros(3, 3), order=4), "order: got 4; it must be"),
    (lambda: skew_matrix(torch.ones(4), 3), "entries: got shape (4,)"),
    (lambda: attention(Q, Q, Q, mask=torch.ones(3, 3)), "mask: got torch.float32"),
    (lambda: embed(torch.tensor(1.0), 2), "v: got shape (); it must be (..., d)"),
    (lambda: tangent_mappings(torch.ones(2, 3, 4)), "frames: got shape (2, 3, 4)"),
    (lambda: state_bytes(4, 2, layers=0, heads=1), "layers: got 0; it must be at least 1"),
    (lambda: embed(torch.ones(2), True), "power: got True; it must be a whole number"),
    (lambda: lift(torch.ones(2, 3), 2), "matrix: got shape (2, 3)"),
    (lambda: attention(Q, Q, Q, dropout=1.0), "dropout: got 1.0; a probability"),
    (lambda: attention(Q, Q, Q, dropout=-0.1), "dropout: got -0.1; a probability"),
    (lambda: MultiHeadAttention(4, 2, dropout=1.0), "dropout: got 1.0; a probability"),
    (lambda: bounded_law().raw(torch.tensor(0.0)), "s: got values from 0 to 0"),
    (lambda: bounded_law().raw(torch.tensor(1.0)), "s: got values from 1 to 1"),
    (lambda: free_law().raw(torch.tensor(0.0)), "s: got values from 0 to 0"),
    (lambda: language_frequencies(0), "dim: got 0; it must be a positive even number"),
    (lambda: half_split_rows(torch.ones(4, 2), 0), "heads: got 0; it must divide the 4 rows"),
    (lambda: block_diagonal(torch.ones(2, 2)), "blocks: got shape (2, 2)"),
    (lambda: block_diagonal(torch.ones(2, 3, 4)), "blocks: got shape (2, 3, 4)"),
    (
        lambda: ntk_by_parts(torch.ones(2, 1), 2.0, 100, slow=4.0, fast=4.0),
        "slow: got 4.0; above 0 and below fast, 4.0",
    ),
    (lambda: yarn_frequencies(8, 2.0, 100, slow=4.0, fast=4.0), "slow: got 4.0; above 0 and below fast, 4.0"),
    (
        lambda: metric_root(torch.stack([1e6 * torch.eye(2), torch.tensor([[1.0, 0.5], [0.0, 1.0]])])),
        "metric: got an asymmetry of 0.5; it must be symmetric",
    ),
    (
        lambda: as_places(PLACES, PLACES[:, 0], 2),
        "keys: got shape (3,); it must be (tokens, axes) or (batch, tokens, axes) with axes = 2",
    ),
    (
        lambda: as_places(torch.zeros(2, 3), None, 1),
        "with axes = 1; for one axis and positions of each sample write positions[..., None]",
    ),
    (lambda: attention(Q, Q, Q, mask=[True]), "mask: got list; it must be a tensor"),
    (lambda: padding_mask([1], 3), "lengths: got list; it must be a tensor"),
    (lambda: document_mask([0, 1]), "documents: got list; it must be a tensor"),
    (lambda: RoPE(torch.ones(2, 2), length=0.0), f"length: got 0.0; {ABOVE_0}"),
    (lambda: HalfSplit(RoPE(torch.ones(2, 2)), turned=3), "turned: got 3; it must be a positive even number"),
    (lambda: HalfSplit(RoPE(torch.ones(4, 1)), turned=4), "turned: got 4; the encoding turns 8 features"),
    (
        lambda: HalfSplit(RoPE(torch.ones(4, 1))).place(torch.arange(3)).to_reference(Q, Q),
        "frequencies: got 4 pairs; x has 4 features",
    ),
    (
        lambda: build("alibi", width=4, heads=1, grid=(3,)).place(torch.zeros(3, 3)),
        "with axes = 1; for one axis and positions of each sample write positions[..., None]",
    ),
    (
        lambda: build("rope+rmt", width=4, heads=1, grid=(3, 3)).place(torch.zeros(9, 1)),
        "positions: got shape (9, 1); it must be (tokens, axes) or (batch, tokens, axes) with axes = 2",
    ),
    (
        lambda: ALiBi(heads=1).place(torch.zeros(3, 1)).attention(*3 * (torch.zeros(1, 1, 20, 4),)),
        "there are 20 tokens, and each needs a place: positions are (tokens, axes), those of each sample (batch,",
    ),
    (lambda: RoPE(torch.tensor([[float("nan")]])), "frequencies: got inf or NaN; frequencies must be finite"),
    (
        lambda: RiemannFormer(torch.ones(2), heads=1),
        "frequencies: got shape (2,); a tensor of floats, (pairs, axes): of one axis write frequencies[:, None]",
    ),
    (
        lambda: SphericalRoPE(torch.ones(2, dtype=torch.long), axes=2),
        "frequencies: got torch.int64, (2,); floats, (triples,)",
    ),
    (
        lambda: SphericalRoPE(torch.tensor([float("inf")]), axes=2),
        "frequencies: got inf or NaN; frequencies must be finite",
    ),
    (lambda: ALiBi(heads=1).place(PLACES).with_prefix_tokens(0.5), "unplaced: got 0.5; a whole number, at least 0"),
    (
        lambda: MultiHeadAttention(4, 1)(torch.zeros(1, 3, 4), RoPE.text(4)),
        "placed: got RoPE; encoding.place(positions) makes one",
    ),
    (
        lambda: MultiHeadAttention(4, 1)(torch.zeros(3, 4), RoPE.text(4).place(torch.arange(3))),
        "x: got shape (3, 4); it must be (batch, tokens, width)",
    ),
    (
        lambda: RoPE.text(4).place(torch.arange(3)).attention(Q, Q, Q, torch.zeros(3, 3)),
        "x: got shape (3, 3); the layer's input is (batch, tokens, width), here (1, 3, width); a mask is handed over",
    ),
    (
        lambda: (
            SympowEncoding(4, 1, torch.ones(2, 1))
            .place(torch.arange(3))
            .attention(*3 * (Q.expand(2, 1, 3, 4),), torch.zeros(1, 3, 4))
        ),
        "x: got shape (1, 3, 4); the layer's input is (batch, tokens, width), here (2, 3, width)",
    ),
    (
        lambda: attention(torch.zeros(1, 8, 3, 4), *2 * (torch.zeros(1, 3, 3, 4),)),
        "k: got 3 heads; they must divide the 8 of q",
    ),
    (
        lambda: attention(torch.zeros(1, 2, 3, 4), *2 * (torch.zeros(1, 8, 3, 4),)),
        "k: got 8 heads; they must divide the 2 of q",
    ),
    (
        lambda: attention(torch.zeros(1, 8, 3, 4), torch.zeros(1, 2, 3, 4), torch.zeros(1, 4, 3, 4)),
        "v: got 4 heads; k has 2",
    ),
    (lambda: padding_mask(torch.tensor([1.5]), 3), "lengths: got torch.float32; lengths are whole numbers"),
    (lambda: padding_mask(torch.tensor([True]), 3), "lengths: got torch.bool"),
    (lambda: padding_mask(torch.tensor([-1, 2]), 3), "lengths: got -1; at least 0"),
    (
        lambda: Sinusoidal(8).embed(torch.zeros(1, 3, 8, dtype=torch.long), torch.arange(3)),
        "x: got torch.int64; it must be floating point",
    ),
    (
        lambda: Learned(8, (3,)).embed(torch.zeros(1, 3, 8, dtype=torch.long), torch.arange(3)),
        "x: got torch.int64; it must be floating point",
    ),
    (
        lambda: Sinusoidal(8).embed(torch.zeros(1, 4, 8), torch.arange(3)),
        "positions: got 3 rows; there are 4 tokens: embed before a class token is put in front",
    ),
    (lambda: Learned(8, 3), "grid: got 3; cells along each axis"),
    (lambda: HalfSplit(4), "encoding: got int; it must be an encoding"),
    (lambda: HalfSplit(RoPE), "encoding: got RoPE; it must be an encoding"),
    (lambda: PowerScores("rope"), "encoding: got str; it must be an encoding"),
    (lambda: Composed(RoPE.text(4)), "parts: got RoPE; several encodings, as in a list"),
    (lambda: Composed(["rope"]), "parts: got str; it must be an encoding"),
    (lambda: LocalityFocusing(4, RoPE.text(4), 1, 1.0), "encoding: got int; it must be an encoding"),
    (lambda: PerLayer([]), "layers: got []; at least one encoding"),
    (lambda: LieRE([1.0], 2), "entries: got list; it must be a tensor"),
    (lambda: SphericalRoPE(16, 2), "frequencies: got int; it must be a tensor"),
    (lambda: build(None, width=4, heads=1, grid=(3,)), "name: got None; the methods are"),
    (
        lambda: build("rope+lf", width=4, heads=1, grid=(3,), lf=2.0),
        "options: got {'lf': 2.0}; lf takes a dictionary, as {'sigma': None,",
    ),
    (
        lambda: build("rope", width=4, heads=1, grid=(3,), base="1e4"),
        "options: got {'base': '1e4'}; values of another kind (",
    ),
    (
        lambda: build("lf", width=4, heads=1, grid=(3,), per_position=True).place(torch.arange(1), torch.arange(3)),
        "positions: got 1 rows; there are 3 widths a head, one for each place of the grid: place all of it",
    ),
    (lambda: SympowAttention(4, 1)(torch.zeros(3, 4)), "x: got shape (3, 4); it must be (batch, tokens, width)"),
    (
        lambda: SympowAttention(4, 1)(torch.zeros(1, 3, 4), torch.ones(1, 3, dtype=torch.bool)),
        "state: got Tensor; a State, as forward hands it on; a mask is handed over by name",
    ),
    (lambda: SympowAttention(4, 1, longest=0.5), "longest: got 0.5; tokens of the longest document, more than 1"),
    (
        lambda: ALiBi(heads=1).place(PLACES[:, :1]).with_prefix_tokens(-1),
        "unplaced: got -1; a whole number, at least 0",
    ),
    (
        lambda: RoPE(torch.ones(2, 2)).place(torch.zeros(2, 3, 2)).to_reference(Q, Q.expand(2, 1, 3, 4)),
        "q: got shape (1, 1, 3, 4); the encoding has heads, or positions of samples, for (2, 1, 3, 4)",
    ),
    (
        lambda: RoPE(torch.ones(2, 2)).place(torch.zeros(2, 3, 2)).to_reference(Q.expand(2, 1, 3, 4), Q),
        "k: got shape (1, 1, 3, 4); the encoding has heads, or positions of samples, for (2, 1, 3, 4)",
    ),
    (
        lambda: SympowEncoding(4, 1, torch.ones(2, 1)).place(PLACES[:, :1]).as_score_mod(),
        "x: got NoneType; the gates are made of the layer's input",
    ),
    (
        lambda: flex_attend(PowerScores(RoPE(torch.ones(2, 1))).place(torch.arange(2)).with_prefix_tokens(1), Q, Q, Q),
        "unplaced: got (1, 1); FlexAttention would leave the scores of such tokens without their power: use attend",
    ),
    (lambda: ntk_by_parts(torch.ones(2, 1), 0.0, 100), f"factor: got 0.0; {ABOVE_0}"),
    (lambda: ntk_by_parts(torch.ones(2, 1), 2.0, 0), f"trained: got 0; {ABOVE_0}"),
    (lambda: yarn_frequencies(8, 0.0, 100), f"factor: got 0.0; {ABOVE_0}"),
    (lambda: yarn_frequencies(7, 2.0, 100), "dim: got 7; it must be a positive even number"),
    (lambda: yarn_frequencies(8, 2.0, 0), f"trained: got 0; {ABOVE_0}"),
    (lambda: yarn_length(0.0), f"factor: got 0.0; {ABOVE_0}"),
    (lambda: equivalent_frequencies(torch.ones(3)), "frequencies' last dimension: got 3"),
    (lambda: starts_of([0, 2], 2), "cu_seqlens: got list; it must be a tensor"),
    (
        lambda: Carried(turn_pairs, 2 * (cis(torch.ones(3, 2)),), (3, 3)).to_reference(Q.long(), Q),
        "q: got torch.int64; it must be floating point",
    ),
    (lambda: FOCUSED.place(grid_positions(32, 32)).attend(*3 * (torch.ones(1, 1, 1000, 4),)), "1024"),
    (lambda: SympowAttention(4, 1)(torch.ones(1, 2, 4), mask=[True]), "mask: got list; it must be a tensor"),
    (lambda: SympowAttention(4, 1)(torch.ones(1, 2, 4), starts=[True]), "starts: got list; it must be a tensor"),
    (lambda: options_of("ropes"), "name: got 'ropes'; the methods are"),
    (lambda: position_rotations(PLACES[:, :1], torch.zeros(1, 2, 3)), "generators: got shape (1, 2, 3)"),
    (lambda: log_rotation(torch.ones(2, 3)), "R: got shape (2, 3)"),
]


def test_the_hint_for_one_axis_is_for_one_axis():
    with pytest.raises(ValueError, match=r"with axes = 2$"):
        as_places(PLACES[:, :1], None, 2)


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_it_is_refused_with_the_arguments_name(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
