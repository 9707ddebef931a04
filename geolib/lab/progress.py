"""What a run shows while it trains: a bar with loss, accuracy, speed and the time left."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from geolib.lab.files import LabError


def progress_bar(run: Any) -> Any:
    """Make a bar that counts images or tokens."""
    try:
        from tqdm import tqdm  # plain text: a widget would be dead on a static page
    except ImportError:
        raise LabError("the progress bar needs tqdm: pip install tqdm, or ask for quiet") from None
    config, task = run.config, run.task
    label = f"{config.dataset} {config.method} seed {config.seed}"
    layout: dict[str, Any] = {"bar_format": "{l_bar}{bar:10}{r_bar}", "unit": f" {task.unit}", "unit_scale": True}
    return tqdm(total=config.epochs * task.examples * task.each, desc=label, **layout)


def show_progress(bar: Any, run: Any, epoch: int, step: int, loss: Tensor) -> None:
    """Bring the bar, if there is one, up to date: what was seen, the last loss, the last evaluation's figures."""
    if bar is None:
        return
    last: dict[str, float] = next((row for row in reversed(run.metrics) if "test_loss" in row), {})
    tested = {key.removeprefix("test_"): f"{value:.3f}" for key, value in last.items() if key.startswith("test_")}
    bar.set_postfix({"loss": f"{loss.item():.3f}", **tested}, refresh=False)
    examples = epoch * run.task.examples + min(step * run.config.batch, run.task.examples)
    bar.update(examples * run.task.each - bar.n)
    bar.refresh()
