"""The list of experiments, read from the lab's registry, as a Sphinx extension: ``experiments``."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from geolib.lab import read_all
from geolib.lab.experiments import EXPERIMENTS, Experiment
from geolib.lab.experiments.plan import SCALES

HEAD = ("experiment", "what", "runs recorded of all, by scale")
SHOWN = [scale for scale in SCALES if scale != "smoke"]


def runs_of(experiment: Experiment, recorded: set[str]) -> str:
    """How many runs of each scale have a record."""
    counts = []
    for scale in (scale for scale in SHOWN if scale in experiment.scales):
        planned = {config.hash for config in experiment.configs(scale)}
        if planned:
            counts.append(f"{scale} {len(planned & recorded)} of {len(planned)}")
    return ", ".join(counts) or "nothing is trained"


class ExperimentList(SphinxDirective):
    """``experiments``: a table of all of them."""

    def run(self) -> list[nodes.Node]:
        """The table."""
        recorded = {record.config.hash for record in read_all()}
        group = nodes.tgroup("", *(nodes.colspec(colwidth=33) for _ in HEAD), cols=len(HEAD))
        group += nodes.thead("", self.row([nodes.Text(word) for word in HEAD]))
        body = [
            self.row([nodes.literal(text=each.name), nodes.Text(each.about), nodes.Text(runs_of(each, recorded))])
            for each in EXPERIMENTS.values()
        ]
        group += nodes.tbody("", *body)
        return [nodes.table("", group, classes=["colwidths-auto"])]

    def row(self, cells: list[nodes.Node]) -> nodes.row:
        """A row."""
        return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells))


def setup(app: Sphinx) -> dict[str, object]:
    """Register the directive."""
    app.add_directive("experiments", ExperimentList)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
