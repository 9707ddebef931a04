"""Whether this folder is one package: another distribution on PyPI, ``geolib``, installs into a folder of this name."""

import importlib.metadata
import sys

DISTRIBUTION = "geometry-of-attention"


def refuse_a_mixture() -> None:
    """ImportError where ``geolib/__init__.py`` is another package's, or gone; only then are installations looked at."""
    package = sys.modules["geolib"]
    if getattr(package, "__distribution__", None) == DISTRIBUTION:
        return
    owners = importlib.metadata.packages_distributions().get("geolib", [])
    others = sorted(set(owners) - {DISTRIBUTION}) or ["geolib"]
    raise ImportError(
        f"the folder {next(iter(package.__path__))} mixes {DISTRIBUTION} with another package, {', '.join(others)}: "
        f"pip uninstall -y {' '.join(others)}, then pip install --force-reinstall --no-deps {DISTRIBUTION}"
    )
