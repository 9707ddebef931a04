"""Draw the picture on the landing page: ``python book/cover.py`` writes book/_static/cover.svg.

Six words of a sentence over a ruler of positions. A word has four arrows, its pairs of features; arrow j of the word at
position m has turned by m theta_j. Colours are mid-tones that stand out on white and on black alike; the page's style
has better ones for each. What book/_static/cover.js must know to move the words stands in their data attributes.
"""

from __future__ import annotations

import math
from pathlib import Path

WORDS = ("the", "keys", "to", "the", "door", "are")
KEY, QUERY = 1, 5  # the verb asks for its subject
FIRST, POSITIONS = 2, 11  # where the first word stands; how many places the ruler has
PAIRS, BASE = 4, 100.0
RATES = [BASE ** (-j / PAIRS) for j in range(PAIRS)]
STEP, EDGE, ROW, LENGTH = 48, 24, 38, 30
CARD = 56 + PAIRS * ROW  # the height of a word with its arrows
WIDTH, HEIGHT = 2 * EDGE + (POSITIONS - 1) * STEP, CARD + 68
MISS = (0.3, -0.4, 0.5, -0.6)  # by how much the key's arrows miss the query's, four places apart


def start(word: int, pair: int) -> float:
    """The angle of an arrow at position 0: made up, but for the key, whose arrows nearly meet the query's."""
    if word == KEY:
        return start(QUERY, pair) + (QUERY - KEY) * RATES[pair] + MISS[pair]
    return math.remainder(2.4 * (word + 1) * (pair + 1) + word, 2 * math.pi)


def arrow(word: int, pair: int) -> str:
    """One arrow of a word, centred in its row; the y axis of the page points down."""
    angle, half = start(word, pair), LENGTH / 2
    turn = -math.degrees(math.remainder(angle + (FIRST + word) * RATES[pair], 2 * math.pi))
    return (
        f'<path transform="translate(0 {50 + pair * ROW}) rotate({turn:.1f})" data-start="{angle:.4f}" '
        f'data-rate="{RATES[pair]:.4f}" d="M{-half:g} 0H{half - 1:g}M{half - 8:g}-5.5L{half:g} 0L{half - 8:g} 5.5"/>'
    )


def column(word: int) -> str:
    """A word and its arrows, at its place."""
    tone, colour = {KEY: ("key", "#1f7fb8"), QUERY: ("query", "#c2621a")}.get(word, ("other", "#7a7f87"))
    frame = (
        f'<rect class="frame" x="-24" y="1" width="48" height="{CARD}" rx="7" fill-opacity="0" stroke="currentColor"/>'
    )
    frame = "" if tone == "other" else frame
    return "\n".join(
        [
            f'<g class="word {tone}" color="{colour}" data-place="{FIRST + word}" '
            f'transform="translate({EDGE + (FIRST + word) * STEP} 0)">',
            frame,
            f'<text y="24" text-anchor="middle" fill="currentColor" font-size="17">{WORDS[word]}</text>',
            f'<text y="{CARD - 9}" text-anchor="middle" fill="currentColor" font-size="16">↔</text>' if frame else "",
            '<g fill="none" stroke="currentColor" stroke-width="3" stroke-linecap="round" stroke-linejoin="round">',
            *(arrow(word, pair) for pair in range(PAIRS)),
            "</g></g>",
        ]
    )


def picture() -> str:
    """The whole drawing."""
    places = [f'<text x="{EDGE + m * STEP}" y="{HEIGHT - 6}" text-anchor="middle">{m}</text>' for m in range(POSITIONS)]
    wide = len(WORDS) * STEP
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" font-family="Georgia, serif" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" data-step="{STEP}" data-edge="{EDGE}">',
            f'<g class="places" color="#7a7f87" fill="currentColor" font-size="16">{"".join(places)}</g>',
            *(column(word) for word in sorted(range(len(WORDS)), key=lambda word: word in (KEY, QUERY))),
            f'<g class="sentence" color="#1f8a66" transform="translate({EDGE + (FIRST - 0.5) * STEP:g} {CARD + 8})">',
            f'<rect width="{wide}" height="30" rx="15" fill="currentColor" fill-opacity="0.12" stroke="currentColor"/>',
            f'<text x="{wide / 2:g}" y="21" text-anchor="middle" fill="currentColor" font-size="17">'
            "↔ the whole sentence</text></g>",
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    (Path(__file__).parent / "_static" / "cover.svg").write_text(picture(), "utf-8")
