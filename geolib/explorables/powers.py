"""Even powers: the kernel of sympow beside that of softmax."""

from geolib.explorables._widget import Explorable, Real, Whole, assemble


class EvenPowers(Explorable):
    """The kernel (q.k)^p of unit vectors around the circle beside softmax's.

    Both kernels are 1 at angle 0. With beta = p they begin alike; behind, an even power takes the opposite key for the
    same one. The power is an inner product of p + 1 features in the plane.

    Parameters
    ----------
    power : int
        p, even, 2 to 16.
    beta : float
        Softmax's kernel is exp(beta (q.k - 1)); 0 to 16.
    angle : float
        Between query and key, degrees, -180 to 180.

    Raises
    ------
    ValueError
        When a value is out of its range, or the power is odd: weights could be negative then.

    Source: CS-k, CS-att. The features are ``geolib.sympow.embed``.
    """

    _esm = assemble("powers.js")

    power = Whole(2, low=2, high=16, step=2)
    beta = Real(2.0, low=0, high=16)
    angle = Real(60.0, low=-180, high=180)
