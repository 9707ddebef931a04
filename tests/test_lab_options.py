"""Options of the lab cannot be lost: every field of a configuration changes a run, every option what it is read by."""

import random
from dataclasses import fields

import pytest
import torch
from test_options import check_differences, check_rows, ids_of, optional, random_by, seeded

from geolib.lab import Config, run, text_attention
from geolib.lab.data import policies
from geolib.lab.data.documents import Bytes, Documents
from geolib.lab.experiments import statistics
from geolib.lab.gpt import GPT
from geolib.lab.probes import lm, vit

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = {"width": 16, "heads": 2, "layers": 1, "batch": 8, "epochs": 2, "train_size": 16, "test_size": 64}
SEEN = ("digits", {"method": "rope-axial", **TINY, "patch": 4})
READ = ("documents", {"method": "sympow+gates", **TINY, "context": 8})
# Each field, a value away from the one of SEEN, and what else it needs to be felt.
AWAY = {
    "method": ("alibi", {}),
    "method_options": ({"base": 7.0}, {}),
    "width": (8, {}),
    "heads": (1, {}),
    "layers": (2, {}),
    "mlp_ratio": (1.0, {}),
    "patch": (2, {}),
    "pool": ("cls", {}),
    "dropout": (0.5, {}),
    "epochs": (3, {}),
    "batch": (5, {}),
    "lr": (1e-2, {}),
    "weight_decay": (0.9, {"lr": 0.1}),
    "schedule": ("constant", {}),
    "warmup": (3, {}),
    "label_smoothing": (0.2, {}),
    "augment": ("crop-flip", {}),
    "randaugment": ((2, 30), {"augment": "crop-flip-randaugment"}),
    "erase": (0.9, {}),
    "shifts": ((1,), {}),
    "precision": ("bfloat16", {}),
    "train_size": (24, {}),
    "test_size": (60, {}),
    "eval_every": (2, {}),
    "seed": (1, {}),
    "resolutions": ((16,), {}),
}
AWAY_READING = {
    "method": ("softmax", {}),
    "method_options": ({"gate_bias": 0.0}, {}),
    "context": (12, {}),
    **{name: AWAY[name] for name in ("width", "heads", "layers", "mlp_ratio", "epochs", "batch", "lr", "weight_decay")},
    **{name: AWAY[name] for name in ("schedule", "warmup", "train_size", "test_size", "eval_every", "seed")},
}


def little_documents():
    def part(seed, count):
        draw = random.Random(seed)
        return Bytes([f"{seed}"], [bytes(draw.randrange(97, 101) for _ in range(count))])

    return Documents("documents", part(1, 900), part(2, 900), "made here")


def outcome(kind, **settings):
    """All that a record says of a run's numbers."""
    dataset, usual = kind
    read = dataset == "documents"
    data, after = (little_documents(), None) if read else (None, vit.after_training)
    record = run(Config(dataset, **{**usual, **settings}), data=data, device="cpu", quiet=True, after=after)
    metrics = [{k: v for k, v in row.items() if k != "seconds"} for row in record.metrics]
    return [list(row.items()) for row in metrics], list(dict(record.learned).items()), record.precision, record.data


@pytest.mark.parametrize("kind", [SEEN, READ], ids=["images", "documents"])
def test_every_field_of_a_configuration_changes_the_run(kind):
    table = AWAY if kind is SEEN else AWAY_READING
    if kind is SEEN:
        assert set(table) | {"dataset", "context"} == {f.name for f in fields(Config)}, "a new field needs a line"
    plain = outcome(kind)
    assert plain == outcome(kind)
    for name, (value, beside) in table.items():
        before = outcome(kind, **beside) if beside else plain
        assert outcome(kind, **{**beside, name: value}) != before, f"{name} changes nothing"


# Functions that numbers pass through ----------------------------------------------------------------------------------

MODULES = ("vit", "causal", "data.policies", "experiments.stats", "gpt", "reading")
IMAGES = torch.randint(0, 256, (6, 3, 12, 12), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)
BLANK = torch.zeros(1, 1, 8, 8)
BLANK[0, 0, 1, 1] = 1
READ_CONFIG = Config("documents", "fox", width=8, heads=2, layers=1, context=8)
READER = GPT(READ_CONFIG)
PROMPT = torch.tensor([97, 98])


def drawn(function, *arguments):
    """What a function makes of random numbers that are always the same."""
    return seeded(lambda **options: function(*arguments, **options))


def attended(**options):
    layer = text_attention.CausalAttention("conformal-sympow", 16, 2, 64.0, **options)
    return layer(torch.randn(1, 5, 16, generator=torch.Generator().manual_seed(1)))


MOVES = policies.rand_augment_moves((3, 12, 12), 20)
ROWS = [
    ("vit.shuffle_patches", random_by(lambda **o: vit.shuffle_patches(IMAGES, 3, **o)), {"generator": 2}),
    ("vit.room", lambda **o: vit.room(BLANK, **o), {"patch": 2}),
    (
        "text_attention.CausalAttention",
        seeded(attended),
        {"power": 4, "gate_bias": 0.0, "head_dim": 4, "beta_scale": 0.0},
    ),
    (
        "text_attention.Method",
        lambda **o: text_attention.Method("softmax", text_attention.Rotary, **o).gates,
        {"gates": True},
    ),
    ("data.policies.rand_augment", drawn(policies.rand_augment, IMAGES, MOVES), {"ops": 3}),
    ("data.policies.rand_augment_moves", lambda **o: policies.rand_augment_moves((3, 12, 12), **o), {"magnitude": 30}),
    (
        "experiments.stats.difference_error",
        lambda **o: statistics.difference_error(0.8, 0.7, 500, **o),
        {"disagreement": 0.2},
    ),
    ("experiments.stats.verdict", lambda **o: statistics.verdict(0.1, 0.4, **o), {"named": 0.5}),
    ("gpt.GPT.resume", lambda **o: READER.resume(PROMPT[None], **o)[0], {"carries": READER.resume(PROMPT[None])[1]}),
    ("lm.doublings", lambda **o: lm.doublings(20, **o), {"first": 3}),
    ("lm.generate", lambda **o: lm.generate(READER, PROMPT, 30, **o), {"temperature": 0.1, "seed": 3}),
]
# The numbers of a move are its stages, each tested against torchvision (test_augment.py).
STAGES = {("data.policies.Move", name): "a stage" for name in policies.Move._fields}


def test_every_option_has_a_row_and_every_row_an_option():
    options = {
        (name.removeprefix("lab."), option)
        for name, option in optional(lambda inside: inside[0] == "lab" and ".".join(inside[1:]) in MODULES)
    }
    check_rows(ROWS, options, STAGES)


@pytest.mark.parametrize(("name", "call", "away"), ROWS, ids=ids_of(ROWS))
def test_every_option_makes_a_difference(name, call, away):
    check_differences(call, away)
