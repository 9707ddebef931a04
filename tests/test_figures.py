"""The palette can be told apart and read; labels do not overlap."""

import itertools

import matplotlib
import numpy as np

matplotlib.use("agg")
import matplotlib.pyplot as plt
import pytest

from geolib import figures
from geolib.encodings import METHODS
from geolib.figures import COLOURS, METHOD_STYLES, ROLES, dark, forest, label_lines, method_style
from geolib.lab.experiments import PairedDifference

# How colours look without one kind of cone, in linear RGB: Machado, Oliveira and Fernandes 2009, severity 1.
SIGHT = {
    "all cones": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
TO_XYZ = np.array([[0.412456, 0.357576, 0.180437], [0.212673, 0.715152, 0.072175], [0.019334, 0.119192, 0.950304]])


def linear(colour):
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.03928, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def luminance(colour):
    """Relative luminance as WCAG 2 defines it."""
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def lab(rgb):
    """CIELAB of linear RGB."""
    xyz = TO_XYZ @ np.clip(rgb, 0, 1) / TO_XYZ.sum(1)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def apart(a, b):
    """The least CIELAB distance of two colours in the eyes of SIGHT."""
    return min(float(np.linalg.norm(lab(m @ linear(a)) - lab(m @ linear(b)))) for m in map(np.array, SIGHT.values()))


def test_roles_are_read_and_told_apart_by_all_eyes():
    for theme, ground in (("light", "#ffffff"), ("dark", "#14181e")):
        assert list(ROLES[theme]) == ["query", "key", "value", "score"]
        assert all(contrast(colour, ground) >= 4.5 for colour in ROLES[theme].values())
        for a, b in itertools.combinations(ROLES[theme].values(), 2):
            assert apart(a, b) >= 10, (theme, a, b)
        for text, ground in itertools.product(("text", "soft"), ("sheet", "panel")):
            assert contrast(figures.GREYS[theme][text], figures.GREYS[theme][ground]) >= 4.5, (text, ground)


def test_a_forest_shows_seeds_interval_and_mean_of_each_row():
    rows = {"seen": PairedDifference((0, 1, 2), (2.0, 2.5, 3.0)), "not": PairedDifference((0, 1, 2), (-2.0, 1.0, 3.0))}
    axes = plt.figure().subplots()
    forest(axes, rows, blurs={"seen": 4.0, "not": 1.0})
    (thin, seen, _, unseen) = axes.collections
    assert [seen.get_segments()[0][:, 0].tolist()] == [list(rows["seen"].interval)]
    assert thin.get_segments()[0][:, 0].tolist() == [-1.5, 6.5]
    colours = [matplotlib.colors.to_hex(each.get_colors()[0]) for each in (seen, unseen)]
    assert colours == [COLOURS["blue"], COLOURS["grey"]]
    dots, mean = axes.lines[1:3]
    assert tuple(dots.get_xdata()) == rows["seen"].differences
    assert list(mean.get_xdata()) == [2.5]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["seen", "not"]
    bottom, top = axes.get_ylim()
    assert bottom > top  # the first row on top
    with pytest.raises(ValueError, match="must be three"):
        forest(axes, {"a": PairedDifference((0, 1), (1.0, 2.0))})
    with pytest.raises(ValueError, match="must be one"):
        forest(axes, {})


def test_methods_have_styles_that_are_told_apart_one_without_is_gold_and_an_unknown_name_has_none(monkeypatch):
    assert set(METHOD_STYLES) <= set(METHODS)
    for a, b in itertools.combinations(METHOD_STYLES, 2):
        one, other = method_style(a), method_style(b)
        assert one["linestyle"] != other["linestyle"] or apart(one["color"], other["color"]) >= 10, (a, b)
    assert method_style("rope+lf") == method_style("rope") | {"marker": "o"}
    assert "gold" not in {colour for colour, _ in METHOD_STYLES.values()}
    monkeypatch.setattr(figures, "METHOD_STYLES", {})  # the dictionary itself keeps its order
    assert method_style("rope+lf") == {"color": COLOURS["gold"], "linestyle": "-", "marker": "o"}
    with pytest.raises(ValueError, match="name: got 'ropes'; the methods are none, sinusoidal"):
        method_style("ropes")


def test_every_colour_has_a_counterpart_that_is_seen_in_the_dark():
    assert figures.DARK_COLOURS.keys() == COLOURS.keys()
    for name, colour in COLOURS.items():
        assert dark(colour) == figures.DARK_COLOURS[name]
        assert contrast(dark(colour), figures.NIGHT) >= 4.5, name
    for role, colour in ROLES["light"].items():
        assert dark(colour) == ROLES["dark"][role]
    assert contrast(figures.DARK_INK, figures.NIGHT) >= 10
    for colour in ("#400000", "#001a33", "#123456"):  # of no palette
        assert contrast(dark(colour), figures.NIGHT) >= 3
    assert luminance(dark("#e3e1da")) < 0.1 < luminance(dark("#444444"))  # a pale ground, a dark line


def test_labels_stand_at_the_lines_ends_and_do_not_overlap():
    figures.use_house_style()
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
