"""The laws are held to their own rule: each catches what is planted for it, and none fails on a right module."""

import conform_faults
import pytest
from conform_faults import FAULTS, RIGHT, planted

from geolib.conform import ABOUT, LAWS, hold

UNSEEN = {"no float64 on the way"}  # what is planted there can be seen on a device without float64 alone
IN_TWO = {"DDP", "FSDP2"}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught_by_its_law(fault):
    law, target = planted(fault)
    found = hold(target, LAWS[law], "conform_faults:planted")
    assert found.outcome == "broken", found
    assert found.why
    assert f"check('conform_faults:planted', {law!r}" in found.snippet


@pytest.mark.parametrize("target", RIGHT)
def test_no_law_fails_on_a_right_module(target):
    spec = f"conform_faults:{target.__name__}"
    laws = [law for law in LAWS.values() if law.name not in IN_TWO or target is conform_faults.Decoder]
    outcomes = [hold(target(), law, spec) for law in laws]
    assert [found for found in outcomes if found.outcome == "broken"] == []
    assert sum(found.outcome == "kept" for found in outcomes) >= 7


def test_every_law_has_a_fault_and_an_entry():
    assert len(FAULTS) >= 40
    assert {law for law, *_ in FAULTS.values()} == set(LAWS) - UNSEEN
    assert set(ABOUT) == set(LAWS)
