"""Where the time goes: its numbers are the record's and Amdahl's, and it answers the reader's hand."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from explorable_kit import Place, node_functions, state_of

from geolib.explorables import StepTime
from geolib.lab.benches import saved

ROWS = saved.read("parts")["rows"]
SIZES = ("batch", "width", "tokens", "precision")


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """call(name, [arguments, ...]): the results of the module's function of that name."""
    return node_functions("time.js", tmp_path_factory.mktemp("modules"))


def test_the_rows_are_the_records_and_the_machine_is_named():
    widget = StepTime()
    assert [row["shares"] for row in widget.rows] == [row["shares"] for row in ROWS]
    assert saved.read("parts")["device"] in widget.made


def test_sizes_are_those_of_the_rows_in_order(call):
    rows = [{"batch": 32}, {"batch": 2}, {"batch": 8}, {"batch": 2}]
    assert call("sizes", [[rows, "batch"]]) == [[2, 8, 32]]


def test_each_recorded_step_is_found_by_its_sizes_and_one_between_two_by_the_nearest(call):
    found = call("rowOf", [[ROWS, {key: row[key] for key in SIZES}] for row in ROWS])
    assert found == ROWS
    between = {"batch": 9.0, "width": 360.0, "tokens": 20.0, "precision": "bf16"}
    (near,) = call("rowOf", [[ROWS, between]])
    assert [near[key] for key in SIZES] == [8, 384, 16, "bf16"]


def test_the_gain_is_amdahls(call):
    draw = random.Random(0)
    tasks = [[draw.uniform(0.01, 9) for _ in range(6)] for _ in range(20)]
    gains = [draw.uniform(1, 100) for _ in tasks]
    before = [sum(task) for task in tasks]
    after = [sum(task[1:]) + task[0] / g for task, g in zip(tasks, gains)]
    found = call("law", [[task[0] / whole, g] for task, whole, g in zip(tasks, before, gains)])
    assert found == pytest.approx([whole / faster for whole, faster in zip(before, after)], rel=1e-12)


def test_the_bars_end_where_the_time_does(call):
    row = ROWS[0]
    for part, share in row["shares"].items():
        cuts = call("cuts", [[row["shares"], part, g] for g in (1, 4, 1e9)])
        lengths = [cut[-1][1] for cut in cuts]
        assert lengths == pytest.approx([1, 1 - 0.75 * share, 1 - share], abs=1e-3)
        assert all(a[1] == b[0] for cut in cuts for a, b in pairwise(cut))


def test_the_longest_part_comes_first(call):
    for row, order in zip(ROWS, call("longest", [[row["shares"]] for row in ROWS])):
        shares = [row["shares"][part] for part in order]
        assert shares == sorted(shares, reverse=True)


def test_a_size_that_was_not_recorded_is_refused_by_name():
    with pytest.raises(ValueError, match=r"^batch: got 3; it is one of 2, 8, 32"):
        StepTime(batch=3)
    with pytest.raises(ValueError, match=r"^part: got 'lunch'"):
        StepTime(part="lunch")
    with pytest.raises(ValueError, match=r"^rows: got "):
        StepTime(rows=[])


# In a browser --------------------------------------------------------------------------------------------------------


def test_those_who_hear_the_picture_are_told_the_bound(call):
    row = {"batch": 8, "width": 192, "tokens": 64, "precision": "float32", "cpu_seconds": 0.5}
    row["shares"] = {"attention": 0.75, "optimiser": 0.25}
    state = {key: row[key] for key in ("batch", "width", "tokens", "precision")}
    state |= {"rows": [row], "part": "attention", "gain": 3}
    (said,) = call("describe", [[state]])
    assert "most of it attention, 75\u00a0%" in said
    assert "attention take 75\u00a0%; 3 times as fast, the step is 2 times as fast, and never more than 4 times" in said


@pytest.fixture
def place(browser):
    """A page with one explorable; what goes wrong in it fails the test."""
    place = Place(browser, "StepTime", state_of("StepTime", part="attention", gain=10))
    yield place
    place.close()


def widths(place):
    """How wide each segment of the two bars is."""
    place.settle()
    sizes = "(r) => [+r.getAttribute('y'), +r.getAttribute('width')]"
    rows = place.page.evaluate(f"() => [...document.querySelectorAll('#one rect.bar')].map({sizes})")
    return [sum(width for y, width in rows if y == at) for at in sorted({y for y, _ in rows})]


def test_the_second_bar_is_as_much_shorter_as_the_law_says(place):
    share = next(row for row in ROWS if [row[key] for key in SIZES] == [8, 192, 64, "float32"])["shares"]["attention"]
    whole, faster = widths(place)
    assert faster / whole == pytest.approx(1 - 0.9 * share, abs=0.005)
    place.set(gain=1)
    assert widths(place)[0] == pytest.approx(widths(place)[1], abs=1)


def test_a_part_is_chosen_by_its_button_and_by_its_segment(place):
    place.page.get_by_role("button", name="optimiser").click()
    place.settle()
    assert place.values()["part"] == "optimiser"
    place.page.locator("#one rect.cool").first.click()
    place.settle()
    assert place.values()["part"] == "products with weights"


def test_sliders_stop_at_recorded_sizes_only(place):
    slider = place.page.get_by_label("Pictures in a batch")
    seen = []
    for key in ("Home", "ArrowRight", "End"):
        slider.press(key)
        place.settle()
        seen.append(place.values()["batch"])
    assert seen == [2, 8, 32]


def test_the_longest_part_is_named(place):
    for row in ROWS[:4]:
        place.set(**{key: row[key] for key in SIZES})
        first = max(row["shares"], key=row["shares"].get)
        assert f"Longest: {first}, " in place.page.locator("#one .geo-say").text_content()


def test_nothing_tells_which_part_is_longest_until_one_is_pressed(place):
    place.set(part="")
    said = place.page.locator("#one .geo-say")
    assert said.text_content() == "Longest: ? Press the part that you think it is."
    assert not any("%" in chip for chip in place.page.locator("#one .parts button").all_text_contents())
    colours = "() => [...document.querySelectorAll('#one rect.bar')].map((r) => getComputedStyle(r).fill)"
    assert len(set(place.page.evaluate(colours))) == 1
    place.page.get_by_role("button", name="attention").click()
    place.settle()
    assert len(set(place.page.evaluate(colours))) == 5
    assert "With attention " in said.text_content()


def test_no_gain_is_offered_before_there_is_a_part_to_make_faster(place):
    gain = place.page.get_by_label("The chosen part becomes faster")
    assert gain.is_visible()
    place.set(part="")
    assert not gain.is_visible()
