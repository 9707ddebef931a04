"""Python processes of their own that start with torch and the lab imported, as a test's own process has them.

A short process spends nearly all of its time on its imports. These fork from a server that has done them once, and find
everything else as ``python -c PROGRAM WORDS`` would: the program is ``__main__``, and may be killed.
"""

import multiprocessing
import os
import sys
from contextlib import contextmanager
from multiprocessing import forkserver
from types import ModuleType

import geolib

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["torch._dynamo", "geolib.lab"])  # the first optimiser imports the former


@contextmanager
def put_in(mapping, key, value):
    """The value stands there for a while, and then what was there before."""
    before = dict(mapping)
    mapping[key] = value
    try:
        yield
    finally:
        mapping.pop(key)
        mapping.update({key: before[key]} if key in before else {})


def start(process):
    """Start it, from a server that finds this process's library and without this process's program."""
    with put_in(os.environ, "PYTHONPATH", os.pathsep.join(sys.path)):
        forkserver.ensure_running()
    with put_in(sys.modules, "__main__", ModuleType("__main__")):
        process.start()


def work(program, words, environment, said, library):
    """What the new process does: the program, on one thread, with both its outputs in files."""
    import torch

    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate(said, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
    if geolib.__file__ != library:
        raise ImportError(f"the server's library is {geolib.__file__}, the tests' {library}")
    torch.set_num_threads(1)
    sys.argv = ["-c", *words]
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})


class Started:
    """A process that runs a program with words and with changes to the environment; its outputs are in a folder."""

    def __init__(self, folder, program, *words, **environment):
        number = len(list(folder.glob("*.stdout")))
        self.said = [folder / f"{number}.{name}" for name in ("stdout", "stderr")]
        for path in self.said:
            path.touch()
        given = program, list(map(str, words)), os.environ | environment, list(map(str, self.said)), geolib.__file__
        self.process = SERVER.Process(target=work, args=given, daemon=True)  # none outlives the tests
        start(self.process)
        self.pid = self.process.pid

    @property
    def stdout(self):
        """What it has printed so far."""
        return self.said[0].read_text("utf-8")

    @property
    def stderr(self):
        """Its errors so far."""
        return self.said[1].read_text("utf-8")

    def poll(self):
        """The exit status, minus the number of a signal that ended it; None while it runs."""
        return self.process.exitcode

    def kill(self):
        """End it at once."""
        self.process.kill()

    def wait(self):
        """The exit status, when it has ended, or None after ten minutes."""
        self.process.join(600)
        return self.poll()
