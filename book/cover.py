"""Draw the picture on the landing page: ``python book/cover.py`` writes book/_static/cover.svg.

Arrows of eight pairs (rows) at thirty-three positions (columns), pair j turned by m theta_j. The colours are mid-tones
that stand out on white and on black alike, and run once around a wheel with the angle.
"""

from __future__ import annotations

import colorsys
import math
from pathlib import Path

PAIRS, POSITIONS, BASE = 8, 33, 300.0
STEP, LENGTH = 30, 21
WIDTH, HEIGHT = 60 + POSITIONS * STEP, 50 + PAIRS * STEP


def colour(angle: float) -> str:
    """A hue for the angle, dimmed until its luminance is midway between black and white."""
    red, green, blue = colorsys.hls_to_rgb(angle / (2 * math.pi) % 1.0, 0.5, 0.72)

    def luminance(scale: float) -> float:
        """Relative luminance of the scaled colour."""
        linear = [
            (c * scale / 12.92) if c * scale <= 0.04045 else ((c * scale + 0.055) / 1.055) ** 2.4
            for c in (red, green, blue)
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    scale = 1.0
    while luminance(scale) > 0.2 and scale > 0.1:
        scale -= 0.02
    lift = 0.0
    while luminance(scale) * (1 - lift) + lift < 0.17:
        lift += 0.01
    return "#" + "".join(f"{round(255 * (c * scale * (1 - lift) + lift)):02x}" for c in (red, green, blue))


def arrow(x: float, y: float, angle: float) -> str:
    """One arrow centred at (x, y); the y axis of the page points down."""
    turn = -math.degrees(angle)
    half = LENGTH / 2
    return (
        f'<path transform="translate({x:g} {y:g}) rotate({turn:.1f})" stroke="{colour(angle)}" '
        f'd="M{-half:g} 0H{half - 1:g}M{half - 6:g}-4.2L{half:g} 0L{half - 6:g} 4.2"/>'
    )


def picture() -> str:
    """The whole drawing."""
    arrows = [
        arrow(45 + m * STEP, 20 + j * STEP, m * BASE ** (-j / PAIRS)) for j in range(PAIRS) for m in range(POSITIONS)
    ]
    labels = [
        f'<text x="{45 + m * STEP}" y="{HEIGHT - 12}" text-anchor="middle">{m}</text>' for m in range(0, POSITIONS, 8)
    ]
    labels += [f'<text x="22" y="{25 + j * STEP}" text-anchor="end">{j}</text>' for j in range(PAIRS)]
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
            '<g fill="none" stroke-width="2.2" stroke-linecap="round" stroke-linejoin="round">',
            *arrows,
            '</g><g fill="#7a7f87" font-family="Georgia, serif" font-size="14">',
            *labels,
            "</g></svg>",
            "",
        ]
    )


if __name__ == "__main__":
    (Path(__file__).parent / "_static" / "cover.svg").write_text(picture(), "utf-8")
