"""Links on a small grid, the holonomy of its unit squares, and changes of gauge."""

from geolib.explorables._widget import Choice, Explorable, Reals, assemble

PARTS = tuple([f"link {i}" for i in range(1, 13)] + [f"site {i}" for i in range(1, 10)])


class Plaquettes(Explorable):
    """Nine sites, a rotation on each of the twelve links between them, and four squares coloured by their holonomy.

    Site (i, j) stands i to the right and j up; sites are numbered column by column. Links to the right come first, then
    links up, each in the order of the site where they begin.

    Parameters
    ----------
    links : list of float
        The turns of the twelve links, in degrees, -180 to 180, before sites are turned.
    sites : list of float
        The turns of the frames at the nine sites, in degrees, -180 to 180: a change of gauge.
    group : str
        "plane": all turns are of one plane. "space": links to the right turn about one level axis, links up about the
        other, and sites about the upright one.
    part : str
        What the slider moves: "link 1" to "link 12", "site 1" to "site 9".

    Raises
    ------
    ValueError
        When a value is out of its range.

    Source: RF-FLAT. The squares are ``geolib.connection.plaquettes``, a turned site is
    ``geolib.connection.gauge_transform``.
    """

    _esm = assemble("plaquettes.js")

    links = Reals([0.0] * 12, low=-180, high=180, least=12, most=12)
    sites = Reals([0.0] * 9, low=-180, high=180, least=9, most=9)
    group = Choice("plane", ("plane", "space"))
    part = Choice("link 1", PARTS)
