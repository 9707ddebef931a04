"""Attention on a circle: tokens as points, a query one drags, and the weighted mean that it fetches."""

from geolib.explorables._widget import Explorable, Real, Reals, assemble


class AttentionCircle(Explorable):
    """Tokens are points of the unit circle; a query scores them by inner products and fetches their weighted mean.

    Token n, counted from 1, is the point (cos a_n, sin a_n), its own key and its own value. The query is a unit vector
    too. The scores are q . k_n, the weights softmax(scores / temperature), the mean the sum of weights times values.

    Parameters
    ----------
    query : float
        The query's angle, degrees counter-clockwise from the right, -180 to 180.
    temperature : float
        What scores are divided by, 0.05 to 5.
    tokens : list of float
        The tokens' angles a_n in degrees, -180 to 180; two to eight of them.

    Raises
    ------
    ValueError
        When a value is out of its range.

    Source: RF-20. The weights are ``geolib.attention.attention_weights``, the mean ``geolib.attention.attention``.
    """

    _esm = assemble("circle.js")

    query = Real(20.0, low=-180, high=180)
    temperature = Real(0.5, low=0.05, high=5)
    tokens = Reals([0.0, 60.0, 180.0], low=-180, high=180, least=2, most=8)
