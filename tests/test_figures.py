"""The palette can be told apart and read; labels do not overlap."""

import itertools

import matplotlib
import numpy as np

matplotlib.use("agg")
import matplotlib.pyplot as plt

from geolib.figures import COLOURS, PAPER, label_lines, use_house_style


def luminance(colour):
    """Relative luminance as WCAG 2 defines it."""
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.03928, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_colours_have_a_contrast_of_three_on_paper():
    for name, colour in COLOURS.items():
        assert (luminance(PAPER) + 0.05) / (luminance(colour) + 0.05) >= 3, name


def test_labels_stand_at_the_lines_ends_and_do_not_overlap():
    use_house_style()
    figure, axes = plt.subplots()
    for level in (0.50, 0.51, 0.52, 2.0):
        axes.plot([0, 1], [0, level], label=f"to {level}")
    label_lines(axes)
    assert all(0 <= text.get_position()[0] <= 1.2 for text in axes.texts)  # limits were never set by hand
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert [text.get_text() for text in axes.texts] == ["to 0.5", "to 0.51", "to 0.52", "to 2.0"]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert {text.get_color() for text in axes.texts} <= set(COLOURS.values())
    plt.close(figure)
