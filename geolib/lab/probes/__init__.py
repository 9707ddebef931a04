"""What a trained model has learned: ``vit`` of image models, ``lm`` of language models."""

from typing import Any

from geolib.lab.probes import lm, vit


def after_training(run: Any) -> dict[str, Any]:
    """Measure what a record keeps as ``learned`` of a trained run: ``vit.learned`` or ``lm.learned``, fit for JSON."""
    return (lm if run.config.is_text else vit).learned(run)
