"""Runs: from a configuration to a record, where records lie, and several runs at a time."""

from geolib.lab.runs.execute import run
from geolib.lab.runs.record import Record
from geolib.lab.runs.store import Folders, read, read_all, record_files, write

__all__ = ["Folders", "Record", "read", "read_all", "record_files", "run", "write"]
