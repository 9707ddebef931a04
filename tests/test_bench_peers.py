"""The bench beside other libraries, without them and with one that stands in for them."""

import torch

from geolib.lab.benches import vs_libraries as peers


def gone(*_):
    raise ImportError("no such library")


def doubled(tokens, q):
    work = peers.TASKS[peers.HALF_SPLIT][peers.OURS](tokens, q)
    return lambda q, k: [2 * each for each in work(q, k)]


def small(monkeypatch, **others):
    rotary = dict.fromkeys((peers.ROTARY, peers.HALF_SPLIT), (3, 9))
    monkeypatch.setattr(peers, "TOKENS", rotary | {peers.IMAGE: (196,), peers.BIAS: (5,)})
    kept = {what: {peers.OURS: contenders[peers.OURS], **others} for what, contenders in peers.TASKS.items()}
    monkeypatch.setattr(peers, "TASKS", kept)


def test_a_library_that_is_not_here_is_named_once_and_left_out(monkeypatch):
    small(monkeypatch, absent=gone)
    rows = peers.run(repeats=1)
    assert rows[-1] == {"missing": "absent"}
    assert [row for row in rows if "missing" in row] == rows[-1:]
    assert {row["who"] for row in rows[:-1]} == {peers.OURS}
    assert {row["ratio"] for row in rows[:-1]} == {1.0}
    assert max(row["error"] for row in rows[:-1] if row["dtype"] == "float32") < 1e-5
    assert peers.table(rows).endswith("Not installed here: absent.")


def test_another_s_time_and_error_are_told_beside_ours(monkeypatch):
    small(monkeypatch, double=doubled)
    rows = peers.run(repeats=1)
    (row,) = [
        row
        for row in rows
        if (row["what"], row["tokens"], row["dtype"], row["who"]) == (peers.HALF_SPLIT, 9, "float32", "double")
    ]
    q = torch.randn(2, 1, 8, 9, 64, generator=torch.Generator().manual_seed(0))
    assert 0.5 * float(q.abs().max()) < row["error"] < 1.5 * float(q.abs().max())
    assert row["ratio"] > 0
    lines = peers.table(rows).splitlines()
    assert lines[0] == "| | tokens | geolib, ms | double |"
    assert len(lines) == 2 + 2 * 2 + 1 + 1
    assert all(line.count("|") == 5 for line in lines)


def test_a_ready_bias_gives_what_alibi_gives():
    q, k = torch.randn(2, 1, 8, 6, 64)
    (ours, _), (theirs, _) = (make(6, q)(q, k) for make in peers.TASKS[peers.BIAS].values())
    torch.testing.assert_close(ours, theirs)
