"""A row of an experiment trains what its name and its title say; the papers' numbers are those that they print."""

import re

import pytest
import torch
from torch.testing import assert_close

from geolib.lab import Config, LabError
from geolib.lab.experiments import EXPERIMENTS
from geolib.lab.experiments.estimates import reach
from geolib.lab.experiments.papers import documents, liere, liere_space, riemannformer, turns
from geolib.lab.experiments.registry import PIPELINES
from geolib.lab.gpt import GPT
from geolib.lab.text_attention import Dense
from geolib.lab.vit import ViT
from geolib.rotations import document_frequencies

# The papers' numbers --------------------------------------------------------------------------------------------------


def test_the_papers_accuracies_are_those_printed():  # RF-T1, LR-T1, LR-T4
    assert riemannformer.PAPER == {
        ("none", "cifar10"): 79.61, ("none", "cifar100"): 53.37,
        ("sinusoidal", "cifar10"): 86.06, ("sinusoidal", "cifar100"): 59.81,
        ("rope", "cifar10"): 87.91, ("rope", "cifar100"): 62.37,
        ("lf", "cifar10"): 87.30, ("lf", "cifar100"): 63.01,
        ("riemannformer", "cifar10"): 89.87, ("riemannformer", "cifar100"): 64.51,
        ("riemannformer+lf", "cifar10"): 90.82, ("riemannformer+lf", "cifar100"): 66.96,
    }  # fmt: skip
    assert liere._PAPER_BASE == {
        "learned": 63.9, "visionllama": 65.5, "liere-2": 68.8, "liere-8": 70.3, "liere-64": 70.0,
    }  # fmt: skip
    assert liere._PAPER_TINY == {
        "learned": 57.2, "visionllama": 58.2, "liere-2": 65.4, "liere-8": 65.6, "liere-64": 65.3,
    }  # fmt: skip


# Names and titles -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", riemannformer.TRAININGS)
def test_a_setting_of_the_grid_is_the_one_it_is_called(name):  # RF-T1
    width, ratio, *words = re.fullmatch(r"w(\d+)-mlp(\d)(.*)", name).groups()
    words = words[0].split("-")[1:]
    config = riemannformer.BASELINES.config("full", f"{name}.none", "cifar10", 0)
    assert (config.width, config.mlp_ratio) == (int(width), float(ratio))
    assert config.augment == ("none" if "plain" in words else "crop-flip" + "-autoaugment" * ("auto" in words))
    assert config.schedule == ("constant" if "constant" in words else "cosine")
    assert (config.erase > 0) == ("erase" in words)
    assert config.warmup == (0 if "cold" in words else 5 * 391)  # epochs of 50,000 images in batches of 128


def test_an_ablation_changes_what_its_title_says():
    def options(row):
        return riemannformer.ABLATIONS.config("full", row, "cifar10", 0).method_options

    for row in ("alpha-0.01", "alpha-1"):
        assert options(row) == {"law_options": {"alpha": float(row.removeprefix("alpha-"))}}
    assert options("law-free") == {"law": "free"}
    assert options("law-slow") == {"law": "slow"}
    assert options("far-0.5") == {"far": 0.5}
    assert options("angles-learned") == {"learn_angles": True}
    assert options("s-per-layer-one-for-all-heads") == options("s-per-layer") | options("s-one-for-all-heads")
    assert (options("s-per-layer"), options("s-one-for-all-heads")) == ({"per_layer": True}, {"per_head": False})
    focused = {row: options(row)["lf"] for row in ("sigma-per-position", "sigma-per-layer", "identity")}
    assert focused["sigma-per-position"] == {"per_position": True}
    assert focused["sigma-per-layer"] == {"per_layer": True}
    assert options("sigma-per-position-identity") == {"lf": focused["sigma-per-position"] | focused["identity"]}
    assert focused["identity"] == {"learn_precision": False}


@pytest.mark.parametrize("row", liere.SHARING.rows("full"))
def test_a_row_of_sharing_changes_one_thing(row):  # LR-T2
    config = liere.SHARING.config("full", row, liere.WHOLE, 0)
    base, _, change = row.partition(".")
    width = base.partition("-")[2]
    wanted = {} if width in ("", "64") else {"block": int(width)}
    wanted |= {"share": change} if change in ("layers", "heads", "all") else {}
    wanted |= {"scale": 1.0} if change == "start-1" else {}
    assert config.method_options == wanted
    assert config.pool == ("mean" if change == "mean" else "cls")


def test_volumes_and_films_at_full_scale_have_the_papers_batch_and_epochs_and_are_not_augmented():  # LR-cfg
    for experiment in (liere_space.VOXELS, liere_space.MOTION):
        for row in experiment.rows("full"):
            config = experiment.config("full", row, experiment.datasets[0], 0)
            assert (config.batch, config.augment, config.epochs) == (64, "none", 50)
            assert (config.patch == 4) == row.endswith("@4")


def test_shares_of_the_data_are_those_shares():  # LR-F3b
    for share in liere.SHARES:
        config = liere.DATA.config("full", liere.share_row("liere-8", share), liere.WHOLE, 0)
        assert (config.train_size or 50_000) == 50_000 * share / 100


@pytest.mark.parametrize("scale", turns.TURNS.scales)
def test_rows_of_two_layers_have_two_at_every_scale(scale):
    for row in turns.TURNS.rows(scale):
        assert turns.TURNS.config(scale, row, "turns", 0).layers == (2 if row.endswith("-2") else 1), row


def test_rows_of_documents_are_what_their_titles_say():  # CS-F1, CS-GATE0
    for row, title in documents.CONTEXT.methods.items():
        scale = next(s for s in documents.CONTEXT.scales if row in documents.CONTEXT.rows(s))
        config = documents.CONTEXT.config(scale, row, "books", 0)
        assert config.context == int(re.search(r"([\d,]+) bytes", title)[1].replace(",", ""))
        assert config.method_options.get("power", 2) == (4 if ", p = 4" in title else 2), title
    words = {
        r"N = ([\d,]+)": lambda found: {"longest": float(found[1].replace(",", ""))},
        "eleven heads": lambda found: {"heads": 11},
        "start at 1/2": lambda found: {"gate_bias": 0.0},
        "all rates start at 1": lambda found: {"beta_scale": 0.0},
        "p = 4, ten heads of 6": lambda found: {"power": 4, "heads": 10, "head_dim": 6},
    }
    for row, title in documents.ABLATIONS.methods.items():
        if row in documents.ABLATIONS.rows("cpu"):
            wanted = {"head_dim": 16, "longest": 300.0}
            for pattern, said in words.items():
                if found := re.search(pattern, title):
                    wanted |= said(found)
            assert documents.ABLATIONS.config("cpu", row, "books", 0).method_options == wanted, title


# Models and plans -----------------------------------------------------------------------------------------------------


def test_a_query_of_a_power_meets_no_more_keys_than_its_state_costs():  # CS-CROSS
    sizes = {"dataset": "books", "context": 8192, "width": 64, "heads": 4, "method_options": {"head_dim": 16}}
    assert reach(Config(method="sympow", **sizes), 8192) == 2 * 136  # 16 * 17 / 2 monomials
    assert reach(Config(method="sympow", **sizes), 100) == 100
    assert reach(Config(method="softmax", **sizes), 8192) == 8192


@pytest.mark.parametrize(("seeds", "words"), [([1], []), (None, ["rope/cifar10"]), ([0], ["none"])])
def test_a_pipeline_refuses_seeds_and_rows(seeds, words):
    for pipeline in PIPELINES.values():
        with pytest.raises(LabError, match="--seeds and --only are for single experiments"):
            pipeline.stages(pipeline.scales[0], [], seeds, words)


def test_frequencies_that_are_asked_for_are_those_of_the_model():  # CS-N
    for asked, longest in (({}, 64.0), ({"longest": 300.0}, 300.0)):
        config = Config("books", "sympow", method_options=asked, context=64, width=32, heads=2, layers=1)
        attention = GPT(config).blocks[0].attention
        assert_close(attention.turning.frequencies.flatten(), document_frequencies(16, longest).flatten().float())


def test_a_dense_rotation_starts_as_rope():  # LR-lin
    step = Dense(32, 2, 16, 300.0).step().detach()
    angles = document_frequencies(16, 300.0)[:, 0]
    for pair, angle in enumerate(angles.tolist()):
        block = step[:, 2 * pair : 2 * pair + 2, 2 * pair : 2 * pair + 2]
        c, s = torch.tensor(angle).cos(), torch.tensor(angle).sin()
        assert_close(block, torch.stack([c, -s, s, c]).view(2, 2).expand(2, 2, 2).to(block.dtype))


def test_a_class_token_starts_small_and_what_enters_the_first_block_is_dropped():
    torch.manual_seed(0)
    model = ViT(Config("digits", "none", width=512, heads=2, layers=1, patch=4, pool="cls", dropout=0.5), (1, 8, 8), 10)
    assert 0.017 < float(model.cls.detach().std()) < 0.023
    entered = []
    model.blocks[0].register_forward_pre_hook(lambda block, given: entered.append(given[0].detach()))
    for training in (True, False):
        model.train(training)(torch.randn(4, 1, 8, 8))
    dropped, whole = ((x == 0).float().mean() for x in entered)
    assert 0.45 < dropped < 0.55
    assert whole == 0


def test_every_experiment_is_in_the_register():
    for module in (riemannformer, liere, liere_space, turns, documents):
        assert all(EXPERIMENTS[each.name] is each for each in module.EXPERIMENTS)
