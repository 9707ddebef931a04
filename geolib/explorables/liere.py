"""LieRE on a grid: rotations made of two generators, and what a common shift of both patches does to the scores."""

from geolib.explorables._widget import Explorable, Real, Whole, assemble


class LiereGrid(Explorable):
    """The score of a fixed q = k on a 15x15 grid, turned by R(p) = exp(x A_1 + y A_2) with generators of width 4.

    At c = 0 the generators turn the same two planes and commute: the scores depend on the difference of the patches
    alone. A_2 then moves away from its commuting partner, (1 - c) partner + c other, at a constant norm. The second map
    has both patches shifted right and down; the third is the difference. The sentence gives the relative Frobenius norm
    of the commutator and the relative change of the score map; the note the root mean square, over all k, of the
    relative change of R(p)^T R(k).

    Parameters
    ----------
    mix : float
        c, from 0 (commuting) to 1.
    shift : float
        Patches that both move, right and down, 0 to 15.
    size : float
        What the fastest plane of A_1 turns a patch, radians, 0.05 to 0.6.
    row, column : int
        The query's patch, 0 to 14, from the top left.

    Raises
    ------
    ValueError
        When a value is out of its range.

    Source: LR-1, LR-2, LR-A1, LR-SHIFT. The rotations are ``geolib.lie.position_rotations``, the change of R(p)^T R(k)
    is ``geolib.lie.shift_deviation``, the commutator ``geolib.lie.commutator``.
    """

    _esm = assemble("liere.js")

    mix = Real(0.6, low=0, high=1)
    shift = Real(8.0, low=0, high=15)
    size = Real(0.35, low=0.05, high=0.6)
    row = Whole(7, low=0, high=14)
    column = Whole(7, low=0, high=14)
