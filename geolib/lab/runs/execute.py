"""A run from its configuration to its record."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from geolib.lab.config import Config
from geolib.lab.files import LabError, remove
from geolib.lab.runs import place, store
from geolib.lab.runs.record import Record
from geolib.lab.runs.store import Folders
from geolib.lab.training.loop import Run, train
from geolib.lab.training.options import Options


def run(
    config: Config,
    *,
    data: Any = None,
    out: Path | str | Folders | None = None,
    experiment: str | None = None,
    scale: str | None = None,
    options: Options | None = None,
    jobs: int = 1,
    after: Callable[[Run], Mapping[str, Any]] | None = None,
    **changes: Any,
) -> Record:
    """Train one model and return its record.

    Parameters
    ----------
    config : Config
    data : Dataset, Documents or None
        The set that the configuration names when None.
    out : folder, Folders or None
        Where the record is written and the checkpoint is kept until then; with None nothing is written.
    experiment, scale : str or None
        Noted in the record.
    options : Options or None
        With ``out``, the checkpoint is there and not where they say.
    jobs : int
        Noted in the record: how many runs share the device.
    after : function of the finished Run, or None
        What it reads from the trained model, as JSON can hold it, becomes the record's ``learned``.
    **changes
        Fields of ``Options`` in which this run differs from them: ``run(config, quiet=True)``.

    Returns
    -------
    Record
        Of several processes only the first writes it.

    Raises
    ------
    LabError, Stopped, Diverged
        As for ``geolib.lab.train``.
    """
    folders = out if isinstance(out, Folders) or out is None else Folders.below(out)
    chosen = replace(options or Options(), **changes)
    if folders is not None:
        folders.check()
        chosen = replace(chosen, checkpoint=folders.checkpoint(config))
    finished = train(config, data, chosen)
    return kept(finished, folders, experiment, scale, jobs, after)


def kept(
    finished: Run,
    folders: Folders | None,
    experiment: str | None = None,
    scale: str | None = None,
    jobs: int = 1,
    after: Callable[[Run], Mapping[str, Any]] | None = None,
) -> Record:
    """The record of a finished run, written where there are folders; the parameters are those of ``run``."""
    record = record_of(finished, experiment, scale, jobs)
    if after is not None and finished.world.first:
        record = replace(record, learned=as_json(after(finished)))
    if folders is not None and finished.world.first:
        store.write(record, folders.records)
        # Only now: killed before this line, the run is at worst finished twice.
        remove(folders.checkpoint(finished.config))
    return record


def as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as they come back from a file; LabError when JSON cannot hold them."""
    try:
        return json.loads(json.dumps(dict(values), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise LabError(f"after: it returned something that JSON cannot hold ({error})") from None


def record_of(run: Run, experiment: str | None = None, scale: str | None = None, jobs: int = 1) -> Record:
    """The record of a finished run."""
    return Record(
        config=run.config,
        experiment=experiment,
        scale=scale,
        metrics=tuple(run.metrics),
        wall_seconds=run.total_seconds,
        images_per_second=run.images_per_second,
        peak_memory={"bytes": run.peak_bytes, "of": "device" if run.device.type == "cuda" else "process"},
        device=place.device_name(run.device),
        precision=run.precision,
        versions=place.versions(),
        commit=place.commit(),
        data={
            "name": run.data.name,
            "source": run.data.source,
            "fingerprint": run.data.fingerprint,
            **run.sizes,
        },
        started=run.started,
        engine={
            "step": run.take_step.form,
            "why": run.take_step.why,
            **({"precision": run.why_precision} if run.why_precision else {}),
            "processes": run.world.size,
            "devices": run.devices,
            "jobs": jobs,
        },
    )
