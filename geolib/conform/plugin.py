"""The pytest plugin: ``pytest --geolib-conform module:object`` collects the laws as tests.

It is there as soon as the library is installed, and imports nothing of it before the option is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option, as often as there are targets."""
    told = "hold module:object, or timm, transformers, ..., to the laws of geolib.conform"
    parser.getgroup("geolib").addoption("--geolib-conform", action="append", default=[], metavar="TARGET", help=told)


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """The laws stand behind the other tests."""
    for spec in config.getoption("--geolib-conform"):
        collector = Conformance.from_parent(session, name=f"geolib-conform[{spec}]", spec=spec)
        items.extend(collector.collect())


class Conformance(pytest.Collector):
    """The laws for what one name stands for."""

    def __init__(self, spec: str, **named: Any):
        super().__init__(**named)
        self.spec = spec

    def collect(self) -> Iterator[pytest.Item]:
        """A test for each law that applies."""
        from geolib.conform import ABOUT, LAWS, load

        for target in load(self.spec):
            for name in ABOUT:
                if LAWS[name].applies(target):
                    yield Held.from_parent(self, name=f"{target.name}: {name}", target=target, law=LAWS[name])


class Held(pytest.Item):
    """One law for one target."""

    def __init__(self, target: Any, law: Any, **named: Any):
        super().__init__(**named)
        self.target, self.law = target, law

    def reportinfo(self) -> tuple[Any, None, str]:
        """What a failure is called."""
        return self.path, None, self.name

    def runtest(self) -> None:
        """Passes where it is kept, is skipped where it was not tried, and fails with its smallest input."""
        from geolib.conform import hold

        found = hold(self.target, self.law, self.parent.spec)  # type: ignore[union-attr]
        if found.outcome == "broken":
            pytest.fail(f"{self.law.statement}\n{found.why}\n\n{found.snippet}", pytrace=False)
        if found.outcome != "kept":
            pytest.skip(f"{found.outcome}: {found.why}")
