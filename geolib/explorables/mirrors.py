"""Two mirrors: reflections at two lines are one rotation by the doubled angle between them."""

from geolib.explorables._widget import Explorable, Real, Whole, assemble


class TwoMirrors(Explorable):
    """A figure reflected at the line of n and then at the line of m, beside the same figure turned by -2 Δ, Δ = n - m.

    Parameters
    ----------
    mirrors : int
        1, the mirror at n alone, or 2.
    m, n : float
        Angles of the second and of the first mirror, in degrees, 0 to 180.
    shift : float
        t, added to both angles, in degrees, 0 to 180: the mirrors turn and the result stays.
    distance : float
        Of the figure's dot from the centre, where the mirrors meet, 0.2 to 0.8.
    angle : float
        The direction in which the dot stands, in degrees counter-clockwise from the right, -180 to 180.

    Raises
    ------
    ValueError
        When a value is out of its range.

    Source: RF-15, RF-16, RF-17, RF-REFL. A reflection is ``geolib.rotations.reflection_matrix``, a rotation
    ``geolib.rotations.rotation_matrix``, both with angles in radians.
    """

    _esm = assemble("mirrors.js")

    mirrors = Whole(1, low=1, high=2)
    m = Real(80.0, low=0, high=180)
    n = Real(20.0, low=0, high=180)
    shift = Real(0.0, low=0, high=180)
    distance = Real(0.65, low=0.2, high=0.8)
    angle = Real(-15.0, low=-180, high=180)
