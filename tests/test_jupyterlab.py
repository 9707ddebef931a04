"""In a real JupyterLab, driven by the browser, traits go both ways: Python moves the picture, the hand sets Python."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest

CELLS = [
    "from geolib.explorables import RopeClock\nw = RopeClock(query=12)\nw",
    "heard = []\nw.observe(lambda change: heard.append(change.new), 'query')\nw.query = 40.0",
    "print('python has', w.query, 'and heard', heard)",
]
TEXT = """Put <a href="#move-clock.1?query=31&amp;base=1000">the query at 31</a>, the key at
<a href="#drag-clock.1?key=5&amp;min=0&amp;max=64&amp;step=1">5</a>."""
OWN = """from geolib.explorables import LiveModel
from geolib.lab import Config, train
small = {"width": 24, "heads": 2, "layers": 1, "epochs": 1, "train_size": 256, "test_size": 64}
mine = LiveModel(train(Config("digits", "rope-axial", **small), quiet=True))
mine"""
TOKEN = "for-this-test-alone"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A JupyterLab with one notebook, on a free port, with folders of its own."""
    home = tmp_path_factory.mktemp("lab")
    make = nbformat.v4
    cells = [make.new_code_cell(text, id=f"cell{i}") for i, text in enumerate(CELLS)]
    cells += [make.new_markdown_cell(TEXT, id="text"), make.new_code_cell(OWN, id="own")]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(make.new_notebook(cells=cells, metadata=kernel), home / "sync.ipynb")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folders = {f"JUPYTER_{name}_DIR": str(home / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    root = str(Path(__file__).parents[1])
    apart = {"IPYTHONDIR": str(home / "ipython"), "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"), "PYTHONPATH": root}
    options = ["--no-browser", "--allow-root", "--expose-app-in-browser", "--ServerApp.port_retries=0"]
    options += [f"--ServerApp.root_dir={home}", f"--ServerApp.port={port}", f"--IdentityProvider.token={TOKEN}"]
    options += ["--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    options += [f"--LabApp.workspaces_dir={home / 'workspaces'}"]
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options], stdout=log, stderr=log, env=os.environ | folders | apart
        )
    url = f"http://127.0.0.1:{port}/"
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{url}api?token={TOKEN}", timeout=5).close()
            break
        except OSError:
            assert server.poll() is None, (home / "log").read_text()
            time.sleep(0.1)
    yield url
    server.terminate()
    try:
        server.wait(timeout=20)
    except subprocess.TimeoutExpired:
        server.kill()


@pytest.fixture(scope="module")
def lab(browser, address):
    """The notebook, open and with its kernel ready."""
    context = browser.new_context(viewport={"width": 1200, "height": 2400})
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(f"{address}lab/tree/sync.ipynb?token={TOKEN}")
    page.wait_for_selector(".jp-Notebook .jp-Cell >> nth=4")
    page.wait_for_function(
        """() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === "idle" """
    )
    yield page
    context.close()


def run(page, index):
    """Run a cell of the notebook and wait until it is done."""
    page.evaluate(
        """async (index) => {
            const { content } = window.jupyterapp.shell.currentWidget;
            content.activeCellIndex = index;
            await window.jupyterapp.commands.execute("notebook:run-cell");
        }""",
        index,
    )
    page.locator(".jp-Notebook .jp-Cell").nth(index).locator(".jp-InputPrompt", has_text="[").wait_for()


def shown(page, index, text):
    """Run a cell again and again until its output holds this text: a slider's message may still be on its way."""
    output = page.locator(".jp-Notebook .jp-Cell").nth(index).locator(".jp-OutputArea")
    end = time.monotonic() + 60
    while time.monotonic() < end:
        run(page, index)
        if text in output.text_content():
            return
        page.wait_for_timeout(200)
    pytest.fail(f"{output.text_content()!r} does not hold {text!r}")


def test_traits_go_both_ways_between_python_and_the_page(lab):
    run(lab, 0)
    slider = lab.get_by_label("Query position m").first
    slider.wait_for()
    assert slider.input_value() == "12"
    stills = lab.locator(".jp-OutputArea [class^=geo-still]")  # for a saved notebook; the living figure hides its own
    assert (stills.count(), stills.locator("img:visible").count()) == (1, 0)

    run(lab, 1)  # Python moves the picture
    lab.wait_for_function("() => document.querySelector('.geo input[type=range]').value === '40'")
    assert "query at 40" in lab.locator(".geo svg").first.get_attribute("aria-label")

    slider.focus()  # the hand sets Python
    lab.keyboard.press("ArrowRight")
    shown(lab, 2, "python has 40.25 and heard [40.0, 40.25]")


def test_links_and_numbers_of_a_text_cell_move_the_figure_and_python(lab):
    query_is = "(wanted) => document.querySelector('.geo input[type=range]').value === wanted"
    run(lab, 0)
    lab.get_by_label("Query position m").first.wait_for()
    run(lab, 1)
    lab.wait_for_function(query_is, arg="40")
    lab.get_by_role("button", name="the query at 31").click()
    lab.wait_for_function(query_is, arg="31")
    lab.wait_for_timeout(700)
    shown(lab, 2, "python has 31.0 and heard")
    number = lab.locator("[data-geo-drag]")
    number.focus()
    lab.keyboard.press("ArrowRight")
    lab.wait_for_function("() => document.querySelector('[data-geo-drag]').textContent === '6'")
    assert "key at 6" in lab.locator(".geo svg").first.get_attribute("aria-label")
    assert lab.locator(".jp-Notebook .jp-Cell").count() == 5  # the notebook took no key for itself


def test_a_model_that_the_notebook_has_trained_reads_digits_in_it(lab):
    run(lab, 4)
    model = lab.locator(".jp-Notebook .jp-Cell").nth(4).locator(".geo")
    model.get_by_text("Read as").wait_for()
    first = model.locator(".said p")
    lab.wait_for_function("(said) => said.textContent.includes('are read rightly')", arg=first.nth(1).element_handle())
    assert "your model" in model.locator("select option:checked").text_content()
    before = first.nth(0).text_content()
    model.get_by_role("button", name="Another digit").click()
    lab.wait_for_function("([said, was]) => said.textContent !== was", arg=[first.nth(0).element_handle(), before])
