"""Parallel transport on the sphere: an arrow carried round a triangle returns turned by the area inside."""

from typing import Any

import traitlets

from geolib._checks import require
from geolib.explorables._widget import Choice, Explorable, Real, Reals, assemble


class SphereTransport(Explorable):
    """A triangle of great circles on the unit sphere and an arrow carried round it by parallel transport.

    The arrow starts at A at a right angle to the side AB, on its left, and goes A, B, C, A. It returns turned by the
    triangle's area: counter-clockwise, seen from outside, when the corners run counter-clockwise.

    Parameters
    ----------
    corners : list of float
        Longitude and latitude of A, of B and of C, in degrees: longitudes from -180 to 180, latitudes from -90 to 90.
        Two corners may not be opposite points if the side between them is to be one line.
    corner : str
        The corner that the two sliders move: "A", "B" or "C".
    progress : float
        How many of the three sides the arrow has gone, 0 to 3; the answer shows once it has been home.
    turn, tilt : float
        Longitude and latitude that the eye stands over, in degrees: -180 to 180 and -90 to 90.

    Raises
    ------
    ValueError
        When a value is out of its range.

    Source: RF-PT, RF-FLAT. The area is ``geolib.manifolds.spherical_area``; the angle is
    ``geolib.manifolds.holonomy_angle`` of the loop, in either chart of the sphere.
    """

    _esm = assemble("sphere.js")

    corners = Reals([0.0, 0.0, 90.0, 0.0, 45.0, 90.0], low=-180, high=180)
    corner = Choice("A", ("A", "B", "C"))
    progress = Real(0.0, low=0, high=3)
    turn = Real(35.0, low=-180, high=180)
    tilt = Real(28.0, low=-90, high=90)

    @traitlets.validate("corners")
    def _latitudes(self, proposal: traitlets.Bunch) -> Any:
        wrong = [value for value in proposal.value[1::2] if abs(value) > 90]
        require(not wrong, "corners", wrong, "latitudes, every second number, lie from -90 to 90")
        return proposal.value
