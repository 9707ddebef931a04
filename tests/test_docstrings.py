"""Every example in a docstring of geolib runs, and every public name of the mathematics has one.

An example sees the names of its module (``torch``, ``math``, the functions beside it) and nothing else, so it needs no
imports of those. Lists of names that have no example yet stand in WITHOUT_EXAMPLE; they only shrink.
"""

import doctest
import importlib
import inspect
import sys
import types
from pathlib import Path

import pytest
import torch

import geolib

LIBRARY = Path(geolib.__file__).parent
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

# The mathematics: a module, or a package whose files are its rooms.
MODULES = [
    "geolib.attention", "geolib.check", "geolib.conformal", "geolib.connection", "geolib.encodings", "geolib.figures",
    "geolib.lie", "geolib.locality", "geolib.manifolds", "geolib.placed", "geolib.recurrence", "geolib.rotations",
    "geolib.sympow", "geolib.transport",
]  # fmt: skip

WITHOUT_EXAMPLE: dict[str, str] = {
    "geolib.check": """
        check
    """,
    "geolib.conformal": """
        ScaleLaw balance bounded_law bounded_log_scale bounded_raw conformal_deviation conformal_factor
        conformal_map conformal_matrix diagonal_metric free_law free_raw general_metric metric_root
        scalar_metric scaled_scores slow_exponent slow_law unit_ball
    """,
    "geolib.connection": """
        Connection Reading Row alibi_row check_invertible conformal_row conformal_steps flatness_defect
        from_frames gated_row gauge_transform generator_steps holonomy implied_connection levi_civita liere_row
        lifted_conformal_row locality_row measured_bilinear_form measured_log_attenuation
        measured_log_attenuations measured_log_gate measured_log_gates none_row plaquettes read_conformal
        rectangle riemannformer_diagonal_row riemannformer_general_row riemannformer_row rope_row rows_of
        straight_path symmetric_basis symmetric_lift to_frames transport_along turning_steps
    """,
    "geolib.encodings": """
        ALiBi Learned LieRE LocalityFocusing PerLayer RiemannFormer RiemannFormerDiagonal RiemannFormerGeneral
        RiemannFormerReflection RoPE Sinusoidal build check_name is_name
    """,
    "geolib.figures": """
        label_lines use_house_style
    """,
    "geolib.lie": """
        Rays bch check_width commutator decorrelation_length entry_count exp_skew find_rays generator_parameters
        initial_top_angle log_rotation mixed_frequencies plane_weights position_rotations relativity_defect
        shift_deviation skew_matrix small_rotation_error spectrum turn_blocks uniform_entries upper_entries
    """,
    "geolib.locality": """
        attenuation bilateral_filter focus_one_query focused_attention focused_attention_by_lse
        fused_focused_attention log_attenuation pad_unplaced precision_matrix precision_root squared_distances
        whiten
    """,
    "geolib.manifolds": """
        Chart christoffel circle conformal_curvature conformally_flat curvature_from_holonomy distance
        embed_disk embed_spherical embed_stereographic exponential gaussian_curvature geodesic geodesic_holonomy
        geodesic_transport great_circle half_plane half_plane_to_disk holonomy holonomy_angle hyperbola
        hyperbolic_area latitude_transport logarithm minkowski norm orthonormal_frame parallel_transport
        poincare_disk polygon riemann rotation_angle segment sphere_spherical sphere_stereographic
        spherical_area square_loop torus torus_curvature transport_matrix
    """,
    "geolib.recurrence": """
        Attended State SympowAttention SympowEncoding Work alibi_log_gates attention_form attention_work
        best_chunk chunked_form chunked_work conformal_step crossing_length cumulative_angles embedding_work
        empty_state ideal_chunk log_decay log_gates memory_length merge practical_chunk read_state
        recurrent_form recurrent_step recurrent_work rotation_rates score_modifier softmax_form turns_of
    """,
    "geolib.rotations": """
        alternating_frequencies axial_frequencies block_diagonal document_frequencies grid_positions
        inverse_mixed_angles language_frequencies mixed_matrix pair_angles plane_generator reflect_pairs
        reflection_matrix rescale_positions rope rotate_pairs rotation_matrix to_half_split to_interleaved
    """,
    "geolib.sympow": """
        Monomials act dimension embed from_tensor lift lift_determinant_exponent monomials norm_functional
        state_bytes state_numbers tensor_determinant_exponent to_tensor turned_embedding variables
    """,
    "geolib.transport": """
        Preset check_frames compatibility compatible_frames diagonal_preset equivalent_frequencies
        general_preset literal_scores mixed_pairs mixed_preset pulled_back_metrics reference_metrics
        reflection_preset rotation_preset scale_features skew_preset squared_length tangent_mappings transports
        transposed_scores
    """,
}


def files_with_examples():
    """The modules of geolib, by name, whose source holds an example."""
    for path in sorted(LIBRARY.rglob("*.py")):
        if ">>> " in path.read_text("utf-8"):
            parts = path.relative_to(LIBRARY.parent).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def failures(module):
    """What the module's examples print when they do not come out as written, and how many were tried."""
    report, runner = [], doctest.DocTestRunner(verbose=False, optionflags=OPTIONS)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, module.__name__):
        torch.manual_seed(0)
        runner.run(test, out=report.append)
    return "".join(report), runner.tries


def rooms(name):
    """The module and, of a package, the modules in it that are not private."""
    module = importlib.import_module(name)
    yield module
    for path in getattr(module, "__path__", []):
        for file in sorted(Path(path).glob("[!_]*.py")):
            yield importlib.import_module(f"{name}.{file.stem}")


def public(name):
    """The public functions and classes that a module, or a room of a package, defines."""
    for module in rooms(name):
        for key, value in vars(module).items():
            defined_here = getattr(value, "__module__", None) == module.__name__
            if defined_here and not key.startswith("_") and (inspect.isclass(value) or inspect.isroutine(value)):
                yield key, value


def has_example(value):
    """Whether the docstring holds an example; one of a class may stand at any of its public methods."""
    members = [v for k, v in vars(value).items() if not k.startswith("_")] if inspect.isclass(value) else []
    return any(">>> " in (getattr(member, "__doc__", None) or "") for member in [value, *members])


@pytest.mark.parametrize("name", list(files_with_examples()))
def test_every_example_runs(name):
    report, tried = failures(importlib.import_module(name))
    assert tried
    assert not report, report


def test_a_wrong_example_is_found():
    module = types.ModuleType("wrong")
    exec('def f():\n    """One.\n\n    >>> 1 + 1\n    3\n    """\n', vars(module))
    module.f.__module__ = "wrong"
    sys.modules["wrong"] = module
    try:
        report, tried = failures(module)
    finally:
        del sys.modules["wrong"]
    assert tried == 1
    assert "Expected:\n    3\nGot:\n    2" in report


@pytest.mark.parametrize("name", MODULES)
def test_public_names_have_an_example(name):
    found = dict(public(name))
    without = {key for key, value in found.items() if not has_example(value)}
    allowed = set(WITHOUT_EXAMPLE.get(name, "").split())
    assert found, f"{name} has no public names"
    assert not without - allowed, f"write an example (>>> ...) for {sorted(without - allowed)} of {name}"
    assert not allowed - without, f"take {sorted(allowed - without)} off the list of {name}: it only shrinks"
