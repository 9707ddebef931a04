"""A skew matrix and its exponential: geolib's numbers, and a square that is open by what Baker and others foretell."""

from __future__ import annotations

import math
import random
import re

import numpy as np
import pytest
import torch
from explorable_kit import Place, axe_violations, node_functions, state_of
from scipy.linalg import expm
from scipy.spatial.transform import Rotation
from torch.testing import assert_close

from geolib.lie import commutator, exp_skew, log_rotation, skew_matrix, upper_entries

# In Node: the numbers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """call(name, [arguments, ...]): the results of the explorable's function of that name."""
    return node_functions("skew.js", tmp_path_factory.mktemp("modules"))


def random_entries(count, seed=0, most=3.0):
    draw = random.Random(seed)
    return [[draw.uniform(-most, most) for _ in range(3)] for _ in range(count)]


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def matrices(entries):
    return skew_matrix(float64(entries), 3)


def size(A):
    """The angle of exp(A), for small A: the length of its axis vector."""
    return upper_entries(A).norm(dim=-1)


def test_the_exponential_is_that_of_the_library_and_of_scipy(call):  # LR-A1
    entries, times = random_entries(30), [random.Random(i).random() for i in range(30)]
    found = float64(call("turnAt", [[a, t] for a, t in zip(entries, times)]))
    generators = float64(times)[:, None, None] * matrices(entries)
    assert_close(found, exp_skew(generators), rtol=0, atol=1e-6)
    assert_close(found[0], float64(expm(generators[0].numpy())), rtol=0, atol=1e-6)


def test_axis_and_angle_make_the_rotation_vector_whose_rotation_is_the_exponential(call):  # LR-A1
    entries = [*random_entries(30, seed=1), [0.0, 0.0, 0.0]]
    for a, found in zip(entries, call("axisAngle", [[a] for a in entries])):
        axis, angle = float64(found["axis"]), found["angle"]
        assert float(axis.norm()) == pytest.approx(1)
        assert angle == pytest.approx(float(size(matrices(a))), abs=1e-6)
        expected = Rotation.from_rotvec((angle * axis).numpy()).as_matrix()
        assert_close(exp_skew(matrices(a)), float64(expected), rtol=0, atol=1e-6)


def test_the_bracket_is_the_commutator(call):  # LR-1
    first, second = random_entries(30, seed=2), random_entries(30, seed=3)
    expected = upper_entries(commutator(matrices(first), matrices(second)))
    assert_close(float64(call("bracket", list(zip(first, second)))), expected, rtol=0, atol=1e-6)


def square(A, B, e):
    """exp(-eB) exp(-eA) exp(eB) exp(eA), by the library."""
    return exp_skew(-e * B) @ exp_skew(-e * A) @ exp_skew(e * B) @ exp_skew(e * A)


def test_the_square_is_the_product_of_its_four_exponentials_and_each_quarter_is_one_of_them(call):  # LR-1
    first, second = random_entries(10, seed=4), random_entries(10, seed=5)
    times, e = (0, 0.25, 0.5, 0.6, 1), 0.7
    all_found = float64(call("squareAt", [[a, b, e, t] for a, b in zip(first, second) for t in times]))
    for A, B, found in zip(matrices(first), matrices(second), all_found.view(10, 5, 3, 3)):
        two = exp_skew(e * B) @ exp_skew(e * A)
        expected = [torch.eye(3, dtype=torch.float64), exp_skew(e * A), two, exp_skew(-0.4 * e * A) @ two]
        assert_close(found, torch.stack([*expected, square(A, B, e)]), rtol=0, atol=1e-6)


def test_the_angle_of_a_rotation_is_the_size_of_its_logarithm(call):  # LR-1
    turns = exp_skew(matrices(random_entries(30, seed=6, most=1.7)))
    found = float64(call("turnAngle", [[turn.tolist()] for turn in turns]))
    assert_close(found, size(log_rotation(turns)), rtol=0, atol=1e-6)
    half = exp_skew(matrices([0.0, math.pi, 0.0]))
    assert call("turnAngle", [[half.tolist()]])[0] == pytest.approx(math.pi)


def test_what_the_square_leaves_is_its_logarithm_and_what_is_foretold_the_bracket(call):  # LR-1
    first, second = random_entries(20, seed=7, most=1), random_entries(20, seed=8, most=1)
    A, B = matrices(first), matrices(second)
    for e in (1.0, 0.3, 0.02):
        found = call("squareTurn", [[a, b, e] for a, b in zip(first, second)])
        left = float64([each["left"] for each in found])
        assert_close(left, size(log_rotation(square(A, B, e))), rtol=0, atol=1e-6)
        foretold = float64([each["foretold"] for each in found])
        assert_close(foretold, e**2 * size(commutator(A, B)), rtol=0, atol=1e-6)


def test_the_ratio_tends_to_one_with_the_step(call):  # LR-1
    first, second = random_entries(10, seed=9, most=1.5), random_entries(10, seed=10, most=1.5)
    steps = (0.1, 0.01, 0.001)
    turns = call("squareTurn", [[a, b, e] for e in steps for a, b in zip(first, second)])
    off = (float64([turn["ratio"] for turn in turns]).view(3, 10) - 1).abs()
    assert bool((off[1] < off[0] / 5).all())
    assert float(off[2].max()) < 0.005


def test_quarter_turned_axes_leave_the_angle_of_the_closed_form(call):  # LR-1
    # Two quaternions with orthogonal axes: sin(left / 2) = 2 sin^2(e/2) sqrt(1 - sin^4(e/2)).
    for e in (0.1, 0.5, 1.0):
        (turn,) = call("squareTurn", [[[0, 0, -1], [-1, 0, 0], e]])
        s = math.sin(e / 2) ** 2
        assert turn["left"] == pytest.approx(2 * math.asin(2 * s * math.sqrt(1 - s * s)), abs=1e-6)
        assert turn["foretold"] == pytest.approx(e * e)


def test_the_sentence_for_screen_readers_names_the_state(call):
    state = {"first": [0, 0, -1], "second": [-1, 0, 0], "t": 0.5, "e": 0.1}
    one, two, three = call("describe", [[state | {"motion": motion}] for motion in ("A", "B", "square")])
    assert one == "exp(t A) at t = 0.50: turned by 28.6° of 57.3° about the axis (1.00, 0.00, 0.00)"
    assert two == "exp(t B) at t = 0.50: turned by 28.6° of 57.3° about the axis (0.00, 0.00, 1.00)"
    assert three == (
        "2 of 4 steps of size 0.10; the whole square leaves a turn of 0.572°, epsilon squared times |[A, B]| is "
        "0.573°: ratio 0.999"
    )


def test_both_orders_are_the_products_of_the_two_exponentials(call):  # LR-1
    first, second = random_entries(10, seed=6), random_entries(10, seed=7)
    found = float64(call("ordersAt", [[a, b, 1] for a, b in zip(first, second)]))
    A, B = exp_skew(matrices(first)), exp_skew(matrices(second))
    assert_close(found[:, 0], B @ A, rtol=0, atol=1e-6)
    assert_close(found[:, 1], A @ B, rtol=0, atol=1e-6)
    apart = float64(call("ordersApart", list(zip(first, second))))
    between = (B @ A).mT @ (A @ B)
    cosine = (between.diagonal(dim1=-2, dim2=-1).sum(-1) - 1) / 2
    assert_close(apart.cos(), cosine, rtol=0, atol=1e-6)


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(browser):
    """A page with one box."""
    opened = Place(browser, "SkewExponential", state_of("SkewExponential"))
    yield opened
    opened.close()


@pytest.mark.parametrize("hand", ["drag", "swipe"])
def test_dragging_the_box_turns_it_as_one_holds_it(place, hand):
    before = place.page.locator("#one .scene").inner_html()
    getattr(place, hand)(place.page.locator("#one .scene"), 60, -20)
    values = place.values()
    assert [values[name] for name in ("turn", "tilt", "t")] == [5, 14, 0.8]
    assert place.page.locator("#one .scene").inner_html() != before


def test_a_line_leaves_the_box_by_the_face_it_reaches_first(call):
    half = np.array([0.72, 0.45, 0.26])
    directions = np.random.default_rng(3).standard_normal((20, 3))
    found = call("leaves", [[each] for each in directions.tolist()])
    for direction, at in zip(directions, found):
        point = at["out"] * direction  # on that face, and inside the others
        assert abs(point[at["face"]]) == pytest.approx(half[at["face"]])
        assert (np.abs(point) <= half + 1e-12).all()


def test_the_axis_waits_until_the_box_has_turned_and_the_guess_stays_beside_it(browser):
    place = Place(browser, "SkewExponential", state_of("SkewExponential"))
    sentence, axis = place.page.locator("#one .geo-say"), place.page.locator("#one .scene text", has_text="axis")
    assert sentence.text_content().endswith(" about the axis ?")
    assert axis.count() == 0
    assert "axis ?" in place.page.locator("#one .scene").get_attribute("aria-label")
    guess = place.page.locator("#one .geo-wager").get_by_role("button", name="1", exact=True)
    guess.click()
    place.page.wait_for_function("models.one.values.t === 1")
    place.settle()
    assert sentence.text_content().endswith(" about the axis (0.00, 0.26, 0.97)")
    assert axis.count() == 1
    assert guess.get_attribute("aria-pressed") == "true"
    right = place.page.locator("#one .geo-wager .right")
    assert right.text_content() == "3"
    place.set(motion="orders")
    assert not guess.is_visible()
    place.close()


def number(text):
    return float(re.search(r"-?[0-9.]+", text.replace("−", "-")).group())


def test_the_words_multiply_time_and_angle(place):
    place.set(first=[-0.6, 0.8, 0.0], t=0.25)
    sentence = place.page.locator("#one .geo-say")
    assert sentence.text_content() == "exp(tA) turns by 14.3° = t · 57.3° about the axis (0.00, 0.80, 0.60)"
    assert place.page.locator("#one .matrix").get_attribute("aria-label") == (
        "Matrix A with the entries 0.00, −0.60, 0.80, 0.60, 0.00, 0.00, −0.80, 0.00, 0.00, row by row"
    )


def test_no_axis_is_named_where_nothing_turns(place):
    place.set(first=[0.0, 0.0, 0.0], t=1)
    assert place.page.locator("#one .geo-say").text_content() == "exp(tA) turns by 0.0° = t · 0.0°: no turn has no axis"


def test_the_three_sliders_belong_to_the_generator_that_turns_the_box(place):
    first = place.values()["first"]
    place.page.get_by_role("button", name="exp(tB)").click()
    place.settle()
    slider = place.page.get_by_label("b₂₃")
    slider.press("Home")
    assert place.values()["second"] == [-0.3, 0.0, -3.0]
    assert place.values()["first"] == first
    place.page.get_by_role("button", name="exp(tA)").click()
    place.settle()
    place.page.get_by_label("a₁₂").press("End")
    assert place.values()["first"] == [3.0, *first[1:]]


def test_the_square_shows_its_own_slider_and_its_ratio_comes_nearer_to_one_for_smaller_steps(place):
    place.page.get_by_role("button", name="The square").click()
    place.settle()
    assert place.page.get_by_label("a₁₂").count() == 0
    ratios, step = [], place.page.get_by_label("Step ε")
    for key in ("End", "Home"):
        step.press(key)
        place.settle()
        ratios.append(number(place.page.locator("#one .geo-say b").last.text_content()))
    assert place.values()["e"] == 0.02
    assert abs(ratios[1] - 1) < 0.003 < abs(ratios[0] - 1)
    place.set(second=place.values()["first"])
    assert "A and B commute" in place.page.locator("#one .geo-say").text_content()


def test_the_square_is_open_in_the_picture_only_when_it_has_been_gone_round(place):
    place.set(motion="square", t=0.9, e=0.5)
    gap = place.page.locator("#one .gap")
    assert gap.get_attribute("d") == ""
    place.set(t=1.0)
    points = float64([float(value) for value in re.findall(r"-?[0-9.]+", gap.get_attribute("d"))]).view(2, 2)
    wide = float((points[1] - points[0]).norm())
    place.set(e=0.25)
    points = float64([float(value) for value in re.findall(r"-?[0-9.]+", gap.get_attribute("d"))]).view(2, 2)
    # Half the step, about a quarter of the gap.
    assert float((points[1] - points[0]).norm()) / wide == pytest.approx(0.25, abs=0.06)


def test_two_boxes_stand_side_by_side_for_the_two_orders_alone(place):
    place.page.get_by_role("button", name="AB beside BA").click()
    place.set(t=1.0)
    assert place.page.locator("#one .scene").count() == 2
    said = place.page.locator("#one .geo-say").text_content()
    assert number(said) > 20
    place.set(second=place.values()["first"])
    assert number(place.page.locator("#one .geo-say").text_content()) == 0
    place.set(motion="A")
    assert place.page.locator("#one .scene").count() == 1


@pytest.mark.parametrize("width", [760, 360])
def test_the_square_is_as_accessible_and_as_narrow_as_the_rest(place, width):
    place.set(motion="square", t=1.0)
    place.page.set_viewport_size({"width": width, "height": 1400})
    place.settle()
    assert axe_violations(place.page, "#one") == []
    assert place.page.evaluate("document.documentElement.scrollWidth") <= width
    step, drawing = place.page.get_by_label("Step ε"), place.drawing()
    assert step.get_attribute("aria-valuetext") == "0.50"
    step.press("ArrowRight")
    assert place.values()["e"] == 0.51
    assert place.drawing() != drawing
    labels = place.page.locator("#one svg").evaluate_all("(all) => all.map((e) => e.getAttribute('aria-label'))")
    assert len(labels) == 2
    assert all("ratio 0.953" in label for label in labels)
