"""Explorables of scores: attention on a circle, metrics and their frames, scales, focusing, even powers."""

import math
import random
import re
from functools import partial

import pytest
import torch
from explorable_kit import float64, functions_of, numbers_in, place_of, states
from torch.testing import assert_close

from geolib import sympow
from geolib.conformal import SCALE_LAWS, free_law
from geolib.encodings import RiemannFormer, RiemannFormerRelative
from geolib.locality import focused_attention, focused_attention_by_lse, fused_focused_attention, log_attenuation
from geolib.transport import general_preset, rotation_preset, squared_length, transports

# Attention on a circle: its numbers are geolib's, and its words keep clear of its dots --------------------------------

circle_js = functions_of("circle.js")
circle_opened, on_circle = place_of("AttentionCircle", query=0, tokens=[90, 180])


def test_winners_are_all_tokens_with_the_largest_weight(circle_js):
    found = circle_js("winners", [[[0.2, 0.5, 0.3]], [[0.4, 0.2, 0.4]]])
    assert found == [{"top": 0.5, "who": [2]}, {"top": 0.4, "who": [1, 3]}]


def test_the_table_shows_the_weights_and_grows_with_the_tokens(on_circle):
    shown = lambda: [float(text) for text in on_circle.page.locator("#one .weight").all_text_contents()]  # noqa: E731
    assert shown() == pytest.approx([1 / (1 + math.exp(-2)), 1 / (1 + math.exp(2))], abs=1e-3)
    for name, count in (("eight around", 8), ("two opposite", 2)):
        on_circle.page.get_by_role("button", name=name).click()
        on_circle.settle()
        assert len(shown()) == count
        assert sum(shown()) == pytest.approx(1, abs=5e-3)


# The general metric: its numbers are geolib's, and its three panels say one score -------------------------------------

metric_js = functions_of("metric.js")
metric_opened, on_metric = place_of("GeneralMetric")
KINDS = {"s1": (0.8, 1.2), "s2": (0.8, 1.2), "theta": (-45, 45), "n": (0, 8), "m": (0, 8)}
metric_states = partial(states, **KINDS, key_angle=(-180, 180), query_angle=(-180, 180))


def log_scales_and_frequency(s):
    return float64([s["s1"], s["s2"]]).log(), float64([math.radians(s["theta"])])


def preset_of(s):
    return general_preset(*log_scales_and_frequency(s))


def key_and_query(s):
    angles = float64([s["key_angle"], s["query_angle"]]).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], -1)


def test_lengths_and_scores_are_the_presets_in_all_three_places(metric_js):  # RF-A4, RF-A5, RF-1
    states = metric_states(30, seed=2)
    for s, found in zip(states, metric_js("places", [[s] for s in states])):
        positions, vectors = float64([s["n"], s["m"]]), key_and_query(s)
        lengths = squared_length(vectors, preset_of(s).metrics(positions)).sqrt().tolist()
        score = preset_of(s).literal_scores(vectors, vectors, positions)[1, 0].item()
        for place in ("n", "reference", "m"):
            measured = [found[place][name] for name in ("keyLength", "queryLength", "score")]
            assert measured == pytest.approx([*lengths, score], abs=1e-6)
        pulled = preset_of(s).pull_back(vectors, positions)
        assert_close(float64([found["reference"][name] for name in "kq"]), pulled, rtol=0, atol=1e-6)
        assert_close(float64([found["n"]["k"], found["m"]["q"]]), vectors, rtol=0, atol=1e-6)


def test_the_three_panels_say_the_same_lengths_and_the_same_score(on_metric):
    (state,) = metric_states(1, seed=5)
    on_metric.set(**state)
    assert len(set(on_metric.page.locator("#one .panels p").all_text_contents())) == 1
    score = preset_of(state).scores(*([key_and_query(state)] * 2), float64([state["n"], state["m"]]))[1, 0].item()
    plain = math.cos(math.radians(state["key_angle"] - state["query_angle"]))
    assert numbers_in(on_metric.text(".geo-say")) == pytest.approx([score] * 3 + [plain], abs=0.0051)


# Three spaces: metric, frames, arrival and score are geolib's, and the picture shows what the numbers say -------------

spaces_opened, on_spaces = place_of("ThreeSpaces")
KINDS_of_spaces = {"query": (0, 8), "key": (0, 8), "scale": (0.7, 1.3), "angle": (-1.5, 1.5)}
KINDS_of_spaces |= dict.fromkeys(("key_x", "key_y", "query_x", "query_y"), (-1.25, 1.25))
spaces_states = partial(states, **KINDS_of_spaces)


def in_spaces(s):
    """The library's preset, the positions of query and key, and their vectors."""
    preset = rotation_preset(float64(s["scale"]).log(), float64([s["angle"]]))
    vectors = float64([[s["query_x"], s["query_y"]], [s["key_x"], s["key_y"]]])
    return preset, float64([s["query"], s["key"]]), vectors


def circles(on_spaces, kind):
    """Middle and radius of the three circles of a kind, from left to right: query's, reference, key's."""
    found = on_spaces.page.locator(f"#one circle.{kind}")
    return [[float(each.get_attribute(name)) for name in ("cx", "cy", "r")] for each in found.all()]


def tips(on_spaces, tone):
    """Where the shafts of a tone end, as numbers of their space, from left to right."""
    ends = []
    for each in on_spaces.page.locator(f"#one svg path.geo-vector.{tone}").all():
        line = re.match(r"M(\S+) (\S+)L(\S+) (\S+)$", each.get_attribute("d"))
        if line:
            x0, y0, x1, y1 = map(float, line.groups())
            unit = next(r for cx, cy, r in circles(on_spaces, "plain") if abs(cx - x0) < 0.2 and abs(cy - y0) < 0.2)
            ends.append([(x1 - x0) / unit, (y0 - y1) / unit])
    return float64(ends)


@pytest.mark.parametrize("width", [760, 360])
def test_the_picture_shows_rulers_frames_and_arrows_of_the_three_spaces_and_the_sentences_their_numbers(
    on_spaces, width
):
    on_spaces.page.set_viewport_size({"width": width, "height": 1400})
    for s in spaces_states(3, seed=6):
        on_spaces.set(**s)
        preset, positions, both = in_spaces(s)
        (q, k), middle = both, preset.pull_back(both, positions)
        arrived = transports(preset.frames(positions))[0, 1] @ k  # from the key's space to the query's
        unit = circles(on_spaces, "plain")[0][2]
        wanted = [unit * s["scale"] ** (-s["query"] / 2), unit, unit * s["scale"] ** (-s["key"] / 2)]
        assert [r for _, _, r in circles(on_spaces, "ball")] == pytest.approx(wanted, abs=0.15)
        near = {"rtol": 0, "atol": 0.3 / unit}
        assert_close(tips(on_spaces, "geo-cool"), torch.stack([arrived, middle[1], k]), **near)
        assert_close(tips(on_spaces, "geo-warm"), torch.stack([q, middle[0]]), **near)
        # The first axis of each frame ends on the ruler's circle, in the direction of T e1.
        frames = [each.get_attribute("d") for each in on_spaces.page.locator("#one .frame").all()]
        drawn = float64([[float(x) for x in re.findall(r"[-\d.]+", each)[:4]] for each in frames])
        ends = torch.stack([drawn[:, 2] - drawn[:, 0], drawn[:, 1] - drawn[:, 3]], -1) / unit
        axes = torch.cat([preset.frames(positions), torch.eye(2)[None].double()])[[0, 2, 1], :, 0]
        assert_close(ends, axes, **near)
        # All words stand inside, and the picture's own pixels are the screen's.
        outside = """() => { const all = document.querySelector("#one svg").getBoundingClientRect();
          return [...document.querySelectorAll("#one svg text")].map((e) => e.getBoundingClientRect())
            .filter((b) => b.left < all.left - 1 || b.right > all.right + 1 || b.bottom > all.bottom + 1).length; }"""
        assert on_spaces.page.evaluate(outside) == 0
        picture = on_spaces.page.locator("#one svg")
        assert numbers_in(picture.get_attribute("viewBox"))[2] == pytest.approx(picture.bounding_box()["width"], abs=1)
        score, length = map(numbers_in, on_spaces.page.locator("#one .geo-say").all_text_contents())
        expected = preset.literal_scores(both, both, positions)[0, 1].item()
        assert score == pytest.approx([expected, expected, float(q @ k)], abs=0.0051)
        own = squared_length(k, preset.metrics(positions)[1]).sqrt().item()
        assert length == pytest.approx([own, own, k.norm().item(), arrived.norm().item()], abs=0.0051)
    on_spaces.set(key_x=0.0, key_y=0.0)  # without length there is no arrow
    assert len(tips(on_spaces, "geo-cool")) == 0


# The conformal scale: its numbers are geolib's, and its pictures have their lengths -----------------------------------

conformal_js = functions_of("conformal.js")
conformal_opened, on_conformal = place_of("ConformalScale")


def conformal_states(count, seed=0):
    draw = random.Random(seed)
    states = []
    for i in range(count):
        law, tokens = ("bounded", "free", "slow")[i % 3], draw.randint(2, 32)
        w = draw.uniform(-0.3, 0.3) if law == "free" else draw.uniform(-1, 6)
        alpha, query = 10 ** draw.uniform(-3, 1), draw.randrange(tokens)
        states.append({"law": law, "w": w, "alpha": alpha, "tokens": tokens, "query": query})
    return states


def law_of(state):
    return SCALE_LAWS[state["law"]](**({} if state["law"] == "free" else {"alpha": state["alpha"]}))


def log_scale_and_exponents(state):
    law = law_of(state)
    return law.log_scale(float64(state["w"])), law.exponent(torch.arange(state["tokens"], dtype=torch.float64))


def test_three_laws_make_the_scale_of_w_which_is_found_again(conformal_js):  # RF-6a
    states, draw = conformal_states(30), random.Random(1)
    for s, found in zip(states, conformal_js("logScale", [[s] for s in states])):
        assert found == pytest.approx(float(law_of(s).log_scale(float64(s["w"]))), abs=1e-6)
    scales = [draw.uniform(0.01, 0.99) for _ in states]
    found = conformal_js("rawOf", [[s["law"], scale, s["alpha"]] for s, scale in zip(states, scales)])
    assert found == pytest.approx([float(law_of(s).raw(float64(x))) for s, x in zip(states, scales)], abs=1e-6)


def test_factors_are_those_of_any_rotation_and_the_row_is_the_softmax_of_the_presets_scores(
    conformal_js,
):  # RF-9, RF-13
    states = conformal_states(30, seed=3)
    calls = [[state] for state in states]
    for s, factors, found in zip(states, conformal_js("factors", calls), conformal_js("attentionRow", calls)):
        log_scale, exponents = log_scale_and_exponents(s)
        q, k, theta = torch.randn(s["tokens"], 4).double(), torch.randn(s["tokens"], 4).double(), float64([0.7, 0.1])
        scores = rotation_preset(log_scale, theta).literal_scores(q, k, exponents)
        expected = scores / rotation_preset(0 * log_scale, theta).literal_scores(q, k, exponents)
        assert_close(float64(factors), expected, rtol=1e-6, atol=1e-6)
        # A query (1, 0) and keys (l_n, 0): without a metric the scores are l_n.
        lengths = 3 * torch.cos(2.4 * torch.arange(s["tokens"]).double())
        k, q = (torch.stack([x, 0 * x], -1) for x in (lengths, torch.ones_like(lengths)))
        scaled = rotation_preset(log_scale, float64([0.0])).scores(q, k, exponents)[s["query"]]
        expected = {"scores": lengths, "scaled": scaled, "before": lengths.softmax(0), "after": scaled.softmax(0)}
        for name, row in expected.items():
            assert_close(float64(found[name]), row, rtol=1e-6, atol=1e-6)


def arrow_lengths(on_conformal):
    """The arrows' lengths in pixels: each begins at the middle of its circle and goes straight up."""
    on_conformal.settle()
    drawn = on_conformal.page.locator("#one .ruler").get_attribute("d")
    return [float(start) - float(end) for start, end in re.findall(r"M\S+ (\S+)L\S+ (\S+)M", drawn)]


def test_equal_circles_hold_arrows_that_shrink_as_lengths_do(on_conformal):
    found = arrow_lengths(on_conformal)
    assert [length / found[0] for length in found] == pytest.approx([1.1 ** (-n / 2) for n in range(16)], abs=0.02)
    (radius,) = set(
        on_conformal.page.locator("#one .ball").evaluate_all("(all) => all.map((e) => e.getAttribute('r'))")
    )
    assert found[0] == pytest.approx(float(radius), abs=0.1)
    on_conformal.set(law="free", w=0.1)
    assert arrow_lengths(on_conformal)[-1] > 2 * found[0]


def test_another_law_keeps_the_scale_and_takes_another_w(on_conformal):
    select = on_conformal.page.locator("#one select")
    for law, w in (("free", -math.log(1.1)), ("slow", 0)):
        select.select_option(law)
        on_conformal.settle()
        assert on_conformal.values()["w"] == pytest.approx(w, abs=1e-3)
        assert on_conformal.page.get_by_label("Constant α").is_visible() == (law == "slow")
        assert "s = 0.909" in on_conformal.text(".geo-say")


# One scale, one row: factors and weights are geolib's, and the bars show them -----------------------------------------

METHODS = {"both": RiemannFormer, "apart": RiemannFormerRelative}
scale_js = functions_of("scale.js")
scale_opened, on_scale = place_of("ScaleSlider")
scale_states = partial(states, scale=(0.7, 1.3), query=range(16), shift=range(21), sides=[*METHODS])


def scores_of(state):
    """The row of a query (1, 0) and keys (3 cos 2.4 n, 0) that the library's encoding makes."""
    encoding = METHODS[state["sides"]](torch.full((1, 1), 1e-12), 1, state["scale"], free_law()).double()
    positions = torch.arange(16.0, dtype=torch.float64)
    q, k = torch.zeros(2, 1, 1, 16, 2, dtype=torch.float64)
    q[..., 0], k[..., 0] = 1, 3 * torch.cos(2.4 * positions)
    a, b = encoding.place((positions + state["shift"])[:, None]).to_reference(q, k)
    return k[0, 0, :, 0], (a @ b.mT)[0, 0, state["query"]].detach()


def test_the_row_is_the_librarys(scale_js):  # RF-9, RF-13
    states = scale_states(30)
    for state, found in zip(states, scale_js("row", [[state] for state in states])):
        plain, scaled = scores_of(state)
        expected = {"scores": plain, "scaled": scaled, "before": plain.softmax(0), "after": scaled.softmax(0)}
        for name, row in expected.items():
            assert_close(float64(found[name]), row, rtol=1e-6, atol=1e-6)


def test_a_pulled_bar_asks_for_the_scale_that_gives_its_score(scale_js):  # RF-13
    states = scale_states(20, seed=2)
    rows = scale_js("row", [[state] for state in states])
    calls = [[state, n, row["scaled"][n]] for state, row in zip(states, rows) for n in (3, 11)]
    for (state, n, _), found in zip(calls, scale_js("scaleFor", calls)):
        (plain,) = scale_js("factors", [[{**state, "scale": 2}]])
        if abs(math.log2(plain[n])) >= 0.4:
            assert found == pytest.approx(state["scale"], abs=0.0051)
    state = {"scale": 0.9, "query": 4, "shift": 0, "sides": "both"}
    assert scale_js("scaleFor", [[state, 0, -1], [state, 0, 1e9], [state | {"sides": "apart"}, 4, 1]]) == [
        0.9,
        1.3,
        0.9,
    ]


def test_the_dot_stands_on_a_high_bar_that_every_scale_moves(scale_js):
    states, plain = scale_states(40, seed=3), [3 * math.cos(2.4 * n) for n in range(16)]
    for state, n in zip(states, scale_js("gripped", [[state] for state in states])):
        assert plain[n] > 2.5
        power = (state["query"] + n) / 2 + state["shift"] if state["sides"] == "both" else (state["query"] - n) / 2
        assert abs(power) >= 0.4


def heights(on_scale, kind):
    """How high the bars of the two charts stand, in pixels."""
    on_scale.settle()
    return on_scale.page.evaluate(
        """(kind) => [...document.querySelectorAll("#one svg ." + kind)].map((path) =>
        [...path.getAttribute("d").matchAll(/M[\\d.]+ ([\\d.]+)V([\\d.]+)h/g)].map((bar) => bar[1] - bar[2]))""",
        kind,
    )


def test_the_bars_shrink_by_the_factor_and_the_sentence_says_flatter(on_scale):
    before, after = heights(on_scale, "before")[0], heights(on_scale, "after")[0]
    assert len(before) == len(after) == 16
    for n, (a, b) in enumerate(zip(before, after)):
        if abs(a) > 15:
            assert a * math.cos(2.4 * n) > 0
            assert b / a == pytest.approx(0.9 ** ((4 + n) / 2), abs=0.01)
    said = lambda: " ".join(on_scale.page.locator("#one .geo-say").all_text_contents())  # noqa: E731
    assert "flatter" in said()
    on_scale.set(scale=1.0)
    assert "no change" in said()


def test_an_axis_does_not_change_while_a_hand_holds_something(on_scale):
    ticks = lambda: on_scale.page.locator("#one svg text").all_text_contents()  # noqa: E731
    before, box = ticks(), on_scale.page.get_by_label("Scale s").bounding_box()
    on_scale.page.mouse.move(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2)
    on_scale.page.mouse.down()
    on_scale.page.mouse.move(box["x"] + box["width"] - 9, box["y"] + box["height"] / 2, steps=3)
    on_scale.settle()
    assert on_scale.values()["scale"] > 1.2
    assert ticks() == before
    assert max(heights(on_scale, "after")[0]) == pytest.approx(64, abs=0.2)  # cut off at the frame
    on_scale.page.mouse.up()
    on_scale.settle()
    assert "50" in ticks()


def test_a_pulled_dot_takes_the_scale_along(on_scale):
    dot, scale = on_scale.page.locator("#one svg .geo-reach"), on_scale.values()["scale"]
    on_scale.drag(dot, 0, 12)
    assert on_scale.values()["scale"] < scale
    on_scale.set(sides="apart")
    scale = on_scale.values()["scale"]
    on_scale.drag(dot, 0, 8)
    assert on_scale.values()["scale"] > scale  # on a key after the query the power of s is negative


# Locality focusing: its numbers are geolib's, and its bar and maps show them ------------------------------------------

POSITIONS = torch.cartesian_prod(torch.arange(8), torch.arange(8)).double()  # (row, column)
locality_js = functions_of("locality.js")
locality_opened, on_locality = place_of("LocalityFocus", row=3, column=3, angle=0, along=1.6, across=1)
KINDS_of_locality = {"row": range(8), "column": range(8), "sigma": (0.25, 8), "pattern": ["blobs", "stripes", "flat"]}
locality_states = partial(states, **KINDS_of_locality, along=(0.25, 4), across=(0.25, 4), angle=(-90, 90))


def precision_of(s):
    """A by its eigenvectors, in (row, column): rows count downwards."""
    angle = math.radians(s["angle"])
    axes = float64([[-math.sin(angle), -math.cos(angle)], [math.cos(angle), -math.sin(angle)]])
    return axes @ torch.diag(float64([s["along"], s["across"]]) ** -2) @ axes.T


def log_omega(s):
    return log_attenuation(POSITIONS, float64([s["sigma"]]), precision_of(s))


def content_of(pattern):
    if pattern == "stripes":
        return torch.tensor([1.0, 1, -1, -1, 1, 1, -1, -1]).double().repeat(8)
    if pattern == "flat":
        return torch.zeros(64).double()
    near = [torch.exp(-(POSITIONS - place).square().sum(-1) / 4) for place in (1.5, 5.5)]
    return 2 * torch.maximum(*near) - 1


def focused(function, s, last):
    """A row of focused attention with the patches themselves as values: the weights."""
    c = content_of(s["pattern"])[None, :, None]
    values = torch.eye(64).double()[None]
    return function(3 * c, c, values, *last)[0, 8 * s["row"] + s["column"]]


def test_gaussian_is_the_attenuation_of_the_querys_row_and_its_axes_are_half_axes(locality_js):  # RF-21
    states = locality_states(30)
    logs, precisions = (locality_js(name, [[s] for s in states]) for name in ("logAttenuation", "precision"))
    axes = locality_js("directions", [[s["angle"]] for s in states])
    for s, found, a, both in zip(states, logs, precisions, axes):
        assert_close(float64(a), precision_of(s), rtol=1e-6, atol=1e-6)
        assert_close(float64(found), log_omega(s)[8 * s["row"] + s["column"]], rtol=1e-6, atol=1e-6)
        for direction, length in zip(both, (s["along"], s["across"])):
            tip = length * float64(direction)
            assert (tip @ precision_of(s) @ tip).item() == pytest.approx(1, abs=1e-6)


def test_weights_are_those_of_focused_attention_however_they_are_computed(locality_js):  # RF-19, RF-20, RF-22, RF-FUSED
    states = locality_states(30, seed=2)
    for s, found in zip(states, locality_js("focus", [[s] for s in states])):
        last = (POSITIONS, float64([s["sigma"]]), precision_of(s))
        after = focused(focused_attention, s, last)
        by_lse = focused(focused_attention_by_lse, s, (log_omega(s),))
        rows = {"after": after, "before": focused(focused_attention, s, (POSITIONS, float64([1e9])))}
        rows |= {"fused": focused(fused_focused_attention, s, last)}
        for name, row in rows.items():
            assert_close(float64(found[name]), row, rtol=0, atol=1e-6)
        assert_close(float64(found["fused"]), by_lse, rtol=0, atol=1e-6)
        assert found["left"] == pytest.approx(after.sum().item(), abs=1e-6)
        assert found["factor"] == pytest.approx(by_lse.sum().item(), abs=1e-6)
        assert found["factor"] == pytest.approx(found["left"], abs=1e-9)


def test_what_is_left_and_what_is_missing_make_one_and_the_fused_factor_is_what_is_left(on_locality):
    for values in ({}, {"sigma": 8.0, "along": 4.0}, {"pattern": "stripes", "sigma": 0.5}):
        on_locality.set(**values)
        left, missing = (float(b) for b in on_locality.page.locator("#one .geo-say b").all_text_contents())
        assert left + missing == pytest.approx(1, abs=1.1e-3)
        bars = [on_locality.page.locator(f"#one .{part}").bounding_box()["width"] for part in ("rest", "whole")]
        assert bars[0] / bars[1] == pytest.approx(left, abs=0.01)
        fused = on_locality.page.locator("#one p:not(.geo-say) b").text_content()
        assert float(fused) == pytest.approx(left, abs=1.1e-3)


# Even powers: the kernels and the features are geolib's, and the sentence says them -----------------------------------

EVEN = range(2, 17, 2)
powers_js = functions_of("powers.js")


def unit_of_powers(degrees):
    angle = math.radians(degrees)
    return float64([math.cos(angle), math.sin(angle)])


def test_the_features_are_those_of_the_symmetric_power_embedding(powers_js):  # CS-k
    draw = random.Random(1)
    calls = [[[draw.gauss(0, 1) for _ in range(draw.randint(1, 5))], draw.randint(1, 6)] for _ in range(30)]
    for (v, p), found in zip(calls, powers_js("embed", calls)):
        assert_close(float64(found), sympow.embed(float64(v), p), rtol=1e-9, atol=1e-9)


def test_the_power_of_the_inner_product_is_the_inner_product_of_the_features(powers_js):  # CS-k, CS-att
    draw = random.Random(2)
    calls = [[draw.uniform(-180, 180), p] for p in EVEN for _ in range(5)]
    for (degrees, p), power, feature in zip(calls, powers_js("powerKernel", calls), powers_js("featureKernel", calls)):
        q, k = unit_of_powers(0), unit_of_powers(degrees)
        assert power == pytest.approx(float(q @ k) ** p, abs=1e-12)
        assert feature == pytest.approx(float(sympow.embed(q, p) @ sympow.embed(k, p)), abs=1e-9)
        assert feature == pytest.approx(power, abs=1e-9)
        assert power >= 0
