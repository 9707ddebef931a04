"""The lab notebook: its numbers, looks and names are those of the records."""

import json
import os
import random
import statistics
from collections import defaultdict
from functools import cache

import pytest
from explorable_kit import Place, functions_of, place_of, state_of

from geolib.explorables import LabNotebook, notebook
from geolib.explorables.notebook import METRICS
from geolib.figures import COLOURS, METHOD_STYLES, method_style
from geolib.lab.experiments import find
from geolib.lab.files import RECORDED, LabError
from geolib.lab.records import read_all

DIGITS = "digits-encodings/digits/cpu"
call = functions_of("notebook.js")
opened, place = place_of("LabNotebook", experiment=DIGITS)

# The numbers ----------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("metric", METRICS)
def test_the_mean_curve_and_the_best_method_are_those_of_the_seeds_evaluated(call, metric):
    (curve,) = call("meanCurve", [[made_up(5), metric]])
    for epoch, found in enumerate(curve):
        values = [run[metric][epoch] for run in made_up(5) if run[metric][epoch] is not None]
        assert found == (pytest.approx(statistics.mean(values)) if values else None)
    offered = [[[run for run in made_up(9, seed) if run["title"] == title] for title in "abc"] for seed in range(9)]
    best = max if metric == "test_accuracy" else min
    for methods, (first, *_) in zip(offered, call("leader", [[methods, metric] for methods in offered])):
        last = {own[0]["title"]: statistics.mean(run[metric][-1] for run in own) for own in methods}
        assert first["title"] == best(last, key=last.get)


# The runs it carries -------------------------------------------------------------------------------------------------


def test_the_runs_are_those_of_the_records_to_five_digits(runs):
    records = {(record.experiment or "own runs", record.name): record for record in with_accuracies()}
    keys = [(run["group"].split("/")[0], run["name"]) for run in runs]
    assert sorted(keys) == sorted(records)
    for key, run in zip(keys, runs):
        record = records[key]
        assert run["date"] == record.started[:10]
        if record.commit is not None:
            assert run["commit"][:7] == record.commit["id"][:7]
            assert ("changes" in run["commit"]) == bool(record.commit.get("dirty"))
        assert run["device"].startswith(record.device)
        style = method_style(record.config.method)
        assert run["look"] == [style["color"], style["linestyle"], bool(style["marker"])]
        for metric in METRICS:
            epochs, values = record.curve(metric)
            assert [run[metric][epoch - 1] for epoch in epochs] == pytest.approx(values, rel=5.01e-5)


def test_what_runs_share_travels_once_and_arrives_at_each(call, runs):
    packed = LabNotebook().get_state("runs")["runs"]
    assert call("unpack", [[packed]]) == [runs]
    other = LabNotebook(runs=[])
    other.set_state({"runs": packed})
    assert other.runs == runs


def test_it_starts_at_the_first_experiments_last_epoch_and_takes_the_beginning_of_a_name():
    first = LabNotebook()
    assert (first.experiment, first.epoch, first.metric, first.hidden) == (DIGITS, 12, "test_accuracy", [])
    notebook = LabNotebook(experiment="riemannformer-table1", metric="test_loss")
    assert notebook.experiment == "riemannformer-table1/cifar10/cpu"
    notebook.experiment = "digits-encodings/digits"
    assert notebook.experiment == DIGITS


def test_a_damaged_record_is_an_error_that_names_the_file_and_no_record_makes_an_empty_notebook(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        notebook = LabNotebook(folder)
        assert (notebook.runs, notebook.experiment, notebook.epoch) == ([], "", 1)
    source = next((RECORDED / "digits-encodings").glob("*.json"))
    (tmp_path / "broken.json").write_text(source.read_text(encoding="utf-8")[:300], encoding="utf-8")
    with pytest.raises(LabError, match=r"broken\.json: not a record"):
        LabNotebook(tmp_path)


def test_a_run_of_ones_own_is_shown_as_such_and_read_again_when_it_was_made_again(tmp_path):
    values = json.loads(next((RECORDED / "digits-encodings").glob("*rope-seed0*.json")).read_text(encoding="utf-8"))
    values |= {"experiment": None, "scale": None, "commit": None}
    path = tmp_path / "mine.json"
    for moment, seconds in enumerate((125.0, 126.0, 1.5)):  # a file as long as before, and one of another length
        path.write_text(json.dumps(values | {"wall_seconds": seconds}), encoding="utf-8")
        os.utime(path, (moment, moment))
        (run,) = LabNotebook(folder=tmp_path).runs
        assert (run["group"], run["title"], run["commit"]) == ("own runs/digits/own scale", "rope", "unknown")
        assert run["seconds"] == seconds


# In a browser --------------------------------------------------------------------------------------------------------


def test_the_table_holds_mean_and_deviation_of_each_method(place, runs):
    place.settle()
    assert place.page.locator("#one thead th[scope=col]").count() == 4
    rows = place.page.locator("#one tbody tr").all()
    titles = list(dict.fromkeys(run["title"] for run in runs if run["group"] == DIGITS))
    assert [row.locator("th[scope=row]").text_content() for row in rows] == titles
    for title, row in zip(titles, rows):
        last = [100 * run["test_accuracy"][-1] for run in runs if run["group"] == DIGITS and run["title"] == title]
        expected = f"{statistics.mean(last):.1f} ± {statistics.stdev(last):.1f}"
        assert row.locator("td").all_text_contents()[:2] == [expected, str(len(last))]


@pytest.mark.parametrize("way", ["hover", "drag"])
def test_a_hand_on_the_curves_chooses_the_epoch_and_the_nearest_run(place, runs, way):
    picture = place.page.locator("#one .plot svg")
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    if way == "hover":  # low in the picture there are only the runs without positions
        place.page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 230)
        place.page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 240)
    else:
        place.drag(picture, 0.12 * box["width"], 80)
    place.settle()
    assert 6 <= place.values()["epoch"] <= 11
    assert next(run for run in runs if run["name"] == place.values()["run"])["title"] == "none"


def test_methods_keep_their_looks_and_of_two_alike_the_later_takes_other_dashes(call):
    assert notebook.look("nobody's+lf") == [COLOURS["gold"], "-", False]
    (found,) = call("looks", [[[[name, [{"look": notebook.look(name)}]] for name in METHOD_STYLES]]])
    dashes = {"-": "none", "--": "7 4", "-.": "8 3 2 3", ":": "2 4"}
    for (colour, line), each in zip(METHOD_STYLES.values(), found, strict=True):
        assert each == {"ink": f"color: {COLOURS[colour]}", "dash": dashes[line], "dots": False}
    (found,) = call("looks", [[[["a", [{"look": ["#0072b2", "--", False]}]]] * 4]])
    assert [each["dash"] for each in found] == ["7 4", "8 3 2 3", "2 4", "none"]


def test_lines_and_buttons_are_drawn_in_the_methods_look_and_a_gap_stays_a_gap(browser):
    titles = [*list(METHOD_STYLES)[:12], "rope+lf"]
    runs = [
        run | {"title": name, "group": "g/d/s", "look": notebook.look(name)} for name, run in zip(titles, made_up(13))
    ]
    place = Place(browser, "LabNotebook", state_of("LabNotebook", runs=runs, experiment="g/d/s", epoch=5))
    look = """(where) => [...document.querySelectorAll(`#one ${where} path.mean`)].map((line) =>
        [getComputedStyle(line).color, line.getAttribute("stroke-dasharray")].join())"""
    chips, lines = (place.page.evaluate(look, where) for where in (".methods", ".plot"))
    assert chips == lines
    assert len(set(chips)) == 12  # the dots tell rope+lf from rope
    assert place.page.locator("#one .plot path.bead").count() == 1
    assert place.page.locator("#one .methods circle.bead").count() == 1

    run = runs[0] | {"test_accuracy": [0.5, None, 0.25, 0.75, None, 0.5, 0.5, 0.5]}
    place.set(runs=LabNotebook(runs=[run]).get_state("runs")["runs"], epoch=2)
    line = place.page.locator("#one path.seed").get_attribute("d")
    assert line.count("M") == 3
    assert line.count("L") == 1 + 1 + 2  # a dash for the value alone, a line of two, a line of three
    assert "not evaluated" in place.text(".geo-say")
    place.set(epoch=3)
    assert "25.0\u00a0%" in place.text(".geo-say")

    place.set(runs=LabNotebook(runs=[]).get_state("runs")["runs"], experiment="")
    shown = place.page.locator("#one p, #one svg, #one table, #one input").filter(visible=True)
    assert shown.all_text_contents() == ["No record yet."]
    place.close()
