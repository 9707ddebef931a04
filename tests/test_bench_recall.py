"""The tasks of recall ask for what their rule says, and heads that are trained together learn as if alone."""

import torch
from torch.testing import assert_close

from geolib.lab.benches import recall
from geolib.lab.benches.recall import Heads, Parts, copying, flip_flop, trained


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def test_flip_flop_asks_for_the_bit_written_last():
    tokens, answers, asked = flip_flop(40, 30, draw(), writes=0.2)
    assert set(tokens.unique().tolist()) == {0, 1, 2, 3, 4}
    assert torch.equal(asked, tokens == 4)
    for row, said in zip(tokens.tolist(), answers.tolist()):
        assert row[0] in (0, 1)
        assert row[-1] == 4
        written = None
        for token, answer in zip(row, said):
            written = token if token < 2 else written
            assert token != 4 or answer == written


def test_copying_asks_for_the_symbols_in_order():
    for symbols in (4, 9):
        tokens, answers, asked = copying(40, 9, draw(), symbols)
        for row, said, where in zip(tokens.tolist(), answers.tolist(), asked.tolist()):
            told = [token for token in row if token < 6]
            assert len(told) == symbols
            assert row[9:] == [7] * symbols
            assert [answer for answer, here in zip(said, where) if here] == told


def test_heads_trained_together_learn_as_if_alone():
    parts = [Parts(), Parts(gates=1.0), Parts(data=1.0)]
    task = lambda g: flip_flop(4, 10, g)  # noqa: E731
    together, alone = Heads(parts, 2, dim=4), Heads(parts[1:2], 2, dim=4)
    losses, its = trained(together, task, 5), trained(alone, task, 5)
    assert_close(losses[:, 2:4], its, rtol=1e-4, atol=1e-5)
    assert (losses[0, 0] - losses[0, 1]).abs() > 1e-3  # seeds differ


def test_heads_of_a_seed_start_alike_and_parts_do_what_they_say():
    tokens = flip_flop(3, 12, draw()).tokens
    said = Heads([Parts(), Parts(fixed=1.0), Parts(data=1.0), Parts(gates=1.0), Parts(gates=1.0, bias=0.0)], 1)(tokens)
    assert_close(said[:, 1], said[:, 2])  # rates start at 1
    assert (said[:, 0] - said[:, 1]).abs().max() > 1e-2
    near, far = (said[:, 0] - said[:, 3]).abs().max(), (said[:, 0] - said[:, 4]).abs().max()
    assert near < far  # gates near 1 change little


def test_a_run_has_a_row_for_each_variant_and_seed(monkeypatch):
    monkeypatch.setattr(recall, "VARIANTS", {"gates": Parts(gates=1.0)})
    rows = recall.run(steps=2, seeds=2, every=1)
    assert [(row["task"], row["seed"]) for row in rows[:3]] == [("flip-flop", 0), ("flip-flop", 1), ("copying", 0)]
    assert all(len(row["losses"]) == 2 and all(0 <= a <= 1 for a in row["accuracy"].values()) for row in rows)
