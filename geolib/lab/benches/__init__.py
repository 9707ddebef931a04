"""Measurements of speed and memory: each module has ``run()``, which returns rows of one run."""
