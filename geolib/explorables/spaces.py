"""Three spaces: a key at home, in the reference space and carried to the query, with the ruler and frame of each."""

from geolib.explorables._widget import Explorable, Real, assemble


class ThreeSpaces(Explorable):
    """A key in its own tangent space, in the reference space, and carried to the query's tangent space.

    The metric at position m is M_m = s^m I, so its unit circle has radius s^(-m/2) in the numbers of that space; the
    frame is T_m = s^(-m/2) R(m angle). The key k at n arrives at m as T_m T_n^-1 k. Its length and its score with the
    query q are measured at m in M_m, at n in M_n, and in the reference space as ordinary ones.

    Parameters
    ----------
    query, key : float
        The positions m and n, in tokens, 0 to 8.
    scale : float
        s, the factor of the metric a token, 0.7 to 1.3.
    angle : float
        Radians a token by which the frame turns, counter-clockwise where it is above 0, -1.5 to 1.5.
    key_x, key_y : float
        The numbers of k in its own space, -1.25 to 1.25.
    query_x, query_y : float
        The numbers of q in its own space, -1.25 to 1.25.

    Raises
    ------
    ValueError
        When a value is out of its range.

    Source: RF-2, RF-7, RF-9, RF-11. Metric, frames and scores are those of ``geolib.transport.rotation_preset`` with
    one frequency.
    """

    _esm = assemble("spaces.js")

    query = Real(1.0, low=0, high=8)
    key = Real(4.0, low=0, high=8)
    scale = Real(0.85, low=0.7, high=1.3)
    angle = Real(0.5, low=-1.5, high=1.5)
    key_x = Real(1.0, low=-1.25, high=1.25)
    key_y = Real(0.0, low=-1.25, high=1.25)
    query_x = Real(1.0, low=-1.25, high=1.25)
    query_y = Real(0.0, low=-1.25, high=1.25)
