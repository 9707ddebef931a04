"""The benches' clock and where they measure."""

import torch

from geolib.lab.benches import lie, locality, parts, timing


def test_the_median_of_the_calls_after_the_first_by_the_clock_that_waits(monkeypatch):
    now, takes, asked = [0.0], iter([100.0, 3.0, 1.0, 2.0]), []

    def clock():
        asked.append(now[0])
        return now[0]

    def work():
        now[0] += next(takes)

    monkeypatch.setattr(timing, "timer", clock)
    assert timing.timed(work, 3)["seconds"] == 2.0
    assert asked == [100.0, 103.0, 103.0, 104.0, 104.0, 106.0]


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
    found = timing.in_turns([work("a", [0.5, 3.0, 2.0]), work("b", [9.0, 4.0, 6.0])], 2)
    assert found == [{"seconds": 2.0, "cpu_seconds": 0.25}, {"seconds": 4.0, "cpu_seconds": 2.0}]
    assert order == ["a", "b"] * 3


def test_a_bench_runs_where_there_is_a_gpu(monkeypatch):
    assert timing.at_hand("cpu") == "cpu"
    for there, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert timing.at_hand(None) == device


def test_rows_name_the_device():
    rows = lie.run(layers=1, heads=1, head_dim=4, widths=(4,), grid=(2, 2), repeats=1, device="cpu")
    assert {row["device"] for row in rows} == {"cpu"}
    row = locality.measure("fused", side=8, heads=1, dim=4, repeats=1, device="cpu")
    assert row["seconds"] > 0
    assert row["device"] == "cpu"


def test_a_form_that_makes_a_matrix_holds_it_and_features_do_not():  # RF-FUSED
    side, matrix = 32, 4 * 32**4  # bytes, one head
    made, features = (
        locality._in_a_new_process(locality.held, name, side, 1, 8, "cpu")
        for name in ("gate, a given matrix", "gate, features")
    )
    assert features < matrix / 2 < matrix < made


def test_work_that_no_clock_notices_took_more_than_no_time(monkeypatch):
    monkeypatch.setattr(timing, "timer", lambda: 7.0)
    monkeypatch.setattr(timing.time, "process_time", lambda: 7.0)
    for took in (timing.timed(list, 3), *timing.in_turns([list, list], 2)):
        assert all(1 / seconds > 0 for seconds in took.values())
    assert set(parts.shares(dict.fromkeys(parts.PARTS, 0.0)).values()) == {0.0}
