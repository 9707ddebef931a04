"""The modules whose mutants are tried, and the tests of each."""

from __future__ import annotations

from dataclasses import dataclass

# Those that run over all methods: for what a module's own tests let pass.
REGISTRY = (
    *("test_encodings", "test_encodings_lie", "test_encodings_riemann", "test_placed"),
    *("test_batches", "test_defaults", "test_options", "test_refusals", "test_widths", "test_laws"),
)


@dataclass(frozen=True)
class Module:
    """Files of the library, as patterns, the tests of their own, and those for what these let pass.

    A test that takes longer than ``slow`` seconds is not run, nor any after twice as long.
    """

    files: tuple[str, ...]
    tests: tuple[str, ...]
    then: tuple[str, ...] = REGISTRY
    slow: float = 3.0


MODULES = {
    "attention": Module(
        ("geolib/attention.py", "geolib/_written.py", "geolib/masks.py", "geolib/flex.py"),
        ("test_attention", "test_masks", "test_flex", "test_written"),
    ),
    "checks": Module(
        ("geolib/_checks.py", "geolib/_precision.py"),
        ("test_precision", "test_rotations", "test_lie", "test_sympow", "test_refusals"),
    ),
    "conformal": Module(("geolib/conformal.py",), ("test_conformal",)),
    "connection": Module(("geolib/connection/*.py",), ("test_connection", "test_compass")),
    "encodings": Module(
        ("geolib/encodings.py", "geolib/placed.py"),
        ("test_placed", "test_encodings", "test_masks", "test_flex", "test_saved"),
        slow=6.0,
    ),
    "lie": Module(("geolib/lie.py", "geolib/exponential.py"), ("test_lie",)),
    "locality": Module(("geolib/locality.py",), ("test_locality",)),
    "manifolds": Module(("geolib/manifolds/*.py",), ("test_manifolds",)),
    "recurrence": Module(
        ("geolib/recurrence/*.py",),
        (
            *("test_recurrence", "test_resets", "test_chunks", "test_kernels"),
            *("test_fused", "test_forgetting", "test_power_scores"),
        ),
        slow=6.0,  # kernels of a GPU, interpreted
    ),
    "rotations": Module(("geolib/rotations.py",), ("test_rotations",)),
    "sympow": Module(("geolib/sympow.py",), ("test_sympow",)),
    "transport": Module(("geolib/transport.py",), ("test_transport",)),
}
