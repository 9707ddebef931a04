"""The pytest plugin: ``pytest --geolib-conform module:object`` collects the laws as tests.

It is there as soon as the library is installed, and imports nothing of it before the option is given.
"""

from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option, as often as there are targets."""
    told = "hold module:object, or timm, transformers, ..., to the laws of geolib.conform"
    parser.getgroup("geolib").addoption("--geolib-conform", action="append", default=[], metavar="TARGET", help=told)


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """The laws that apply stand behind the other tests."""
    for spec in config.getoption("--geolib-conform"):
        from geolib.conform import LAWS, load

        for name, target in load(spec):
            for law in LAWS.values():
                if law.applies(target):
                    held = {"spec": name, "target": target, "law": law}
                    items.append(Held.from_parent(session, name=f"{target.name}: {law.name}", **held))


class Held(pytest.Item):
    """One law for one target."""

    def __init__(self, spec: str, target: Any, law: Any, **named: Any):
        super().__init__(**named)
        self.spec, self.target, self.law = spec, target, law

    def reportinfo(self) -> tuple[Any, None, str]:
        """What a failure is called."""
        return self.path, None, self.name

    def runtest(self) -> None:
        """Passes where it is kept, is skipped where it was not tried, and fails with its smallest input."""
        from geolib.conform import hold

        found = hold(self.target, self.law, self.spec)
        if found.outcome == "broken":
            pytest.fail(f"{self.law.statement}\n{found.why}\n\n{found.snippet}", pytrace=False)
        if found.outcome != "kept":
            pytest.skip(f"{found.outcome}: {found.why}")
