"""A skew matrix and its exponential: three numbers, a turning box, and the square of small steps left open."""

from geolib.explorables._widget import Choice, Explorable, Real, Reals, assemble


class SkewExponential(Explorable):
    """A box turned by exp(tA) or exp(tB), or along the square exp(-eB) exp(-eA) exp(eB) exp(eA), which does not close.

    The square leaves a turn by e^2 |[A, B]| to leading order, where |A| is the angle of exp(A).

    Parameters
    ----------
    motion : str
        "A", "B", "orders" for A then B beside B then A, or "square".
    first, second : list of float
        The three entries above the diagonal of A and of B, row by row, in radians, -3 to 3.
    t : float
        Time, 0 to 1; the steps of the square take a quarter each, those of an order a half.
    e : float
        The size of the square's steps, 0.02 to 1.
    turn, tilt : float
        Longitude and latitude that the eye stands over, in degrees: -180 to 180 and -90 to 90.

    Raises
    ------
    ValueError
        When a value is out of its range.

    Source: LR-1, LR-2. The matrices are ``geolib.lie.skew_matrix``, their exponentials ``geolib.lie.exp_skew``, the
    bracket ``geolib.lie.commutator``, the series ``geolib.lie.bch``, the angle that of ``geolib.lie.log_rotation``.
    """

    _esm = assemble("skew.js")

    motion = Choice("A", ("A", "B", "orders", "square"))
    first = Reals([-1.5, 0.4, 0.0], low=-3, high=3)
    second = Reals([-0.3, 0.0, -1.5], low=-3, high=3)
    t = Real(0.8, low=0, high=1)
    e = Real(0.5, low=0.02, high=1)
    turn = Real(35, low=-180, high=180)
    tilt = Real(24, low=-90, high=90)
