"""The general metric: unit ellipses that turn and stretch along the tokens, and the transport that keeps lengths."""

from geolib.explorables._widget import Explorable, Real, assemble


class GeneralMetric(Explorable):
    """The metric M_m = R(-m theta) S^m R(m theta) with S = diag(s1, s2), its frames, and a key and a query carried.

    The ellipse at position p holds the vectors with x^T M_p x = 1; its half axes are the columns of the frame
    T_p = R(-p theta) S^(-p/2). The key k at n is carried to m as T_m T_n^-1 k, the query q at m to n by the inverse.
    Lengths and the score are measured at n in M_n, at m in M_m, and in the reference space as ordinary ones.

    Parameters
    ----------
    s1, s2 : float
        Scales a token of the two axes, 0.8 to 1.2.
    theta : float
        Degrees a token by which the axes turn, clockwise where it is above 0, -45 to 45.
    n, m : float
        Positions of the key and the query, in tokens, 0 to 8.
    key_angle, query_angle : float
        Directions of k and q, degrees counter-clockwise from the right, -180 to 180. Their Euclidean length is 1.

    Raises
    ------
    ValueError
        When a value is out of its range.

    Source: RF-A1, RF-A2, RF-A3, RF-A4, RF-A5. The metric is ``geolib.conformal.general_metric``, the frames, the
    transport and the score are those of ``geolib.transport.general_preset``.
    """

    _esm = assemble("metric.js")

    s1 = Real(0.85, low=0.8, high=1.2)
    s2 = Real(1.1, low=0.8, high=1.2)
    theta = Real(20.0, low=-45, high=45)
    n = Real(2.0, low=0, high=8)
    m = Real(6.0, low=0, high=8)
    key_angle = Real(30.0, low=-180, high=180)
    query_angle = Real(30.0, low=-180, high=180)
