"""``experiments``: a table of all experiments of the lab's registry, with how many of their runs have a record."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from geolib.lab import read_all
from geolib.lab.experiments import EXPERIMENTS, Experiment
from geolib.lab.experiments.plan import SCALES

HEAD = ("experiment", "what", "runs recorded of all, by scale")


class ExperimentList(SphinxDirective):
    """``experiments``: the table."""

    def run(self) -> list[nodes.Node]:
        """A row for each."""

        def row(*cells: nodes.Node) -> nodes.row:
            return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells))

        recorded = {record.config.hash for record in read_all()}
        group = nodes.tgroup("", *(nodes.colspec(colwidth=33) for _ in HEAD), cols=len(HEAD))
        group += nodes.thead("", row(*map(nodes.Text, HEAD)))
        rows = [(nodes.literal(text=e.name), nodes.Text(e.about), runs_of(e, recorded)) for e in EXPERIMENTS.values()]
        group += nodes.tbody("", *(row(*cells) for cells in rows))
        return [nodes.table("", group, classes=["colwidths-auto"])]


def runs_of(experiment: Experiment, recorded: set[str]) -> nodes.Text:
    """How many runs of each scale have a record."""
    counts = []
    for scale in (scale for scale in SCALES if scale != "smoke" and scale in experiment.scales):
        planned = {config.hash for config in experiment.configs(scale)}
        if planned:
            counts.append(f"{scale} {len(planned & recorded)} of {len(planned)}")
    return nodes.Text(", ".join(counts) or "nothing is trained")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the directive."""
    app.add_directive("experiments", ExperimentList)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
