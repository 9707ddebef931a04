"""Two turns in two orders: a die turned about two axes, and the gap that half the bracket foretells."""

from geolib.explorables._widget import Explorable, Real, assemble


class TwoOrders(Explorable):
    """A die turned by exp(X1), then exp(X2), beside one turned in the other order, and both turns at once.

    X1 and X2 turn by the same angle about two axes. Each order misses exp(X1 + X2) by half the size of [X1, X2] to
    leading order, to opposite sides; so the two orders end twice as far from each other.

    Parameters
    ----------
    size : float
        The angle of both turns, 0 to 120 degrees.
    between : float
        The angle between the two axes, 0 to 90 degrees.
    t : float
        Time, 0 to 1: the first half for the first turn, the second for the second. What the two orders leave is
        answered once both turns are made.
    turn, tilt : float
        Longitude and latitude that the eye stands over, in degrees: -180 to 180 and -90 to 90.

    Raises
    ------
    ValueError
        When a value is out of its range.

    Source: LR-1, LR-2. The bracket is ``geolib.lie.commutator``, the exponentials ``geolib.lie.exp_skew``, the missed
    angle that of ``geolib.lie.log_rotation``.
    """

    _esm = assemble("commutator.js")

    size = Real(90, low=0, high=120)
    between = Real(90, low=0, high=90)
    t = Real(0, low=0, high=1)
    turn = Real(35, low=-180, high=180)
    tilt = Real(24, low=-90, high=90)
