"""Locality focusing: softmax weights over an image, times a Gaussian of the distance, and the weight that is lost."""

from geolib.explorables._widget import Choice, Explorable, Real, Whole, assemble


class LocalityFocus(Explorable):
    """The weights of one query on an 8 x 8 grid of patches, before and after the Gaussian Omega, and what is missing.

    Each patch has a content c between -1 and 1, and the scores are S = 3 c_m c_n: patches that look like the query's
    have high ones. Omega = exp(-|p_m - p_n|_A^2 / (2 sigma^2)) for positions p = (row, column), with
    A = e e^T / along^2 + f f^T / across^2 for two perpendicular directions e and f.

    Parameters
    ----------
    row, column : int
        The query's patch, 0 to 7 from the top and from the left.
    sigma : float
        Width of the Gaussian in patches, 0.25 to 8.
    along, across : float
        Half axes of the ellipse x^T A x = 1, 0.25 to 4; 1 and 1 make A the identity.
    angle : float
        Direction e of the first of them, degrees counter-clockwise from the right, -90 to 90.
    pattern : str
        The image: "blobs", two alike in opposite quarters; "stripes", upright and two patches wide; "flat", c = 0.

    Raises
    ------
    ValueError
        When a value is out of its range.

    Source: RF-19, RF-20, RF-21, RF-22, RF-FUSED. Omega is ``geolib.locality.attenuation``, the row that of
    ``focused_attention`` and ``focused_attention_by_lse``.
    """

    _esm = assemble("locality.js")

    row = Whole(2, low=0, high=7)
    column = Whole(2, low=0, high=7)
    sigma = Real(1.5, low=0.25, high=8)
    along = Real(1.6, low=0.25, high=4)
    across = Real(0.8, low=0.25, high=4)
    angle = Real(-30.0, low=-90, high=90)
    pattern = Choice("blobs", ["blobs", "stripes", "flat"])
