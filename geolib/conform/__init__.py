"""Laws that a library's position encodings and linear attention can be held to, and adapters to some libraries."""

from geolib.conform import machinery, rotation, sequences  # noqa: F401
from geolib.conform.core import ABOUT, LAWS, Broken, CannotTry, Law, NotApplicable, Outcome, Target
from geolib.conform.running import check, hold, load, spec_of, version_of

__all__ = [
    "ABOUT", "LAWS", "Broken", "CannotTry", "Law", "NotApplicable", "Outcome", "Target", "check", "hold", "load",
    "spec_of", "version_of",
]  # fmt: skip
