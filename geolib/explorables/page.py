"""What is left of a page: a letter in a state of fixed size, each byte as strong as its value can be read back."""

from __future__ import annotations

from geolib.explorables._widget import Explorable, Real, Whole, assemble


class PageLeft(Explorable):
    """Bytes of a letter stored in one sum of pairs with a constant gate, read back after more bytes have come.

    Keys are random directions, values random signs. A byte is as strong as its signs come back right: half of them is
    guessing. The letter is from Wilkie Collins, The Woman in White, 1860.

    Parameters
    ----------
    gate : float
        What each byte multiplies the state by, 0.5 to 1.
    features : int
        d, of a key: 8 to 128.
    power : int
        p, 2 or 4.
    after : int
        Bytes read since the letter's end, 0 to 100,000.

    Raises
    ------
    ValueError
        When a value is out of its range.

    Source: CS-REACH. The numbers are ``geolib.recurrence.signal_to_noise``'s and ``gate_for_distance``'s.
    """

    _esm = assemble("page.js")

    gate = Real(1.0, low=0.5, high=1)
    features = Whole(32, low=8, high=128)
    power = Whole(2, low=2, high=4, step=2)
    after = Whole(0, low=0, high=100_000)
