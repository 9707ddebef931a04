"""Arguments refused that no other test has refused; ``tests/refusals.py`` says which are left."""

import re

import pytest
import torch

from geolib._checks import as_places
from geolib.attention import MultiHeadAttention, attention, attention_weights, extended
from geolib.conformal import bounded_raw, free_raw, metric_root, slow_law
from geolib.encodings import (
    ALiBi,
    Composed,
    HalfSplit,
    Learned,
    LieRE,
    LocalityFocusing,
    ManhattanDecay,
    PerLayer,
    RiemannFormer,
    RoPE,
    Sinusoidal,
    SphericalRoPE,
    build,
    options_of,
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
from geolib.placed import Carried, cis, turn_pairs
from geolib.recurrence import attention_form, empty_state, recurrent_form, score_modifier, softmax_form
from geolib.recurrence.chunks import by_chunks, chunked_with, one_chunk_form
from geolib.recurrence.layers import PowerScores, SympowAttention, SympowEncoding
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
from geolib.sympow import embed, from_tensor, lift, state_bytes, turned_embedding
from geolib.transport import check_frames, equivalent_frequencies

ABOVE_0 = "it must be a finite number above 0"
WHOLE = torch.ones(4, 4, dtype=torch.long)
PLACES = torch.zeros(3, 2)
Q = torch.ones(1, 1, 3, 4)
STATE = empty_state(Q, Q, 2)
FOCUSED = build("lf", width=4, heads=1, grid=(32, 32))

REFUSED = {
    "weights: keys of another size": (lambda: attention_weights(Q, Q[..., :2]), "k: got shape (1, 1, 3, 2)"),
    "bounded_raw": (lambda: bounded_raw(torch.tensor(0.5), alpha=0.0), f"alpha: got 0.0; {ABOVE_0}"),
    "slow_law": (lambda: slow_law(alpha=-0.1), f"alpha: got -0.1; {ABOVE_0}"),
    "metric_root": (lambda: metric_root(torch.ones(2, 3)), "metric: got shape (2, 3); it must be (..., d, d)"),
    "embedding in another space": (
        lambda: Sinusoidal(8, 2).embed(torch.zeros(1, 3, 8), PLACES[:, :1]),
        "positions: got shape (3, 1)",
    ),
    "learned: no spread": (lambda: Learned(8, (3, 3), std=0.0), f"std: got 0.0; {ABOVE_0}"),
    "learned in another space": (
        lambda: Learned(8, (3, 3)).embed(torch.zeros(1, 3, 8), PLACES[:, :1]),
        "positions: got shape (3, 1)",
    ),
    "keys in a list": (lambda: RoPE(torch.ones(1, 2)).place(PLACES, [0.0]), "keys: got list; it must be a tensor"),
    "more triples than features": (
        lambda: SphericalRoPE(torch.ones(2), axes=2).place(PLACES).to_reference(Q, Q),
        "frequencies: got 2 triples; x has 4 features",
    ),
    "entry_count": (lambda: entry_count(1), "width: got 1; a block has at least 2 rows"),
    "isoclinic_parts: whole numbers": (lambda: isoclinic_parts(WHOLE), "A: got torch.int64"),
    "isoclinic_parts: a list": (lambda: isoclinic_parts([1.0]), "A: got list; it must be a tensor"),
    "exp_pade": (lambda: exp_pade(WHOLE, 3, 1), "A: got torch.int64"),
    "first_order_defect": (lambda: first_order_defect(WHOLE, WHOLE), "V: got torch.int64"),
    "initial_top_angle: no block": (lambda: initial_top_angle(1), "width: got 1; a block has at least 2 rows"),
    "initial_top_angle: no range": (lambda: initial_top_angle(4, high=0.0), f"high: got 0.0; {ABOVE_0}"),
    "find_rays": (lambda: find_rays(torch.ones(3)), "positions: got shape (3,); it must be (tokens, axes)"),
    "position_rotations": (
        lambda: position_rotations(PLACES, torch.zeros(2, 2)),
        "generators: got shape (2, 2); it must be (..., axes, b, b)",
    ),
    "sphere": (lambda: sphere_stereographic(radius=0.0), f"radius: got 0.0; {ABOVE_0}"),
    "torus": (lambda: torus(minor=-1.0), f"minor: got -1.0; {ABOVE_0}"),
    "conformal_curvature": (lambda: conformal_curvature(lambda x: x[0], torch.ones(3)), "points: got shape (3,)"),
    "a state of other values": (
        lambda: recurrent_form(Q, Q, Q[..., :3], 2, state=STATE),
        "state: got S of shape (1, 1, 4, 10); it must be (1, 1, 3, 10)",
    ),
    "a state of whole numbers": (
        lambda: recurrent_form(Q, Q, Q, 2, state=STATE._replace(Z=STATE.Z.long())),
        "state: got torch.int64",
    ),
    "chunked_with": (lambda: chunked_with(by_chunks, Q, Q, Q, 3), "power: got 3"),
    "one_chunk_form": (lambda: one_chunk_form(Q, Q, Q, 3), "power: got 3"),
    "softmax_form": (lambda: softmax_form(Q, Q, Q, 3), "power: got 3"),
    "score_modifier": (lambda: score_modifier(1), "power: got 1"),
    "empty_state": (lambda: empty_state(Q, Q, 3), "power: got 3"),
    "attention_form": (lambda: attention_form(Q, Q, Q, 0), "power: got 0"),
    "axial_frequencies": (lambda: axial_frequencies(7, 2), "dim: got 7; it must be a positive even number"),
    "alternating_frequencies": (lambda: alternating_frequencies(7, 2), "dim: got 7; it must be a positive even number"),
    "rescaling what is no tensor": (lambda: rescale_positions([[1.0]], (8,), (8,)), "positions: got list"),
    "rescaling by no cells": (lambda: rescale_positions(PLACES, (8, 8), (8, 0)), f"trained and size: got 0; {ABOVE_0}"),
    "positions on too many axes": (
        lambda: rescale_positions(PLACES, (8,), (8,)),
        "positions: got shape (3, 2); it must be (tokens, axes) with axes = 1",
    ),
    "a decay that does not decay": (
        lambda: ManhattanDecay(torch.tensor([0.5, 0.0])),
        "slopes: got tensor([0.5000, 0.0000]); one number above 0 for each head",
    ),
    "a vector of places for sines in a plane": (
        lambda: Sinusoidal(8, 2).embed(torch.zeros(1, 3, 8), PLACES[:, 0]),
        "positions: got shape (3,)",
    ),
    "complex numbers": (
        lambda: embed(torch.ones(2, dtype=torch.complex64), 2),
        "v: got torch.complex64; it must hold real numbers",
    ),
    "turned_embedding": (lambda: turned_embedding([1.0], PLACES, 2), "v: got list; it must be a tensor"),
    "a width without a dimension": (lambda: log_attenuation(PLACES, torch.tensor(1.0)), "sigma: got shape ()"),
    "no width": (lambda: log_attenuation(PLACES, torch.zeros(1)), "sigma: got a width that is not"),
    "a series of four terms": (lambda: bch(torch.zeros(3, 3), torch.zeros(3, 3), order=4), "order: got 4; it must be"),
    "too many entries": (
        lambda: skew_matrix(torch.ones(4), 3),
        "entries: got shape (4,)",
    ),
    "a mask of numbers": (lambda: attention(Q, Q, Q, mask=torch.ones(3, 3)), "mask: got torch.float32"),
    "more places than tokens": (
        lambda: extended(torch.zeros(4, 4), Q, Q, 0.0),
        "positions: got 4 rows; there are 3 tokens",
    ),
    "embed": (lambda: embed(torch.tensor(1.0), 2), "v: got shape (); it must be (..., d)"),
    "frames that are not square": (lambda: check_frames(torch.ones(2, 3, 4)), "frames: got shape (2, 3, 4)"),
    "a state of nothing": (lambda: state_bytes(4, 2, layers=0, heads=1), "layers: got 0; it must be at least 1"),
    "a power that is no number": (lambda: embed(torch.ones(2), True), "power: got True; it must be a whole number"),
    "a tensor of other sides": (lambda: from_tensor(torch.ones(2, 3), 2), "tensor: got shape (2, 3)"),
    "a matrix that is not square": (lambda: lift(torch.ones(2, 3), 2), "matrix: got shape (2, 3)"),
    "certain dropout": (lambda: attention(Q, Q, Q, dropout=1.0), "dropout: got 1.0; a probability"),
    "less than no dropout": (lambda: attention(Q, Q, Q, dropout=-0.1), "dropout: got -0.1; a probability"),
    "a layer's certain dropout": (lambda: MultiHeadAttention(4, 2, dropout=1.0), "dropout: got 1.0; a probability"),
    "a scale of 0 by the bounded law": (lambda: bounded_raw(torch.tensor(0.0)), "s: got values from 0 to 0"),
    "a scale of 1 by the bounded law": (lambda: bounded_raw(torch.tensor(1.0)), "s: got values from 1 to 1"),
    "a scale of 0 by the free law": (lambda: free_raw(torch.tensor(0.0)), "s: got values from 0 to 0"),
    "no dimension": (lambda: language_frequencies(0), "dim: got 0; it must be a positive even number"),
    "rows of no heads": (lambda: half_split_rows(torch.ones(4, 2), 0), "heads: got 0; it must divide the 4 rows"),
    "a matrix for blocks": (lambda: block_diagonal(torch.ones(2, 2)), "blocks: got shape (2, 2)"),
    "blocks that are not square": (lambda: block_diagonal(torch.ones(2, 3, 4)), "blocks: got shape (2, 3, 4)"),
    "parts: nothing between slow and fast": (
        lambda: ntk_by_parts(torch.ones(2, 1), 2.0, 100, slow=4.0, fast=4.0),
        "slow: got 4.0; above 0 and below fast, 4.0",
    ),
    "yarn: nothing between slow and fast": (
        lambda: yarn_frequencies(8, 2.0, 100, slow=4.0, fast=4.0),
        "slow: got 4.0; above 0 and below fast, 4.0",
    ),
    "one small metric that is not symmetric": (
        lambda: metric_root(torch.stack([1e6 * torch.eye(2), torch.tensor([[1.0, 0.5], [0.0, 1.0]])])),
        "metric: got an asymmetry of 0.5; it must be symmetric",
    ),
    "a vector of keys in a plane": (
        lambda: as_places(PLACES, PLACES[:, 0], 2),
        "keys: got shape (3,); it must be (tokens, axes) or (batch, tokens, axes) with axes = 2",
    ),
    "positions of each sample": (
        lambda: as_places(torch.zeros(2, 3), None, 1),
        "with axes = 1; for one axis and positions of each sample write positions[..., None]",
    ),
    "a mask in a list": (lambda: attention(Q, Q, Q, mask=[True]), "mask: got list; it must be a tensor"),
    "lengths in a list": (lambda: padding_mask([1], 3), "lengths: got list; it must be a tensor"),
    "documents in a list": (lambda: document_mask([0, 1]), "documents: got list; it must be a tensor"),
    "queries of no length": (lambda: RoPE(torch.ones(2, 2), length=0.0), f"length: got 0.0; {ABOVE_0}"),
    "half of a pair": (
        lambda: HalfSplit(RoPE(torch.ones(2, 2)), turned=3),
        "turned: got 3; it must be a positive even number",
    ),
    "more turned features than hold pairs": (
        lambda: HalfSplit(RoPE(torch.ones(4, 1)), turned=4),
        "turned: got 4; the encoding turns 8 features",
    ),
    "half-split pairs of a smaller head": (
        lambda: HalfSplit(RoPE(torch.ones(4, 1))).place(torch.arange(3)).to_reference(Q, Q),
        "frequencies: got 4 pairs; x has 4 features",
    ),
    "one position of each sample as axes": (
        lambda: build("alibi", width=4, heads=1, grid=(3,)).place(torch.zeros(3, 3)),
        "with axes = 1; for one axis and positions of each sample write positions[..., None]",
    ),
    "one axis on a grid of two": (
        lambda: build("rope+rmt", width=4, heads=1, grid=(3, 3)).place(torch.zeros(9, 1)),
        "positions: got shape (9, 1); it must be (tokens, axes) or (batch, tokens, axes) with axes = 2",
    ),
    "far fewer positions than tokens": (
        lambda: ALiBi(heads=1).place(torch.zeros(3, 1)).attention(*3 * (torch.zeros(1, 1, 20, 4),)),
        "there are 20 tokens, and each needs a place: positions are (tokens, axes), those of each sample (batch,",
    ),
    "frequencies that are no numbers": (
        lambda: RoPE(torch.tensor([[float("nan")]])),
        "frequencies: got inf or NaN; frequencies must be finite",
    ),
    "a row of frequencies for a metric": (
        lambda: RiemannFormer(torch.ones(2), heads=1),
        "frequencies: got shape (2,); a tensor of floats, (pairs, axes): of one axis write frequencies[:, None]",
    ),
    "whole frequencies of triples": (
        lambda: SphericalRoPE(torch.ones(2, dtype=torch.long), axes=2),
        "frequencies: got torch.int64, (2,); floats, (triples,)",
    ),
    "frequencies of triples that are no numbers": (
        lambda: SphericalRoPE(torch.tensor([float("inf")]), axes=2),
        "frequencies: got inf or NaN; frequencies must be finite",
    ),
    "half of a token unplaced": (
        lambda: ALiBi(heads=1).place(PLACES).with_prefix_tokens(0.5),
        "unplaced: got 0.5; a whole number, at least 0",
    ),
    "an encoding that is not placed": (
        lambda: MultiHeadAttention(4, 1)(torch.zeros(1, 3, 4), RoPE.text(4)),
        "placed: got RoPE; encoding.place(positions) makes one",
    ),
    "a sample for a batch": (
        lambda: MultiHeadAttention(4, 1)(torch.zeros(3, 4), RoPE.text(4).place(torch.arange(3))),
        "x: got shape (3, 4); it must be (batch, tokens, width)",
    ),
    "a mask of numbers in the place of the layer's input": (
        lambda: RoPE.text(4).place(torch.arange(3)).attention(Q, Q, Q, torch.zeros(3, 3)),
        "x: got shape (3, 3); the layer's input is (batch, tokens, width), here (1, 3, width); a mask is handed over",
    ),
    "the input of one sample for a batch": (
        lambda: (
            SympowEncoding(4, 1, torch.ones(2, 1))
            .place(torch.arange(3))
            .attention(*3 * (Q.expand(2, 1, 3, 4),), torch.zeros(1, 3, 4))
        ),
        "x: got shape (1, 3, 4); the layer's input is (batch, tokens, width), here (2, 3, width)",
    ),
    "keys' heads that do not divide those of queries": (
        lambda: attention(torch.zeros(1, 8, 3, 4), *2 * (torch.zeros(1, 3, 3, 4),)),
        "k: got 3 heads; they must divide the 8 of q",
    ),
    "more heads of keys than of queries": (
        lambda: attention(torch.zeros(1, 2, 3, 4), *2 * (torch.zeros(1, 8, 3, 4),)),
        "k: got 8 heads; they must divide the 2 of q",
    ),
    "values of other heads than keys": (
        lambda: attention(torch.zeros(1, 8, 3, 4), torch.zeros(1, 2, 3, 4), torch.zeros(1, 4, 3, 4)),
        "v: got 4 heads; k has 2",
    ),
    "lengths that are no whole numbers": (
        lambda: padding_mask(torch.tensor([1.5]), 3),
        "lengths: got torch.float32; lengths are whole numbers",
    ),
    "truth values for lengths": (lambda: padding_mask(torch.tensor([True]), 3), "lengths: got torch.bool"),
    "a length below 0": (lambda: padding_mask(torch.tensor([-1, 2]), 3), "lengths: got -1; at least 0"),
    "whole embeddings": (
        lambda: Sinusoidal(8).embed(torch.zeros(1, 3, 8, dtype=torch.long), torch.arange(3)),
        "x: got torch.int64; it must be floating point",
    ),
    "whole embeddings of a table": (
        lambda: Learned(8, (3,)).embed(torch.zeros(1, 3, 8, dtype=torch.long), torch.arange(3)),
        "x: got torch.int64; it must be floating point",
    ),
    "embeddings behind a class token": (
        lambda: Sinusoidal(8).embed(torch.zeros(1, 4, 8), torch.arange(3)),
        "positions: got 3 rows; there are 4 tokens: embed before a class token is put in front",
    ),
    "a number for a grid": (lambda: Learned(8, 3), "grid: got 3; cells along each axis"),
    "a number for an encoding": (lambda: HalfSplit(4), "encoding: got int; it must be an encoding"),
    "a class for an encoding": (lambda: HalfSplit(RoPE), "encoding: got RoPE; it must be an encoding"),
    "powers of a name": (lambda: PowerScores("rope"), "encoding: got str; it must be an encoding"),
    "one encoding for several": (lambda: Composed(RoPE.text(4)), "parts: got RoPE; several encodings, as in a list"),
    "names for encodings": (lambda: Composed(["rope"]), "parts: got str; it must be an encoding"),
    "swapped for an encoding": (
        lambda: LocalityFocusing(4, RoPE.text(4), 1, 1.0),
        "encoding: got int; it must be an encoding",
    ),
    "layers of none": (lambda: PerLayer([]), "layers: got []; at least one encoding"),
    "entries in a list": (lambda: LieRE([1.0], 2), "entries: got list; it must be a tensor"),
    "a width for triples": (lambda: SphericalRoPE(16, 2), "frequencies: got int; it must be a tensor"),
    "no name": (lambda: build(None, width=4, heads=1, grid=(3,)), "name: got None; the methods are"),
    "a number for a wrapper's options": (
        lambda: build("rope+lf", width=4, heads=1, grid=(3,), lf=2.0),
        "options: got {'lf': 2.0}; lf takes a dictionary, as {'sigma': None,",
    ),
    "words for a base": (
        lambda: build("rope", width=4, heads=1, grid=(3,), base="1e4"),
        "options: got {'base': '1e4'}; values of another kind (must be real number, not str); the defaults are",
    ),
    "widths for some places": (
        lambda: build("lf", width=4, heads=1, grid=(3,), per_position=True).place(torch.arange(1), torch.arange(3)),
        "positions: got 1 rows; there are 3 widths a head, one for each place of the grid: place all of it",
    ),
    "no sample for a layer of powers": (
        lambda: SympowAttention(4, 1)(torch.zeros(3, 4)),
        "x: got shape (3, 4); it must be (batch, tokens, width)",
    ),
    "a mask in the place of a state": (
        lambda: SympowAttention(4, 1)(torch.zeros(1, 3, 4), torch.ones(1, 3, dtype=torch.bool)),
        "state: got Tensor; a State, as forward hands it on; a mask is handed over by name",
    ),
    "documents shorter than a token": (
        lambda: SympowAttention(4, 1, longest=0.5),
        "longest: got 0.5; tokens of the longest document, more than 1",
    ),
    "fewer than no tokens unplaced": (
        lambda: flex_attend(ALiBi(heads=1).place(PLACES[:, :1]), Q, Q, Q, unplaced=-1),
        "unplaced: got -1; a whole number, at least 0",
    ),
    "queries of fewer samples than positions": (
        lambda: RoPE(torch.ones(2, 2)).place(torch.zeros(2, 3, 2)).to_reference(Q, Q.expand(2, 1, 3, 4)),
        "q: got shape (1, 1, 3, 4); the encoding has heads, or positions of samples, for (2, 1, 3, 4)",
    ),
    "keys of fewer samples than positions": (
        lambda: RoPE(torch.ones(2, 2)).place(torch.zeros(2, 3, 2)).to_reference(Q.expand(2, 1, 3, 4), Q),
        "k: got shape (1, 1, 3, 4); the encoding has heads, or positions of samples, for (2, 1, 3, 4)",
    ),
    "gates of no input": (
        lambda: SympowEncoding(4, 1, torch.ones(2, 1)).place(PLACES[:, :1]).as_score_mod(),
        "x: got NoneType; the gates are made of the layer's input",
    ),
    "powers behind a token without a place": (
        lambda: flex_attend(PowerScores(RoPE(torch.ones(2, 1))).place(torch.arange(2)), Q, Q, Q, unplaced=1),
        "unplaced: got (1, 1); FlexAttention would leave the scores of such tokens without their power: use attend",
    ),
    "parts slowed by nothing": (lambda: ntk_by_parts(torch.ones(2, 1), 0.0, 100), f"factor: got 0.0; {ABOVE_0}"),
    "parts never trained": (lambda: ntk_by_parts(torch.ones(2, 1), 2.0, 0), f"trained: got 0; {ABOVE_0}"),
    "yarn slowed by nothing": (lambda: yarn_frequencies(8, 0.0, 100), f"factor: got 0.0; {ABOVE_0}"),
    "yarn for half of a pair": (lambda: yarn_frequencies(7, 2.0, 100), "dim: got 7; it must be a positive even number"),
    "yarn never trained": (lambda: yarn_frequencies(8, 2.0, 0), f"trained: got 0; {ABOVE_0}"),
    "the length of no factor": (lambda: yarn_length(0.0), f"factor: got 0.0; {ABOVE_0}"),
    "equivalent_frequencies": (lambda: equivalent_frequencies(torch.ones(3)), "frequencies' last dimension: got 3"),
    "boundaries in a list": (lambda: starts_of([0, 2], 2), "cu_seqlens: got list; it must be a tensor"),
    "whole queries": (
        lambda: Carried(turn_pairs, 2 * (cis(torch.ones(3, 2)),), (3, 3)).to_reference(Q.long(), Q),
        "q: got torch.int64; it must be floating point",
    ),
    "places of more tokens than there are": (
        lambda: FOCUSED.place(grid_positions(32, 32)).attend(*3 * (torch.ones(1, 1, 1000, 4),)),
        "1024",
    ),
    "a mask of a state in a list": (
        lambda: SympowAttention(4, 1)(torch.ones(1, 2, 4), mask=[True]),
        "mask: got list; it must be a tensor",
    ),
    "starts in a list": (
        lambda: SympowAttention(4, 1)(torch.ones(1, 2, 4), starts=[True]),
        "starts: got list; it must be a tensor",
    ),
    "options of nothing": (lambda: options_of("ropes"), "name: got 'ropes'; the methods are"),
    "generators that are not square": (
        lambda: position_rotations(PLACES[:, :1], torch.zeros(1, 2, 3)),
        "generators: got shape (1, 2, 3)",
    ),
    "a rotation that is not square": (lambda: log_rotation(torch.ones(2, 3)), "R: got shape (2, 3)"),
}


def test_the_hint_for_one_axis_is_for_one_axis():
    with pytest.raises(ValueError, match=r"with axes = 2$"):
        as_places(PLACES[:, :1], None, 2)


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_the_arguments_name(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
