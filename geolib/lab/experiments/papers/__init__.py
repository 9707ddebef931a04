"""The experiments, one file for each paper.

A new experiment is a new file here, and nothing else: its name is free, and it defines ``EXPERIMENTS``, a tuple of
``geolib.lab.experiments.plan.Experiment``. The command line, the tables and the tests over all experiments find it
there. An experiment's ``importance`` says where its runs stand among those that are pending. The shortest example is
``digits``. A file may also define ``PIPELINES``, of ``plan.Pipeline``:
several experiments in stages.
"""
