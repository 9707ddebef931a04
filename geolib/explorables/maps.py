"""Score maps of one sentence: which of nine methods give the same scores wherever the sentence stands?"""

from geolib.explorables._widget import Choice, Explorable, Real, assemble


class ScoreMaps(Explorable):
    """The scores of eight words with each other by nine methods, while the sentence slides along a ruler.

    A map has a row for each word as the query and a column for each word as the key. The reader marks the maps that
    will stand still; the answers come once the sentence has been moved. Words, weights and frequencies are made up and
    the same for all methods. Hatched cells show a place, or a distance, that training never saw.

    Parameters
    ----------
    shift : float
        By how many places the sentence is moved, -1 to 8.5; what would lead past the ruler's end counts as its end.
    spread : float
        Places from word to word, 0.5 to 1.85.
    words : str
        Where LieRE has the words: on a "line", or on a "grid" of two rows.

    Raises
    ------
    ValueError
        When a value is out of its range.

    Source: RF-13, LR-A2, LR-SHIFT, CS-gate. The scores are those of ``geolib.encodings``.
    """

    _esm = assemble("maps.js")

    shift = Real(0.0, low=-1, high=8.5)
    spread = Real(1.0, low=0.5, high=1.85)
    words = Choice("line", ["line", "grid"])
