"""Plots for a phone: panels below one another, labels that can be read, and the pictures a page chooses from."""

import importlib
import re
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import palettes
import pytest
from IPython.core.pylabtools import print_figure
from matplotlib.text import Text

from geolib.figures import COLOURS, DARK_COLOURS, DARK_INK, PAPER, use_house_style

phone = importlib.import_module("phone")  # after IPython's print_figure, which it wraps


@pytest.fixture(autouse=True)
def house():
    """The house style, and no figure left open."""
    use_house_style()
    yield
    plt.close("all")


def in_a_row(count, pictures=0, **options):
    """A figure of panels side by side; the first ones are pictures."""
    figure, panels = plt.subplots(1, count, figsize=(7.2, 2.8), **options)
    for i, axes in enumerate(panels):
        if i < pictures:
            axes.imshow([[0, 1], [1, 0]])
        else:
            axes.plot([0, 1], [0, 1], label="up")
        axes.set_title("a title of such a length that no phone has room for it")
        axes.tick_params(labelsize=6)
    return figure, panels


def laid_out(figure, panels):
    """Where panels stand once the figure is laid out for a phone."""
    phone.lay_out(figure)
    figure.canvas.draw()
    return [axes.get_window_extent() for axes in panels]


def test_panels_stand_below_one_another_and_square_pictures_two_and_two():
    figure, panels = in_a_row(2)
    one, two = laid_out(figure, panels)
    assert two.y1 < one.y0
    assert one.width > 0.6 * phone.WIDTH * figure.dpi
    assert figure.get_size_inches()[0] == phone.WIDTH
    one, two, three, plot = laid_out(*in_a_row(4, pictures=3))
    assert two.x0 > one.x1
    assert abs(one.y0 - two.y0) < 2
    assert three.y1 < one.y0
    assert plot.y1 < three.y0
    assert plot.width > 1.5 * three.width


def test_no_label_is_smaller_than_eleven_pixels_and_titles_are_broken():
    figure, panels = in_a_row(3)
    phone.lay_out(figure)
    assert min(text.get_fontsize() for text in figure.findobj(Text)) * 4 / 3 >= 11
    assert "\n" in panels[0].get_title("left") + panels[0].get_title()
    assert phone.wrapped("a $x + y + z$ b " * 4, 1.0, 9).count("$x + y + z$") == 4


def test_numbers_along_an_axis_do_not_touch_and_a_legend_leaves_the_panel():
    figure, axes = plt.subplots(figsize=(7.2, 2.8))
    for i in range(4):
        axes.plot([0, 1], [i, 1], label=f"line {i}")
    axes.set_xticks(range(12), [f"method {i}" for i in range(12)])
    axes.legend()
    (panel,) = laid_out(figure, [axes])
    assert {label.get_rotation() for label in axes.get_xticklabels()} == {40}
    assert axes.get_legend().get_window_extent().y0 >= panel.y1 - 2
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [f"line {i}" for i in range(4)]


def test_the_second_drawing_travels_behind_the_first_which_stays_as_it_was():
    figure, _ = in_a_row(2)
    both = phone.with_phone(print_figure)
    plain = print_figure(figure, "svg")
    drawn = both(figure, "svg")
    desk, small = palettes.apart(drawn)
    assert desk.replace("\n", "")[-200:] == plain.replace("\n", "")[-200:]
    assert list(figure.get_size_inches()) == [7.2, 2.8]
    width = float(re.search(r'width="([\d.]+)pt"', small)[1]) * 4 / 3
    assert width <= 330
    assert both(figure, "png") == print_figure(figure, "png")
    narrow = plt.figure(figsize=(3.4, 3.4))
    narrow.subplots().plot([0, 1])
    assert palettes.apart(both(narrow, "svg"))[1] == ""


def test_a_page_chooses_by_width_and_theme(tmp_path):
    figure, _ = in_a_row(2)
    for axes in figure.axes:
        axes.plot([0, 1], [1, 0], color=COLOURS["blue"])
    drawn = phone.with_phone(print_figure)(figure, "svg")

    folder = tmp_path / "_images"
    folder.mkdir()
    (folder / "abc.svg").write_text(drawn, "utf-8")
    page = '<p><img alt="A plot" src="_images/abc.svg" class="x"></p>'
    for _ in range(2):  # a second build finds the pictures there
        page = palettes.choose(page, folder, palettes.paint(folder))
    names = sorted(path.name for path in (tmp_path / "_images").iterdir())
    assert names == ["abc-dark.svg", "abc-phone-dark.svg", "abc-phone.svg", "abc.svg"]
    texts = {name: (tmp_path / "_images" / name).read_text("utf-8") for name in names}
    assert PAPER in drawn
    assert [word for word in ("<!--phone", "<dc:date>", PAPER) for text in texts.values() if word in text] == []
    assert all((DARK_INK in text) == ("dark" in name) for name, text in texts.items())
    assert all((DARK_COLOURS["blue"] in text) == ("dark" in name) for name, text in texts.items())
    sources = re.findall(r'<source media="([^"]*)"(?: data-dark="([^"]*)")? srcset="([^"]*)"', page)
    assert [(Path(name).name, "dark" in media, "max-width" in media) for media, _, name in sources] == [
        ("abc-phone-dark.svg", True, True),
        ("abc-phone.svg", False, True),
        ("abc-dark.svg", True, False),
    ]
    assert [bool(by_page) for _, by_page, _ in sources] == [True, False, True]
