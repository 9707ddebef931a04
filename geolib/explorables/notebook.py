"""The lab notebook: recorded training curves, their final values, and where each of them was made."""

from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import traitlets

from geolib._checks import require
from geolib.explorables._widget import Choice, Explorable, Whole, assemble
from geolib.figures import COLOURS, METHOD_STYLES, method_style
from geolib.lab.experiments import EXPERIMENTS, Experiment
from geolib.lab.files import RECORDED
from geolib.lab.records import Record, read, record_files

METRICS = ("test_accuracy", "test_loss", "train_loss")
_SHARED = ("group", "title", "look", "device", "torch", "date")  # what the runs of a method have in common travels once
_KEYS = {"group", "name", "title", "look", "seed", "commit", "device", "torch", "date", "seconds", *METRICS}


def _pack(runs: list[dict[str, Any]], _: Any) -> dict[str, Any]:
    """What travels of the runs: the heads that they share, and of each run the number of its head and the rest."""
    heads = [{key: run[key] for key in _SHARED} for run in runs]
    distinct = {str(head): head for head in heads}
    number = {key: i for i, key in enumerate(distinct)}
    keys = sorted(_KEYS.difference(_SHARED))  # named once, not with each run
    rows = [[number[str(head)], *(run[key] for key in keys)] for head, run in zip(heads, runs)]
    return {"heads": list(distinct.values()), "keys": keys, "runs": rows}


def _unpack(packed: dict[str, Any], _: Any) -> list[dict[str, Any]]:
    """The runs that ``_pack`` sent."""
    return [packed["heads"][head] | dict(zip(packed["keys"], rest)) for head, *rest in packed["runs"]]


class LabNotebook(Explorable):
    """Curves of recorded runs: thin lines for seeds, thick ones for their means, a table of the final values.

    Parameters
    ----------
    folder : path
        Where the records are; those that come with the library by default. Read once, when the notebook is made.
    experiment : str
        Experiment, data set and scale, ``"digits-encodings/digits/cpu"``; the beginning of it is enough. The first by
        default.
    metric : str
        test_accuracy, test_loss or train_loss.
    hidden : list of str
        Titles of the methods that are not drawn.
    epoch : int
        Where the values are read, 1 or more; the last epoch by default.
    run : str
        Name of the run whose value and provenance are shown; empty for the first of the best method.
    runs : list of dict
        What the page needs of each record, made from the folder: leave it as it is.

    Raises
    ------
    ValueError
        When a value is out of its range, or a file in the folder is not a record (``LabError``, which names the file).

    Source: the tables of ``geolib.lab.experiments.table`` from the same records (RF-T1).
    """

    _esm = assemble("notebook.js")

    runs: Any = traitlets.TraitType().tag(sync=True, to_json=_pack, from_json=_unpack)
    experiment: Any = traitlets.TraitType("").tag(sync=True)
    metric = Choice("test_accuracy", METRICS)
    hidden: Any = traitlets.TraitType().tag(sync=True)
    epoch = Whole(1, low=1, high=100_000)
    run: Any = traitlets.TraitType("").tag(sync=True)

    def __init__(self, folder: Path | str = RECORDED, **values: Any):
        """Read the records and start at the first experiment's last epoch."""
        super().__init__(runs=values.pop("runs") if "runs" in values else gather(folder))
        for name, value in values.items():  # after the runs, by which they are checked
            setattr(self, name, value)
        if not self.experiment and self.runs:
            self.experiment = self.runs[0]["group"]
        if "epoch" not in values:
            shown = [len(run["train_loss"]) for run in self.runs if run["group"] == self.experiment]
            self.epoch = max(shown, default=1)
        groups, titles = (list(dict.fromkeys(run[key] for run in self.runs)) for key in ("group", "title"))
        of_runs = {"experiment": {"words": groups}, "hidden": {"words": titles, "least": 0, "most": len(titles)}}
        self._rules = self._rules | of_runs

    @traitlets.default("hidden")
    def _nothing(self) -> list[str]:
        return []

    @traitlets.validate("runs")
    def _runs(self, proposal: traitlets.Bunch) -> list[dict[str, Any]]:
        value = proposal.value
        sound = isinstance(value, list) and all(isinstance(run, dict) and run.keys() >= _KEYS for run in value)
        require(sound, "runs", type(value).__name__, f"it must be a list of runs with {', '.join(sorted(_KEYS))}")
        return value

    @traitlets.validate("experiment")
    def _experiment(self, proposal: traitlets.Bunch) -> str:
        groups = dict.fromkeys(run["group"] for run in self.runs)
        return _one_of("experiment", proposal.value, groups, beginning=True)

    @traitlets.validate("run")
    def _run(self, proposal: traitlets.Bunch) -> str:
        return _one_of("run", proposal.value, [run["name"] for run in self.runs])

    @traitlets.validate("hidden")
    def _hidden(self, proposal: traitlets.Bunch) -> list[str]:
        value = proposal.value
        titles = dict.fromkeys(run["title"] for run in self.runs)
        sound = isinstance(value, list | tuple) and all(each in titles for each in value)
        require(sound, "hidden", value, f"it must be a list of methods, which are {', '.join(titles)}")
        return list(value)


def gather(folder: Path | str) -> list[dict[str, Any]]:
    """What the page needs of every record below a folder, in the order of the experiments and of their methods.

    Records without accuracies, those of runs on text, are left out.
    """
    files = [(path, path.stat()) for path in record_files(folder)]
    rows = [_row(path, status.st_mtime_ns, status.st_size) for path, status in files]
    return [run for _, run in sorted(rows, key=lambda row: row[0]) if any(x is not None for x in run["test_accuracy"])]


@lru_cache(maxsize=4096)
def _row(path: Path, modified: int, size: int) -> tuple[tuple, dict[str, Any]]:
    """Where a record stands among the others, and what of it travels; a file that did not change is read once."""
    record = read(path)
    name, config, experiment = record.name, record.config, EXPERIMENTS.get(record.experiment or "")
    titles = experiment.methods if experiment else {}
    group = "/".join((record.experiment or "own runs", config.dataset, record.scale or "own scale"))
    order = list(EXPERIMENTS).index(experiment.name) if experiment else len(EXPERIMENTS)
    row = _row_of(record, experiment)
    place = list(titles).index(row) if row in titles else len(titles)
    run = {
        "group": group,
        "name": name,
        "title": titles.get(row, row),
        "look": look(config.method),
        "seed": config.seed,
        "device": f"{record.device}, {record.precision}",
        "torch": record.versions.get("torch", "unknown"),
        "commit": _commit(record),
        "date": record.started[:10],
        "seconds": _short(record.wall_seconds),
    }
    curves = {metric: [_short(epoch.get(metric)) for epoch in record.metrics] for metric in METRICS}
    return (order, group, place, row, config.seed, name), run | curves


def _row_of(record: Record, experiment: Experiment | None) -> str:
    """The row of its experiment's table in which a record stands, or else its method."""
    if experiment is None or record.scale not in experiment.scales:
        return record.config.method
    row, _ = _cells(experiment.name, record.scale).get(record.config.cell, (record.config.method, ""))
    return row


@cache
def _cells(name: str, scale: str) -> dict[str, tuple[str, str]]:
    """From a configuration's ``cell`` to its row and data set, made once for the hundreds of records that ask."""
    return EXPERIMENTS[name].cells(scale)


def look(method: str) -> list[Any]:
    """A method's colour, dashes and whether it has dots, by the palette; gold where the palette does not know it."""
    style = {"color": COLOURS["gold"], "linestyle": "-", "marker": ""}
    if method.split("+")[0] in METHOD_STYLES:
        style = method_style(method)
    return [style["color"], style["linestyle"], bool(style["marker"])]


def _commit(record: Record) -> str:
    """Seven digits of the commit, and whether the library differed from it."""
    if record.commit is None:
        return "unknown"
    return str(record.commit.get("id"))[:7] + (" with changes" if record.commit.get("dirty") else "")


def _short(value: float | None) -> float | None:
    """Five significant digits: a page is no archive."""
    return None if value is None else float(f"{value:.5g}")


def _one_of(name: str, value: Any, known: Iterable[str], beginning: bool = False) -> str:
    """A word among the known ones, or the first that it begins; the empty word stands for the first of all."""
    known = list(known)
    found = [each for each in known if each == value or (beginning and each.startswith(f"{value}/"))]
    require(value == "" or bool(found), name, repr(value), f"there are {', '.join(known) or 'no records'}")
    return found[0] if found else ""
