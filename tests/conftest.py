"""Shared fixtures: seeded randomness, fresh memory filled with NaN so that unwritten values show, and a browser.

The browser is $CHROMIUM, or the first on the PATH of chromium-headless-shell (a quarter less work: it has no window
to draw), chromium, chromium-browser and google-chrome, or the one that ``playwright install chromium`` brings.
"""

import gc
import os
import re
import shutil

# Workers side by side leave no processor idle: threads of their own would wait for one another, up to a hundred times
# as long. Before torch is imported, so that the processes that tests start inherit it.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# PyTorch keeps what it learned of shapes while it traces. Where these have symbols nothing is found again, and keeping
# it took two fifths of the time.
os.environ.setdefault("TORCH_FAKE_TENSOR_DISPATCH_CACHE", "0")

import pytest
import torch

# What is imported and collected stays: to look through it for garbage again and again took a quarter of the time of the
# tests that trace graphs. Off until all is collected, set aside then, and seldom from there on.
gc.disable()


def stays_with(nodeid):
    """What a test shares with its neighbours: a page of the site, or else its file."""
    page = re.search(r"\[(?:\w+-)?([\w/-]+\.html)", nodeid)
    return page[1] if page else nodeid.partition("::")[0]


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items):
    """One after another: a page's tests on the site, those in the dark last, and otherwise a file's tests.

    So each page is opened once at each width, and turned dark once. Who asks for the browser is marked so.
    """
    first = {}
    for item in items:
        if "browser" in item.fixturenames:
            item.add_marker("browser")
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no GPU"))
    for place, item in enumerate(items):
        first.setdefault(stays_with(item.nodeid), place)
    items.sort(key=lambda item: (first[stays_with(item.nodeid)], "[dark-" in item.nodeid))


def pytest_collection_finish():
    """What is there now is no garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


def pytest_unconfigure():
    """At the end it may go: what still stands then is reported as leaked."""
    gc.unfreeze()


@pytest.fixture
def forgotten_graphs():
    """On a CPU FlexAttention traces what it is called with, and does not always survive the next shape."""
    torch._dynamo.reset()


@pytest.fixture
def watch_draws(monkeypatch):
    """watch_draws(): from now on, a list of where what ``torch.randn`` draws is moved to."""

    def watch():
        moved, randn = [], torch.randn

        class Drawn(torch.Tensor):
            def to(self, place):
                moved.append(place)
                return self.as_subclass(torch.Tensor).to(place)

        monkeypatch.setattr(torch, "randn", lambda *size, **options: randn(*size, **options).as_subclass(Drawn))
        return moved

    return watch


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def one_thread():
    """Small models train faster, and the same everywhere, on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def poisoned_memory():
    """Uninitialised tensors hold NaN while the test runs."""
    previous = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = previous


def browser_on_path():
    """The browser to start, or None for playwright's own."""
    names = [os.environ.get("CHROMIUM"), "chromium-headless-shell", "chromium", "chromium-browser"]
    names += ["google-chrome", "google-chrome-stable"]
    return next((found for name in names if name and (found := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium."""
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        try:
            chromium = playwright.chromium.launch(
                executable_path=browser_on_path(),
                args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", *QUIET],
            )
        except Error as error:
            pytest.fail(
                "no browser starts. Install one (Debian: apt install chromium-headless-shell; elsewhere: python -m "
                f"playwright install chromium) or name one in $CHROMIUM. {str(error).splitlines()[0]}",
                pytrace=False,
            )
        yield chromium
        chromium.close()


QUIET = ["--disable-background-networking", "--disable-sync", "--no-first-run"]
