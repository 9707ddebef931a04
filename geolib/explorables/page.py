"""A letter in a state: a page in a state of fixed size, each byte as strong as its value can be read back."""

from geolib.explorables._widget import Explorable, Real, Text, Whole, assemble

LETTER = (
    "And now, my love, seeing that I am at the end of my paper, now for the real reason, the surprising reason, for my "
    "fondness for little Anne Catherick. My dear Philip, although she is not half so pretty, she is, nevertheless, by "
    "one of those extraordinary caprices of accidental resemblance which one sometimes sees, the living likeness, in "
    "her hair, her complexion, the colour of her eyes, and the shape of her face----"
)


class PageLeft(Explorable):
    """Bytes of a text stored in one sum of pairs with a constant gate, read back after more bytes have come.

    Keys are random directions, values random signs. A letter is as strong as the signs of its first byte come back
    right: half of them is guessing. A word is still there where each of its letters has 99 % of them right. The letter
    it starts with is from Wilkie Collins, The Woman in White, 1860.

    Parameters
    ----------
    text : str
        The text, at most 600 letters. What the reader writes stays in the page and in the links that are copied.
    word : int
        The word that is followed, in its own colour, from 0; the last word where the text has fewer.
    gate : float
        What each byte multiplies the state by, 0.5 to 1.
    features : int
        d, of a key: 8 to 128.
    power : int
        p, 2 or 4.
    after : int
        Bytes read since the text's end, 0 to 100,000.

    Raises
    ------
    ValueError
        When a value is out of its range.

    Source: CS-REACH. The numbers are ``geolib.recurrence.signal_to_noise``'s.
    """

    _esm = assemble("page.js")

    text = Text(LETTER, most=600)
    word = Whole(27, low=0, high=299)
    gate = Real(1.0, low=0.5, high=1)
    features = Whole(32, low=8, high=128)
    power = Whole(2, low=2, high=4, step=2)
    after = Whole(0, low=0, high=100_000)
