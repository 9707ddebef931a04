"""The experiments: a file for each paper, and one for digits, found by their ``EXPERIMENTS``, a tuple of Experiment."""
