"""Laws that a library's position encodings and linear attention can be held to, and adapters to some libraries."""

from geolib.conform.core import Broken, CannotTry, Law, NotApplicable, Outcome, Target
from geolib.conform.running import LAWS, check, hold, load

__all__ = ["LAWS", "Broken", "CannotTry", "Law", "NotApplicable", "Outcome", "Target", "check", "hold", "load"]
