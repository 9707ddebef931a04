"""The lab notebook: its numbers are those of the records, and it answers the reader's hand."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import statistics
from collections import defaultdict
from functools import cache
from itertools import pairwise

import pytest
from explorable_kit import Place, node_functions, state_of

from geolib.explorables import LabNotebook, notebook
from geolib.explorables.notebook import METRICS
from geolib.figures import COLOURS, METHOD_STYLES, method_style
from geolib.lab.experiments import find, table
from geolib.lab.files import RECORDED, LabError
from geolib.lab.records import read_all

DIGITS = "digits-encodings/digits/cpu"
CURVES = {"train_loss", "test_loss", "test_accuracy"}

# In Node: the numbers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """call(name, [arguments, ...]): the results of the module's function of that name."""
    return node_functions("notebook.js", tmp_path_factory.mktemp("modules"))


@pytest.fixture(scope="module")
def runs():
    """What a notebook of the installed records carries."""
    return LabNotebook().runs


def with_accuracies():
    """The records of runs on images; the notebook does not show those on text."""
    return [record for record in read_all() if any("test_accuracy" in row for row in record.metrics)]


def by_group_and_title():
    """The records of runs on images, by what the notebook calls their group and their method."""
    cells = cache(lambda experiment, scale: find(experiment).cells(scale))
    grouped = defaultdict(list)
    for record in with_accuracies():
        if record.experiment:
            method, _ = cells(record.experiment, record.scale)[record.config.cell]
            group = f"{record.experiment}/{record.config.dataset}/{record.scale}"
            grouped[group, find(record.experiment).methods[method]].append(record)
    return grouped


def made_up(count, seed=0):
    """Runs that nobody made: methods a, b, ... with some epochs not evaluated."""
    draw = random.Random(seed)

    def curve(gaps):
        return [None if gaps and draw.random() < 0.4 else draw.random() for _ in range(7)] + [draw.random()]

    return [
        {"group": f"g{i % 2}", "name": f"run{i}", "title": "abc"[i % 3], "seed": i, "seconds": 10 * draw.random()}
        | {"look": ["#0072b2", "-", False]}
        | {"device": "none", "torch": "0", "commit": "0", "date": "2026-01-01"}
        | {"test_accuracy": curve(True), "test_loss": curve(True), "train_loss": curve(False)}
        for i in range(count)
    ]


def test_mean_and_deviation_are_those_of_the_sample_without_what_is_missing(call):
    draw = random.Random(0)
    samples = [[draw.gauss(0, 10) for _ in range(draw.randint(1, 9))] for _ in range(30)]
    holes = [sorted([*sample, None], key=lambda _: draw.random()) for sample in samples]
    for found in (call("mean", [[s] for s in samples]), call("mean", [[s] for s in holes])):
        assert found == pytest.approx([statistics.mean(s) for s in samples], abs=1e-9)
    for found in (call("deviation", [[s] for s in samples]), call("deviation", [[s] for s in holes])):
        for sample, value in zip(samples, found):
            assert value == (None if len(sample) == 1 else pytest.approx(statistics.stdev(sample), abs=1e-9))
    assert call("mean", [[[]], [[None]]]) == [None, None]


@pytest.mark.parametrize("metric", METRICS)
def test_final_values_are_the_mean_and_deviation_of_the_records(call, runs, metric):
    groups = list(dict.fromkeys(run["group"] for run in runs))
    assert call("groups", [[runs]]) == [groups]
    grouped = by_group_and_title()
    for group, rows in zip(groups, call("finals", [[runs, group, metric] for group in groups])):
        for row in rows:
            own = grouped[group, row["title"]]
            last = [record.curve(metric)[1][-1] for record in own]
            assert row["count"] == len(last) >= 1
            # The page has five significant digits of each value; from those the arithmetic is exact.
            mean, rounded = statistics.mean(last), [float(f"{value:.5g}") for value in last]
            assert row["mean"] == pytest.approx(mean, rel=1e-4)
            assert row["mean"] == pytest.approx(statistics.mean(rounded), abs=1e-9)
            assert row["seconds"] == pytest.approx(statistics.mean(r.wall_seconds for r in own), rel=1e-4)
            if len(last) > 1:
                assert row["deviation"] == pytest.approx(statistics.stdev(last), abs=1e-4 * mean)
                assert row["deviation"] == pytest.approx(statistics.stdev(rounded), abs=1e-9)
            else:
                assert row["deviation"] is None


def test_final_accuracies_are_those_of_the_experiments_table(call, runs):
    (rows,) = call("finals", [[runs, DIGITS, "test_accuracy"]])
    written = dict(table(find("digits-encodings"), "cpu", read_all()).rows)
    assert [row["title"] for row in rows] == list(written)
    for row in rows:
        mean, spread = map(float, re.match(r"([\d.]+) ± ([\d.]+)", written[row["title"]]).groups())
        assert 100 * row["mean"] == pytest.approx(mean, abs=0.006)
        assert 100 * row["deviation"] == pytest.approx(spread, abs=0.006)


@pytest.mark.parametrize("metric", METRICS)
def test_the_mean_curve_takes_the_seeds_evaluated_at_each_epoch(call, metric):
    runs = made_up(5)
    (curve,) = call("meanCurve", [[runs, metric]])
    for epoch, found in enumerate(curve):
        values = [run[metric][epoch] for run in runs if run[metric][epoch] is not None]
        assert found == (pytest.approx(statistics.mean(values)) if values else None)


def test_the_nearest_run_is_nearest_among_those_evaluated(call):
    runs, draw = made_up(6), random.Random(4)
    asked = [(draw.randint(1, 8), draw.random()) for _ in range(30)]
    for (epoch, value), found in zip(asked, call("nearest", [[runs, "test_loss", e, v] for e, v in asked])):
        there = [run for run in runs if run["test_loss"][epoch - 1] is not None]
        best = min(there, key=lambda run: abs(run["test_loss"][epoch - 1] - value), default=None)
        assert (found or {}).get("name") == (best or {}).get("name")
    assert call("nearest", [[[], "test_loss", 1, 0.5]]) == [None]


@pytest.mark.parametrize("metric", METRICS)
def test_the_best_method_ends_with_the_highest_accuracy_or_the_least_loss(call, metric):
    offered = [[[run for run in made_up(9, seed) if run["title"] == title] for title in "abc"] for seed in range(9)]
    best = max if metric == "test_accuracy" else min
    for methods, (first, *_) in zip(offered, call("leader", [[methods, metric] for methods in offered])):
        last = {own[0]["title"]: statistics.mean(run[metric][-1] for run in own) for own in methods}
        assert first["title"] == best(last, key=last.get)


def test_labels_lie_apart_in_their_order_and_move_only_where_they_must(call):
    draw = random.Random(5)
    cases = [[draw.uniform(0, 250) for _ in range(draw.randint(1, 12))] for _ in range(40)] + [[9.0] * 12, [300.0] * 3]
    for heights, placed in zip(cases, call("spread", [[heights, 15, 10, 262] for heights in cases])):
        pairs = sorted(zip(heights, placed))
        ordered = sorted(placed)
        assert all(b - a >= 15 - 1e-9 for a, b in pairwise(ordered))
        assert ordered[0] >= 10 - 1e-9
        assert ordered[-1] <= 262 + 1e-9
        if len(set(heights)) == len(heights):
            assert [p for _, p in pairs] == ordered
    assert call("spread", [[[100, 40, 200], 15, 10, 262]]) == [[100, 40, 200]]
    assert call("spread", [[[100, 100], 15, 10, 262]]) == [[92.5, 107.5]]


def test_ticks_are_round_and_reach_around_the_values(call):
    draw = random.Random(6)
    ranges = [sorted((draw.uniform(0, 3), draw.uniform(0, 3))) for _ in range(50)] + [[0.5, 0.5], [0.103, 0.966]]
    for (low, high), found in zip(ranges, call("ticks", ranges)):
        values = found["values"]
        step = values[1] - values[0]
        assert values[0] <= low + 1e-6 * step
        assert values[-1] >= high - 1e-6 * step
        assert 2 <= len(values) <= 8
        assert all(round(v, found["digits"]) == pytest.approx(v, abs=1e-9 + 1e-6 * step) for v in values)


# In Python: the traits -----------------------------------------------------------------------------------------------


def test_the_runs_are_those_of_the_records_to_five_digits(runs):
    records = {(record.experiment or "own runs", record.name): record for record in with_accuracies()}
    keys = [(run["group"].split("/")[0], run["name"]) for run in runs]
    assert sorted(keys) == sorted(records)
    for key, run in zip(keys, runs):
        record = records[key]
        assert run["date"] == record.started[:10]
        assert record.commit is None or run["commit"][:7] == record.commit["id"][:7]
        assert run["device"].startswith(record.device)
        for metric in METRICS:
            epochs, values = record.curve(metric)
            assert [run[metric][epoch - 1] for epoch in epochs] == pytest.approx(values, rel=5.01e-5)


def test_what_runs_share_travels_once_and_arrives_at_each(call, runs):
    packed = LabNotebook().get_state("runs")["runs"]
    assert call("unpack", [[packed]]) == [runs]
    curves = sum(len(json.dumps(run[name])) for run in runs for name in CURVES & run.keys())
    assert len(json.dumps(packed)) - curves < 0.7 * (len(json.dumps(runs)) - curves)
    other = LabNotebook(runs=[])
    other.set_state({"runs": packed})
    assert other.runs == runs


def test_it_starts_at_the_first_experiments_last_epoch_and_reads_no_record_twice(monkeypatch):
    first = LabNotebook()
    assert (first.experiment, first.epoch, first.metric, first.hidden) == (DIGITS, 12, "test_accuracy", [])
    monkeypatch.setattr(notebook, "read", None)
    assert LabNotebook().runs == first.runs


def test_an_experiment_may_be_named_by_its_beginning():
    notebook = LabNotebook(experiment="riemannformer-table1", metric="test_loss")
    assert notebook.experiment == "riemannformer-table1/cifar10/cpu"
    notebook.experiment = "digits-encodings/digits"
    assert notebook.experiment == DIGITS


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("experiment", "table9", f"there are {DIGITS}"),
        ("experiment", "digits", "there are"),
        ("run", "nobody", "there are digits-none-seed0"),
        ("hidden", ["nothing"], "methods, which are none, sinusoidal"),
        ("hidden", "none", "must be a list"),
        ("runs", [{"name": "a"}], "must be a list of runs with commit"),
        ("metric", "speed", "it is one of test_accuracy"),
        ("epoch", 0, "from 1"),
    ],
)
def test_a_value_that_is_not_there_is_refused_by_name(name, value, message):
    with pytest.raises(ValueError, match=f"^{name}: got .*{message}"):
        LabNotebook(**{name: value})
    notebook = LabNotebook()
    before = getattr(notebook, name)
    with pytest.raises(ValueError, match=f"^{name}: got .*{message}"):
        setattr(notebook, name, value)
    assert getattr(notebook, name) == before


def test_a_damaged_record_is_an_error_that_names_the_file(tmp_path):
    source = next((RECORDED / "digits-encodings").glob("*.json"))
    shutil.copy(source, tmp_path / "sound.json")
    assert len(LabNotebook(tmp_path).runs) == 1
    broken = tmp_path / "broken.json"
    broken.write_text(source.read_text(encoding="utf-8")[:300], encoding="utf-8")
    with pytest.raises(LabError, match=r"broken\.json: not a record"):
        LabNotebook(tmp_path)
    broken.unlink()
    assert len(LabNotebook(tmp_path).runs) == 1


def test_a_folder_without_records_makes_an_empty_notebook(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        notebook = LabNotebook(folder)
        assert (notebook.runs, notebook.experiment, notebook.epoch) == ([], "", 1)


def test_a_run_of_its_own_is_shown_as_such(tmp_path):
    values = json.loads(next((RECORDED / "digits-encodings").glob("*rope-seed0*.json")).read_text(encoding="utf-8"))
    values |= {"experiment": None, "scale": None, "commit": None}
    (tmp_path / "mine.json").write_text(json.dumps(values), encoding="utf-8")
    (run,) = LabNotebook(folder=tmp_path).runs
    assert (run["group"], run["title"], run["commit"]) == ("own runs/digits/own scale", "rope", "unknown")


def test_a_record_that_was_made_again_is_read_again(tmp_path):
    values = json.loads(next((RECORDED / "digits-encodings").glob("*.json")).read_text(encoding="utf-8"))
    for moment, seconds in enumerate((125.0, 126.0, 1.5)):  # a file as long as before, and one of another length
        path = tmp_path / "mine.json"
        path.write_text(json.dumps(values | {"wall_seconds": seconds}), encoding="utf-8")
        os.utime(path, (moment, moment))
        assert [run["seconds"] for run in LabNotebook(tmp_path).runs] == [seconds]


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(browser):
    """A page with one explorable; what goes wrong in it fails the test."""
    place = Place(browser, "LabNotebook", state_of("LabNotebook", experiment=DIGITS))
    yield place
    place.close()


def sentence(place):
    place.settle()
    return place.page.locator("#one .geo-say").first.text_content()


def test_the_table_holds_mean_and_deviation_of_each_method(place, runs):
    place.settle()
    assert place.page.locator("#one caption").text_content().startswith("After the last epoch: mean ± standard")
    assert place.page.locator("#one thead th[scope=col]").count() == 4
    rows = place.page.locator("#one tbody tr").all()
    titles = list(dict.fromkeys(run["title"] for run in runs if run["group"] == DIGITS))
    assert [row.locator("th[scope=row]").text_content() for row in rows] == titles
    for title, row in zip(titles, rows):
        last = [100 * run["test_accuracy"][-1] for run in runs if run["group"] == DIGITS and run["title"] == title]
        expected = f"{statistics.mean(last):.1f} ± {statistics.stdev(last):.1f}"
        assert row.locator("td").all_text_contents()[:2] == [expected, str(len(last))]


def test_the_sentence_gives_the_runs_value_and_the_line_below_where_it_was_made(place, runs):
    run = next(run for run in runs if (run["group"], run["title"], run["seed"]) == (DIGITS, "RoPE, axial", 1))
    place.set(run=run["name"], epoch=3, metric="test_loss")
    seeds = [each["test_loss"][2] for each in runs if (each["group"], each["title"]) == (DIGITS, "RoPE, axial")]
    mean = f"mean of {len(seeds)} seeds {statistics.mean(seeds):.3f}"
    expected = f"epoch 3, test loss: RoPE, axial, seed 1 {run['test_loss'][2]:.3f}, {mean}"
    assert sentence(place) == expected
    line = place.page.locator("#one .geo-note").first.text_content()
    for word in (run["device"], run["torch"], run["commit"], run["date"], run["name"]):
        assert word in line


@pytest.mark.parametrize("way", ["hover", "drag", "swipe"])
def test_a_hand_on_the_curves_chooses_the_epoch_and_the_nearest_run(place, runs, way):
    picture = place.page.locator("#one .plot svg")
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    if way == "hover":
        # Low in the picture there are only the runs without positions.
        place.page.mouse.move(box["x"] + 34, box["y"] + 230)
        place.page.mouse.move(box["x"] + 36, box["y"] + 230)
        place.settle()
        assert place.values()["epoch"] == 1
        place.page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 240)
    else:
        getattr(place, way)(picture, 0.12 * box["width"], 80)  # up and down a finger scrolls
    place.settle()
    values = place.values()
    assert 6 <= values["epoch"] <= 11
    assert next(run for run in runs if run["name"] == values["run"])["title"] == "none"
    assert sentence(place).startswith(f"epoch {values['epoch']}, test accuracy: none, seed")


def test_a_button_takes_a_method_off_the_picture_and_brings_it_back(place, runs):
    def names():
        place.settle()
        return place.page.locator("#one .plot text").all_text_contents()

    button = place.page.get_by_role("button", name="sinusoidal")
    assert "sinusoidal" in names()
    button.press("Enter")
    assert place.values()["hidden"] == ["sinusoidal"]
    assert "sinusoidal" not in names()
    assert button.get_attribute("aria-pressed") == "false"
    drawn = [run for run in runs if run["group"] == DIGITS and run["title"] != "sinusoidal"]
    assert place.page.locator("#one path.seed").count() == len(drawn)
    button.click()
    assert place.values()["hidden"] == []
    assert "sinusoidal" in names()
    for each in place.page.locator("#one .methods button").all():
        each.click()
    place.settle()
    assert place.page.locator("#one path.seed").count() == 0
    assert sentence(place).startswith("epoch 12, test accuracy: ")


def test_another_experiment_brings_its_methods_and_ends_at_its_last_epoch(place, runs):
    group = "riemannformer-table1/cifar10/cpu"
    own = [run for run in runs if run["group"] == group]
    first, last = own[0], lambda run: run["test_accuracy"][-1]
    means = {
        title: statistics.mean(map(last, [run for run in own if run["title"] == title]))
        for title in {r["title"] for r in own}
    }
    best = next(run for run in own if run["title"] == max(means, key=means.get))
    place.page.get_by_label("Experiment").select_option(group)
    place.settle()
    assert place.values()["epoch"] == len(first["train_loss"])
    assert place.page.locator("#one .methods button").all_text_contents()[:2] == ["No-Pos", "Sinusoidal"]
    assert f"{best['title']}, seed {best['seed']} {100 * best['test_accuracy'][-1]:.1f}\u00a0%" in sentence(place)


def test_names_at_the_ends_of_lines_do_not_overlap(place):
    for width in (760, 360):
        place.page.set_viewport_size({"width": width, "height": 900})
        for metric in METRICS:
            place.set(metric=metric)
            boxes = [box.bounding_box() for box in place.page.locator("#one .plot g g > text[class]").all()]
            tops = sorted(box["y"] for box in boxes)
            assert len(tops) == place.page.locator("#one .methods button").count()
            assert all(b - a >= 12 for a, b in pairwise(tops))
            assert max(box["x"] + box["width"] for box in boxes) <= width


def test_a_run_has_the_look_of_its_method_in_every_figure():
    looks = {run["name"]: run["look"] for run in LabNotebook().runs}
    for record in with_accuracies():
        style = method_style(record.config.method)
        assert looks[record.name] == [style["color"], style["linestyle"], bool(style["marker"])]
    assert notebook.look("nobody's+lf") == [COLOURS["gold"], "-", False]


def test_methods_keep_their_looks_and_of_two_alike_the_later_takes_other_dashes(call):
    drawn = {name: [f"color: {COLOURS[colour]}", dashes] for name, (colour, dashes) in METHOD_STYLES.items()}
    (found,) = call("looks", [[[[name, [{"look": notebook.look(name)}]] for name in METHOD_STYLES]]])
    dashes = {"-": "none", "--": "7 4", "-.": "8 3 2 3", ":": "2 4"}
    for name, each in zip(METHOD_STYLES, found):
        ink, line = drawn[name]
        assert each == {"ink": ink, "dash": dashes[line], "dots": False}
    twice = [["a", [{"look": ["#0072b2", "--", False]}]]] * 4
    (found,) = call("looks", [[twice]])
    assert [each["dash"] for each in found] == ["7 4", "8 3 2 3", "2 4", "none"]


def test_lines_names_and_table_are_drawn_in_the_methodslook(browser):
    methods = [*list(METHOD_STYLES)[:12], "rope+lf"]
    runs = [run | {"title": name, "group": "g/d/s", "look": notebook.look(name)}
            for name, run in zip(methods, made_up(13))]  # fmt: skip
    place = Place(browser, "LabNotebook", state_of("LabNotebook", runs=runs, experiment="g/d/s", epoch=5))
    look = """(where) => [...document.querySelectorAll(`#one ${where} path.mean`)].map((line) =>
        [getComputedStyle(line).color, line.getAttribute("stroke-dasharray")].join())"""
    chips, lines = (place.page.evaluate(look, where) for where in (".methods", ".plot"))
    assert chips == lines
    assert len(set(chips)) == 12  # the dots tell rope+lf from rope
    assert place.page.locator("#one .plot path.bead").count() == 1
    assert place.page.locator("#one .methods circle.bead").count() == 1
    place.close()


def test_an_epoch_without_evaluation_is_a_gap(browser, call):
    values = [0.5, None, 0.25, 0.75, None]
    run = made_up(1)[0] | {"group": "g/d/s", "test_accuracy": [*values, 0.5, 0.5, 0.5]}
    place = Place(browser, "LabNotebook", state_of("LabNotebook", runs=[run], experiment="g/d/s", epoch=2))
    line = place.page.locator("#one path.seed").get_attribute("d")
    assert line.count("M") == 3
    assert line.count("L") == 1 + 1 + 2  # a dash for the value alone, a line of two, a line of three
    assert "not evaluated" in sentence(place)
    place.set(epoch=3)
    assert "25.0\u00a0%" in sentence(place)
    place.close()


def test_without_records_it_says_so_and_shows_nothing_else(browser, tmp_path):
    place = Place(browser, "LabNotebook", state_of("LabNotebook", folder=tmp_path))
    shown = place.page.locator("#one p, #one svg, #one table, #one input").filter(visible=True)
    assert shown.all_text_contents() == ["No record yet."]
    place.set(runs=LabNotebook().get_state("runs")["runs"])
    assert place.page.locator("#one table").is_visible()
    place.close()
