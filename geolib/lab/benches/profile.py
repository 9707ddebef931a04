"""Where the time of a training step goes, operation by operation, by PyTorch's profiler on the CPU."""

from torch.profiler import ProfilerActivity, profile

from geolib.lab.benches.speedup_ablation import training_step
from geolib.lab.config import Config


def run(rung: str = "bf16", width: int = 192, layers: int = 4, batch: int = 32) -> list[dict[str, object]]:
    """Measure the 20 longest operations in a step of a rung of ``speedup_ablation``.

    ``share`` is of the time in all operations, by the clock; what Python does between them is not counted.
    """
    step = training_step(Config("cifar10", "riemannformer", width=width, layers=layers, batch=batch, patch=4), rung)
    step()  # the optimizer makes its moments
    with profile(activities=[ProfilerActivity.CPU]) as found:
        step()
    lines = sorted(found.key_averages(), key=lambda line: -line.self_cpu_time_total)
    total = sum(line.self_cpu_time_total for line in lines)
    shares = {line.key: line.self_cpu_time_total / total for line in lines}
    about = {"rung": rung, "width": width, "layers": layers, "batch": batch}
    return [{"operation": line.key, "calls": line.count, "share": shares[line.key], **about} for line in lines[:20]]
