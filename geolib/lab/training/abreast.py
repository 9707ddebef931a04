"""Several runs in one process, their steps in turn, on a GPU each on a stream of its own.

A small model's step leaves most of a GPU idle. Recorded steps are launched by one call each, so one process can keep
several going: while one's kernels run, the next one's are launched on another stream, and the GPU runs both. Each run
has its own generators, so its numbers are those it would have alone. What this gains on a GPU is not measured yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass

import torch

from geolib.lab.config import Config
from geolib.lab.data.sets import Dataset
from geolib.lab.files import LabError
from geolib.lab.training.device import isolated, memory_errors_named
from geolib.lab.training.loop import Run, begun
from geolib.lab.training.options import Options
from geolib.lab.training.watch import Diverged, Stopped, Watch


@dataclass(frozen=True)
class Lane:
    """One of the runs.

    Parameters
    ----------
    config : Config
    data : Dataset
    options : Options
        Its device is that of all.
    """

    config: Config
    data: Dataset
    options: Options


def abreast(lanes: Sequence[Lane], device: torch.device) -> Iterator[tuple[int, Run | Exception]]:
    """Train several models in turn, a step each.

    Parameters
    ----------
    lanes : sequence of Lane
    device : torch.device

    Yields
    ------
    (int, Run or Exception)
        A lane's number, when it has ended: its finished run, or what ``train`` would have raised. After a signal every
        lane writes its checkpoint and ends in Stopped.
    """
    with ExitStack() as stack:
        stack.enter_context(isolated(device))
        watches = [stack.enter_context(Watch(lane.options)) for lane in lanes]
        streams = [torch.cuda.Stream(device) if device.type == "cuda" else None for _ in lanes]
        going = {number: steps(lane, watches[number], device) for number, lane in enumerate(lanes)}
        while going:
            for number, under_way in list(going.items()):
                lane = lanes[number]
                try:
                    with on(streams[number]), memory_errors_named(lane.config, device, lane.options.checkpoint):
                        finished = next(under_way)
                except (Stopped, Diverged, LabError) as trouble:
                    del going[number]
                    yield number, trouble
                else:
                    if finished is not None:
                        del going[number]
                        yield number, finished
            asked = next((watch.asked for watch in watches if watch.asked is not None), None)
            for watch in watches:  # a signal reaches one of them
                watch.asked = asked


def on(stream: torch.cuda.Stream | None) -> AbstractContextManager[object]:
    """Inside, what is launched goes to the stream."""
    return nullcontext() if stream is None else torch.cuda.stream(stream)


def steps(lane: Lane, watch: Watch, device: torch.device) -> Iterator[Run | None]:
    """The loop of ``train``, which stops after every step; the run itself comes last."""
    run = begun(lane.config, lane.data, device, None, lane.options)
    if lane.options.checkpoint is not None and lane.options.checkpoint.is_file():
        run.restore(lane.options.checkpoint)
    else:
        run.settle_precision()
    watch.begin(run)
    for _ in range(run.epoch, lane.config.epochs):
        for batch in run.begin_epoch():
            run.update(batch)
            watch.after_step(run)
            yield None
        run.end_epoch()
        watch.after_epoch(run)
    run.finish()
    yield run
