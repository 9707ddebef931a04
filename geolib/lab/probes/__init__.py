"""What a trained model has learned: ``vit`` of image models, ``lm`` of language models."""

from typing import Any

from geolib.lab.probes import lm, vit


def after_training(run: Any) -> dict[str, Any]:
    """What a record keeps as ``learned``: ``vit.learned`` or ``lm.learned`` of a trained run; JSON can hold it."""
    return (lm if run.config.is_text else vit).learned(run)
