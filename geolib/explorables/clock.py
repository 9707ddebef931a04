"""The clock of RoPE: two positions as the times two clocks show, and the score that sees only Δ = n - m."""

import traitlets

from geolib._checks import check_positive, require
from geolib.explorables._widget import Explorable, Real, Whole, assemble


class RopeClock(Explorable):
    """The hands of RoPE's frequency pairs for a query and a key, and their score against key minus query.

    Pair i turns by theta_i = base^(-i/pairs) radians a token, counter-clockwise from the right. The score is that of
    q = k = (1, ..., 1) divided by the head dimension d = 2 pairs: the mean of cos((key - query) theta_i).

    Parameters
    ----------
    query, key : float
        Positions m and n, in tokens, 0 to length.
    shift : float
        Added to both, 0 to length: every hand turns and the score stays.
    base : float
        b, 1 or more. 100, the default, lets the slowest hand move visibly within 64 tokens; language models use 10000
        and more.
    pairs : int
        d/2, 1 to 32.
    length : float
        The largest position the sliders reach; give it at the start.

    Raises
    ------
    ValueError
        When a value is out of its range.

    Source: LR-A2. The frequencies are ``geolib.rotations.language_frequencies(2 * pairs, base)``.
    """

    _esm = assemble("clock.js")

    query = Real(12.0, low=0)
    key = Real(5.0, low=0)
    shift = Real(0.0, low=0)
    base = Real(100.0, low=1)
    pairs = Whole(6, low=1, high=32)
    length = Real(64.0)

    @traitlets.validate("query", "key", "shift")
    def _within(self, proposal: traitlets.Bunch) -> float:
        value, name = proposal.value, proposal.trait.name
        require(value <= self.length, name, value, f"it must lie between 0 and length = {self.length:g}")
        return value

    @traitlets.validate("length")
    def _length(self, proposal: traitlets.Bunch) -> float:
        check_positive(proposal.value, "length")
        least = max(self.query, self.key, self.shift)
        require(proposal.value >= least, "length", proposal.value, f"query, key and shift reach up to {least:g}")
        return proposal.value
