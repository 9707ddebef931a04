"""Parallel transport on the sphere: two computations of one angle, both geolib's, and a globe that follows the hand."""

from __future__ import annotations

import math
import random

import pytest
import torch
from explorable_kit import Place, node_functions, state_of
from torch.testing import assert_close

from geolib.explorables import SphereTransport
from geolib.manifolds import embed_spherical, holonomy_angle, parallel_transport, sphere_spherical, spherical_area

OCTANT = [0.0, 0.0, 90.0, 0.0, 45.0, 90.0]

# In Node: the numbers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """call(name, [arguments, ...]): the results of the sphere's function of that name."""
    return node_functions("sphere.js", tmp_path_factory.mktemp("modules"))


def random_corners(count, seed=0, latitude=90.0):
    draw = random.Random(seed)
    return [[draw.uniform(-most, most) for _ in range(3) for most in (180, latitude)] for _ in range(count)]


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def coordinates(corners):
    """Colatitude and longitude of the three corners, radians."""
    pairs = float64(corners).view(3, 2).deg2rad()
    return torch.stack([math.pi / 2 - pairs[:, 1], pairs[:, 0]], -1)


def side(start, end):
    """The shorter great circle between points (..., 2) of the chart, as a curve of the chart: the chord, put outward.

    Its longitude is counted on from the start, so that it does not jump.
    """
    p, q, first = embed_spherical(start), embed_spherical(end), start[..., 1]

    def curve(t):
        x, y, z = ((1 - t) * p + t * q).unbind(-1)
        ahead = torch.atan2(y * first.cos() - x * first.sin(), x * first.cos() + y * first.sin())
        return torch.stack([torch.atan2(torch.hypot(x, y), z), first + ahead], -1)

    return curve


def sides(corners):
    """The three sides of triangles (..., 3, 2) of the chart."""
    a, b, c = corners.unbind(-2)
    return [side(a, b), side(b, c), side(c, a)]


def test_the_area_is_that_of_the_spherical_triangle_with_its_sign(call):  # RF-PT
    triangles = random_corners(40)
    points = embed_spherical(torch.stack([coordinates(each) for each in triangles]))
    found = float64(call("area", [[each] for each in triangles]))
    assert_close(found, spherical_area(*points.unbind(1)), rtol=0, atol=1e-6)
    assert found.min() < -1
    assert found.max() > 1


def test_the_area_is_the_excess_of_the_angles(call):  # RF-PT
    triangles = random_corners(40, seed=1)
    for found, each in zip(call("area", [[each] for each in triangles]), triangles):
        corners = embed_spherical(coordinates(each))
        angles = []
        for i in range(3):
            a, b, c = corners.roll(-i, 0)
            u, v = b - (a @ b) * a, c - (a @ c) * a
            angles.append(torch.acos((u @ v) / (u.norm() * v.norm())))
        assert abs(found) == pytest.approx(float(sum(angles) - math.pi), abs=1e-6)


def test_the_angle_the_arrow_returns_with_is_the_holonomy_of_the_metric(call):  # RF-PT, RF-FLAT
    # On one half of the globe and away from the poles, where the chart of colatitude and longitude ends.
    draw = random.Random(2)
    triangles = [[draw.uniform(-most, most) for _ in range(3) for most in (60, 50)] for _ in range(8)]
    corners = torch.stack([coordinates(each) for each in triangles])
    expected = holonomy_angle(sphere_spherical().within(1e-7, 1e-8), sides(corners))
    found = float64(call("holonomy", [[each] for each in triangles]))
    assert_close((found - expected).sin(), torch.zeros(8, dtype=torch.float64), rtol=0, atol=1e-6)
    assert bool(((found - expected).cos() > 0).all())


def test_the_arrow_on_its_way_is_the_parallel_transport_of_the_metric(call):  # RF-PT
    corners = [10.0, -20.0, 80.0, 15.0, 30.0, 55.0]
    at = coordinates(corners)
    start, found = call("carry", [[corners, 0], [corners, 2]])
    basis = torch.func.jacfwd(embed_spherical)(at[0])
    vector = torch.linalg.lstsq(basis, float64(start["vector"])[:, None]).solution[:, 0]
    carried = parallel_transport(sphere_spherical().within(1e-8, 1e-9), sides(at)[:2], vector)
    assert_close(float64(found["point"]), embed_spherical(at[2]), rtol=0, atol=1e-6)
    assert_close(float64(found["vector"]), torch.func.jacfwd(embed_spherical)(at[2]) @ carried, rtol=0, atol=1e-6)


def test_transport_and_area_computed_apart_agree_modulo_a_full_turn(call):  # RF-PT
    triangles = random_corners(60, seed=3)
    for turned, inside in zip(call("holonomy", [[t] for t in triangles]), call("area", [[t] for t in triangles])):
        assert -math.pi <= turned <= math.pi
        assert abs(math.remainder(turned - inside, 2 * math.pi)) < 1e-6


def test_the_arrow_stays_a_unit_tangent_and_keeps_its_angle_along_each_side(call):  # RF-PT
    (corners,) = random_corners(1, seed=4)
    steps = [0.05 * i for i in range(1, 60) if i % 20]
    found = call("carry", [[corners, p] for p in steps])
    for each in found:
        point, vector = float64(each["point"]), float64(each["vector"])
        assert float(point @ point) == pytest.approx(1)
        assert float(vector @ vector) == pytest.approx(1)
        assert float(point @ vector) == pytest.approx(0, abs=1e-9)
    for leg in range(3):
        angles = [each["angle"] for p, each in zip(steps, found) if leg < p < leg + 1]
        assert len(angles) == 19
        assert max(angles) - min(angles) < 1e-9


def test_corners_that_meet_or_lie_opposite_give_finite_numbers(call):
    for corners in ([0.0] * 6, [0, 0, 180, 0, 90, 0], [0, 90, 45, 90, 10, -90]):
        assert all(math.isfinite(value) for value in call("holonomy", [[corners]]) + call("area", [[corners]]))


def test_the_clipped_triangle_has_the_points_that_are_in_it_and_on_that_half(call):
    # Its area by fans of triangles, against the share of random points inside the triangle and on the half.
    corners = float64([[0.9, 0.1, 0.3], [-0.5, 0.8, 0.2], [-0.4, -0.5, 0.8]])
    corners = corners / corners.norm(dim=-1, keepdim=True)
    toward = float64([0.6, 0.0, 0.8])
    (kept,) = call("clipPolygon", [[corners.tolist(), toward.tolist()]])
    kept = float64(kept)
    found = sum(spherical_area(kept[0], kept[i], kept[i + 1]) for i in range(1, len(kept) - 1))
    points = torch.randn(400000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    inside = points @ toward >= 0
    for i in range(3):
        inside &= points @ torch.linalg.cross(corners[i], corners[(i + 1) % 3]) >= 0
    assert float(found) == pytest.approx(4 * math.pi * float(inside.double().mean()), abs=0.04)


def test_the_place_under_a_point_of_the_picture_is_seen_there(call):
    draw = random.Random(5)
    looks = [[draw.uniform(-180, 180), draw.uniform(-90, 90)] for _ in range(20)]
    spots = [[0.7 * draw.uniform(-1, 1), 0.7 * draw.uniform(-1, 1), draw.choice([1, -1])] for _ in looks]
    views = call("viewFrom", looks)
    places = call("pointUnder", [[*spot, view] for spot, view in zip(spots, views)])
    for view, (x, y, half), point in zip(views, spots, call("pointAt", places)):
        expected = float64([x, y, half * math.sqrt(1 - x * x - y * y)])
        assert_close(float64(view) @ float64(point), expected, rtol=0, atol=1e-6)


def test_the_sentence_for_screen_readers_names_the_state(call):
    (said,) = call("describe", [[{"corners": OCTANT, "progress": 1.5}]])
    assert said == (
        "A at longitude 0°, latitude 0°; B at longitude 90°, latitude 0°; C at longitude 45°, latitude 90°. The arrow "
        "has gone 1.5 of 3 sides; back at A it is turned by 90.0°, and the area inside is 90.0°, 12.5 % of the sphere"
    )


def test_opposite_corners_are_named_instead_of_a_turn_and_an_area_that_nothing_settles(call):  # RF-PT
    pairs = [[0, 0, 180, 0, 90, 0], [5, 5, 10, -90, 70, 90], [30, 20, 0, 0, -150, -20], OCTANT, [0.0] * 6]
    assert call("opposite", [[corners] for corners in pairs]) == ["A and B", "B and C", "C and A", "", ""]
    (said,) = call("describe", [[{"corners": pairs[0], "progress": 3}]])
    assert said.endswith("A and B are opposite points, so neither turn nor area is settled")


def test_a_guess_is_right_where_the_turn_is_near_it(call):
    corners = [OCTANT, [0, 0, 45, 0, 45, 90], [0, 0, 1, 0, 1, 1], [0, 0, 90, 0, 45, 90][::1]]
    assert call("guessed", [[each] for each in corners]) == ["90", None, "0", "90"]
    assert "how will it point" in call("describe", [[{"corners": OCTANT, "progress": 0}, False]])[0]


# In Python: the traits -----------------------------------------------------------------------------------------------


def test_latitudes_end_at_the_poles():
    with pytest.raises(ValueError, match=r"^corners: got \[91\.0\].*-90 to 90"):
        SphereTransport(corners=[0, 91, 10, 0, 0, 30])


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(browser):
    """A page with one sphere."""
    opened = Place(browser, "SphereTransport", state_of("SphereTransport", progress=3))
    yield opened
    opened.close()


def middle(place, locator):
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def seen_at(place, call, longitude, latitude):
    """Where the picture shows a place of the sphere, in pixels of the page."""
    ball = place.page.locator("#one .ball").bounding_box()
    values = place.values()
    (view,) = call("viewFrom", [[values["turn"], values["tilt"]]])
    (point,) = call("pointAt", [[longitude, latitude]])
    x, y, _ = (float64(view) @ float64(point)).tolist()
    radius = ball["width"] / 2
    return ball["x"] + radius * (1 + x), ball["y"] + radius * (1 - y)


@pytest.mark.parametrize("hand", ["drag", "swipe"])
def test_a_dragged_corner_goes_where_the_hand_goes(place, call, hand):
    reach = place.page.locator("#one .geo-reach").nth(1)
    x, y = middle(place, reach)
    to_x, to_y = seen_at(place, call, 60, -20)
    getattr(place, hand)(reach, to_x - x, to_y - y)
    assert place.values()["corners"][2:4] == pytest.approx([60, -20], abs=1.5)
    assert place.values()["corners"][:2] + place.values()["corners"][4:] == OCTANT[:2] + OCTANT[4:]
    assert place.values()["corner"] == "B"


@pytest.mark.parametrize("hand", ["drag", "swipe"])
def test_dragging_the_sphere_turns_it_and_leaves_the_triangle(place, hand):
    ball = place.page.locator("#one .ball")
    getattr(place, hand)(ball, 40, 10)
    values, radius = place.values(), ball.bounding_box()["width"] / 2
    assert values["turn"] == pytest.approx(35 - math.degrees(40 / radius), abs=1)
    assert values["tilt"] == pytest.approx(28 + math.degrees(10 / radius), abs=1)
    assert values["corners"] == OCTANT


def test_a_corner_on_the_far_side_is_moved_there(place):
    place.set(turn=-145.0, tilt=-10.0)
    place.drag(place.page.locator("#one .geo-reach").nth(0), 20, 0)
    longitude, latitude = place.values()["corners"][:2]
    assert -30 < longitude < -1  # to the right, on the far side, is westward
    assert abs(latitude) < 6


def test_the_statement_in_the_picture_is_true_of_an_octant_and_of_its_half(place, call):
    sentence = place.page.locator("#one .geo-say")
    assert sentence.text_content() == "The arrow returns turned by 90.0° = area inside 90.0° (12.5 % of the sphere)"
    place.set(corners=[0, 0, 45, 0, 45, 90])
    assert sentence.text_content() == "The arrow returns turned by 45.0° = area inside 45.0° (6.3 % of the sphere)"
    place.set(corners=[45, 0, 0, 0, 45, 90])
    assert sentence.text_content() == "The arrow returns turned by −45.0° = area inside −45.0° (6.3 % of the sphere)"
    assert "Clockwise" in place.page.locator("#one .geo-note").text_content()
    big = [-70.0, 10.0, 70.0, -20.0, 150.0, 50.0]
    (inside,) = call("area", [[big]])
    assert inside > math.pi
    place.set(corners=big)
    turned, shown = (float(b.replace("−", "-").rstrip("°")) for b in sentence.locator("b").all_text_contents())
    assert shown == pytest.approx(math.degrees(inside), abs=0.05)
    assert turned == pytest.approx(shown - 360, abs=0.11)
    assert "− 360°" in sentence.text_content()
    place.set(corners=[0, 0, 180, 0, 90, 0])
    assert sentence.text_content().startswith("A and B are opposite points")
    assert place.page.locator("#one text.geo-warm").text_content() == ""


def test_the_choice_gives_the_sliders_another_corner(place):
    place.page.get_by_label("Corner").select_option("C")
    place.settle()
    latitude = place.page.get_by_label("Its latitude β")
    assert latitude.input_value() == "90"
    latitude.press("ArrowLeft")
    assert place.values()["corners"] == [*OCTANT[:5], 89.0]


def test_run_carries_the_arrow_once_round_and_stops(place):
    button = place.page.get_by_role("button", name="Run")
    button.click()
    place.page.wait_for_function("models.one.values.progress > 0.05 && models.one.values.progress < 2")
    place.page.get_by_role("button", name="Pause").click()
    stopped = place.values()["progress"]
    place.page.wait_for_timeout(100)
    assert place.values()["progress"] == stopped
    assert "the arrow keeps its angle to the side" in place.page.locator("#one .geo-note").text_content()
    place.set(progress=2.95)
    button.click()
    place.page.wait_for_function("models.one.values.progress === 3")
    assert button.text_content() == "Run"


def test_the_answer_waits_until_the_arrow_has_been_home_and_the_guess_stays_beside_it(browser):
    place = Place(browser, "SphereTransport", state_of("SphereTransport", progress=0))
    sentence, right = place.page.locator("#one .geo-say"), place.page.locator("#one button.right")
    assert sentence.text_content() == "The arrow returns turned by ? = area inside ?"
    assert "90" not in place.page.locator("#one svg").get_attribute("aria-label").split("The arrow")[1]
    guess = place.page.get_by_role("button", name="As before")
    guess.click()
    place.page.wait_for_function("models.one.values.progress > 0.05")
    assert "?" in sentence.text_content()
    assert right.count() == 0
    place.page.wait_for_function("models.one.values.progress === 3")
    place.settle()
    assert sentence.text_content().startswith("The arrow returns turned by 90.0°")
    assert right.text_content() == "90° off"
    assert guess.get_attribute("aria-pressed") == "true"
    spoken = place.page.locator("#one [aria-live=polite]")
    place.page.wait_for_function("document.querySelector('#one [aria-live=polite]').textContent.includes('guessed')")
    assert spoken.text_content().endswith("You guessed: As before.")
    place.set(corners=[0, 0, 45, 0, 45, 90], progress=1)
    assert "45.0°" in sentence.text_content()  # answered once, answered for all triangles
    assert right.count() == 0
    place.close()
