"""Documents in the lab: data and their errors, attention by name against plain loops, training, what is read out."""

import errno
import itertools
import json
import math
import random
import signal
import time
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from afresh import Started
from torch import nn

from geolib.lab import Config, LabError, load, text_attention, train
from geolib.lab import records as store
from geolib.lab.__main__ import main
from geolib.lab.data import documents as data
from geolib.lab.data.documents import Bytes, Documents, pieces, read_windows, windows
from geolib.lab.experiments.papers import documents as papers
from geolib.lab.experiments.tables import best_rate
from geolib.lab.gpt import GPT
from geolib.lab.probes.lm import (
    _quantiles,
    after_reading,
    bits_of,
    by_position,
    contexts_of,
    extrapolation,
    frequencies_of,
    gates_and_rates,
    generate,
    inputs_noted,
    mentions,
    names,
    state_numbers_of,
)
from geolib.lab.text_attention import LINEAR_CHUNK, METHODS, ONE_CHUNK, CausalAttention
from geolib.lab.train import DocumentRun
from geolib.lab.watch import Stopped, Watch
from geolib.rotations import document_frequencies
from geolib.sympow import embed

TINY = {"width": 16, "heads": 2, "layers": 2, "context": 16, "batch": 4, "train_size": 12, "test_size": 8, "epochs": 3}
POWERS = [name for name, parts in METHODS.items() if parts.kernel == "power"]

pytestmark = pytest.mark.usefixtures("one_thread")


def text(seed, length):
    draw = random.Random(seed)
    words = ["the", "cat", "of", "Anna", "and", "saw", "Boris", "in", "a", "house,"]
    return " ".join(draw.choice(words) for _ in range(length)).encode()


@pytest.fixture
def little():
    train_part = Bytes([f"book {i}" for i in range(3)], [text(i, 200) for i in range(3)])
    return Documents("documents", train_part, Bytes(["last"], [text(9, 400)]), "made here")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A directory of two authors' books, in $GEOLIB_DOCUMENTS."""
    for seed, (author, book) in enumerate(itertools.product(("ann", "bob", "cy"), ("one", "two"))):
        path = tmp_path / "library" / author / f"{book}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text(seed, 300))
    for hidden in (".DS_Store", "ann/.one.txt.swp", ".git/index"):  # they lie beside texts and are none
        path = tmp_path / "library" / hidden
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"\0")
    monkeypatch.setenv("GEOLIB_DOCUMENTS", str(tmp_path / "library"))
    return tmp_path / "library"


def timeless(metrics):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in metrics]


def wild(module, scale=0.5, seed=0):
    """The module with large random parameters, so that no path through it is nearly idle."""
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(seed)
        for p in module.parameters():
            p.normal_(0, scale)
    return module


# Data ---------------------------------------------------------------------------------------------------------------


def test_windows_tell_every_token_once_and_never_cross_a_documents_end():
    part = Bytes(["a", "b", "c"], [bytes(range(100)), bytes(range(100, 140)), bytes(range(200, 224))])
    places = windows(part, 12)
    cut = read_windows(part, places, 12)
    assert cut.shape == (8 + 3 + 1, 13)
    told = cut[:, 1:].flatten().tolist()
    assert told == [*range(1, 97), *range(101, 137), *range(201, 213)]
    assert [row[0] for row in cut[:8].tolist()] == [12 * i for i in range(8)]
    assert all(len({(int(token) >= 100) + (int(token) >= 200) for token in row}) == 1 for row in cut)


def test_a_directory_is_split_by_author(folder):
    found = load("documents")
    assert (len(found.train.titles), len(found.test.titles)) == (4, 2)
    texts = {part: set(getattr(found, part).texts) for part in ("train", "test")}
    held = [author for author in ("ann", "bob", "cy") if (folder / author / "one.txt").read_bytes() in texts["test"]]
    assert len(held) == 1
    assert (folder / held[0] / "two.txt").read_bytes() in texts["test"]
    assert str(folder) not in found.source


def test_train_and_heldout_folders_are_the_parts(tmp_path, monkeypatch):
    for half, name in (("train", "x"), ("heldout", "y")):
        (tmp_path / "books" / half).mkdir(parents=True)
        (tmp_path / "books" / half / f"{name}.txt").write_text(name * 50)
    monkeypatch.setenv("GEOLIB_DATA", str(tmp_path))
    monkeypatch.delenv("GEOLIB_DOCUMENTS", raising=False)
    books = load("books")
    assert (books.train.titles, books.test.titles) == (["x"], ["y"])
    found = load("documents")
    assert found.fingerprint == books.fingerprint
    assert (books.name, found.name) == ("books", "documents")
    assert books.source == found.source == "text files (books in $GEOLIB_DATA), authors split"


@pytest.mark.parametrize("folder", [None, "."])
def test_with_nothing_there_pythons_own_source_is_read(tmp_path, monkeypatch, folder):
    for name in ("GEOLIB_DATA", "GEOLIB_DOCUMENTS"):
        monkeypatch.delenv(name, raising=False)
    if folder:
        monkeypatch.setenv("GEOLIB_DATA", str(tmp_path / folder))
    with pytest.raises(LabError, match="take the data set documents"):
        load("books")
    found = load("documents")
    assert "standard library" in found.source
    assert min(found.train.lengths) >= data.STDLIB_BYTES
    assert not set(found.train.titles) & set(found.test.titles)
    assert found.fingerprint == load("stdlib").fingerprint


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda f: [p.unlink() for p in f.rglob("*.txt")], "there is no file in it"),
        (lambda f: (f / "ann" / "one.txt").write_bytes(b"abc\0def"), "one.txt: not a text file, it holds zero bytes"),
        (
            lambda f: (f / "ann" / "one.txt").write_bytes("café".encode("latin-1")),
            "one.txt: not UTF-8 (byte 3 is 0xe9)",
        ),
        (lambda f: (f / "ann" / "one.txt").write_bytes(b""), "one.txt: the file is empty"),
        (lambda f: f.rename(f.with_name("elsewhere")), "there is no such directory"),
        (lambda f: [p.unlink() for a in ("ann", "bob") for p in (f / a).iterdir()], "all of it is by one author"),
    ],
)
def test_what_cannot_be_read_is_one_line_that_names_it(folder, spoil, says, capsys, tmp_path):
    spoil(folder)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(LabError) as error:
        load("documents")
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_a_text_that_may_not_be_read_is_named_with_the_reason(folder, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(LabError, match=r"one\.txt: cannot be read \(Permission denied\)$"):
        load("documents")


def test_a_document_shorter_than_the_context_is_named(folder):
    (folder / "ann" / "short.txt").write_text("too short")
    with pytest.raises(LabError, match=r"context: got 16; short has 9 tokens, and a window takes 17"):
        train(Config("documents", "softmax", **TINY), quiet=True)
    (folder / "ann" / "short.txt").unlink()
    with pytest.raises(LabError, match="train_size: got 5000; there are only"):
        train(Config("documents", "softmax", **{**TINY, "train_size": 5000}), quiet=True)


def test_a_fingerprint_changes_with_one_byte(little):
    changed = replace(little, test=Bytes(["last"], [little.test.texts[0][:-1] + b"!"]))
    assert changed.fingerprint != little.fingerprint


def test_pieces_are_spread_over_every_document(little):
    found = pieces(little.train, 100, 2)
    assert found.shape == (6, 101)
    whole = little.train.texts[1]
    starts = [whole.find(bytes(row.tolist())) for row in found[2:4]]
    free = len(whole) - 101  # where the last piece could begin: the two stand at a quarter and three quarters of that
    assert starts == [free // 4, 3 * free // 4]
    just = Bytes(["just"], [text(3, 400)[:203]])
    assert len(pieces(just, 100, 2)) == 2
    with pytest.raises(LabError, match="no document has 2 pieces"):
        pieces(Bytes(["just"], [just.texts[0][:202]]), 100, 2)
    with pytest.raises(LabError, match="no document has 2 pieces"):
        pieces(little.train, 10_000, 2)


# Configurations -----------------------------------------------------------------------------------------------------


def test_images_and_documents_are_not_confused(little):
    with pytest.raises(LabError, match="data: got Documents for the data set digits"):
        train(Config("digits", "rope"), little, quiet=True)
    with pytest.raises(LabError, match="data: got Dataset for the data set documents"):
        train(Config("documents", "softmax"), load("digits"), quiet=True)


# Attention by name --------------------------------------------------------------------------------------------------


def by_a_loop(layer, x):
    """The layer's output for one sequence, (tokens, width) in float64, from its weights alone, one pair at a time."""
    heads, dim, ones, turning = layer.heads, layer.dim, x.new_ones(len(x)), layer.turning
    q, k, v = (x @ layer.qkv.weight.T).view(len(x), 3, heads, dim).unbind(1)
    out = torch.zeros(len(x), heads, dim, dtype=x.dtype)
    weigh = {
        "Softmax": lambda score: (score / math.sqrt(dim)).exp(),
        "Power": lambda score: score**layer.kernel.power,
    }.get(type(layer.kernel).__name__, torch.zeros_like)
    for h in range(heads):
        gates = ones if layer.W_gamma is None else torch.sigmoid(x @ layer.W_gamma.weight[h] + layer.gate_bias)
        rates = 1 + torch.tanh(x @ turning.W_beta.weight[h]) if getattr(turning, "W_beta", None) else ones
        skew = torch.zeros(dim, dim, dtype=x.dtype)
        if (frequencies := getattr(turning, "frequencies", None)) is not None:
            skew = torch.block_diag(*(f * torch.tensor([[0.0, -1], [1, 0]], dtype=x.dtype) for f in frequencies[:, 0]))
        if hasattr(turning, "lower"):
            skew = turning.lower[h].tril(-1) - turning.lower[h].tril(-1).T
        for i in range(len(x)):
            weights = torch.zeros(i + 1, dtype=x.dtype)
            for j in range(i + 1):  # the query meets the key turned back by what lies between
                key = torch.linalg.matrix_exp(-rates[j + 1 : i + 1].sum() * skew) @ k[j, h]
                weights[j] = weigh(q[i, h] @ key) * gates[j + 1 : i + 1].prod()
            out[i, h] = weights @ v[: i + 1, h] / (weights.sum() or 1)
    return out.flatten(1) @ layer.out.weight.T + layer.out.bias


@pytest.mark.parametrize("method", [m for m, parts in METHODS.items() if parts.kernel != "linear"])
def test_every_method_is_its_sum_over_pairs(method):  # CS-att, CS-conf, CS-rot, LR-lin
    layer = wild(CausalAttention(method, 8, 2, longest=32.0, gate_bias=1.0).double())
    x = torch.randn(2, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = torch.stack([by_a_loop(layer, row) for row in x])
    torch.testing.assert_close(layer(x), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("method", ["linear", "linear+gates"])
def test_linear_attention_is_its_recurrence(method):
    layer = wild(CausalAttention(method, 8, 2, longest=32.0, gate_bias=1.0).double())
    tokens = LINEAR_CHUNK + 7
    x = torch.randn(1, tokens, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    q, k, v = layer.heads_of(x)
    q, k, _ = layer.turning(q, k, x, None)
    q, k = nn.functional.elu(q) + 1, nn.functional.elu(k) + 1
    gates = torch.ones(1, 2, tokens) if layer.log_gates(x) is None else layer.log_gates(x).exp()
    S, Z, rows = torch.zeros(2, 4, 4, dtype=x.dtype), torch.zeros(2, 4, dtype=x.dtype), []
    for i in range(tokens):
        S = gates[0, :, i, None, None] * S + v[0, :, i, :, None] * k[0, :, i, None, :]
        Z = gates[0, :, i, None] * Z + k[0, :, i]
        rows.append((S @ q[0, :, i, :, None]).squeeze(-1) / (Z * q[0, :, i]).sum(-1, keepdim=True))
    expected = layer.out(torch.stack(rows).flatten(1))
    torch.testing.assert_close(layer(x)[0], expected, rtol=1e-8, atol=1e-10)


def test_power_four_is_the_square_of_the_squares():
    layer = wild(CausalAttention("sympow+gates", 8, 2, longest=32.0, power=4, head_dim=6).double())
    x = torch.randn(1, 7, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(layer(x)[0], by_a_loop(layer, x[0]), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("method", ["sympow", "conformal-sympow"])
def test_a_long_window_takes_chunks_and_a_short_one_none_to_the_same_numbers(method, monkeypatch):  # CS-chunk
    layer = wild(CausalAttention(method, 8, 2, longest=700.0).double(), 0.3)
    x = torch.randn(1, ONE_CHUNK + 70, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    calls = []

    for name in ("one_chunk_form", "chunked_form"):
        usual = getattr(text_attention, name)
        monkeypatch.setattr(text_attention, name, lambda *a, n=name, f=usual, **o: calls.append(n) or f(*a, **o))
    x.requires_grad_()
    chunks = layer(x)
    (by_chunks,) = torch.autograd.grad(chunks.square().sum(), x)
    monkeypatch.setattr(text_attention, "ONE_CHUNK", 10_000)
    whole = layer(x)
    (by_one,) = torch.autograd.grad(whole.square().sum(), x)
    assert calls == ["chunked_form", "one_chunk_form"]
    torch.testing.assert_close(chunks, whole, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(by_chunks, by_one, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_a_later_byte_changes_no_earlier_score(method):
    model = wild(GPT(Config("documents", method, **TINY)), 0.3)
    tokens = torch.randint(0, 256, (1, 16), generator=torch.Generator().manual_seed(0))
    before = model(tokens)
    for place in (15, 9, 3):
        changed = tokens.clone()
        changed[0, place] = (changed[0, place] + 1) % 256
        after = model(changed)
        torch.testing.assert_close(after[:, :place], before[:, :place], rtol=0, atol=1e-5)
        assert (after[:, place:] - before[:, place:]).abs().amax() > 1e-3


@pytest.mark.parametrize("method", METHODS)
def test_token_by_token_is_the_parallel_form(method):  # CS-P1, CS-P2, CS-2
    model = wild(GPT(Config("documents", method, **TINY)).double(), 0.3)
    tokens = torch.randint(0, 256, (2, 12), generator=torch.Generator().manual_seed(0))
    whole = model(tokens)
    for cuts in ([1] * 12, [5, 1, 1, 5], [12]):
        rows, carries = [], None
        for part in tokens.split(cuts, 1):
            scores, carries = model.resume(part, carries)
            rows.append(scores)
        torch.testing.assert_close(torch.cat(rows, 1), whole, rtol=1e-7, atol=1e-9)


def test_carried_numbers_are_constant_and_counted():  # CS-size
    for method in POWERS:
        config = Config("documents", method, **TINY)
        model = GPT(config)
        tokens = torch.randint(0, 256, (1, 40), generator=torch.Generator().manual_seed(0))
        _, carries = model.resume(tokens)
        numbers = sum(t.kept.S.numel() + t.kept.Z.numel() for t in carries)
        assert numbers == state_numbers_of(model) == 2 * 2 * (8 + 1) * 36
    assert state_numbers_of(GPT(Config("documents", "softmax", **TINY))) is None
    linear = GPT(Config("documents", "linear+gates", **TINY))
    assert sum(c.kept.numel() for c in linear.resume(tokens)[1]) == state_numbers_of(linear)


def test_gates_and_rotations_cost_the_parameters_that_the_paper_counts():  # CS-cost
    sizes = {m: sum(p.numel() for p in CausalAttention(m, 768, 12, longest=1024.0).parameters()) for m in POWERS}
    block = 12 * 768 * 12  # numbers of W_gamma, or of W_beta, in 12 layers
    assert 12 * (sizes["sympow+gates"] - sizes["sympow"]) == block
    assert 12 * (sizes["conformal-sympow"] - sizes["sympow+gates"]) == block
    assert (round(100 * block / 124e6, 2), round(100 * 2 * block / 124e6, 2)) == (0.09, 0.18)


def test_all_methods_of_a_seed_start_from_the_same_embedding():
    models = []
    for method in METHODS:
        torch.manual_seed(3)
        models.append(GPT(Config("documents", method, **TINY)))
    assert all(torch.equal(m.embedding.weight, models[0].embedding.weight) for m in models)


def test_a_method_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="method: got 'path'; there are none, softmax"):
        CausalAttention("path", 8, 2, longest=8.0)
    with pytest.raises(LabError, match="heads: got 3"):
        train(Config("stdlib", "sympow", **{**TINY, "method_options": {"heads": 3}}), quiet=True)


# Training -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_every_parameter_and_learns(method, little):
    config = Config("documents", method, **{**TINY, "epochs": 4, "train_size": 40, "lr": 1e-2, "eval_every": 4})
    done = train(config, little, quiet=True, device="cpu")
    assert isinstance(done, DocumentRun)
    assert done.metrics[-1]["test_bits"] < 5.5 < 8
    assert done.metrics[-1]["test_bits"] == pytest.approx(done.metrics[-1]["test_loss"] / math.log(2))
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in done.model.parameters())


def test_an_epoch_reads_new_windows_until_all_are_read(little):
    config = Config("documents", "softmax", **{**TINY, "train_size": 20, "epochs": 9})
    fresh = DocumentRun(config, little, torch.device("cpu"))
    seen = []
    for epoch in range(9):
        fresh.epoch = epoch
        seen.append([tuple(row.tolist()) for x, _ in fresh.begin_epoch() for row in x])
    count = len(fresh.windows)
    read = list(itertools.chain(*seen))
    assert [len(each) for each in seen] == [20] * 9
    assert len(set(read[:count])) == len(
        {tuple(r.tolist()) for r in read_windows(little.train, fresh.windows, 16)[:, :-1]}
    )
    assert seen[0] != seen[1]
    again = DocumentRun(replace(config, method="sympow"), little, torch.device("cpu"))
    assert [tuple(row.tolist()) for x, _ in again.begin_epoch() for row in x] == seen[0]  # all methods read the same
    other = DocumentRun(replace(config, seed=1), little, torch.device("cpu"))
    assert [tuple(row.tolist()) for x, _ in other.begin_epoch() for row in x] != seen[0]


def test_evaluation_is_the_mean_over_all_windows_tested_on(little, monkeypatch):
    done = train(Config("documents", "sympow", **TINY), little, quiet=True, device="cpu")
    rows = read_windows(little.test, done.test_windows, 16)
    loss = nn.functional.cross_entropy(done.model(rows[:, :-1]).mT, rows[:, 1:])
    assert done.metrics[-1]["test_loss"] == pytest.approx(loss.item(), rel=1e-5)
    monkeypatch.setattr("geolib.lab.train.EVALUATION_TOKENS", {"cpu": 48})
    assert done.evaluate()["test_loss"] == pytest.approx(loss.item(), rel=1e-5)


def test_one_step_is_adam_on_the_mean_cross_entropy(little):
    settings = {**TINY, "epochs": 1, "train_size": 4, "weight_decay": 0.0, "schedule": "constant", "lr": 0.01}
    config = Config("documents", "conformal-sympow", **settings)
    done = train(config, little, quiet=True, device="cpu")
    fresh = DocumentRun(config, little, torch.device("cpu"))
    ((x, y),) = fresh.begin_epoch()
    loss = nn.functional.cross_entropy(fresh.model(x).mT, y)
    loss.backward()
    adam = torch.optim.Adam(fresh.model.parameters(), lr=0.01)
    adam.step()
    assert done.metrics[0]["train_loss"] == pytest.approx(loss.item(), rel=1e-5)
    for ours, theirs in zip(done.model.parameters(), fresh.model.parameters()):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


LONG = {"width": 16, "heads": 2, "layers": 1, "context": ONE_CHUNK + 128, "batch": 1, "epochs": 2, "train_size": 6}
KILLED = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from geolib.lab import Config, train
from geolib.lab.watch import Watch
usual = Watch.after_step
def after_step(self, run):
    usual(self, run)
    time.sleep(0.2)
Watch.after_step = after_step
config = Config.from_dict(eval(sys.argv[1]))
train(config, checkpoint=Path(sys.argv[2]), checkpoint_seconds=0.0, quiet=True, device="cpu")
"""


def test_killed_in_a_long_document_it_ends_in_the_same_numbers(tmp_path):
    config = Config("stdlib", "conformal-sympow", test_size=2, **LONG)  # windows long enough for the chunked form
    undisturbed = train(config, quiet=True, device="cpu")
    checkpoint = tmp_path / "run.pt"
    child = Started(tmp_path, KILLED, config.to_dict(), checkpoint)
    while not checkpoint.is_file():
        assert child.poll() is None, child.stderr
        time.sleep(0.01)
    child.kill()
    assert child.wait() == -signal.SIGKILL
    epoch, step, _ = torch.load(checkpoint, weights_only=True)["progress"]
    assert 0 < 6 * epoch + step < 12
    resumed = train(config, quiet=True, device="cpu", checkpoint=checkpoint)
    assert timeless(resumed.metrics) == timeless(undisturbed.metrics)
    for ours, theirs in zip(resumed.model.parameters(), undisturbed.model.parameters()):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("at", [1, 3, 5])
def test_stopped_at_any_step_it_continues_to_the_same_numbers(little, tmp_path, monkeypatch, at):
    config = Config("documents", "sympow+gates", **{**TINY, "precision": "bfloat16"})
    undisturbed = train(config, little, quiet=True, device="cpu")
    usual, count = Watch.after_step, itertools.count(1)

    def after_step(self, run):
        if next(count) == at:
            self.asked.append(signal.SIGTERM)
        usual(self, run)

    with monkeypatch.context() as patch:
        patch.setattr(Watch, "after_step", after_step)
        with pytest.raises(Stopped):
            train(config, little, quiet=True, device="cpu", checkpoint=tmp_path / "run.pt")
    resumed = train(config, little, quiet=True, device="cpu", checkpoint=tmp_path / "run.pt")
    assert resumed.precision == "bf16"
    assert timeless(resumed.metrics) == timeless(undisturbed.metrics)


def test_the_bar_counts_tokens_and_shows_bits(little, capsys):
    train(Config("documents", "softmax", **TINY), little, device="cpu")
    shown = capsys.readouterr().err
    assert "tokens/s" in shown.replace(" tokens/s", "tokens/s")
    assert "bits=" in shown


# What a trained reader is read out for ------------------------------------------------------------------------------


@pytest.fixture
def brief(monkeypatch):
    """What is read out of a trained reader, on less text."""
    for name, value in (("PIECE", 256), ("GENERATED", 20)):
        monkeypatch.setattr(f"geolib.lab.probes.lm.{name}", value)


@pytest.fixture
def reader(little):
    config = Config("documents", "conformal-sympow", **{**TINY, "context": 64, "train_size": 10, "test_size": 2})
    config = replace(config, method_options={"gate_bias": 0.0})  # gates of all sizes
    big = replace(little, test=Bytes(["x", "y"], [text(5, 4000), text(6, 4000)]))
    done = DocumentRun(config, big, torch.device("cpu"))
    wild(done.model, 0.2)
    done.model.eval()
    return done


def test_bits_are_those_of_windows_that_see_nothing_before(reader):
    tokens = pieces(reader.data.test, 128, 1)
    found = bits_of(reader, tokens, 32)
    assert found.shape == (2, 128)
    x, y = tokens[1, 32:64], tokens[1, 33:65]
    expected = nn.functional.cross_entropy(reader.model(x[None])[0], y, reduction="none") / math.log(2)
    torch.testing.assert_close(found[1, 32:64], expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(bits_of(reader, tokens, 64)[1, 32:64], expected, atol=1e-3)


def test_other_frequencies_last_as_long_as_asked(reader):  # CS-N
    tokens = pieces(reader.data.test, 128, 1)
    before = bits_of(reader, tokens, 128)
    with frequencies_of(reader.model, 1000.0):
        turning = reader.model.attentions[0].turning
        assert torch.equal(turning.frequencies, document_frequencies(8, 1000.0))
        assert not torch.allclose(bits_of(reader, tokens, 128), before, atol=1e-4)
    assert torch.equal(bits_of(reader, tokens, 128), before)
    with frequencies_of(reader.model, 64.0):  # N fixed at the training context is what it was trained with
        assert torch.equal(bits_of(reader, tokens, 128), before)


def test_contexts_reach_four_times_as_far_as_training():
    assert contexts_of(64) == [64, 256]
    assert contexts_of(1024) == [64, 256, 1024, 4096]
    assert contexts_of(8192) == [128, 512, 2048, 8192, 32768]
    assert all(isinstance(context, int) for context in contexts_of(1024))


def test_each_context_has_the_bits_of_its_windows_and_longer_ones_those_of_their_frequencies(reader, monkeypatch):
    tokens = pieces(reader.data.test, 256, 1)
    found = extrapolation(reader, tokens, torch.full((2, 256), 1 / 3))
    assert found["contexts"] == [64, 256]
    assert found["bits"] == [round(float(bits_of(reader, tokens, 64).mean()), 5), 0.33333]
    with frequencies_of(reader.model, 256):
        longer = round(float(bits_of(reader, tokens, 256).mean()), 5)
    assert found["bits_current_N"] == [None, longer]
    monkeypatch.setattr("geolib.lab.probes.lm.contexts_of", lambda trained: [32, trained, 4 * trained])
    shorter = round(float(bits_of(reader, tokens, 32).mean()), 5)
    assert extrapolation(reader, tokens, torch.full((2, 256), 1 / 3))["bits"] == [shorter, *found["bits"]]


@pytest.mark.parametrize(("most", "read"), [(2**17, 4), (1, 2)])
def test_each_second_piece_is_read_at_every_context_and_two_of_any_length(reader, brief, monkeypatch, most, read):
    monkeypatch.setattr("geolib.lab.probes.lm.READ", most)
    monkeypatch.setattr("geolib.lab.probes.lm.extrapolation", lambda *given: given)
    tokens = pieces(reader.data.test, 256, 2)[:read]
    kept = after_reading(reader)
    run, given, bits = kept["extrapolation"]
    assert (run, len(tokens)) == (reader, read)
    assert torch.equal(given, tokens[::2])
    assert torch.equal(bits, bits_of(reader, tokens, 256)[::2])
    assert sum(kept["position"]["count"]) == 256 * read


def test_a_sample_goes_on_from_the_first_document_at_its_temperature(reader, brief, monkeypatch):
    monkeypatch.setattr("geolib.lab.probes.lm.TEMPERATURE", 0.05)
    prompt = pieces(reader.data.test, 256, 2)[0, :120]
    made = bytes(generate(reader.model, prompt, 20, 0.05).tolist())
    sample = {"prompt": bytes(prompt.tolist()).decode(), "text": made.decode("utf-8", "replace")}
    assert after_reading(reader)["sample"] == sample


def test_positions_are_gathered_in_buckets():
    bits = torch.arange(16.0).view(2, 8)
    found = by_position(bits, 4)
    assert (found["from"], found["count"]) == ([0, 1, 2], [4, 4, 8])
    assert found["bits"] == [6.0, 7.0, 8.5]
    assert by_position(bits / 3, 4)["bits"] == [2.0, 2.33333, 2.83333]


def test_names_are_found_with_the_distance_to_their_last_mention():
    found = mentions(b"He met Emma, and Emma met Mr. Knightley. Emma saw Knightley")
    words = [(m.start, m.distance) for m in found]
    assert words == [(7, None), (17, 10), (30, None), (50, 20)]  # a sentence's first word does not count


def test_bits_of_names_are_those_after_the_first_letter():
    window = b"so Emma came, and Emma went. so she and Anna sat with Emma now  "
    assert len(window) == 64
    tokens = torch.tensor(list(window + b"!"))[None]
    bits = torch.arange(64.0)[None]  # the bits of byte i + 1 are i
    found = names(tokens, bits, 64)
    assert (found["first_count"], found["count"]) == (2, [1, 0, 1])
    assert found["distance"] == [1, 16, 32]
    at = [m.start for m in mentions(window)]
    assert at == [3, 18, 40, 54]
    assert found["bits"] == [19.0, None, 55.0]  # letters 2, 3, 4 of Emma at 18 are bytes 19, 20, 21, told at 18, 19, 20
    assert found["first_bits"] == pytest.approx((4 + 41) / 2)
    cut = names(tokens[:, :61], bits[:, :60], 20)  # Emma, Emm up to the cut, Emma once more
    assert (cut["first_count"], cut["count"]) == (3, [0, 0])
    assert cut["first_bits"] == pytest.approx((4 + 18.5 + 55) / 3, abs=1e-5)


def test_gates_are_read_as_the_layers_meet_them(reader):  # CS-gate, CS-GATE0
    tokens = pieces(reader.data.test, 64, 1)[:, :64]
    found = gates_and_rates(reader, tokens)
    with torch.no_grad(), inputs_noted(reader.model.attentions) as noted:
        reader.scores(tokens)
    inputs = [given.float() for (given,) in noted]
    layer = reader.model.attentions[1]
    gates = torch.sigmoid(inputs[1] @ layer.W_gamma.weight[0] + layer.gate_bias)
    assert found["gates"]["mean"][1][0] == pytest.approx(gates.mean().item(), rel=1e-4)
    memory = sum(gates[:, j + 1 :].prod(-1) for j in range(64)).mean().item()
    assert found["gates"]["memory"][1][0] == pytest.approx(memory, rel=1e-3)
    assert found["gates"]["quantiles"][1][1][0] == pytest.approx(gates.quantile(0.5).item(), rel=1e-3)
    rates = 1 + torch.tanh(inputs[0] @ layer_of(reader, 0).turning.W_beta.weight[1])
    assert found["rates"]["mean"][0][1] == pytest.approx(rates.mean().item(), rel=1e-4)
    assert found["rates"]["std"][0][1] == pytest.approx(rates.std().item(), rel=1e-3)


def test_quantiles_of_very_many_gates_are_those_of_some():
    levels = _quantiles(torch.linspace(0, 1, 250_001).repeat(2, 1))
    torch.testing.assert_close(levels, torch.tensor([0.05, 0.5, 0.95])[:, None].expand(3, 2), atol=1e-5, rtol=0)


def layer_of(reader, index):
    return reader.model.attentions[index]


def test_generated_text_is_what_the_parallel_form_would_choose(reader):
    prompt = torch.tensor(list(b"the cat"))
    made = generate(reader.model, prompt, 12, temperature=0)
    so_far = prompt
    for token in made:
        assert int(reader.model(so_far[None])[0, -1].argmax()) == int(token)
        so_far = torch.cat([so_far, token[None]])
    drawn = [generate(reader.model, prompt, 12, 1.0, seed).tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("method", ["none", "softmax", "conformal-sympow", "sympow+liere"])
def test_what_is_read_out_is_json_and_says_the_same_twice(method, reader, brief):
    done = DocumentRun(replace(reader.config, method=method), reader.data, torch.device("cpu"))
    kept = after_reading(done)
    assert json.loads(json.dumps(kept, allow_nan=False)) == kept == after_reading(done)
    assert kept["extrapolation"]["contexts"] == [64, 256]
    assert (kept["extrapolation"]["bits_current_N"][1] is None) == (method in ("none", "sympow+liere"))
    assert ("gates" in kept) == (method in ("conformal-sympow", "sympow+liere"))
    assert len(kept["position"]["bits"]) == 9
    assert sum(kept["names"]["count"]) > 0
    folder = store.RECORDED / papers.ABLATIONS.name
    recorded = [run.learned for run in store.read_all(folder) if run.config.method == method]
    assert recorded or method == "none"
    for learned in recorded:
        assert paths_in(learned or {}) <= paths_in(kept), "tables read records by these names"


def paths_in(kept, above=()):
    """The names in what is kept, those of what holds them before them."""
    inside = [paths_in(value, (*above, key)) for key, value in kept.items() if isinstance(value, dict)]
    return {(*above, key) for key in kept}.union(*inside)


# The experiments ----------------------------------------------------------------------------------------------------


def by_row(experiment, scale):
    return {row: experiment.config(scale, row, "books", 0) for row in experiment.rows(scale)}


def test_every_run_of_an_experiment_reads_as_many_bytes_in_as_many_steps():  # CS-F1
    for scale in ("cpu", "full"):
        configs = papers.CONTEXT.configs(scale)
        assert {c.batch * c.context for c in configs} == {papers.STEP[scale]}
        read = {row: c.train_size * c.context * c.epochs for row, c in by_row(papers.CONTEXT, scale).items()}
        second, fourth = ({n for row, n in read.items() if ("-4@" in row) is four} for four in (False, True))
        assert second == {papers.EPOCH[scale] * configs[0].epochs}  # each panel of the figure by itself
        assert fourth == ({papers.EPOCH["full"] * papers.FOURTH_EPOCHS} if scale == "full" else set())
        assert {(c.schedule, c.weight_decay, c.warmup) for c in configs} == {("constant", 0.0, 0)}
    assert {c.hash for c in papers.EXTRAPOLATION.configs("cpu")} <= {c.hash for c in papers.CONTEXT.configs("cpu")}


def test_figure_one_fits_an_hour_and_a_run_three_minutes_of_an_h100():
    from geolib.lab.experiments.estimates import GPU, assumed_seconds

    second = {c.hash: c for row, c in by_row(papers.CONTEXT, "full").items() if "-4@" not in row}
    assert len(second) == 24
    assert sum(assumed_seconds(config, GPU) for config in second.values()) <= 3600
    for experiment in (each for each in papers.EXPERIMENTS if "full" in each.scales):
        assert max(assumed_seconds(config, GPU) for config in experiment.configs("full")) <= 180


def ended(seed, loss):
    """A record with a seed and the loss that its training ended with."""
    return SimpleNamespace(config=SimpleNamespace(seed=seed), loss=loss)


def test_a_rate_is_chosen_by_training_loss_over_the_seeds_that_all_rates_have():
    loss, rates = attrgetter("loss"), ["0.1", "0.2"]
    first, second = [ended(0, 2.0)], [ended(0, 3.0), ended(1, 0.5)]
    assert best_rate([first, second], rates, loss) == "0.1"  # the mean would say 0.2
    assert best_rate([[*first, ended(1, 2.0)], second], rates, loss) == "0.2"
    assert best_rate([first, []], rates, loss) == ""


@pytest.mark.parametrize("alone", [0, 1, 2])
@pytest.mark.parametrize("loss", [0.0, 2.5, 100.0])
def test_a_seed_that_some_rates_lack_decides_nothing(alone, loss):
    groups = [[ended(seed, each) for seed in (0, 1)] for each in (3.0, 2.0, 4.0)]
    groups[alone] += [ended(2, loss)]
    groups[1] += [ended(3, loss)]
    assert best_rate(groups, ["0.1", "0.2", "0.4"], attrgetter("loss")) == "0.2"


def test_power_four_carries_as_many_numbers_as_power_two():
    models = {row: GPT(papers.ABLATIONS.config("cpu", row, "books", 0)) for row in ("power-4", "sympow+gates")}
    numbers = {row: state_numbers_of(model) for row, model in models.items()}
    assert numbers == {"power-4": 3 * 8820, "sympow+gates": 3 * 9248}


def test_rates_start_at_one_where_the_row_says_so():
    x = torch.randn(2, 5, 176)
    for row, even in (("conformal-even", True), ("conformal-sympow", False)):
        for block in GPT(papers.ABLATIONS.config("cpu", row, "books", 0)).blocks:
            rates = block.attention.turning.rates(x)
            assert torch.equal(rates, torch.ones_like(rates)) is even


def test_only_the_rows_that_say_so_return_within_four_contexts():
    returning = set()
    for row in papers.ABLATIONS.rows("cpu"):
        options = papers.ABLATIONS.config("cpu", row, "books", 0).method_options
        turns = torch.arange(1.0, 1025)[:, None] / options["longest"] ** (torch.arange(8).double() / 8)
        if (turns - turns.round()).abs().amax(1).min() < 1e-6:
            returning.add(row)
    assert returning == {"softmax-256", "fox-256"}


def test_the_tables_show_what_is_recorded(brief, tmp_path, monkeypatch, capsys):
    (tmp_path / "books" / "train").mkdir(parents=True)
    (tmp_path / "books" / "heldout").mkdir()
    for i in range(3):
        (tmp_path / "books" / "train" / f"{i}.txt").write_bytes(text(i, 400))
        (tmp_path / "books" / "heldout" / f"{i}.txt").write_bytes(text(10 + i, 4000))
    monkeypatch.setenv("GEOLIB_DATA", str(tmp_path))
    out = tmp_path / "records"
    words = ["--scale", "smoke", "--out", str(out), "--quiet", "--device", "cpu"]
    for name in ("sympow-context", "sympow-ablations", "sympow-long"):
        assert main(["run", name, *words]) == 0
        shown = capsys.readouterr().out
        assert "bits a token" in shown
        assert "All" in shown
    assert main(["run", "sympow-extrapolation", *words]) == 0
    shown = capsys.readouterr().out
    assert shown.count("recorded already") == 4
    assert "N of each context" in shown
    record = next(r for r in store.read_all(out) if r.config.context == 64 and r.config.method == "sympow")
    assert f"{papers.at_context(record, 64):.3f}" in shown
    assert embed(torch.ones(4), 2).shape == (10,)


class Loaded:
    """A reader whose next token is drawn by the same scores whatever came before."""

    def __init__(self, *shares):
        self.scores = torch.tensor(shares).log()[None, None]

    def resume(self, tokens, carries=None):
        return self.scores, carries


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_a_temperature_is_a_root_of_the_shares(temperature):
    """Below 1 likely tokens become likelier: a share p is drawn as often as p^(1/T) says."""
    shares = torch.tensor([0.6, 0.3, 0.1])
    drawn = generate(Loaded(*shares.tolist()), torch.zeros(1, dtype=torch.long), 4000, temperature)
    wanted = shares ** (1 / temperature)
    found = drawn.bincount(minlength=3) / 4000
    torch.testing.assert_close(found, wanted / wanted.sum(), atol=0.03, rtol=0)
