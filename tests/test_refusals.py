"""Arguments that are refused: each call, and how its message begins, with the argument's name."""

import math
import re
from functools import partial

import pytest
import torch

from geolib import conformal, lie, locality, manifolds, masks, recurrence, rotations, sympow, transport
from geolib.attention import Encoding, MultiHeadAttention, Placed, as_places, attention, attention_weights
from geolib.connection import Compass
from geolib.encodings import (
    ALiBi,
    Carried,
    Composed,
    HalfSplit,
    Learned,
    LengthRoPE,
    LieRE,
    LocalityFocusing,
    ManhattanDecay,
    Matrix,
    PerLayer,
    PerLayerFocusing,
    PowerScores,
    RiemannFormer,
    RoPE,
    ScoreBias,
    Sinusoidal,
    SphericalRoPE,
    SympowEncoding,
    build,
    cis,
    options_of,
    turn_pairs,
)
from geolib.flex import flex_attend
from geolib.recurrence import SympowAttention, chunked_form, conformal_step, recurrent_form, recurrent_step
from geolib.rotations import alternating_frequencies, axial_frequencies

ABOVE_0, WHOLE, TENSOR = "it must be a finite number above 0", "it must be a whole number", "it must be a tensor"
EVEN, NARROW = "it must be a positive even number", "x: got 24 features; the layer was made for the width 16"
WHOLES, PLACES, THREE, FIVE = torch.ones(4, 4, dtype=torch.long), torch.zeros(3, 2), torch.arange(3), torch.arange(5)
Q = torch.ones(1, 1, 3, 4)
ASKEW = torch.tensor([[[1e6, 0.0], [0.0, 1e6]], [[1.0, 0.5], [0.0, 1.0]]])
STATE = recurrence.empty_state(Q, Q, 2)
FOCUSED = build("lf", width=4, heads=1, grid=(32, 32))
PAIR, SAMPLES = Q.expand(2, 1, 3, 4), RoPE(torch.ones(2, 2)).place(torch.zeros(2, 3, 2))
EIGHT, ADDED = torch.zeros(1, 3, 8), (Sinusoidal(8, 2), Learned(8, (3, 3)))
GATES, GATED = SympowEncoding(4, 1, torch.ones(2, 1)).place(THREE), SympowEncoding(8, 1, torch.ones(4, 1))
ONE, OF_FIVE = Q[:, :, 0].repeat(3, 1, 1, 1), torch.randn(3, 2, 2, 5, 4)
STILL = torch.zeros(1, 1), torch.zeros(1, 1, 2)
NOISE = [("distance", (5, 5, 0.9)), ("distance", (-1, 5, 0.9)), ("gate", (1, 5, 0.0)), ("gate", (1, 5, 1.001))]
NOISE += [("tokens", (0, 0, 0.9))]
# Three queries for two keys, where the first would see none.
TOO_MANY = partial(attention, Q, *2 * (Q[:, :, :2],)), partial(attention_weights, Q, Q[:, :, :2])
OF_PAIRS = {}, {"attenuation": torch.ones(3, 2)}, {"log_gate": torch.zeros(3, 2)}
# What the forms of symmetric powers take, and what they refuse of it.
FORMS = (recurrence.attention_form, recurrent_form, chunked_form, recurrence.fused_form)
FORM = {"q": Q, "k": Q, "v": Q, "power": 2, "log_gates": torch.zeros(1, 1, 3), "turns": torch.zeros(1, 1, 3, 2)}
WRONG = [*({"power": p} for p in (0, 3, 2.0)), {"q": Q.long()}, {"q": Q[0]}, {"k": Q[..., :3]}, {"v": Q[:, :, :2]}]
WRONG += [{"log_gates": x} for x in (Q[..., 0].long(), Q[..., 0], Q[..., 0] * math.nan, torch.zeros(1, 3))]
WRONG += [{"turns": torch.zeros(1, 1, 3, 4)}]
# Two samples of six tokens, for layers of width 16.
SIX, X, Q6, WIDE = torch.arange(6), torch.randn(2, 6, 16), torch.randn(2, 2, 6, 8), torch.zeros(2, 6, 24)
LAYER, ROPE, IN_POWERS = SympowAttention(16, 2), RoPE.text(8).place(SIX), HalfSplit(PowerScores(Encoding()))
READ, K3, IN_POWER, OF_DATA = LAYER(X)[1], torch.randn(3, 2, 6, 8), "rope+sympow", ("sympow-gates", "compass")


def made(name, **more):
    return build(name, **{"width": 48, "heads": 2, "grid": (3, 4)} | more)


def text(name, **more):
    return build(name, **{"width": 16, "heads": 2, "grid": (6,)} | more)


def of_data(name, mask, x=X):
    return text(name).place(SIX).attention(Q6, Q6, Q6, x, mask=mask)


def of_samples(name):
    """A method placed for three samples, and used for two."""
    encoding, places = text(name), SIX[:, None].expand(3, 6, 1)
    encoding.place(places).attention(Q6, Q6, Q6, encoding.embed(X, places))


def turned(name):
    """Three queries and keys turned where there are twelve places."""
    return made(name).place(rotations.grid_positions(3, 4)).to_reference(*2 * (torch.ones(1, 2, 3, 24),))


def alibi(samples=None):
    positions = FIVE if samples is None else FIVE.expand(samples, 5)[..., None]
    return build("alibi", width=8, heads=2, grid=(5,)).place(positions)


REFUSED = [
    (lambda: attention(Q, Q, Q[..., :2, :]), "v: got 2 tokens; k has 3; they must be equal"),
    (lambda: MultiHeadAttention(12, 3.0), "heads: got 3.0; it must be a whole number"),
    *((lambda h=h: MultiHeadAttention(10, h), f"heads: got {h}; it must divide the width 10") for h in (3, 0)),
    (lambda: attention_weights(Q, Q[..., :2]), "k: got shape (1, 1, 3, 2)"),
    (lambda: conformal.bounded_law(alpha=0.0), f"alpha: got 0.0; {ABOVE_0}"),
    (lambda: conformal.slow_law(alpha=-0.1), f"alpha: got -0.1; {ABOVE_0}"),
    (lambda: conformal.metric_root(torch.ones(2, 3)), "metric: got shape (2, 3); it must be (..., n, n)"),
    *((lambda e=e: e.embed(EIGHT, PLACES[:, :1]), "positions: got shape (3, 1)") for e in ADDED),
    (lambda: Learned(8, (3, 3), std=0.0), f"std: got 0.0; {ABOVE_0}"),
    (lambda: RoPE(torch.ones(1, 2)).place(PLACES, [0.0]), f"keys: got list; {TENSOR}"),
    (lambda: SphericalRoPE(torch.ones(2), axes=2).place(PLACES).to_reference(Q, Q), "frequencies: got 2 triples"),
    (lambda: lie.entry_count(1), "width: got 1; a block has at least 2 rows"),
    (lambda: lie.initial_top_angle(1), "width: got 1; a block has at least 2 rows"),
    (lambda: lie.isoclinic_parts(WHOLES), "A: got torch.int64"),
    (lambda: lie.isoclinic_parts([1.0]), f"A: got list; {TENSOR}"),
    (lambda: lie.exp_pade(WHOLES, 3, 1), "A: got torch.int64"),
    (lambda: lie.first_order_defect(WHOLES, WHOLES), "V: got torch.int64"),
    (lambda: lie.initial_top_angle(4, high=0.0), f"high: got 0.0; {ABOVE_0}"),
    (lambda: lie.find_rays(torch.ones(3)), "positions: got shape (3,); it must be (tokens, axes)"),
    (lambda: lie.position_rotations(PLACES, torch.zeros(2, 2)), "generators: got shape (2, 2)"),
    (lambda: manifolds.sphere_stereographic(radius=0.0), f"radius: got 0.0; {ABOVE_0}"),
    (lambda: manifolds.torus(minor=-1.0), f"minor: got -1.0; {ABOVE_0}"),
    (lambda: manifolds.conformal_curvature(lambda x: x[0], torch.ones(3)), "points: got shape (3,)"),
    (lambda: recurrent_form(Q, Q, Q[..., :3], 2, state=STATE), "state: got S of shape (1, 1, 4, 10)"),
    (lambda: recurrent_form(Q, Q, Q, 2, state=STATE._replace(Z=STATE.Z.long())), "state: got torch.int64"),
    (lambda: recurrence.chunked_with(recurrence.by_chunks, Q, Q, Q, 3), "power: got 3"),
    *((lambda f=f: f(Q, Q, Q, 3), "power: got 3") for f in (recurrence.one_chunk_form, recurrence.softmax_form)),
    (lambda: recurrence.score_modifier(1), "power: got 1"),
    (lambda: recurrence.empty_state(Q, Q, 3), "power: got 3"),
    *((lambda f=f: f(7, 2), f"dim: got 7; {EVEN}") for f in (axial_frequencies, alternating_frequencies)),
    (lambda: rotations.rescale_positions([[1.0]], (8,), (8,)), "positions: got list"),
    (lambda: rotations.rescale_positions(PLACES, (8, 8), (8, 0)), f"trained and size: got 0; {ABOVE_0}"),
    (lambda: rotations.rescale_positions(PLACES, (8,), (8,)), "positions: got shape (3, 2)"),
    (lambda: ManhattanDecay(torch.tensor([0.5, 0.0])), "slopes: got tensor([0.5000, 0.0000])"),
    (lambda: ManhattanDecay(torch.tensor([0.5, torch.inf])), "slopes: got"),
    (lambda: Sinusoidal(8, 2).embed(EIGHT, PLACES[:, 0]), "positions: got shape (3,)"),
    (lambda: sympow.embed(torch.ones(2, dtype=torch.complex64), 2), "v: got torch.complex64; it must"),
    (lambda: sympow.embed([1.0], 2), f"v: got list; {TENSOR}"),
    (lambda: locality.log_attenuation(PLACES, torch.tensor(1.0)), "sigma: got shape ()"),
    (lambda: locality.log_attenuation(PLACES, torch.zeros(1)), "sigma: got a width that is not"),
    (lambda: lie.bch(torch.zeros(3, 3), torch.zeros(3, 3), order=4), "order: got 4; it must be"),
    (lambda: lie.skew_matrix(torch.ones(4), 3), "entries: got shape (4,)"),
    (lambda: attention(Q, Q, Q, mask=torch.ones(3, 3)), "mask: got torch.float32"),
    (lambda: sympow.embed(torch.tensor(1.0), 2), "v: got shape (); it must be (..., d)"),
    (lambda: transport.tangent_mappings(torch.ones(2, 3, 4)), "frames: got shape (2, 3, 4)"),
    (lambda: sympow.state_bytes(4, 2, layers=0, heads=1), "layers: got 0; it must be at least 1"),
    (lambda: sympow.embed(torch.ones(2), True), "power: got True; it must be a whole number"),
    (lambda: sympow.lift(torch.ones(2, 3), 2), "matrix: got shape (2, 3)"),
    *((lambda p=p: attention(Q, Q, Q, dropout=p), f"dropout: got {p}; a probability") for p in (1.0, -0.1)),
    (lambda: MultiHeadAttention(4, 2, dropout=1.0), "dropout: got 1.0; a probability"),
    (lambda: conformal.bounded_law().raw(torch.tensor(0.0)), "s: got values from 0 to 0"),
    (lambda: conformal.bounded_law().raw(torch.tensor(1.0)), "s: got values from 1 to 1"),
    (lambda: conformal.free_law().raw(torch.tensor(0.0)), "s: got values from 0 to 0"),
    (lambda: rotations.language_frequencies(0), f"dim: got 0; {EVEN}"),
    (lambda: rotations.half_split_rows(torch.ones(4, 2), 0), "heads: got 0; it must divide the 4 rows"),
    *((lambda s=s: rotations.block_diagonal(torch.ones(s)), f"blocks: got shape {s}") for s in ((2, 2), (2, 3, 4))),
    (lambda: rotations.ntk_by_parts(torch.ones(2, 1), 2.0, 100, slow=4.0, fast=4.0), "slow: got 4.0"),
    (lambda: rotations.yarn_frequencies(8, 2.0, 100, slow=4.0, fast=4.0), "slow: got 4.0; above 0 and below fast, 4.0"),
    (lambda: conformal.metric_root(ASKEW), "metric: got an asymmetry of 0.5"),
    (lambda: as_places(PLACES, PLACES[:, 0], 2), "keys: got shape (3,)"),
    (lambda: as_places(torch.zeros(2, 3), None, 1), "with axes = 1"),
    (lambda: attention(Q, Q, Q, mask=[True]), f"mask: got list; {TENSOR}"),
    (lambda: masks.padding_mask([1], 3), f"lengths: got list; {TENSOR}"),
    (lambda: masks.document_mask([0, 1]), f"documents: got list; {TENSOR}"),
    (lambda: RoPE(torch.ones(2, 2), length=0.0), f"length: got 0.0; {ABOVE_0}"),
    (lambda: HalfSplit(RoPE(torch.ones(2, 2)), turned=3), f"turned: got 3; {EVEN}"),
    (lambda: HalfSplit(RoPE(torch.ones(4, 1)), turned=4), "turned: got 4; the encoding turns 8 features"),
    (lambda: HalfSplit(RoPE(torch.ones(4, 1))).place(THREE).to_reference(Q, Q), "frequencies: got 4 pairs"),
    (lambda: build("alibi", width=4, heads=1, grid=(3,)).place(torch.zeros(3, 3)), "with axes = 1"),
    (lambda: build("rope+rmt", width=4, heads=1, grid=(3, 3)).place(torch.zeros(9, 1)), "positions: got shape (9, 1)"),
    (lambda: ALiBi(1).place(THREE).attention(*3 * (torch.zeros(1, 1, 20, 4),)), "there are 20 tokens"),
    (lambda: RoPE(torch.tensor([[float("nan")]])), "frequencies: got inf or NaN; frequencies must be finite"),
    (lambda: RiemannFormer(torch.ones(2), heads=1), "frequencies: got shape (2,)"),
    (lambda: SphericalRoPE(torch.ones(2, dtype=torch.long), axes=2), "frequencies: got torch.int64, (2,)"),
    (lambda: SphericalRoPE(torch.tensor([float("inf")]), axes=2), "frequencies: got inf or NaN"),
    (lambda: ALiBi(heads=1).place(PLACES).with_prefix_tokens(0.5), "unplaced: got 0.5; a whole number, at least 0"),
    (lambda: MultiHeadAttention(4, 1)(torch.zeros(1, 3, 4), RoPE.text(4)), "placed: got RoPE"),
    (lambda: MultiHeadAttention(4, 1)(torch.zeros(3, 4), RoPE.text(4).place(THREE)), "x: got shape (3, 4)"),
    (lambda: RoPE.text(4).place(THREE).attention(Q, Q, Q, torch.zeros(3, 3)), "x: got shape (3, 3)"),
    (lambda: GATES.attention(PAIR, PAIR, PAIR, torch.zeros(1, 3, 4)), "x: got shape (1, 3, 4)"),
    (lambda: attention(torch.zeros(1, 8, 3, 4), *2 * (torch.zeros(1, 3, 3, 4),)), "k: got 3 heads"),
    (lambda: attention(torch.zeros(1, 2, 3, 4), *2 * (torch.zeros(1, 8, 3, 4),)), "k: got 8 heads"),
    (lambda: attention(torch.zeros(1, 8, 3, 4), torch.zeros(1, 2, 3, 4), torch.zeros(1, 4, 3, 4)), "v: got 4 heads"),
    (lambda: masks.padding_mask(torch.tensor([1.5]), 3), "lengths: got torch.float32; lengths are whole numbers"),
    (lambda: masks.padding_mask(torch.tensor([True]), 3), "lengths: got torch.bool"),
    (lambda: masks.padding_mask(torch.tensor([-1, 2]), 3), "lengths: got -1; at least 0"),
    *((lambda e=e: e.embed(EIGHT.long(), PLACES), "x: got torch.int64") for e in ADDED),
    (lambda: Sinusoidal(8).embed(torch.zeros(1, 4, 8), THREE), "positions: got 3 rows"),
    (lambda: Learned(8, 3), "grid: got 3; cells along each axis"),
    (lambda: HalfSplit(4), "encoding: got int; it must be an encoding"),
    (lambda: HalfSplit(RoPE), "encoding: got RoPE; it must be an encoding"),
    (lambda: PowerScores("rope"), "encoding: got str; it must be an encoding"),
    (lambda: Composed(RoPE.text(4)), "parts: got RoPE; several encodings, as in a list"),
    (lambda: Composed(["rope"]), "parts: got str; it must be an encoding"),
    (lambda: LocalityFocusing(4, RoPE.text(4), 1, 1.0), "encoding: got int; it must be an encoding"),
    (lambda: PerLayer([]), "layers: got []; at least one encoding"),
    (lambda: LieRE([1.0], 2), f"entries: got list; {TENSOR}"),
    (lambda: SphericalRoPE(16, 2), f"frequencies: got int; {TENSOR}"),
    (lambda: build(None, width=4, heads=1, grid=(3,)), "name: got None; the methods are"),
    (lambda: build("rope+lf", width=4, heads=1, grid=(3,), lf=2.0), "options: got {'lf': 2.0}"),
    (lambda: build("rope", width=4, heads=1, grid=(3,), base="1e4"), "options: got {'base': '1e4'}"),
    (lambda: text("lf", per_position=True).place(torch.arange(1), SIX), "positions: got 1 rows"),
    (lambda: SympowAttention(4, 1)(torch.zeros(3, 4)), "x: got shape (3, 4); it must be (batch"),
    (lambda: SympowAttention(4, 1)(torch.zeros(1, 3, 4), torch.ones(1, 3, dtype=torch.bool)), "state: got Tensor"),
    (lambda: SympowAttention(4, 1, longest=0.5), "longest: got 0.5; tokens of the longest document"),
    (lambda: ALiBi(heads=1).place(PLACES[:, :1]).with_prefix_tokens(-1), "unplaced: got -1"),
    (lambda: SAMPLES.to_reference(Q, PAIR), "q: got shape (1, 1, 3, 4)"),
    (lambda: SAMPLES.to_reference(PAIR, Q), "k: got shape (1, 1, 3, 4)"),
    (lambda: SympowEncoding(4, 1, torch.ones(2, 1)).place(PLACES[:, :1]).as_score_mod(), "x: got NoneType"),
    (lambda: flex_attend(IN_POWERS.place(THREE[:2]).with_prefix_tokens(1), Q, Q, Q), "unplaced: got (1, 1)"),
    (lambda: flex_attend(ScoreBias(Matrix(ASKEW[0])), Q, Q, Q), "positions: got 2 rows; there are 3 tokens"),
    *((lambda f=f, o=o: f(causal=True, **o), "q: got 3 queries for 2 keys") for f in TOO_MANY for o in OF_PAIRS),
    (lambda: rotations.ntk_by_parts(torch.ones(2, 1), 0.0, 100), f"factor: got 0.0; {ABOVE_0}"),
    (lambda: rotations.ntk_by_parts(torch.ones(2, 1), 2.0, 0), f"trained: got 0; {ABOVE_0}"),
    (lambda: rotations.yarn_frequencies(8, 0.0, 100), f"factor: got 0.0; {ABOVE_0}"),
    (lambda: rotations.yarn_frequencies(7, 2.0, 100), f"dim: got 7; {EVEN}"),
    (lambda: rotations.yarn_frequencies(8, 2.0, 0), f"trained: got 0; {ABOVE_0}"),
    (lambda: rotations.yarn_length(0.0), f"factor: got 0.0; {ABOVE_0}"),
    (lambda: transport.equivalent_frequencies(torch.ones(3)), "frequencies' last dimension: got 3"),
    (lambda: masks.starts_of([0, 2], 2), f"cu_seqlens: got list; {TENSOR}"),
    (lambda: Carried(turn_pairs, 2 * (cis(torch.ones(3, 2)),), (3, 3)).to_reference(Q.long(), Q), "q: got torch.int64"),
    (lambda: FOCUSED.place(rotations.grid_positions(32, 32)).attend(*3 * (torch.ones(1, 1, 1000, 4),)), "1024"),
    *((lambda n=n: LAYER(X, **{n: [True]}), f"{n}: got list; {TENSOR}") for n in ("mask", "starts")),
    (lambda: options_of("ropes"), "name: got 'ropes'; the methods are"),
    (lambda: lie.position_rotations(PLACES[:, :1], torch.zeros(1, 2, 3)), "generators: got shape (1, 2, 3)"),
    (lambda: lie.log_rotation(torch.ones(2, 3)), "R: got shape (2, 3)"),
    # The registry
    (lambda: made("ropé"), "name: got 'ropé'; the methods are none, sinusoidal"),
    *((lambda h=h: made("rope", heads=h), f"heads: got {h}") for h in (5, 0)),
    (lambda: made("riemannformer", heads=6.0), "heads: got 6.0; it must be a whole number from 1 on"),
    (lambda: made("alibi", width=-48), "width: got -"),
    (lambda: made("liere", layers=0), "layers: got 0"),
    (lambda: made("lf", layers=2.5), "layers: got 2.5"),
    (lambda: made("lf", grid=()), "grid: got ()"),
    (lambda: made("rope", grid=10), "grid: got 10"),
    (lambda: made("rope", grid=(4, 0)), "grid: got"),
    (lambda: made("compass", transport="roads"), "transport: got 'roads'; the transports are"),
    (lambda: made("rope", bass=3), "options: got {'bass': 3}; rope has no bass; it has {'base': 10000.0}"),
    (lambda: made("rope-axial", grid=(2,) * 30), "axes: got 30"),
    (lambda: made("rope", width=6), "dim: got 3"),
    (lambda: made("riemannformer+nothing"), "name: got 'riemannformer+nothing'"),
    (lambda: made("nothing+lf"), "name: got 'nothing+lf'"),
    (lambda: made("riemannformer", law="wild"), "law: got 'wild'; the scale laws are bounded, free, slow"),
    (lambda: made("riemannformer", far=1.0), "s: got values from 1 to 1"),
    (lambda: made("riemannformer", far=-1.0), "far: got -1.0"),
    (lambda: made("riemannformer", law_options={"alpha": -1.0}), "alpha: got -1.0"),
    (lambda: made("riemannformer", law_options={"gamma": 1.0}), "options: got"),
    *((lambda i=i: PerLayer([Encoding()]).place(PLACES).layer(i), f"index: got {i}") for i in (1, -1)),
    (lambda: made("riemannformer+lf", lf={"per_head": False}), "options: got"),
    (lambda: made("lf", sigma=-1.0), "sigma: got -1.0"),
    (lambda: made("lf", per_position=True).place(torch.zeros(5, 2)).attenuation(), "positions: got 5 rows"),
    (lambda: made("rmt", slopes="steep"), "slopes: got 'steep'"),
    (lambda: made("alibi", slopes=[1.0]), "slopes: got 1 numbers"),
    (lambda: ALiBi(0), "heads: got 0"),
    *((lambda b=block: made("liere", block=b), f"width: got {block}") for block in (5, 1, 0)),
    (lambda: made("liere", share="both"), "share: got 'both'; one of none, layers, heads, all"),
    *((lambda s=scale: made("liere", scale=s), f"high: got {scale}") for scale in (-1.0, math.nan)),
    (lambda: made("rope-mixed", base=0.0), "base: got 0.0"),
    (lambda: made("visionllama", block=3), "options: got"),
    *((lambda n=name: turned(n), "positions: got 12 rows") for name in ("liere", "rope-mixed", "visionllama")),
    (lambda: made("liere", layers=3).place(PLACES).layer(3), "index: got 3"),
    *((lambda u=unit: LieRE(torch.ones(1, 1, 1, 2, 1), 2, unit=u), "unit: got") for unit in ([1.0], [1.0, 0.0])),
    (lambda: LieRE(torch.zeros(2, 2, 2, 2, 5), 4, layers=2), "entries: got"),
    (lambda: LieRE(torch.zeros(2, 2, 2, 2, 6), 4, layers=3), "entries: got"),
    *((lambda p=power: PowerScores(Encoding(), p), "power: got ") for power in (3, 0, -2, 2.0, True)),
    (lambda: PowerScores(Encoding()).place(THREE).weights(Q, Q[:, :, :2], causal=True), "q: got 3 queries for 2 keys"),
    (lambda: LocalityFocusing(IN_POWERS, 2, 1, 1.0), "encoding: got PowerScores inside"),
    (lambda: Composed([ALiBi(2), IN_POWERS]), "parts: got PowerScores inside"),
    (lambda: PerLayerFocusing(IN_POWERS, []), "encoding: got PowerScores inside"),
    # What is to be written in a refused argument's place
    (lambda: RoPE(64), "RoPE.text(64)"),
    (lambda: RoPE(rotations.language_frequencies(8)[:, 0]), "frequencies: got shape (4,)"),
    (lambda: RoPE(rotations.language_frequencies(8)[:, 0]), "frequencies[:, None]"),
    (lambda: RoPE([1.0]), "frequencies: got list"),
    (lambda: alibi().attention(*torch.randn(3, 2, 3, 5, 4)), "q: got 3 heads; the encoding has 2"),
    (lambda: alibi(3).attention(*torch.randn(3, 1, 2, 5, 4)), "q: got 1 samples; the encoding has 3"),
    (lambda: alibi().attention(*OF_FIVE, mask=torch.ones(2, 5).bool()), "mask: got shape (2, 5)"),
    (lambda: alibi().attention(*OF_FIVE, mask=torch.ones(2, 5).bool()), "mask[:, None, None]"),
    (lambda: alibi().attention(*OF_FIVE, mask=torch.ones(3, 1, 5, 5).bool()), "mask: got shape"),
    (lambda: masks.padding_mask(torch.tensor([4]), 3), "lengths: got 4; there are 3 tokens"),
    (lambda: masks.padding_mask(torch.tensor([[4]]), 5), "lengths: got shape (1, 1)"),
    (lambda: masks.document_mask(torch.zeros(1, 1, 2)), "documents: got shape (1, 1, 2)"),
    # Symmetric powers
    *((lambda v=values: recurrence.signal_to_noise(*v, 8, 2), f"{name}: got") for name, values in NOISE),
    *((lambda d=distance: recurrence.gate_for_distance(d), f"distance: got {distance}") for distance in (0, math.inf)),
    (lambda: SympowAttention(16, 4, key_heads=3), "key_heads: got"),
    (lambda: SympowAttention(16, 4)(torch.zeros(2, 3, 16), mask=torch.ones(2, 4).bool()), "mask: got"),
    (lambda: SympowAttention(16, 4)(torch.zeros(2, 3, 16), starts=torch.zeros(3, 3).bool()), "starts: got"),
    (lambda: SympowAttention(16, 3), "heads: got"),
    (lambda: SympowAttention(16, 2, power=3), "power: got"),
    (lambda: SympowAttention(6, 2), "dim: got"),
    (lambda: GATED.place(torch.arange(2.0), torch.arange(6.0)), "positions: got"),
    (lambda: GATED.place(torch.arange(2.0)).log_gate(None), "x: got"),
    (lambda: GATED.place(torch.zeros(3, 2)), "positions: got"),
    (lambda: SympowEncoding(16, 3, torch.ones(2, 1)), "heads: got"),
    (lambda: chunked_form(Q, Q, Q, 2, chunk=0), "chunk: got"),
    (lambda: conformal_step(STATE, *ONE, 2, STILL[0] + 0.1, STILL[1]), "log_gates: got"),
    (lambda: conformal_step(STATE, *ONE, 2, torch.zeros(1, 1), torch.zeros(1, 1, 3)), "turns: got"),
    (lambda: conformal_step(STATE, *ONE, 4, torch.zeros(1, 1), torch.zeros(1, 1, 2)), "state: got"),
    (lambda: chunked_form(Q, Q, Q, 2, state=recurrence.empty_state(Q.repeat(1, 1, 1, 2), Q, 2)), "state: got"),
    (lambda: recurrent_form(Q, Q, Q, 2, state=recurrence.empty_state(Q, Q, 4)), "state: got"),
    (lambda: recurrent_form(*3 * (Q[..., :3],), 2, turns=torch.ones(1, 1, 3, 1)), "q's last dimension: got"),
    (lambda: recurrence.memory_length(1.0), "gate: got"),
    (lambda: recurrence.one_chunk_form(Q, Q, Q, 2, turns=torch.zeros(1, 1, 3, 3)), "turns: got"),
    (lambda: recurrence.one_chunk_form(Q, Q, Q, 2, torch.full((1, 1, 3), 0.1)), "log_gates: got"),
    (lambda: recurrence.alibi_log_gates(torch.tensor([-1.0]), 3), "slopes: got"),
    (lambda: recurrence.log_decay(torch.ones(3)), "log_gates: got"),
    (lambda: recurrence.turns_of(torch.ones(1, 1, 3), torch.ones(2)), "frequencies: got"),
    (lambda: recurrence.chunked_work(10, 4, 2, 0), "chunk: got"),
    (lambda: recurrence.attention_work(0, 4, 2), "tokens: got"),
    (lambda: recurrence.crossing_length(4, 2, ("time",)), "parts: got"),
    (lambda: recurrence.merge([]), "parts: got none; at least one"),
    *((lambda f=form, a=changed: f(**(FORM | a)), f"{min(changed)}: got ") for form in FORMS for changed in WRONG),
    # Calls that look right
    (lambda: LAYER(torch.full_like(X, math.nan)), "x: got inf or NaN; the layer's input must be finite"),
    (lambda: LAYER(X, tuple(READ)), "state: got tuple; a State"),
    *((lambda f=f: f(Q6, Q6, Q6, 2, state=tuple(READ)), "state: got tuple; a") for f in (chunked_form, recurrent_form)),
    (lambda: recurrent_step(tuple(STATE), *ONE, 2), "state: got tuple; a State"),
    (lambda: conformal_step(tuple(STATE), *ONE, 2, *STILL), "state: got tuple"),
    (lambda: LAYER(X, READ._replace(mu=READ.mu.bfloat16())), "state: got mu in torch.bfloat16"),
    *((lambda h=h: SympowAttention(16, h), f"heads: got {h}; {WHOLE}") for h in (2.0, True)),
    (lambda: SympowAttention(16, 2, key_heads=1.0), f"key_heads: got 1.0; {WHOLE}"),
    *((lambda f=f: f(16.0, 2), f"width: got 16.0; {WHOLE}") for f in (SympowAttention, MultiHeadAttention)),
    (lambda: SympowEncoding(16, 2.0, torch.ones(4, 1)), f"heads: got 2.0; {WHOLE}"),
    (lambda: LocalityFocusing(Encoding(), 2, 1.0, 1.0), f"axes: got 1.0; {WHOLE}"),
    (lambda: RoPE.image(8, 2.0), "axes: got 2.0"),
    (lambda: RoPE.text(8.0), "dim: got 8.0"),
    (lambda: SphericalRoPE(torch.ones(2), 2.0), f"axes: got 2.0; {WHOLE}"),
    (lambda: LieRE(torch.zeros(1, 1, 4, 1, 1), 2.0), f"width: got 2.0; {WHOLE}"),
    (lambda: Learned(16.0, (6,)), f"width: got 16.0; {WHOLE}"),
    (lambda: Compass(16, 2.0, (6,)), f"heads: got 2.0; {WHOLE}"),
    (lambda: LAYER(WIDE), NARROW),
    (lambda: MultiHeadAttention(16, 2)(WIDE, Placed()), NARROW),
    *((lambda n=n: of_data(n, None, WIDE), NARROW) for n in OF_DATA),
    *((lambda n=n: text(n).embed(WIDE, SIX), NARROW) for n in ("sinusoidal", "learned")),
    (lambda: of_samples("rope"), "q: got shape (2, 2, 6, 8); positions were placed for another number"),
    (lambda: of_samples("alibi"), "q: got 2 samples; the encoding has 3"),
    *((lambda n=n: of_samples(n), "positions: got 3 samples") for n in ("sinusoidal", "learned")),
    (lambda: ROPE.attention(Q6, Q6, Q6, scale=0.0), "scale: got 0.0"),
    (lambda: attention(Q, Q, Q, scale=-1.0), "scale: got -1.0"),
    (lambda: ROPE.weights(Q6, Q6, scale=math.nan), "scale: got nan"),
    (lambda: flex_attend(ROPE, Q6, Q6, Q6, scale=-1.0), "scale: got -1.0"),
    (lambda: flex_attend(Placed(), Q6, *2 * (Q6[:, :, :2],), causal=True), "q: got 6 queries for 2"),
    (lambda: RoPE.text(4).place(SIX).attention(Q6, Q6, Q6), "q: got shape (2, 2, 6, 8); the encoding turns 4"),
    (lambda: HalfSplit(RoPE.text(4)).place(SIX).to_reference(Q6, Q6), "q: got shape (2, 2, 6, 8)"),
    (lambda: RiemannFormer(torch.ones(2, 1), 1).place(SIX).to_reference(Q6, Q6), "q: got shape"),
    (lambda: RoPE(torch.ones(2, 1), rotary_dim=8), "rotary_dim: got 8; the frequencies turn 4"),
    (lambda: RoPE.text(8, rotary_dim=16), "rotary_dim: got 16; a head has 8 features"),
    (lambda: text("liere").place(SIX).layer(1), "index: got 1; the encoding was made for layers=1"),
    (lambda: text("rope-mixed+lf").place(SIX).layer(1), "index: got 1; the encoding was made for"),
    (lambda: text("liere", layers=3, share="all").place(SIX).layer(3), "index: got 3"),
    (lambda: torch.jit.trace(LAYER, (X,)), "x: got torch.jit.trace; torch.compile and"),
    (lambda: torch.func.jvp(lambda x: LAYER(x)[0], (X,), (X,)), "q: got forward derivatives; a backward pass"),
    (lambda: LAYER(3e3 * X)[1].to(torch.float16), "dtype: got torch.float16; one with"),
    (lambda: HalfSplit(PerLayer([RoPE.text(8), RoPE.text(8, rotary_dim=4)])), "turned: got None; parts"),
    (lambda: LengthRoPE(torch.ones(2, 4, 1), 4), "frequencies: got shape (2, 4, 1)"),
    *((lambda n=n: text(n).place(SIX).attention(Q6, K3, K3), "k: got 3 samples; q has 2") for n in ("rope", IN_POWER)),
    (lambda: text(IN_POWER).place(SIX).attention(Q6, Q6, Q6, scale=-1.0), "scale: got -1.0"),
    (lambda: text("rope").place(SIX.to("meta")), "positions: got some on another device"),
    (lambda: text("alibi").place(SIX.to("meta")), "positions: got some on meta; the encoding is on cpu"),
    (lambda: ROPE.to_reference(Q6.to("meta"), Q6), "q: got a tensor on meta"),
    (lambda: flex_attend(ROPE, Q6, Q6, Q6[:, :, :5]), "v: got 5 tokens; k has 6"),
    *((lambda n=n: of_data(n, torch.ones(3, 1, 6, 6).bool()), "mask: got shape (3, 1, 6, 6)") for n in OF_DATA),
    (lambda: of_data("sympow-gates", "causal"), "mask: got str"),
]


def test_the_hint_for_one_axis_is_for_one_axis():
    with pytest.raises(ValueError, match=r"with axes = 2$"):
        as_places(PLACES[:, :1], None, 2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_it_is_refused_with_the_arguments_name(call, message):
    with pytest.raises(ValueError, match="^" * (": got" in message) + re.escape(message)):
        call()
