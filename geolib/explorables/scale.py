"""One scale s, sixteen tokens and one row of attention: on both sides, or up on one side and down on the other."""

from geolib.explorables._widget import Choice, Explorable, Real, Whole, assemble


class ScaleSlider(Explorable):
    """A row of sixteen attention weights under a scale s, and what a common shift of all positions makes of it.

    The row's scores without a scale are 3 cos(2.4 n) for the key at n, whatever the query: peaks of nearly one height.

    Parameters
    ----------
    scale : float
        s, 0.7 to 1.3.
    query : int
        Position m of the query, 0 to 15.
    shift : int
        What is added to all positions, 0 to 64.
    sides : str
        "both": queries and keys carry s^(m/2) and s^(n/2), as in RiemannFormer; "apart": s^(m/2) and s^(-n/2), so that
        the score stays relative, as in xPos and RetNet.

    Raises
    ------
    ValueError
        When a value is out of its range.

    Source: RF-9, RF-13. The factors are those of ``geolib.transport.rotation_preset`` and
    ``geolib.encodings.RiemannFormerRelative``.
    """

    _esm = assemble("scale.js")

    scale = Real(0.9, low=0.7, high=1.3)
    query = Whole(4, low=0, high=15)
    shift = Whole(0, low=0, high=64)
    sides = Choice("both", ["both", "apart"])
