"""Where the time goes: its numbers are the record's and Amdahl's, and its bars show them."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from explorable_kit import functions_of, place_of

from geolib.explorables import StepTime
from geolib.lab.benches import saved

ROWS = saved.read("parts")["rows"]
SIZES = ("batch", "width", "tokens", "precision")
call = functions_of("time.js")
opened, place = place_of("StepTime", part="attention", gain=10)


def sizes_of(row):
    return {key: row[key] for key in SIZES}


def test_the_rows_are_the_records_and_the_machine_is_named():
    widget = StepTime()
    assert [row["shares"] for row in widget.rows] == [row["shares"] for row in ROWS]
    assert saved.read("parts")["device"] in widget.made


def test_each_recorded_step_is_found_by_its_sizes_and_one_between_two_by_the_nearest(call):
    assert call("rowOf", [[ROWS, sizes_of(row)] for row in ROWS]) == ROWS
    between = {"batch": 9.0, "width": 360.0, "tokens": 20.0, "precision": "bf16"}
    assert list(sizes_of(call("rowOf", [[ROWS, between]])[0]).values()) == [8, 384, 16, "bf16"]


def test_the_gain_is_amdahls(call):
    draw = random.Random(0)
    tasks = [[draw.uniform(0.01, 9) for _ in range(6)] for _ in range(20)]
    gains = [draw.uniform(1, 100) for _ in tasks]
    after = [sum(task[1:]) + task[0] / g for task, g in zip(tasks, gains)]
    found = call("law", [[task[0] / sum(task), g] for task, g in zip(tasks, gains)])
    assert found == pytest.approx([sum(task) / faster for task, faster in zip(tasks, after)], rel=1e-12)


def test_the_bars_end_where_the_time_does_the_longest_part_first(call):
    for row, order in zip(ROWS, call("longest", [[row["shares"]] for row in ROWS])):
        assert [row["shares"][part] for part in order] == sorted(row["shares"].values(), reverse=True)
    for part, share in ROWS[0]["shares"].items():
        cuts = call("cuts", [[ROWS[0]["shares"], part, g] for g in (1, 4, 1e9)])
        assert [cut[-1][1] for cut in cuts] == pytest.approx([1, 1 - 0.75 * share, 1 - share], abs=1e-3)
        assert all(a[1] == b[0] for cut in cuts for a, b in pairwise(cut))


def test_a_size_or_part_that_was_not_recorded_is_refused_by_name():
    for values, message in (
        ({"batch": 3}, "batch: got 3; it is one of 2, 8, 32"),
        ({"part": "lunch"}, "part: got 'lunch'"),
        ({"rows": []}, "rows: got "),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            StepTime(**values)


# In a browser --------------------------------------------------------------------------------------------------------


def widths(place):
    """How wide the two bars are."""
    place.settle()
    sizes = "(r) => [+r.getAttribute('y'), +r.getAttribute('width')]"
    rows = place.page.evaluate(f"() => [...document.querySelectorAll('#one rect.bar')].map({sizes})")
    return [sum(width for y, width in rows if y == at) for at in sorted({y for y, _ in rows})]


def test_the_second_bar_is_as_much_shorter_as_the_law_says(place):
    row = next(row for row in ROWS if list(sizes_of(row).values()) == [8, 192, 64, "float32"])
    whole, faster = widths(place)
    assert faster / whole == pytest.approx(1 - 0.9 * row["shares"]["attention"], abs=0.005)


def test_the_longest_part_is_named_once_one_has_been_pressed(place):
    for row in ROWS[:3]:
        place.set(**sizes_of(row))
        assert f"Longest: {max(row['shares'], key=row['shares'].get)}, " in place.text(".geo-say")
    gain = place.page.get_by_label("The chosen part becomes faster")
    colours = "() => new Set([...document.querySelectorAll('#one rect.bar')].map((r) => getComputedStyle(r).fill)).size"
    for part, shown in (("", False), ("attention", True)):
        place.set(part=part)
        assert (place.page.evaluate(colours) == 5) == shown
        assert gain.is_visible() == shown
        assert any("%" in chip for chip in place.page.locator("#one .parts button").all_text_contents()) == shown


def test_the_dashed_line_stands_where_the_step_ends_without_the_part(place):
    for part in list(place.page.evaluate("models.one.get('rows')[0].shares"))[:2]:
        place.set(part=part)
        bars = [
            (each.get_attribute("class"), float(each.get_attribute("width")))
            for each in place.page.locator("#one rect.bar:not(.after)").all()
        ]
        others = sum(width for kind, width in bars if "now" not in kind)
        assert float(place.page.locator("#one line.limit").get_attribute("x1")) == pytest.approx(others, abs=0.5)
