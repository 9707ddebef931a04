"""LieRE's Table 5 as rows: what ``geolib.lab.experiments.papers.liere_flops`` counts."""

from __future__ import annotations

from typing import Any

from geolib.lab.experiments.papers.liere_flops import flop_rows


def run() -> list[dict[str, Any]]:
    """Count; the rows are those of ``flop_rows``.

    Source: LR-T5.
    """
    return flop_rows()
