"""What to run in which order, and what of it a time budget holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from geolib.lab.config import Config
from geolib.lab.experiments.estimates import CPU, GPU, H100, Estimate, Speed, estimate
from geolib.lab.experiments.plan import Experiment, Stage
from geolib.lab.runs.place import device_name
from geolib.lab.runs.record import Record

SIDE_BY_SIDE = 1.4  # assumed: what several runs at a time get done on one GPU in the time of one


@dataclass(frozen=True)
class Machine:
    """Where runs are to be made.

    Parameters
    ----------
    name : str
        As records name it.
    speed : Speed
        Assumed of it.
    is_gpu : bool
    jobs : int
        Runs at a time on the device.
    devices : int
        How many such devices work side by side.
    """

    name: str
    speed: Speed
    is_gpu: bool
    jobs: int = 1
    devices: int = 1

    @classmethod
    def at_hand(cls, device: torch.device, jobs: int = 1, devices: int = 1) -> Machine:
        """The device that is here."""
        if device.type == "cuda":
            return cls(device_name(device), GPU, True, jobs, devices)
        cores = torch.get_num_threads()
        speed = Speed(CPU.flops * cores, CPU.operation, CPU.number / cores, CPU.preparing)
        return cls(device_name(device), speed, False, jobs, devices)

    @classmethod
    def h100(cls, jobs: int = 1) -> Machine:
        """The GPU for which the full runs are planned where there is none."""
        return cls(H100, GPU, True, jobs)

    @property
    def gain(self) -> float:
        """Runs that get done in the time that one takes alone."""
        return self.devices * self.shared(self.jobs)

    def shared(self, jobs: int) -> float:
        """The part of it that one device gives; a processor's cores are all at work in one run already."""
        return SIDE_BY_SIDE if self.is_gpu and jobs > 1 else 1.0

    def estimate(self, config: Config, records: Iterable[Record]) -> Estimate:
        """The time of a run that has one device to itself."""

        def alone(record: Record) -> Record:
            jobs = record.engine.get("jobs", 1)
            return Record(**vars(record) | {"wall_seconds": record.wall_seconds * self.shared(jobs) / jobs})

        return estimate(config, map(alone, records), self.name, self.speed)


@dataclass(frozen=True)
class Planned:
    """A run that is still to be made.

    Parameters
    ----------
    experiment : Experiment
    config : Config
    estimate : Estimate
        Of the run alone.
    stage : int
        Runs of a later stage wait for it.
    fits : bool
        Whether the time budget holds it.
    """

    experiment: Experiment
    config: Config
    estimate: Estimate
    stage: int
    fits: bool


def packed(
    stages: Sequence[Stage],
    is_missing: Callable[[Config], bool],
    estimated: Callable[[Config], Estimate],
    seconds: float | None,
    gain: float = 1.0,
) -> list[Planned]:
    """The runs that are missing, in their order, and which of them a time holds.

    Groups are taken by importance, whole, as long as there is time for them and for all later stages; a group that is
    too long is passed over, and a shorter one after it may still fit. The first group of a stage need not leave time
    for what follows: without it there is nothing to go on from.

    Parameters
    ----------
    stages : sequence of Stage
    is_missing : function of a Config
        Whether it has no record yet.
    estimated : function of a Config
    seconds : float or None
        The time that is left; without bounds when None.
    gain : float
        Runs that get done in the time of one.

    Returns
    -------
    list of Planned
        Each run once.
    """
    left = float("inf") if seconds is None else seconds * gain
    plan: dict[str, Planned] = {}
    for number, stage in enumerate(stages):
        later = {config.hash: config for other in stages[number + 1 :] for _, config in other.runs}
        for place, group in enumerate(stage.groups):
            new = {c.hash: (e, c) for e, c in group if is_missing(c) and not (c.hash in plan and plan[c.hash].fits)}
            costs = {key: estimated(config) for key, (_, config) in new.items()}
            needed = sum(cost.seconds for cost in costs.values())
            settled = {key for key, item in plan.items() if item.fits} | new.keys()
            reserve = sum(estimated(c).seconds for h, c in later.items() if is_missing(c) and h not in settled)
            fits = needed + (reserve if place else 0.0) <= left
            left -= needed if fits else 0.0
            plan |= {key: Planned(e, c, costs[key], number, fits) for key, (e, c) in new.items()}
    return list(plan.values())
