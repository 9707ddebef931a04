"""The benches' clock, and what their rows tell."""

from geolib.lab.benches import lie, locality, parts, timing


def test_works_in_turns_and_the_best_of_each_after_the_first_round(monkeypatch):
    now, order = {"wall": 0.0, "cpu": 0.0}, []

    def work(name, takes):
        times = iter(takes)

        def do():
            order.append(name)
            now["wall"] += (took := next(times))
            now["cpu"] += took / 2 if took != 3.0 else 0.25

        return do

    monkeypatch.setattr(timing, "timer", lambda: now["wall"])
    monkeypatch.setattr(timing.time, "process_time", lambda: now["cpu"])
    found = timing.in_turns({"a": work("a", [0.5, 3.0, 2.0]), "b": work("b", [9.0, 4.0, 6.0])}, 2)
    assert found == {"a": {"seconds": 2.0, "cpu_seconds": 0.25}, "b": {"seconds": 4.0, "cpu_seconds": 2.0}}
    assert order == ["a", "b"] * 3


def test_rows_name_the_device(monkeypatch):
    rows = lie.run(layers=1, heads=1, head_dim=4, widths=(4,), grid=(2, 2), repeats=1)
    assert {row["device"] for row in rows} == {"cpu"}
    monkeypatch.setattr(locality, "_SIDES", (4,))
    rows = locality.run(side=8, heads=1, dim=4, repeats=1)
    assert [row["form"] for row in rows[:3]] == ["literal", "fused", "features"]
    assert all(row["seconds"] > 0 and row["speedup"] > 0 for row in rows[:3])
    assert rows[0]["speedup"] == rows[3]["multiple"] == 1.0
    assert {row["device"] for row in rows} == {"cpu"}


def test_a_form_that_makes_a_matrix_holds_it_and_features_do_not():  # RF-FUSED
    side, matrix = 48, 4 * 48**4 / 2**20  # MiB, one head
    rows = {row["form"]: row["mib"] for row in locality.turns(side, 1, 8, 1, "cpu")}
    assert rows["gate, features"] < matrix / 2 < matrix < rows["gate, a given matrix"]


def test_work_that_no_clock_notices_took_more_than_no_time(monkeypatch):
    monkeypatch.setattr(timing, "timer", lambda: 7.0)
    monkeypatch.setattr(timing.time, "process_time", lambda: 7.0)
    for took in timing.in_turns({1: list, 2: list}, 2).values():
        assert all(1 / seconds > 0 for seconds in took.values())
    assert set(parts.shares(dict.fromkeys(parts.PARTS, 0.0)).values()) == {0.0}
