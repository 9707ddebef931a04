"""Explorables of turns: RoPE's clock, two mirrors, generators and their exponentials, transport on a sphere and a grid.

What a picture draws is read by ``test_drawings.py``.
"""

import math
import random
import re
from functools import partial

import pytest
import torch
from explorable_kit import Place, float64, functions_of, numbers_in, place_of, state_of, states
from torch.testing import assert_close

from geolib import connection as cn
from geolib import lie
from geolib.lie import commutator, exp_skew, log_rotation, skew_matrix, upper_entries
from geolib.manifolds import embed_spherical, holonomy_angle, parallel_transport, sphere_spherical, spherical_area
from geolib.rotations import rope, rotate_pairs, rotation_matrix

# The clock of RoPE: its numbers are geolib's, and a shift turns its hands alone ---------------------------------------

clock_js = functions_of("clock.js")
clock_opened, on_clock = place_of("RopeClock")
clock_states = partial(
    states, query=(0, 64), key=(0, 64), shift=(0, 64), base=lambda draw: 10 ** draw.uniform(0, 6), pairs=range(1, 33)
)


def test_the_score_at_each_delta_is_that_of_rope_whatever_the_shift(clock_js):  # LR-A2
    states = clock_states(30, seed=2)
    calls = [[s["key"] - s["query"], s["pairs"], s["base"]] for s in states]
    curves = clock_js("scoreCurve", [[[delta], *rest] for delta, *rest in calls])
    thetas = clock_js("frequencies", [rest for _, *rest in calls])
    for s, score, (on_curve,), theta in zip(states, clock_js("score", calls), curves, thetas):
        positions = float64([[s["query"]], [s["key"]]]) + s["shift"]
        query, key = rope(torch.ones(2, 2 * s["pairs"], dtype=torch.float64), positions, float64(theta)[:, None])
        assert [score, on_curve] == pytest.approx([float(query @ key) / (2 * s["pairs"])] * 2, abs=1e-6)


def test_shifting_both_turns_the_hands_and_leaves_the_score_where_it_is(on_clock):
    def pictures():
        on_clock.settle()
        return [on_clock.page.locator(f"#one .{part} svg").inner_html() for part in ("face", "curve")]

    (face, curve), before = pictures(), on_clock.values()
    on_clock.page.get_by_label("Shift both by t").press("ArrowRight")
    turned, same = pictures()
    assert turned != face
    assert same == curve
    assert {name for name, value in on_clock.values().items() if value != before[name]} == {"shift"}


# Two mirrors: turning both moves the once reflected figure alone ------------------------------------------------------

mirrors_js = functions_of("mirrors.js")
mirrors_opened, on_mirrors = place_of("TwoMirrors", mirrors=2)


def test_the_angle_of_a_line_is_less_than_half_a_turn(mirrors_js):
    assert mirrors_js("lineAngle", [[-10], [0], [179], [180], [365]]) == [170, 0, 179, 0, 5]


def test_no_rotation_brings_the_figures_mirror_image_onto_it(mirrors_js):
    state = {"m": 80, "n": 20, "shift": 0, "distance": 0.5, "angle": 30}
    start, once = (float64(mirrors_js("images", [[state]])[0][name]) for name in ("start", "once"))
    angles = torch.linspace(0, 2 * math.pi, 361, dtype=torch.float64)[:, None, None]
    turned = rotate_pairs(once - once.mean(0), angles)
    assert float(torch.cdist(turned, (start - start.mean(0)).expand(361, -1, -1)).amin(-1).amax(-1).min()) > 0.03


def points_of(on_mirrors, name):
    drawn = on_mirrors.page.locator(f"#one path.{name}").get_attribute("d")
    return float64([*map(float, re.findall(r"-?[0-9.]+", drawn))]).view(-1, 2)


def test_turning_both_mirrors_moves_the_once_reflected_figure_and_not_the_result(on_mirrors):
    once, twice = points_of(on_mirrors, "once"), points_of(on_mirrors, "twice")
    on_mirrors.set(shift=50.0)
    assert_close(points_of(on_mirrors, "twice"), twice, rtol=0, atol=0.11)
    assert not torch.allclose(points_of(on_mirrors, "once"), once, atol=20)
    on_mirrors.set(n=30)
    on_mirrors.set(n=20)
    said = numbers_in(on_mirrors.text(".geo-say"))
    assert said[:2] == [70, 130]
    assert said[-1] == 120


def test_a_link_that_sets_the_question_does_not_answer_it(browser):
    place = Place(browser, "TwoMirrors", state_of("TwoMirrors"))
    place.page.evaluate("location.hash = '#move-mirrors?mirrors=2&n=20&m=80'")
    place.page.wait_for_function("models.one.values.mirrors === 2 && !document.querySelector('[data-gliding]')")
    assert place.text(".geo-say").endswith("?")
    place.set(shift=60)
    assert place.text(".geo-say").endswith("?")
    assert "Now turn one mirror" in place.text(".together .geo-note")
    place.set(m=90)
    assert "140°" in place.text(".geo-say")
    assert "Now" not in place.text(".together .geo-note")
    place.page.context.close()


def test_one_mirror_shows_neither_the_second_nor_the_turned_figure(on_mirrors):
    on_mirrors.set(mirrors=1)
    shown = "[...document.querySelectorAll('#one .second')].filter((e) => e.getClientRects().length).length"
    assert on_mirrors.page.evaluate(shown) == 0
    on_mirrors.page.get_by_role("button", name="Two mirrors").click()
    on_mirrors.settle()
    assert on_mirrors.values()["mirrors"] == 2
    assert on_mirrors.page.evaluate(shown) > 5


def test_a_mirror_dragged_while_both_are_turned_stands_under_the_hand(on_mirrors):
    on_mirrors.set(shift=30.0)  # the first mirror stands at 50 degrees
    picture = on_mirrors.page.locator("#one svg").bounding_box()
    box = on_mirrors.page.locator("#one .geo-reach").first.bounding_box()
    x, y = (box[a] + box[b] / 2 - picture[a] - picture[b] / 2 for a, b in (("x", "width"), ("y", "height")))
    to, at = math.hypot(x, y), math.radians(75)
    on_mirrors.drag(on_mirrors.page.locator("#one .geo-reach").first, to * math.cos(at) - x, -to * math.sin(at) - y)
    assert on_mirrors.values()["n"] == pytest.approx(45, abs=1)


# A skew matrix and its exponential ------------------------------------------------------------------------------------

skew_js = functions_of("skew.js")
skew_opened, on_skew = place_of("SkewExponential", t=1)


def random_entries(count, seed=0, most=3.0):
    return [state["entries"] for state in states(count, seed, entries=(-most, most, 3))]


def matrices(entries):
    return skew_matrix(float64(entries), 3)


def size(A):
    """The angle of exp(A), for small A: the length of its axis vector."""
    return upper_entries(A).norm(dim=-1)


def test_what_the_square_leaves_is_its_logarithm_and_what_is_foretold_the_bracket(skew_js):  # LR-1
    first, second = random_entries(20, seed=7, most=1), random_entries(20, seed=8, most=1)
    A, B = matrices(first), matrices(second)
    for e in (1.0, 0.3, 0.02):
        found = skew_js("squareTurn", [[a, b, e] for a, b in zip(first, second)])
        left, foretold, ratio = (float64([each[name] for each in found]) for name in ("left", "foretold", "ratio"))
        around = exp_skew(-e * B) @ exp_skew(-e * A) @ exp_skew(e * B) @ exp_skew(e * A)
        assert_close(left, size(log_rotation(around)), rtol=0, atol=1e-6)
        assert_close(foretold, e**2 * size(commutator(A, B)), rtol=0, atol=1e-6)
        assert_close(ratio, left / foretold)


def test_both_orders_are_the_products_of_the_two_exponentials(skew_js):  # LR-1
    first, second = random_entries(10, seed=6), random_entries(10, seed=7)
    found = float64(skew_js("ordersAt", [[a, b, 1] for a, b in zip(first, second)]))
    A, B = exp_skew(matrices(first)), exp_skew(matrices(second))
    assert_close(found[:, 0], B @ A, rtol=0, atol=1e-6)
    assert_close(found[:, 1], A @ B, rtol=0, atol=1e-6)
    apart = float64(skew_js("ordersApart", list(zip(first, second))))
    cosine = (((B @ A).mT @ (A @ B)).diagonal(dim1=-2, dim2=-1).sum(-1) - 1) / 2
    assert_close(apart.cos(), cosine, rtol=0, atol=1e-6)


def test_the_words_multiply_time_and_angle_and_name_no_axis_where_nothing_turns(on_skew):
    on_skew.set(first=[-0.6, 0.8, 0.0], t=0.25)
    assert numbers_in(on_skew.text(".geo-say")) == [14.3, 57.3, 0, 0.8, 0.6]
    entries = numbers_in(on_skew.page.locator("#one .matrix").get_attribute("aria-label"))
    assert entries == [0, -0.6, 0.8, 0.6, 0, 0, -0.8, 0, 0]
    on_skew.set(first=[0.0, 0.0, 0.0], t=1)
    assert "no turn has no axis" in on_skew.text(".geo-say")


# Two turns in two orders: a gap that half the bracket foretells; ``test_drawings.py`` reads the dice ------------------

commutator_js = functions_of("commutator.js", "\nexport { facesSeen, gaze };")
STATES = [(90, 90), (60, 35), (10, 80), (100, 20), (50, 0)]


def test_the_gaps_are_logarithms_and_what_is_foretold_is_half_the_bracket(commutator_js):  # LR-1
    for (turn, between), found in zip(STATES, commutator_js("gaps", [[{"size": s, "between": b}] for s, b in STATES])):
        lean = math.radians(between)
        axes = float64([[0, 0, 1], [math.sin(lean), 0, math.cos(lean)]]) * math.radians(turn)
        first, second = (skew_matrix(torch.stack([-z, y, -x]), 3) for x, y, z in axes)  # A v = axis x v
        orders = exp_skew(second) @ exp_skew(first), exp_skew(first) @ exp_skew(second)
        assert found["orders"] == pytest.approx(float(size(log_rotation(orders[0].mT @ orders[1]))), abs=1e-6)
        for order in orders:  # one misses as much as the other
            missed = size(log_rotation(exp_skew(first + second).mT @ order))
            assert found["missed"] == pytest.approx(float(missed), abs=1e-6)
        assert found["foretold"] == pytest.approx(float(size(commutator(first, second))) / 2, abs=1e-6)


# LieRE on a grid: rotations, scores and their deviations are geolib's, and its maps show them -------------------------

SIDE = 15
QUERY = torch.full((4,), 0.5, dtype=torch.float64)
liere_js = functions_of("liere.js")
liere_opened, on_liere = place_of("LiereGrid")
liere_states = partial(states, mix=(0, 1), size=(0.05, 0.6), shift=(0, 15), row=range(SIDE), column=range(SIDE))


@pytest.fixture(scope="module")
def example(liere_js):
    """For random parameters: they, the generators and the grids before and after the shift."""
    states = liere_states(5)
    generators = [float64(each) for each in liere_js("generators", [[s["mix"], s["size"]] for s in states])]
    grids = [liere_js("turnedGrid", [[s["mix"], s["size"], on * s["shift"]] for s in states]) for on in (0, 1)]
    return list(zip(states, generators, *grids))


def patches(shift=0.0):
    """(column, row) of every patch, row by row."""
    along = torch.arange(SIDE, dtype=torch.float64) + shift
    rows, columns = torch.meshgrid(along, along, indexing="ij")
    return torch.stack([columns.flatten(), rows.flatten()], -1)


def test_generators_are_skew_commute_at_0_only_and_keep_their_norms_and_their_speed(liere_js):  # LR-2
    found = float64(liere_js("generators", [[c, 0.3] for c in (0, 0.05, 0.5, 1)]))
    assert_close(found.mT, -found)
    norms = torch.linalg.matrix_norm(found)
    assert_close(norms, norms[:1].expand_as(norms))
    relative = torch.linalg.matrix_norm(lie.commutator(found[:, 0], found[:, 1])) / norms.prod(-1)
    assert float(relative[0]) == 0
    assert bool((relative.diff() > 0).all())
    assert_close(float64(liere_js("commutator", [[a.tolist(), b.tolist()] for a, b in found])), relative)
    assert [float(lie.spectrum(first)[0]) for first in found[:, 0]] == pytest.approx([0.3] * 4)


def test_turned_vectors_are_those_of_position_rotations_at_every_patch(example):  # LR-A1
    for state, generators, before, after in example:
        for grid, shift in ((before, 0.0), (after, state["shift"])):
            rotations = lie.position_rotations(patches(shift), generators)
            assert_close(float64([each["vector"] for each in grid]), rotations @ QUERY, rtol=0, atol=1e-6)


def test_scores_and_their_change_are_those_of_turned_query_and_keys(liere_js, example):  # LR-1, LR-A1
    arguments = [[before, after, state] for state, _, before, after in example]
    for (state, generators, *_), found in zip(example, liere_js("compare", arguments)):
        patch, maps = state["row"] * SIDE + state["column"], []
        for shift in (0.0, state["shift"]):
            R = lie.position_rotations(patches(shift), generators)
            maps.append(torch.einsum("i,ji,njk,k->n", QUERY, R[patch], R, QUERY))
        for name, expected in zip(("here", "there", "difference"), (*maps, maps[1] - maps[0])):
            assert_close(float64(found[name]), expected, rtol=0, atol=1e-6)
        assert found["change"] == pytest.approx(float((maps[1] - maps[0]).norm() / maps[0].norm()), abs=1e-6)


def test_the_deviation_is_the_root_mean_square_of_shift_deviation_over_the_keys(liere_js, example):  # LR-SHIFT
    arguments = [[before, after, state["row"], state["column"]] for state, _, before, after in example]
    for (state, generators, *_), found in zip(example, liere_js("deviation", arguments)):
        query, shift = float64([state["column"], state["row"]]), float64([state["shift"]] * 2)
        each = torch.stack([lie.shift_deviation(generators, query, key, shift) for key in patches()])
        assert found == pytest.approx(float(each.square().mean().sqrt()), abs=1e-6)


def maps(on_liere):
    on_liere.settle()
    return on_liere.page.evaluate("[...document.querySelectorAll('#one canvas')].map((c) => c.toDataURL())")


def test_commuting_generators_make_both_maps_one_and_the_difference_blank(on_liere):
    assert len(set(maps(on_liere))) == 3
    on_liere.set(mix=0)
    here, there, _ = maps(on_liere)
    assert here == there
    blank = """() => { const c = document.querySelectorAll("#one canvas")[2];
        return c.getContext("2d").getImageData(0, 0, c.width, c.height).data.every((shade) => shade === 255); }"""
    assert on_liere.page.evaluate(blank)


# Parallel transport on the sphere: two computations of one angle, both geolib's, and a globe that says it -------------

OCTANT = [0.0, 0.0, 90.0, 0.0, 45.0, 90.0]
sphere_js = functions_of("sphere.js")
sphere_opened, on_sphere = place_of("SphereTransport", progress=3)


def random_corners(count, seed=0, longitude=180, latitude=90):
    draw = random.Random(seed)
    return [[draw.uniform(-most, most) for _ in range(3) for most in (longitude, latitude)] for _ in range(count)]


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


def test_the_area_is_that_of_the_spherical_triangle(sphere_js):  # RF-PT
    triangles = random_corners(40)
    points = embed_spherical(torch.stack([coordinates(each) for each in triangles]))
    found = float64(sphere_js("area", [[each] for each in triangles]))
    assert_close(found, spherical_area(*points.unbind(1)), rtol=0, atol=1e-6)
    assert found.min() < -1 < 1 < found.max()


def test_the_angle_the_arrow_returns_with_is_the_holonomy_of_the_metric(sphere_js):  # RF-PT, RF-FLAT
    # On one half of the globe and away from the poles, where the chart of colatitude and longitude ends.
    triangles = random_corners(8, seed=2, longitude=60, latitude=50)
    corners = torch.stack([coordinates(each) for each in triangles])
    expected = holonomy_angle(sphere_spherical().within(1e-7, 1e-8), sides(corners))
    found = float64(sphere_js("holonomy", [[each] for each in triangles]))
    assert_close((found - expected).sin(), torch.zeros(8, dtype=torch.float64), rtol=0, atol=1e-6)
    assert bool(((found - expected).cos() > 0).all())


def test_the_arrow_on_its_way_is_the_parallel_transport_of_the_metric(sphere_js):  # RF-PT
    corners = [10.0, -20.0, 80.0, 15.0, 30.0, 55.0]
    at = coordinates(corners)
    start, found = sphere_js("carry", [[corners, 0], [corners, 2]])
    basis = torch.func.jacfwd(embed_spherical)(at[0])
    vector = torch.linalg.lstsq(basis, float64(start["vector"])[:, None]).solution[:, 0]
    carried = parallel_transport(sphere_spherical().within(1e-8, 1e-9), sides(at)[:2], vector)
    assert_close(float64(found["point"]), embed_spherical(at[2]), rtol=0, atol=1e-6)
    assert_close(float64(found["vector"]), torch.func.jacfwd(embed_spherical)(at[2]) @ carried, rtol=0, atol=1e-6)


def test_the_clipped_triangle_has_the_points_that_are_in_it_and_on_that_half(sphere_js):
    # Its area by fans of triangles, against the share of random points inside the triangle and on the half.
    corners = float64([[0.9, 0.1, 0.3], [-0.5, 0.8, 0.2], [-0.4, -0.5, 0.8]])
    corners = corners / corners.norm(dim=-1, keepdim=True)
    toward = float64([0.6, 0.0, 0.8])
    kept = float64(sphere_js("clipPolygon", [[corners.tolist(), toward.tolist()]])[0])
    found = sum(spherical_area(kept[0], kept[i], kept[i + 1]) for i in range(1, len(kept) - 1))
    points = torch.randn(400000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    inside = points @ toward >= 0
    for i in range(3):
        inside &= points @ torch.linalg.cross(corners[i], corners[(i + 1) % 3]) >= 0
    assert float(found) == pytest.approx(4 * math.pi * float(inside.double().mean()), abs=0.04)


def test_opposite_corners_are_named_instead_of_a_turn_and_an_area_that_nothing_settles(sphere_js):  # RF-PT
    pairs = [[0, 0, 180, 0, 90, 0], [5, 5, 10, -90, 70, 90], [30, 20, 0, 0, -150, -20], OCTANT, [0.0] * 6]
    assert sphere_js("opposite", [[corners] for corners in pairs]) == ["A and B", "B and C", "C and A", "", ""]
    assert all(map(math.isfinite, sphere_js("holonomy", [[corners] for corners in pairs])))
    (said,) = sphere_js("describe", [[{"corners": pairs[0], "progress": 3}]])
    assert "A and B are opposite points" in said


def test_a_corner_on_the_far_side_is_moved_there(on_sphere):
    on_sphere.set(turn=-145.0, tilt=-10.0)
    on_sphere.drag(on_sphere.page.locator("#one .geo-reach").nth(0), 20, 0)
    longitude, latitude = on_sphere.values()["corners"][:2]
    assert -30 < longitude < -1  # to the right, on the far side, is westward
    assert abs(latitude) < 6


@pytest.mark.parametrize(
    "corners", [OCTANT, [45, 0, 0, 0, 45, 90], [-70.0, 10.0, 70.0, -20.0, 150.0, 50.0], [10, -20, 80, 15, 30, 55]]
)
def test_the_sentence_says_the_turn_and_the_area_which_may_be_a_full_turn_apart(on_sphere, sphere_js, corners):
    (inside,), (turned,) = sphere_js("area", [[corners]]), sphere_js("holonomy", [[corners]])
    on_sphere.set(corners=corners)
    said = numbers_in(on_sphere.text(".geo-say"))
    degrees = [math.degrees(turned), math.degrees(inside)]
    assert said[:2] == pytest.approx(degrees, abs=0.051)
    assert said[-1] == pytest.approx(100 * abs(inside) / (4 * math.pi), abs=0.051)
    assert (360 in map(abs, said)) == (abs(inside) > math.pi)
    assert ("Clockwise" in on_sphere.text(".geo-note")) == (inside < 0)


# Plaquettes: the links and squares are geolib's connection, and sites change the gauge alone --------------------------

plaquettes_js = functions_of("plaquettes.js")
plaquettes_opened, on_plaquettes = place_of("Plaquettes")
both = pytest.mark.parametrize("group", ["plane", "space"])


def plaquettes_states(count, group):
    return states(count, links=(-180, 180, 12), sites=(-180, 180, 9), group=[group], part=["link 1"])


def about(degrees, axis):
    """The rotation by an angle about an axis of space, or of the plane."""
    angle = float64(degrees).deg2rad()
    return rotation_matrix(angle) if axis is None else cn.cayley_rotation((angle / 2).tan() * float64(axis))


def connection_of(state):
    """The same links in the library: before and after the change of gauge."""
    plane = state["group"] == "plane"
    axes = [None] * 3 if plane else [(0.0, 1.0, 0.0), (-1.0, 0.0, 0.0), (0.0, 0.0, 1.0)]
    right = torch.stack([about(a, axes[0]) for a in state["links"][:6]]).unflatten(0, (2, 3))
    up = torch.stack([about(a, axes[1]) for a in state["links"][6:]]).unflatten(0, (3, 2))
    change = torch.stack([about(a, axes[2]) for a in state["sites"]]).unflatten(0, (3, 3))
    plain = cn.Connection((right, up))
    return plain, cn.gauge_transform(plain, change)


def degrees_of(turn):
    """Degrees, with a sign in the plane."""
    if len(turn) == 2:
        return math.degrees(math.atan2(turn[1, 0], turn[0, 0]))
    return math.degrees(math.acos(max(-1.0, min(1.0, (float(turn.diagonal().sum()) - 1) / 2))))


@both
def test_links_are_those_of_the_turned_gauge_and_squares_and_rim_are_holonomies_in_any(plaquettes_js, group):  # RF-FLAT
    states = plaquettes_states(8, group)
    calls = [[state] for state in states]
    for state, links, found in zip(states, plaquettes_js("linkMatrices", calls), plaquettes_js("holonomies", calls)):
        plain, turned = connection_of(state)
        assert_close(float64(links), torch.cat([steps.flatten(0, 1) for steps in turned.steps]), rtol=0, atol=1e-6)
        ways = [*cn.plaquettes(plain).flatten(0, 1), cn.holonomy(plain, cn.rectangle((0, 0), (2, 2)))]
        assert [*found["squares"], found["rim"]] == pytest.approx([*map(degrees_of, ways)], abs=1e-4)
        left = (sum(found["squares"]) - found["rim"]) % 360
        assert (min(left, 360 - left) < 1e-6) == (group == "plane")  # a sum of squares in the plane alone


def test_a_dragged_link_changes_its_two_squares_and_a_dragged_site_changes_links_and_no_square(on_plaquettes):
    hands = on_plaquettes.page.locator("#one .geo-reach")
    words = lambda: on_plaquettes.page.locator("#one svg text").all_text_contents()  # noqa: E731
    on_plaquettes.drag(hands.nth(1), -21, -21)  # of link 2, from the middle left site
    values = on_plaquettes.values()
    assert values["part"] == "link 2"
    assert values["links"][1] == pytest.approx(90, abs=3)
    assert words() == [f"\u2212{values['links'][1]}°", f"{values['links'][1]}°", "0°", "0°"]

    links = [30.0] * 3 + [-70.0] * 3 + [20.0] * 6
    on_plaquettes.set(links=links)
    before, drawn = words(), on_plaquettes.drawing()
    on_plaquettes.drag(hands.nth(12 + 4), -16, -16)
    assert on_plaquettes.values()["sites"][4] == pytest.approx(90, abs=4)
    assert on_plaquettes.values()["links"] == links
    assert words() == before
    assert on_plaquettes.drawing() != drawn


def test_half_a_turn_has_no_sign_whatever_the_gauge(plaquettes_js):  # rounded, it comes out as -180 or as 180 degrees
    turns = [[90.0] + [0.0] * 5 + [-90.0] + [0.0] * 5, [-90.0] + [0.0] * 5 + [90.0] + [0.0] * 5]
    states = [state | {"links": turn} for state in plaquettes_states(40, "plane") for turn in turns]
    for found in plaquettes_js("holonomies", [[state] for state in states]):
        assert found["squares"][0] == pytest.approx(180)
