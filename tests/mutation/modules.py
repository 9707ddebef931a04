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


def of_the_lab(*names: str, tests: tuple[str, ...], then: tuple[str, ...] = (), slow: float = 3.0) -> Module:
    """Files of the lab: no method's mathematics, so that tests over the registry say little of them."""
    return Module(tuple(f"geolib/lab/{name}.py" for name in names), tests, then, slow)


MODULES = {
    "analysis": of_the_lab("analysis", tests=("test_analysis", "test_data_laws", "test_lab_space"), slow=8.0),
    "attention": Module(
        ("geolib/attention.py", "geolib/_written.py", "geolib/masks.py", "geolib/flex.py"),
        ("test_attention", "test_masks", "test_flex", "test_lab_precision"),
    ),
    "augmentation": Module(
        ("geolib/lab/data/augmentation.py", "geolib/lab/data/policies.py", "geolib/lab/data/batches.py"),
        ("test_augment", "test_engine", "test_lab"),
    ),
    "checks": Module(
        ("geolib/_checks.py", "geolib/_precision.py"),
        ("test_precision", "test_rotations", "test_lie", "test_sympow", "test_refusals"),
    ),
    "config": of_the_lab("config", tests=("test_lab_config", "test_data_laws")),
    "conformal": Module(("geolib/conformal.py",), ("test_conformal",)),
    "connection": Module(("geolib/connection/*.py",), ("test_connection", "test_compass")),
    "data": of_the_lab(
        *("data/sets", "data/turns", "data/motion", "data/varied", "data/documents"),
        tests=("test_data_laws", "test_turns", "test_lab_space", "test_documents", "test_lab"),
        slow=15.0,  # a whole set is rendered
    ),
    "encodings": Module(
        ("geolib/encodings.py", "geolib/placed.py"),
        ("test_placed", "test_encodings", "test_masks", "test_flex", "test_saved"),
        slow=6.0,
    ),
    "lie": Module(("geolib/lie.py", "geolib/exponential.py"), ("test_lie",)),
    "locality": Module(("geolib/locality.py",), ("test_locality",)),
    "manifolds": Module(("geolib/manifolds/*.py",), ("test_manifolds",)),
    "reading": of_the_lab("reading", tests=("test_documents", "test_data_laws")),
    "records": of_the_lab("records", "files", tests=("test_lab_records", "test_data_laws")),
    "recurrence": Module(
        ("geolib/recurrence/*.py",),
        (
            *("test_recurrence", "test_resets", "test_chunks", "test_kernels"),
            *("test_fused", "test_forgetting", "test_power_scores"),
        ),
        slow=6.0,  # kernels of a GPU, interpreted
    ),
    "rotations": Module(("geolib/rotations.py",), ("test_rotations",)),
    "runner": of_the_lab(
        "runner", tests=("test_runner", "test_lab", "test_spread", "test_engine"), then=("test_experiments",)
    ),
    "schedule": Module(("geolib/lab/optimiser.py",), ("test_lab",)),
    "statistics": Module(("geolib/lab/experiments/stats.py",), ("test_experiments",)),
    "sympow": Module(("geolib/sympow.py",), ("test_sympow",)),
    "tables": Module(("geolib/lab/experiments/tables.py",), ("test_experiments",)),
    "training": of_the_lab(
        "training",
        tests=("test_data_laws", "test_lab", "test_documents"),
        then=("test_engine", "test_lab_watch", "test_lab_records", "test_lab_precision"),
    ),
    "transport": Module(("geolib/transport.py",), ("test_transport",)),
    "watch": of_the_lab("watch", tests=("test_lab_watch", "test_lab"), slow=8.0),
}
