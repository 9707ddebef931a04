"""A memory to type into: pairs of words in a gated symmetric-power state, and what a key brings back."""

from geolib.explorables._widget import Explorable, Real, Text, Whole, assemble


class LiveMemory(Explorable):
    """A state of fixed size that reads pairs of words, a key that is asked, and the share of each value in the answer.

    This is the mathematics, not a language model. Every word is a direction of d features, random and the same in every
    page; values are told apart without noise, one row of the state for each. A pair multiplies the state by its gate
    and adds phi(k) to the row of its value. The answer is that of attention over all pairs with weights (q . k)^p and
    products of gates, up to rounding.

    Parameters
    ----------
    text : str
        Pairs, key then value, separated by spaces or commas; at most 300 letters, of which 24 pairs are read. A stroke
        "/" between two pairs shuts the gate of the next one: it is multiplied by 0.01.
    ask : str
        The key that is asked, at most 24 letters.
    power : int
        p: 2, 4 or 6.
    features : int
        d, of a key: 2 to 12.
    gate : float
        What each pair multiplies the state by, 0.5 to 1.

    Raises
    ------
    ValueError
        When a value is out of its range.

    Source: CS-rec, CS-gate, CS-att. The answers are those of ``geolib.recurrence.attention_form`` and
    ``recurrent_form``, D is ``geolib.sympow.dimension(d, p)``.
    """

    _esm = assemble("memory.js")

    text = Text("anne red, philip blue, laura green, marian gold", most=300)
    ask = Text("anne", most=24)
    power = Whole(2, low=2, high=6, step=2)
    features = Whole(8, low=2, high=12)
    gate = Real(1.0, low=0.5, high=1)
