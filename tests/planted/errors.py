"""What is wrong when a statement, or a finding, is to be seen to fail: one error each, keyed by a function.

A statement's entry says where the error is planted and what it makes of the right function: the function's path in the
library, or a name of the chapter's own cells where the library has no part in the check. A third member is the one
check that is asked, where the others train a model first. A finding's check cells read records, and share errors.
"""

# ruff: noqa: E731
from dataclasses import replace
from itertools import cycle
from math import log

import torch
from torch import Tensor


def out(change):
    """A function whose result is changed."""
    return lambda f: lambda *a, **k: change(f(*a, **k))


def into(change, at=0):
    """A function whose argument at a place, where it is given, is changed."""
    return lambda f: lambda *a, **k: f(*[change(x) if i == at else x for i, x in enumerate(a)], **k)


given = lambda **more: lambda f: lambda *a, **k: f(*a, **k | more)  # always these arguments
times = lambda factor: out(lambda x: factor * x)
grown = lambda by: out(lambda x: x + by)
ruled = out(lambda chart: replace(chart, metric=lambda x: chart.metric(x) ** 2))  # its ruler changes otherwise


def shaken(read, factor):
    """Numbers of a record, all those that are no counts: times a factor."""
    if isinstance(read, dict):
        return {name: shaken(x, factor) for name, x in read.items()}
    if isinstance(read, list | tuple):
        return type(read)(shaken(x, factor) for x in read)
    return factor * read if isinstance(read, float) else read


def records_by(*factors):
    """Records of which each first, each second and so on holds other numbers than were found."""
    return out(
        lambda records: [
            replace(each, metrics=shaken(each.metrics, by), learned=shaken(each.learned, by))
            for each, by in zip(records, cycle(factors))
        ]
    )


shaken_by = lambda factor: out(lambda record: shaken(record, factor))
minus = lambda x: -x
half = lambda x: x / 2
twice = lambda x: 2 * x
swapped = lambda f: lambda a, b, *more, **k: f(b, a, *more, **k)
transposed = out(lambda x: x.mT)
columns = out(lambda w: w / w.sum(-2, keepdim=True))
sharper = out(lambda w: w.square() / w.square().sum(-1, keepdim=True))  # at half the temperature
renormalised = out(lambda w: w / w.sum(-1, keepdim=True))
cosines_first = out(lambda u: u.unflatten(-1, (-1, 2)).flip(-1).flatten(-2))
leaky = out(lambda X: X + 0.1 * X.exp())
all_alike = lambda s: s.mean().expand_as(s)
first_twice = out(lambda x: torch.cat([2 * x[..., :1], x[..., 1:]], -1))

# Paths that are named often
ATTENTION, WEIGHTS = "geolib.attention.attention", "geolib.attention.attention_weights"
ROTATION, CHRISTOFFEL = "geolib.rotations.rotation_matrix", "geolib.manifolds.christoffel"
POSITIONS, COMMUTATOR = "geolib.lie.position_rotations", "geolib.lie.commutator"
CELLS, DOCUMENTS = "geolib.rotations.grid_positions", "geolib.rotations.document_frequencies"
ALONG, CHUNKED = "geolib.recurrence.recurrent_form", "geolib.recurrence.chunked_form"
RECORDS, BENCH = "geolib.lab.read_all", "geolib.lab.benches.saved.read"
NUMBERS = RECORDS, records_by(0.8, 1.0, 1.25)
PAIRED, ERROR = "geolib.lab.experiments.paired_differences", "geolib.lab.experiments.difference_error"

STATEMENTS = {
    "01_attention": {
        "prop-softmax": (WEIGHTS, columns),
        "prop-entropy": (WEIGHTS, sharper),
        "prop-root": (WEIGHTS, sharper),
        "prop-mean": (ATTENTION, times(1.1)),
        "prop-kernel": ("lifted_key", out(lambda k: torch.cat([k[..., :-1], 2 * k[..., -1:]], -1))),
        "thm-order": (ATTENTION, given(causal=True)),
        "prop-causal": (ATTENTION, given(causal=False), "causal-check"),
        "prop-four-terms": (WEIGHTS, sharper),
        "thm-blank": ("geolib.encodings.Learned.embed", lambda f: lambda self, x, positions: x),
        "prop-sinusoid": ("geolib.encodings.Sinusoidal.table", cosines_first),
        "thm-between": ("geolib.encodings.Sinusoidal.table", cosines_first),
        "prop-experiments": (PAIRED, swapped, "recorded-check"),
    },
    "02_manifolds": {
        "prop-charts": ("geolib.manifolds.sphere_stereographic", ruled),
        "thm-levi-civita": (CHRISTOFFEL, times(-1)),
        "prop-sphere-symbols": (CHRISTOFFEL, times(2)),
        "prop-latitude": ("geolib.manifolds.latitude_transport", into(minus, 1)),
        "prop-transport": ("geolib.manifolds.parallel_transport", times(1.1)),
        "prop-geodesics": ("geolib.manifolds.geodesic", into(half, 2)),
        "prop-half-plane": ("geolib.manifolds.poincare_disk", ruled),
        "thm-area": ("geolib.manifolds.rotation_angle", times(-1)),
        "thm-curvature": ("geolib.manifolds.holonomy", out(torch.linalg.inv)),
        "cor-gauss-bonnet": ("geolib.manifolds.torus_curvature", times(0.7)),
        "prop-conformal": ("geolib.manifolds.conformal_christoffel", times(-1)),
        "prop-scale-metric": ("geolib.manifolds.power_metric", into(twice)),
        "prop-slanted": ("geolib.manifolds.power_metric", into(minus)),
    },
    "03_rotations": {
        "prop-plane": (ROTATION, into(minus)),
        "thm-one-parameter": (ROTATION, times(1.1)),
        "prop-any-start": ("geolib.rotations.block_diagonal", out(lambda B: B.flip(-1))),
        "thm-clocks": ("geolib.rotations.rotate_pairs", into(minus, 1)),
        "prop-score": (ROTATION, into(minus)),
        "prop-anywhere": ("geolib.rotations.rope", into(torch.abs, 1)),
        "prop-documents": (DOCUMENTS, times(0.5)),
        "lem-commuting": ("geolib.rotations.plane_generator", leaky),
        "thm-several-axes": ("geolib.rotations.plane_generator", leaky),
        "thm-common-planes": ("geolib.rotations.rope", into(minus, 1)),
        "prop-axial": ("geolib.rotations.axial_frequencies", out(lambda table: table + table.flip(-1))),
        "prop-mirrors": ("geolib.rotations.reflection_matrix", into(twice)),
        "thm-mirrors": ("geolib.rotations.reflect_pairs", into(twice, 1)),
    },
    "04_transport": {
        "prop-middle": ("geolib.transport.transports", out(lambda P: P.transpose(0, 1))),
        "thm-compatible": ("geolib.transport.pulled_back_metrics", out(lambda M: M.transpose(0, 1))),
        "thm-fast": ("geolib.transport.literal_scores", transposed),
        "prop-skew-preset": ("geolib.transport.skew_preset", into(minus)),
        "prop-relative": ("family", into(torch.square)),
        "thm-origin": ("geolib.transport.general_preset", into(all_alike), "origin-check-general"),
        "thm-flat": ("geolib.connection.plaquettes", out(torch.linalg.inv)),
        "prop-gauge": ("geolib.transport.reference_metrics", lambda f: lambda M, T: T @ M @ T),
        "prop-isoclinic": ("quaternion", lambda f: lambda u, left: f(u, True)),
    },
    "05_conformal": {
        "prop-sum-difference": ("geolib.transport.rotation_preset", into(minus)),
        "thm-temperature": (WEIGHTS, sharper),
        "prop-temperature-grid": ("geolib.encodings.RiemannFormer.place", into(minus, 1)),
        "prop-undecided": ("bound", half),
        "prop-scale-range": ("geolib.conformal.bounded_log_scale", into(minus)),
        "prop-slow-law": ("factors", out(torch.square)),
        "thm-similarity": ("geolib.conformal.conformal_factor", out(torch.square)),
        "prop-conformal-step": ("geolib.conformal.conformal_matrix", into(lambda log_scale: 0 * log_scale)),
        "prop-two-choices": ("geolib.encodings.RiemannFormerRelative.place", into(minus, 1)),
        "prop-overflow": ("geolib.conformal.reach", times(0.5)),
        "thm-general-metric": ("geolib.transport.general_preset", into(minus, 1)),
        "prop-ruler-transport": ("geolib.transport.rotation_preset", into(minus)),
        "prop-flip": ("geolib.transport.rotation_preset", into(lambda log_scale: -log_scale.abs())),
        "prop-slope": ("by_score", twice),
    },
    "06_lie": {
        "prop-turns": ("geolib.lie.exp_skew", into(minus)),
        "thm-exponential": (COMMUTATOR, times(-1)),
        "prop-spectrum": ("geolib.lie.spectrum", out(torch.square)),
        "thm-onto": ("geolib.lie.exp_skew", into(half)),
        "prop-logarithm": ("geolib.lie.log_rotation", times(-1)),
        "thm-bch": ("geolib.lie.bch", swapped),
        "thm-defect": ("geolib.lie.relativity_defect", times(-1)),
        "thm-lie-shift": ("bound", times(1 / 1.5)),
        "thm-isoclinic": ("geolib.lie.isoclinic_parts", out(lambda parts: (parts[0], -parts[1]))),
        "prop-pade": ("geolib.lie.exp_pade", transposed),
        "prop-generators": (POSITIONS, into(minus)),
        "prop-start": ("geolib.lie.initial_top_angle", times(1.5)),
        "prop-reach": ("geolib.lie.plane_weights", out(lambda both: (both[0], both[1].sqrt()))),
        "prop-voxels": ("geolib.lie.skew_matrix", into(minus)),
    },
    "07_locality": {
        "prop-local-bilateral": ("geolib.locality.log_attenuation", times(2)),
        "prop-local-forms": ("geolib.locality.focus_one_query", lambda f: lambda weights, decay, v: weights @ v),
        "prop-local-ellipse": ("geolib.locality.attenuation", out(torch.sqrt)),
        "prop-local-kept": ("geolib.locality.focused_attention", into(twice, 4)),
        "thm-local-parts": ("part", out(lambda pair: (2 * pair[0], pair[1]))),
        "cor-local-fused": ("geolib.locality.fused_focused_attention", into(twice, 4)),
        "prop-local-features": ("geolib.locality.gaussian_features", out(lambda pair: (pair[0], 2 * pair[1]))),
        "prop-local-ceiling": ("row_weights", renormalised),
        "prop-local-steps": ("gauss", into(twice)),
        "prop-local-blind": (CELLS, out(lambda p: p * torch.tensor([1.0, 2.0]))),
        "prop-local-pair": (CELLS, out(lambda p: p * torch.tensor([1.0, 2.0]))),
    },
    "08_sympow": {
        "prop-sums": ("geolib.sympow.embed", first_twice),
        "prop-tensor": ("geolib.sympow.monomials", out(lambda table: table._replace(weight=2 * table.weight))),
        "thm-embedding": ("geolib.sympow.embed", first_twice),
        "prop-no-finite": ("geolib.sympow.dimension", grown(-1)),
        "prop-state-size": ("geolib.sympow.state_numbers", grown(-2080)),
        "prop-even": ("geolib.recurrence.attention_form", into(lambda p: p + 2, 3)),
        "prop-moments": ("geolib.sympow.direction_moment", times(1.1)),
        "thm-capacity": ("geolib.sympow.direction_moment", times(1.1), "capacity-check"),
        "thm-lift": ("geolib.sympow.lift", transposed),
        "prop-determinant": ("geolib.sympow.lift_determinant_exponent", grown(1)),
        "prop-turning": ("geolib.sympow.lift", transposed),
    },
    "09_recurrences": {
        "thm-rec-forms": ("geolib.recurrence.attention_form", into(lambda p: p + 2, 3)),
        "prop-rec-pinned": (DOCUMENTS, into(lambda longest: 48.0, 1)),
        "thm-rec-gates": (CHUNKED, into(half, 4)),
        "prop-rec-alibi": ("geolib.recurrence.alibi_log_gates", into(half)),
        "prop-rec-logs": ("decay_errors", out(lambda errors: errors[::-1])),
        "thm-rec-conformal": ("geolib.recurrence.rotation_rates", grown(1)),
        "thm-rec-map": ("geolib.recurrence.conformal_step", into(minus, 6)),
        "prop-rec-fused": ("geolib.recurrence.softmax_form", into(lambda p: p + 2, 3)),
        "prop-rec-chunks": (CHUNKED, into(half, 4)),
        "thm-rec-costs": ("geolib.recurrence.crossing_length", grown(-1)),
        "prop-rec-flip": ("nearest_return", grown(1)),
        "prop-rec-clock": ("geolib.recurrence.turns_of", times(-1), "clock-check"),
        "thm-rec-family": (ROTATION, into(minus)),
    },
    "10_connection": {
        "prop-die": ("away", lambda turn: turn @ turn),
        "thm-table": ("geolib.rotations.plane_generator", times(-1)),
        "thm-all-flat": ("geolib.connection.implied_connection", into(swapped)),
        "prop-links-gauge": ("geolib.connection.gauge_transform", into(torch.linalg.inv, 1)),
        "prop-stokes": ("geolib.connection.holonomy", out(torch.linalg.inv)),
        "prop-line": ("geolib.connection.householder_steps", into(half, 1)),
        "prop-words": (ROTATION, into(half), "follow-check"),
        "thm-rank": ("geolib.connection.straight_path", lambda f: lambda start, end: f(end, start)[::-1]),
        "thm-rank-error": ("by_strips", times(1.1)),
        "prop-reversal": ("geolib.lab.data.order_task.Board.twist", out(abs)),
    },
    "11_riemannformer": {
        "prop-rf-score": ("geolib.encodings.RiemannFormer.place", into(minus, 1)),
        "cor-rf-mirrors": ("geolib.encodings.RiemannFormerReflection.place", into(twice, 1)),
    },
    "12_liere": {
        "prop-liere-ray": (POSITIONS, into(half)),
        "thm-liere-blind": ("pfaffian", out(torch.abs)),
        "prop-liere-round": ("geolib.lie.isoclinic_parts", out(lambda parts: (parts[0] + parts[1], parts[1]))),
        "thm-liere-area": (COMMUTATOR, times(-1)),
        "cor-liere-origin": ("most", into(torch.abs)),
        "prop-liere-resolution": ("geolib.rotations.rescale_positions", times(2)),
        "prop-liere-slant": (POSITIONS, into(torch.abs)),
        "prop-liere-cost": ("by_hand", grown(1)),
    },
    "13_documents": {
        "prop-doc-baseline": ("cost", times(log(2))),
        "prop-doc-bits": ("second_reading", times(0.5)),
        "prop-doc-price": (ALONG, into(half, 4)),
        "thm-doc-gate": ("geolib.recurrence.signal_to_noise", times(1.3), "best-gate-check"),
        "prop-doc-angles": (DOCUMENTS, times(0.5)),
        "prop-doc-return": (DOCUMENTS, times(0.5)),
    },
    "14_fast": {
        "thm-amdahl": ("law", into(lambda gains: 1 / gains, 1)),
        "prop-roofline": ("roof", lambda f: lambda work, traffic, peak, width: work / peak + traffic / width),
        "prop-step-work": ("geolib.lab.vit.ViT.__init__", into(lambda config: replace(config, mlp_ratio=1.0), 1)),
        "lem-bf16": ("eps", half, "bf16-check-two"),
        "thm-pieces": ("merged", out(lambda triple: (triple[0], 2 * triple[1], triple[2]))),
        "prop-squaring": ("geolib.lie.exp_skew", into(Tensor.float), "squaring-check-library"),
        "prop-chunk": ("geolib.recurrence.ideal_chunk", times(2)),
    },
    "how-to-compare": {
        "prop-test-blur": (ERROR, times(1.1)),
        "prop-mcnemar": ("geolib.lab.experiments.mcnemar", times(0.5), "mcnemar-check-level"),
        "prop-student": ("geolib.lab.experiments.PairedDifference.interval", out(lambda ends: [x + 1 for x in ends])),
        "prop-pairing": ("weights", abs),
    },
}

FINDINGS = {
    "03_rotations": [(*NUMBERS, "digits-ties-check repeat-check moved-check moved-falls-check")],
    "08_sympow": [
        (*NUMBERS, "digits-differences"),
        (BENCH, shaken_by(0.9), "pairs-check pairs-check-two"),
    ],
    "09_recurrences": [
        (BENCH, shaken_by(0.9), "start-recorded verdict-check verdict-check-both verdict-check-two verdict-check-holm")
    ],
    "10_connection": [
        (*NUMBERS, "record-check record-check-leads record-check-known dial-check-leads dial-check-order"),
        (BENCH, shaken_by(0.9), "follow-check-read follow-check-gains"),
    ],
    "11_riemannformer": [
        (
            *NUMBERS,
            """glance-check laptop-check-both found-check-told found-check-verdicts holm-check cpu-blur-check
            found-fades parts-check full-cold-check full-found-check""",
        ),
        (BENCH, shaken_by(1e6), "full-card-check"),
    ],
    "12_liere": [
        (
            *NUMBERS,
            """glance-check one-seed-check one-seed-check-changes laptop-check found-check found-check-widths
            found-check-seed found-check-resized found-check-none found-check-digits found-check-shuffled
            found-check-films found-check-holm""",
        ),
        ("geolib.lab.records.Record.accuracy", times(0.9), "speed-check"),
        ("share", times(1.1), "found-check-rates"),
        ("geolib.lab.probes.vit.shuffle_patches", lambda f: lambda images, *more: images, "shuffle-check"),
    ],
    "13_documents": [
        (
            *NUMBERS,
            """glance-check figure-one-check names-check names-check-memory gates-check gates-check-slow
            ablation-check ablation-check-return ablation-check-far ablation-check-rates budget-check
            budget-check-numbers long-check found-check found-check-size""",
        ),
        (RECORDS, records_by(-1.0), "found-check-rise"),
        ("geolib.recurrence.rotation_rates", grown(0.1), "four-check"),
        ("geolib.recurrence.attention_form", into(half, 4), "ends-check"),
    ],
    "14_fast": [
        (BENCH, shaken_by(2.0), "found-check focused-live-check"),
        (*NUMBERS, "precision-learn-check"),
        ("once_and_anew", out(lambda pair: pair[:1] * 2), "placing-check"),
    ],
}
