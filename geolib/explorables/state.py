"""The conformal state: one column of the state as a point that each token shrinks, turns and pushes."""

from geolib.explorables._widget import Choice, Explorable, Real, assemble


class ConformalState(Explorable):
    """One column of the state in the plane: twelve tokens shrink it, turn it and push it.

    The plane shows S_i = gamma S_(i-1) R(turn) + v_i k_i^T for p = 1 and keys in R^2, where phi(k) = k: as a column,
    S shrinks by gamma, turns by -turn and is pushed by v_i k_i. It is the attention form's sum over j of
    gamma^(i-j) v_j R((i-j) turn)^T k_j.

    Parameters
    ----------
    example : str
        The tokens j = 1 ... 12, with keys k_j = (cos a_j, sin a_j): "wander" has a_j = 2 sin(1.7 j) radians and values
        1 + cos(2 j)/2, "same" and "once" have a_j = 0 and values 1, "once" for its first token alone and 0 for the
        others.
    gamma : float
        The gate of every token, 0.01 to 1.
    turn : float
        beta theta, degrees a token, -180 to 180.
    token : float
        0 to 12. At a whole number i that token is done; on the way to it the state shrinks for a third, turns for a
        third and is pushed for a third.

    Raises
    ------
    ValueError
        When a value is out of its range.

    Source: CS-1, CS-2, CS-3. The strokes are ``geolib.recurrence.conformal_step``, there for even powers.
    """

    _esm = assemble("state.js")

    example = Choice("once", ["wander", "same", "once"])
    gamma = Real(0.85, low=0.01, high=1)
    turn = Real(30.0, low=-180, high=180)
    token = Real(1.0, low=0, high=12)
