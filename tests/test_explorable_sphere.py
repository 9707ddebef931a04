"""Parallel transport on the sphere: two computations of one angle, both geolib's, and a globe that says it."""

from __future__ import annotations

import math
import random

import pytest
import torch
from explorable_kit import float64, functions_of, numbers_in, place_of
from torch.testing import assert_close

from geolib.manifolds import embed_spherical, holonomy_angle, parallel_transport, sphere_spherical, spherical_area

OCTANT = [0.0, 0.0, 90.0, 0.0, 45.0, 90.0]
call = functions_of("sphere.js")
opened, place = place_of("SphereTransport", progress=3)


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


def test_the_area_is_that_of_the_spherical_triangle(call):  # RF-PT
    triangles = random_corners(40)
    points = embed_spherical(torch.stack([coordinates(each) for each in triangles]))
    found = float64(call("area", [[each] for each in triangles]))
    assert_close(found, spherical_area(*points.unbind(1)), rtol=0, atol=1e-6)
    assert found.min() < -1 < 1 < found.max()


def test_the_angle_the_arrow_returns_with_is_the_holonomy_of_the_metric(call):  # RF-PT, RF-FLAT
    # On one half of the globe and away from the poles, where the chart of colatitude and longitude ends.
    triangles = random_corners(8, seed=2, longitude=60, latitude=50)
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


def test_the_clipped_triangle_has_the_points_that_are_in_it_and_on_that_half(call):
    # Its area by fans of triangles, against the share of random points inside the triangle and on the half.
    corners = float64([[0.9, 0.1, 0.3], [-0.5, 0.8, 0.2], [-0.4, -0.5, 0.8]])
    corners = corners / corners.norm(dim=-1, keepdim=True)
    toward = float64([0.6, 0.0, 0.8])
    kept = float64(call("clipPolygon", [[corners.tolist(), toward.tolist()]])[0])
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


def test_opposite_corners_are_named_instead_of_a_turn_and_an_area_that_nothing_settles(call):  # RF-PT
    pairs = [[0, 0, 180, 0, 90, 0], [5, 5, 10, -90, 70, 90], [30, 20, 0, 0, -150, -20], OCTANT, [0.0] * 6]
    assert call("opposite", [[corners] for corners in pairs]) == ["A and B", "B and C", "C and A", "", ""]
    assert all(map(math.isfinite, call("holonomy", [[corners] for corners in pairs])))
    (said,) = call("describe", [[{"corners": pairs[0], "progress": 3}]])
    assert "A and B are opposite points" in said


# In a browser --------------------------------------------------------------------------------------------------------


def test_a_corner_on_the_far_side_is_moved_there(place):
    place.set(turn=-145.0, tilt=-10.0)
    place.drag(place.page.locator("#one .geo-reach").nth(0), 20, 0)
    longitude, latitude = place.values()["corners"][:2]
    assert -30 < longitude < -1  # to the right, on the far side, is westward
    assert abs(latitude) < 6


@pytest.mark.parametrize(
    "corners", [OCTANT, [45, 0, 0, 0, 45, 90], [-70.0, 10.0, 70.0, -20.0, 150.0, 50.0], [10, -20, 80, 15, 30, 55]]
)
def test_the_sentence_says_the_turn_and_the_area_which_may_be_a_full_turn_apart(place, call, corners):
    (inside,), (turned,) = call("area", [[corners]]), call("holonomy", [[corners]])
    place.set(corners=corners)
    said = numbers_in(place.text(".geo-say"))
    degrees = [math.degrees(turned), math.degrees(inside)]
    assert said[:2] == pytest.approx(degrees, abs=0.051)
    assert said[-1] == pytest.approx(100 * abs(inside) / (4 * math.pi), abs=0.051)
    assert (360 in map(abs, said)) == (abs(inside) > math.pi)
    assert ("Clockwise" in place.text(".geo-note")) == (inside < 0)
