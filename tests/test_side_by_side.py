"""Which tests follow one another, and which share a worker."""

import os

import pytest
from conftest import stays_with

came = []


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="needs workers")
@pytest.mark.parametrize("turn", range(4))
def test_a_files_tests_share_a_worker(turn):
    came.append(turn)
    assert came == list(range(turn + 1))


def test_a_pages_tests_follow_one_another():
    for page in ("chapters/04_transport.html", "book/how-to-read.html"):
        tests = (f"a[{page}]", f"b[{page}-390]", f"c[dark-{page}]")
        assert {stays_with(f"tests/test_site.py::test_{it}") for it in tests} == {page}
    assert stays_with("tests/test_lie.py::test_exp[so(3).html]") == "tests/test_lie.py"
