"""The experiments, in a file for each paper, and one for digits.

A new experiment is a new file here, and nothing else: its name is free, and it defines ``EXPERIMENTS``, a tuple of
``geolib.lab.experiments.plan.Experiment``. The command line, the tables and the tests over all experiments find it.
"""
