"""What explorables draw stands for numbers: hands, arcs, arrows and ellipses are read back from the picture.

A picture is read in its own pixels, then as numbers of the plane, complex ones, up being positive, and compared with
what it should say, computed here, over states drawn at random. Rounding to a tenth of a pixel is all that may differ.
"""

import cmath
import itertools
import math
import re
from dataclasses import dataclass

import numpy as np
import pytest
from explorable_kit import Place, float64, state_of, states
from scipy.linalg import expm
from scipy.spatial.transform import Rotation

from geolib.transport import general_preset

READ = """async ([states, parts]) => {
  const told = (node) => {
    const about = Object.fromEntries([...node.attributes].map(({ name, value }) => [name, value]));
    if (node.tagName !== "path" || !about.d) return { ...about, text: node.textContent, points: [] };
    const whole = node.getTotalLength();
    const points = Array.from({ length: 33 }, (_, i) => node.getPointAtLength((whole * i) / 32));
    return { ...about, text: "", points: points.map(({ x, y }) => [x, y]) };
  };
  const rows = [];
  for (const state of states) {
    Object.entries(state).forEach(([name, value]) => models.one.set(name, value));
    await settle();
    rows.push(Object.fromEntries(Object.entries(parts).map(([name, selector]) =>
      [name, [...document.querySelectorAll(`#one ${selector}`)].map(told)])));
  }
  return rows;
}"""


@pytest.fixture
def drawn(browser):
    """drawn(name, states, parts): for each state, (state, what the picture's parts, named selectors, are like)."""
    opened = []

    def read(name, states, **parts):
        place = Place(browser, name, state_of(name, **states[0]))
        opened.append(place)
        return list(zip(states, place.page.evaluate(READ, [states, parts])))

    yield read
    for place in opened:
        place.close()


def unit(degrees):
    """The point of the unit circle at an angle."""
    return cmath.exp(1j * math.radians(degrees))


@dataclass
class Plane:
    """The plane that a picture shows: its origin and its unit in pixels."""

    x: float
    y: float
    size: float

    @classmethod
    def of_ring(cls, ring, radius=1.0):
        """The plane in which a circle about the origin has a radius."""
        return cls(float(ring["cx"]), float(ring["cy"]), float(ring["r"]) / radius)

    def at(self, point):
        """A point of the picture as a number."""
        return complex(float(point[0]) - self.x, self.y - float(point[1])) / self.size

    def line(self, part):
        """Both ends of a line."""
        return self.at((part["x1"], part["y1"])), self.at((part["x2"], part["y2"]))

    def spot(self, part):
        """The middle of a circle."""
        return self.at((part["cx"], part["cy"]))

    def strokes(self, part):
        """The corners of each stroke of a path."""
        each = [re.findall(r"-?[\d.]+", stroke) for stroke in part["d"].split("M")[1:]]
        return [[self.at(pair) for pair in zip(n[0::2], n[1::2])] for n in each]

    def arrows(self, part):
        """(start, tip) of each arrow of a path, whose heads point where the arrows do."""
        strokes = self.strokes(part)
        for (start, tip), (left, top, right) in zip(strokes[0::2], strokes[1::2], strict=True):
            assert top == tip
            back = (start - tip) / abs(start - tip)
            one, other = ((barb - tip) / back * self.size for barb in (left, right))  # in pixels, seen along the shaft
            assert abs(one - other.conjugate()) < 0.6
        return [tuple(stroke) for stroke in strokes[0::2]]

    def samples(self, part):
        """Points along a path, evenly."""
        return [self.at(point) for point in part["points"]]


SCREEN = Plane(0, 0, 1)


def swept(points):
    """By how many degrees points go round the origin, whole turns counted."""
    return math.degrees(sum(cmath.phase(b / a) for a, b in itertools.pairwise(points)))


def wrapped(degrees):
    """An angle between half a turn back and half a turn."""
    return degrees - 360 * round(degrees / 360)


def close(found, expected, far=0.02):
    """Two points of the plane are one."""
    assert abs(found - expected) < far, f"{found:.3f} is drawn for {expected:.3f}"


def is_arc(points, radius, start, turn):
    """Points go along a circle about the origin, from an angle on by a turn, in degrees."""
    assert [abs(point) for point in points] == pytest.approx([radius] * len(points), rel=0.02)
    close(points[0] / radius, unit(start), 0.03)
    assert swept(points) == pytest.approx(turn, abs=1.5)


def test_hands_and_openings_of_the_clock_are_its_angles(drawn):  # LR-A2
    parts = {"queries": ".hand.q", "keys": ".hand.k", "openings": ".opening"}
    shown = states(4, 1, query=(0, 60), key=(0, 60), shift=(0, 60), base=[10, 77, 1e3, 1e4], pairs=range(2, 8))
    for state, found in drawn("RopeClock", shown, **parts):
        thetas = [math.degrees(state["base"] ** (-i / state["pairs"])) for i in range(state["pairs"])]
        for theta, query, key, opening in zip(thetas, *(found[name] for name in parts), strict=True):
            a, b = ((state[name] + state["shift"]) * theta for name in ("query", "key"))
            radius = abs(SCREEN.line(query)[1])
            for hand, angle in ((query, a), (key, b)):
                close(SCREEN.line(hand)[1] / radius, unit(angle))
            is_arc(SCREEN.samples(opening), radius, a, wrapped(b - a))


def test_the_arc_of_the_wound_clock_leads_from_ropes_hand_to_the_other(drawn):  # CS-beta
    parts = {"arc": ".between", "past": ".past", "rope": ".line", "hand": ".geo-vector"}
    parts = {name: f"svg.clock {part}" for name, part in parts.items()}
    for state, found in drawn("GateCurves", states(4, 2, beta=(0, 2, 32), theta=(3, 30), token=range(2, 13)), **parts):
        rope, wound = state["token"] * state["theta"], sum(state["beta"][: state["token"]]) * state["theta"]
        (_, end), ((_, tip),) = SCREEN.strokes(found["rope"][0])[0], SCREEN.arrows(found["hand"][0])
        close(end / 68, unit(rope))
        close(tip / 68, unit(wound))
        is_arc(SCREEN.samples(found["arc"][0]), 40, rope, wrapped(wound - rope))
        for i, (_, end) in enumerate(SCREEN.strokes(found["past"][0]), start=1):
            close(end / 68, unit(sum(state["beta"][:i]) * state["theta"]), 0.03)
        assert i == state["token"] - 1


def test_alibis_line_ends_where_the_row_of_the_gates_does(drawn):  # CS-A1
    parts = {"line": ".effect svg:not(.clock) .line", "row": ".effect svg:not(.clock) .geo-line.geo-warm"}
    for _, found in drawn("GateCurves", states(4, 3, gamma=(0.3, 1, 32), token=range(3, 33)), **parts):
        (line,), (row,) = (SCREEN.strokes(found[name][0]) for name in ("line", "row"))
        for end in (0, -1):
            close(line[end], row[end], 0.3)


def test_mirrors_stand_at_their_angles_and_the_figure_turns_as_it_is_swept(drawn):  # RF-15, RF-REFL
    kinds = ("ring", "mirror", "sweep", "start", "once", "twice", "turned")
    parts = {kind: f".{kind}" for kind in kinds} | {"word": "svg text.geo-join.second"}
    shown = states(4, 4, n=(0, 60), m=(70, 140), shift=(0, 180), mirrors=2, distance=(0.3, 0.8), angle=(-180, 180))
    for state, found in drawn("TwoMirrors", shown, **parts):
        plane = Plane.of_ring(found["ring"][0], state["distance"])
        ats = [state[name] + state["shift"] for name in ("n", "m")]
        for at, mirror in zip(ats, found["mirror"], strict=True):
            for end, sign in zip(plane.line(mirror), (1, -1)):
                close(end / abs(end), sign * unit(at))
        turn = 2 * (state["m"] - state["n"])
        start, once, twice, turned = (plane.strokes(found[kind][0])[0] for kind in kinds[3:])
        for a, b, *both in zip(start, once, twice, turned, strict=True):
            close(b, unit(2 * ats[0]) * a.conjugate())
            for c in both:
                close(c, unit(turn) * a)
        if abs(turn) > 6:  # the head takes four degrees
            arc, _ = plane.strokes(found["sweep"][0])
            is_arc(arc, state["distance"], state["angle"], turn - math.copysign(4, turn))
        (word,) = found["word"]  # the number stands inside its arc
        inside = (state["distance"] - 0.17) * unit(state["angle"] + turn / 2)
        close(plane.at((word["x"], float(word["y"]) - 5)), inside, 0.03)


def on_sphere(longitude, latitude):
    """The point of the unit sphere at two angles in degrees."""
    a, b = math.radians(longitude), math.radians(latitude)
    return np.array([math.cos(b) * math.cos(a), math.cos(b) * math.sin(a), math.sin(b)])


def eye(state):
    """From a place in space to where it is seen, by one who stands over a longitude and a latitude."""
    east, north = on_sphere(state["turn"] + 90, 0), on_sphere(state["turn"], state["tilt"] + 90)
    return lambda p: complex(p @ east, p @ north)


def test_the_globe_is_seen_from_outside_and_the_opening_lies_between_the_two_arrows(drawn):  # RF-PT
    now = ".geo-vector.now"
    parts = {"ball": ".ball", "dots": ".geo-dot", "opening": ".opening", "first": f"{now}.geo-text", "last": now}
    seen = states(4, 5, turn=(-180, 180), tilt=(-50, 50), progress=3, corners=(-1, 1, 6))
    for state in seen:  # in front
        middle, wide = [state["turn"], state["tilt"]] * 3, [60, 38] * 3
        state["corners"] = [wrapped(a + b * share) for a, b, share in zip(middle, wide, state["corners"])]
    for state, found in drawn("SphereTransport", seen, **parts):
        plane, see = Plane.of_ring(found["ball"][0]), eye(state)
        a, b, c = points = [on_sphere(*state["corners"][i : i + 2]) for i in (0, 2, 4)]
        for dot, p in zip(found["dots"], points, strict=True):
            close(plane.spot(dot), see(p))
        assert a @ on_sphere(state["turn"], state["tilt"]) > 0, "the corner stands in front"
        turned = 2 * math.atan2(a @ np.cross(b, c), 1 + a @ b + b @ c + c @ a)
        home, *fan = plane.strokes(found["opening"][0])[0]
        spokes = [point - home for point in fan]
        for spoke, arrow in ((spokes[0], found["first"][0]), (spokes[-1], found["last"][1])):
            ((start, tip),) = plane.arrows(arrow)
            assert abs(cmath.phase(spoke / (tip - start))) < 0.06
        if abs(turned) > 0.2:
            assert swept(spokes) * turned > 0


LOOK = {"turn": (-180, 180), "tilt": (-60, 60)}  # where one stands


def generator(x, y, z):
    """The skew matrix with these entries above its diagonal, row by row."""
    return np.array([[0, x, y], [-x, 0, z], [-y, -z, 0]])


def made(steps, t):
    """The rotation that a share of some steps, one after the other, has made."""
    R = np.eye(3)
    for i, step in enumerate(steps):
        R = expm(min(max(len(steps) * t - i, 0), 1) * step) @ R
    return R


def box_corners(R, half):
    """The eight corners of a turned box."""
    return [R @ (np.array(signs) * half) for signs in itertools.product((1, -1), repeat=3)]


def test_the_box_its_corners_way_and_its_axis_are_those_of_the_exponentials(drawn):  # LR-A1, LR-1
    half = np.array([0.72, 0.45, 0.26])
    motions = "A", "A", "B", "orders", "square"
    shown = states(5, 13, first=(-1.5, 1.5, 3), second=(-1.5, 1.5, 3), t=(0.3, 1), e=(0.4, 1), **LOOK)
    shown = [state | {"motion": motion} for state, motion in zip(shown, motions)]
    parts = {"scene": "", "face": ".face", "start": ".geo-dot.geo-soft", "mark": ".geo-dot.geo-text"}
    parts |= {"legs": "path.geo-line:not(.geo-text, .gap)", "axis": "path.geo-line.geo-text", "word": ".name.geo-text"}
    for state, found in drawn("SkewExponential", shown, **{key: f".scene {of}".strip() for key, of in parts.items()}):
        A, B = generator(*state["first"]), generator(*state["second"])
        plans = {"A": [[A]], "B": [[B]], "orders": [[A, B], [B, A]]}
        plans["square"] = [[state["e"] * step for step in (A, B, -A, -B)]]
        see = eye(state)
        for i, steps in enumerate(plans[state["motion"]]):
            width = float(found["scene"][i]["viewBox"].split()[2])
            plane, R = Plane(width / 2, width / 2.2, width / 2.55), made(steps, state["t"])
            close(plane.spot(found["start"][i]), see(half))
            close(plane.spot(found["mark"][i]), see(R @ half))
            corners = [see(p) for p in box_corners(R, half)]
            for face in found["face"][3 * i : 3 * i + 3]:
                for point in [point for stroke in plane.strokes(face) for point in stroke]:
                    assert min(abs(point - corner) for corner in corners) < 0.02
            legs = [plane.strokes(leg)[0] for leg in found["legs"][4 * i : 4 * i + 4] if leg["d"]]
            for j, leg in enumerate(legs):
                ends = [(j + share) / len(steps) for share in (0, 0.5, 1)]
                if ends[2] <= state["t"]:
                    for point, t in zip((leg[0], leg[12], leg[-1]), ends):
                        close(point, see(made(steps, t) @ half))
            close(legs[-1][-1], see(R @ half))
        if state is shown[0]:  # as it opens, the axis is asked for
            assert not any(ray["d"] for ray in found["axis"])
        elif len(steps) == 1:
            axis = Rotation.from_matrix(expm(steps[0])).as_rotvec()
            axis /= np.linalg.norm(axis)
            one, other = (plane.strokes(ray)[0][1] for ray in found["axis"])
            close(one, -other)
            close(one * math.copysign(1, (one / see(axis)).real), 1.05 * see(axis))
            (word,) = found["word"]
            close(plane.at((word["x"], float(word["y"]) - 5)), 1.17 * see(axis))


def test_both_dice_are_turned_in_their_orders_and_show_the_right_dots(drawn):  # LR-1
    parts = {"faces": ".dice svg .face", "dots": ".dice svg .dots"}
    shown = states(4, 14, size=(20, 120), between=(10, 90), t=(0.1, 1), **LOOK)
    for state, found in drawn("TwoOrders", shown, **parts):
        lean, see, plane = math.radians(state["between"]), eye(state), Plane(0, -8, 92)
        axes = math.radians(state["size"]) * np.array([[0, 0, 1], [math.sin(lean), 0, math.cos(lean)]])
        steps = [np.cross(np.eye(3), -axis).T for axis in axes]
        for die, order in enumerate((steps, steps[::-1])):
            R, ahead = made(order, state["t"]), {}
            for axis, side in itertools.product(range(3), (1, -1)):
                if R[:, axis] @ on_sphere(state["turn"], state["tilt"]) * side > 1e-6:
                    ahead[axis + 1 if side > 0 else 6 - axis] = see(0.58 * side * R[:, axis])
            faces, dots = (found[name][3 * die : 3 * die + 3] for name in ("faces", "dots"))
            corners = [see(p) for p in box_corners(R, 0.58)]
            for face, spots in zip(faces, dots, strict=True):
                (outline,) = plane.strokes(face)
                assert all(min(abs(point - corner) for corner in corners) < 0.02 for point in outline)
                close(np.mean(outline), ahead[spots["d"].count("M")])


def lengths_squared(points, metric):
    """Those of points of the plane in a metric."""
    x = np.array([[point.real, point.imag] for point in points])
    return np.einsum("pi,ij,pj->p", x, metric, x)


METRIC = {"s1": (0.85, 1.18), "s2": (0.85, 1.18), "key_angle": (-180, 180), "query_angle": (-180, 180)}
METRIC |= {"n": (1, 7), "m": (1, 7), "theta": (-45, 45)}
FOCUS = {"along": (0.7, 2), "across": (0.7, 2), "row": range(2, 6), "column": range(2, 6), "angle": (-80, 80)}
FOCUS |= {"sigma": (1, 2)}


def test_ellipses_and_frames_of_the_metric_are_its_unit_vectors(drawn):  # RF-A1, RF-A2, RF-A5
    kinds = {"ring": "euclid", "shape": "shape", "axes": "axes", "k": "geo-vector.geo-cool", "q": "geo-vector.geo-warm"}
    parts = {"line": ".line .shape:not(.here)"}
    for i in range(3):
        parts |= {f"{name} {i}": f".panels > :nth-child({i + 1}) svg .{kind}" for name, kind in kinds.items()}
    for state, found in drawn("GeneralMetric", states(4, 6, **METRIC), **parts):
        logs = float64([state["s1"], state["s2"]]).log()
        preset = general_preset(logs, float64([math.radians(state["theta"])]))
        tokens = float64([*range(9), state["n"], 0, state["m"]])
        metrics, frames = preset.metrics(tokens).numpy(), preset.frames(tokens).numpy()

        middles = [np.mean(each["points"][:-1], 0) for each in found["line"]]
        gap = middles[1][0] - middles[0][0]
        for metric, each, middle in zip(metrics, found["line"], middles):
            corners = Plane(*middle, 0.3 * gap).strokes(each)[0]
            far = [point - np.mean(corners[:-1]) for point in corners]
            assert lengths_squared(far, metric) == pytest.approx(1, abs=0.15)  # small pictures

        homes = {"k": (frames[9], unit(state["key_angle"])), "q": (frames[11], unit(state["query_angle"]))}
        for i, (metric, frame) in enumerate(zip(metrics[9:], frames[9:])):
            plane = Plane.of_ring(found[f"ring {i}"][0])
            assert lengths_squared(plane.strokes(found[f"shape {i}"][0])[0], metric) == pytest.approx(1, abs=0.06)
            for column, (_, tip) in zip(frame.T, plane.arrows(found[f"axes {i}"][0]), strict=True):
                close(tip, complex(*column), 0.03)
            for name, (home, vector) in homes.items():
                there = frame @ np.linalg.inv(home) @ [vector.real, vector.imag]
                close(plane.strokes(found[f"{name} {i}"][0])[0][1], complex(*there), 0.03)


def test_the_ellipse_of_the_focus_is_where_the_gaussian_is_e_to_minus_one_half(drawn):  # RF-21
    for state, found in drawn("LocalityFocus", states(4, 7, **FOCUS), gauss=".gauss", here="rect.here", arms=".arm"):
        here = found["here"][0]
        cell = float(here["width"]) + 2
        x, y = (float(here[axis]) - 1 + cell / 2 for axis in "xy")
        assert (x / cell, y / cell) == pytest.approx((state["column"] + 0.5, state["row"] + 0.5))
        plane, turned = Plane(x, y, cell), unit(state["angle"])
        for gauss in found["gauss"]:
            for point in plane.strokes(gauss)[0]:
                own = point / turned
                size = (own.real / state["along"]) ** 2 + (own.imag / state["across"]) ** 2
                assert size == pytest.approx(state["sigma"] ** 2, rel=0.03)
        for axis, arm in zip((turned, 1j * turned), found["arms"], strict=True):
            end = plane.line(arm)[1]
            assert abs((end / axis).imag) < 0.02 * abs(end)


def test_kernels_are_drawn_at_their_distance_in_every_direction(drawn):  # CS-k
    parts = {"rim": "circle.rim", "power": ".geo-line.geo-warm", "exp": ".geo-line.exp", "key": ".geo-vector.geo-cool"}
    dots = {"full": "circle.geo-warm.geo-dot", "ring": "circle.ring"}
    shown = states(4, 8, power=range(2, 9, 2), beta=(0, 6), angle=(-180, 180))
    for state, found in drawn("EvenPowers", shown, **parts, **dots):
        plane = Plane.of_ring(found["rim"][0])
        direction, p, beta = unit(state["angle"]), state["power"], state["beta"]
        for name, dot, kernel in (
            ("power", "full", lambda cos, p=p: cos**p),
            ("exp", "ring", lambda cos, beta=beta: math.exp(beta * (cos - 1))),
        ):
            for point in plane.strokes(found[name][0])[0]:
                if abs(point) > 0.05:
                    assert abs(point) == pytest.approx(kernel(point.real / abs(point)), abs=0.02)
            close(plane.spot(found[dot][0]), kernel(direction.real) * direction)
        ((_, tip),) = plane.arrows(found["key"][0])
        close(tip, direction)


def test_strokes_of_the_state_join_and_its_turns_go_back(drawn):  # CS-1
    strokes = {tone: f".past.geo-{tone}" for tone in ("soft", "join", "cool")}
    parts = {"axes": ".plane .geo-axis", "dot": ".plane circle.geo-text", "powers": ".power"}
    shown = states(4, 9, example="same", gamma=(0.7, 1), turn=(-90, 90), token=6.0)
    for state, found in drawn("ConformalState", shown, **strokes, **parts):
        height, across = map(float, re.match(r"M0 ([\d.]+)H([\d.]+)", found["axes"][0]["d"]).groups())
        plane, step = Plane(across / 2, height, 1), state["gamma"] * unit(-state["turn"])
        shrinks, turns, pushes = (plane.strokes(found[tone][0]) for tone in strokes)
        scale = abs(pushes[0][1] - pushes[0][0])  # the first push has length 1
        now = 0
        for shrink, turn, push in zip(shrinks, turns, pushes, strict=True):
            ways = now, state["gamma"] * now, step * now, step * now + 1
            for stroke, ends in zip((shrink, turn, push), itertools.pairwise(ways)):
                close(stroke[0] / scale, ends[0])
                close(stroke[-1] / scale, ends[1])
            if abs(now) > 0.3:
                is_arc(turn, abs(ways[1]) * scale, math.degrees(cmath.phase(now)), -state["turn"])
            now = ways[-1]
        close(plane.spot(found["dot"][0]) / scale, step * now + 1)
        for power, dot in enumerate(found["powers"]):
            close(SCREEN.spot(dot) / 56, step**power)


def test_hands_of_links_show_their_turns_and_squares_what_goes_round_them(drawn):  # RF-FLAT
    parts = {"links": ".hand.geo-cool", "sites": ".hand.geo-warm", "arrows": ".link"}
    parts |= {"squares": "rect.square", "words": "svg text"}
    shown = states(4, 10, links=(-170, 170, 12), sites=lambda s: [s.uniform(-170, 170)] * 9)
    for state, found in drawn("Plaquettes", shown, **parts):
        corner, beside = (SCREEN.line(site)[0] for site in found["sites"][:2])  # the site at (0, 0) and a neighbour
        plane, turns = Plane(corner.real, -corner.imag, abs(beside - corner)), {}
        for name in ("links", "sites"):
            for hand, turn in zip(found[name], state[name], strict=True):
                middle, end = plane.line(hand)
                close((end - middle) / abs(end - middle), unit(turn))
        for arrow, turn in zip(found["arrows"], state["links"], strict=True):
            ((start, tip),) = plane.arrows(arrow)
            turns[round(start.real), round(start.imag), "up" if (tip - start).imag > 0.5 else "right"] = turn
        for square, word in zip(found["squares"], found["words"], strict=True):
            low = plane.at((square["x"], float(square["y"]) + float(square["height"])))
            i, j = round(low.real), round(low.imag)
            around = turns[i, j, "right"] + turns[i + 1, j, "up"] - turns[i, j + 1, "right"] - turns[i, j, "up"]
            told = float(word["text"].replace("−", "-").strip("°"))
            assert abs(wrapped(told - around)) < 0.6


def test_tokens_on_the_circle_pull_the_mean_with_their_weights(drawn):  # RF-20
    parts = {"ring": "circle.ring", "dots": "circle.geo-dot.geo-cool", "pulls": "line.pull"}
    parts |= {"mean": "circle.geo-dot.geo-value", "query": "path.geo-vector"}
    shown = states(4, 11, tokens=(-180, 180, 5), query=(-180, 180), temperature=(0.2, 1))
    for state, found in drawn("AttentionCircle", shown, **parts):
        plane = Plane.of_ring(found["ring"][0])
        points = [unit(token) for token in state["tokens"]]
        shares = np.exp([(point / unit(state["query"])).real / state["temperature"] for point in points])
        weights = shares / shares.sum()
        mean = complex(weights @ points)
        close(plane.spot(found["mean"][0]), mean)
        for point, weight, dot, pull in zip(points, weights, found["dots"], found["pulls"], strict=True):
            close(plane.spot(dot), point)
            for end, expected in zip(plane.line(pull), (point, mean)):
                close(end, expected)
            assert float(pull["stroke-width"]) == pytest.approx(9 * weight, abs=0.01)
        end = plane.strokes(found["query"][0])[0][1]
        close(end / abs(end), unit(state["query"]))


def test_the_patch_is_marked_on_every_map_and_the_shift_leads_down_and_to_the_right(drawn):
    parts = {"maps": ".map svg", "dot": ".map circle.geo-dot", "rings": "circle.spot", "ways": ".way"}
    for state, found in drawn("LiereGrid", states(4, 12, row=range(15), column=range(15), shift=range(10)), **parts):
        cell, here = float(found["maps"][0]["viewBox"].split()[2]) / 15, [state["column"] + 0.5, state["row"] + 0.5]
        for mark in (*found["dot"], *found["rings"]):
            close(SCREEN.spot(mark) / cell, complex(here[0], -here[1]))
        assert len(found["rings"]) == 2
        far = min(state["shift"], 15 - 2 / cell - max(here))
        ways = [SCREEN.arrows(way) for way in found["ways"] if way["d"]]
        assert len(ways) == (2 if far * cell > 6 else 0)
        for ((start, tip),) in ways:
            close(start / cell, complex(here[0], -here[1]))
            close((tip - start) / cell, far * (1 - 1j))


def test_maps_are_warm_where_numbers_grow_and_cool_where_they_shrink(browser):
    place = Place(browser, "ConformalScale", state_of("ConformalScale", view="scores", law="free", w=0.3))
    read = """() => {
      const [canvas] = document.querySelectorAll("#one .scores canvas");
      const copy = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
      copy.drawImage(canvas, 1 - canvas.width, 1 - canvas.height);
      const pixel = copy.getImageData(0, 0, 1, 1).data;
      const tone = (name) => getComputedStyle(document.querySelector("#one .geo")).getPropertyValue(name)
        .match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));
      return { pixel: [...pixel].slice(0, 3), warm: tone("--query"), cool: tone("--key") };
    }"""
    for w, tone, other in ((0.3, "warm", "cool"), (-0.3, "cool", "warm")):
        place.set(w=w)
        found = {name: np.array(values) for name, values in place.page.evaluate(read).items()}
        near, far = (np.linalg.norm(found["pixel"] - found[name]) for name in (tone, other))
        assert near < far
    place.close()


# Words and legends say what is drawn ---------------------------------------------------------------------------------

COLOURS = """(where) => {
  const geo = getComputedStyle(document.querySelector("#one .geo"));
  const rgb = (text) => { const one = new OffscreenCanvas(1, 1).getContext("2d"); one.fillStyle = text;
    one.fillRect(0, 0, 1, 1); return [...one.getImageData(0, 0, 1, 1).data].slice(0, 3).join(); };
  const names = Object.fromEntries(["key", "query"].map((name) => [rgb(geo.getPropertyValue(`--${name}`)), name]));
  return [...document.querySelectorAll(`#one ${where}`)].map((bar) => (getComputedStyle(bar).backgroundImage
    .match(/(rgba?|color)\\([^)]*\\)/g) ?? []).map((text) => names[rgb(text)] ?? "ground"));
}"""


def test_legends_go_from_what_is_least_to_what_is_most(browser):
    """In maps the key's colour is less, the query's more (see the test of maps)."""
    for name, values, bars in (
        ("ConformalScale", {"view": "scores"}, [["key", "ground"], ["ground", "query"]]),
        ("LiereGrid", {}, [["key", "ground", "query"]]),
    ):
        place = Place(browser, name, state_of(name, **values))
        assert place.page.evaluate(COLOURS, ".geo-note .bar") == bars
        place.close()
