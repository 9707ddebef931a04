"""The conformal scale: one number by which a vector measures less at later tokens, and its scores with it."""

import traitlets

from geolib._checks import require
from geolib.explorables._widget import Choice, Explorable, Real, Whole, assemble


class ConformalScale(Explorable):
    """The metric M_m = s^m I along a line of tokens, the factor s^((m+n)/2) of the scores, and a row of attention.

    The row's scores before the factor are 3 cos(2.4 n) for the key at n, whatever the query: peaks of nearly one
    height, so that what the factor does to near and far tokens can be compared. All tokens are keys of every query.

    Parameters
    ----------
    view : str
        What is shown: "lengths", all "scores", one "row" of them, or its "weights".
    law : str
        How w becomes a scale: "bounded", s = e^w / (e^w + alpha) < 1 to the power m; "free", s = e^w to the power m;
        "slow", s of the first to the power log(1 + m).
    w : float
        The learned number, -6 to 6.
    alpha : float
        The constant of the laws "bounded" and "slow", 0.001 to 10; 0.1 in the paper's experiments.
    query : int
        Position m of the query, 0 to tokens - 1.
    tokens : int
        How many tokens there are, 2 to 32; give it at the start.

    Raises
    ------
    ValueError
        When a value is out of its range.

    Source: RF-6, RF-6a, RF-9, RF-13. The laws are ``geolib.conformal.SCALE_LAWS``, the lengths
    those of ``geolib.conformal.scalar_metric``, the factor what ``geolib.transport.rotation_preset`` makes of
    a score.
    """

    _esm = assemble("conformal.js")

    view = Choice("lengths", ["lengths", "scores", "row", "weights"])
    law = Choice("bounded", ["bounded", "free", "slow"])
    w = Real(0.0, low=-6, high=6)
    alpha = Real(0.1, low=0.001, high=10)
    query = Whole(10, low=0, high=31)
    tokens = Whole(16, low=2, high=32)

    @traitlets.validate("query")
    def _within(self, proposal: traitlets.Bunch) -> int:
        last = self.tokens - 1
        require(proposal.value <= last, "query", proposal.value, f"it must lie between 0 and tokens - 1 = {last}")
        return proposal.value

    @traitlets.validate("tokens")
    def _tokens(self, proposal: traitlets.Bunch) -> int:
        require(proposal.value > self.query, "tokens", proposal.value, f"the query stands at {self.query}")
        return proposal.value
