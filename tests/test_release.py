"""What is published: one version everywhere, records that ship, and a library that reads them away from a checkout."""

import os
import re
import shutil
import subprocess
import sys

import address as addresses
import pytest
import versions as version_program
from explorable_kit import REPOSITORY

from geolib.lab.__main__ import main
from geolib.lab.files import RECORDED, checkout
from geolib.lab.records import record_files

NAMED = ("geolib/__init__.py", "CITATION.cff", "CHANGELOG.md")


@pytest.fixture
def on_a_copy(tmp_path, monkeypatch):
    """on_a_copy(program, files): a program of release/, which sees a copy of these files for the repository."""

    def go(program, files):
        for path in files:
            (there := tmp_path / path.relative_to(REPOSITORY)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, there)
        monkeypatch.setattr(program, "REPOSITORY", tmp_path)
        return program

    return go


@pytest.fixture
def versions(on_a_copy):
    return on_a_copy(version_program, [REPOSITORY / name for name in NAMED])


@pytest.fixture
def address(on_a_copy):
    return on_a_copy(addresses, addresses.texts())


def replace(path, old, new):
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")


def test_library_citation_and_changelog_have_one_version(versions):
    assert versions.problems() == []


@pytest.mark.parametrize("name", NAMED)
def test_a_version_changed_in_one_place_alone_is_noticed(versions, name):
    replace(versions.REPOSITORY / name, versions.library(), "99.0.0")
    assert versions.problems()
    assert versions.main([]) == 1


def test_a_release_needs_its_tag_a_day_and_the_same_day_in_the_citation(versions):
    version, (_, date) = versions.library(), versions.newest()
    if date != versions.UNRELEASED:
        replace(versions.REPOSITORY / "CHANGELOG.md", f"({date})", f"({versions.UNRELEASED})")
        replace(versions.REPOSITORY / "CITATION.cff", f"date-released: {date}\n", "")
    assert "unreleased" in " ".join(versions.problems(f"v{version}"))
    replace(versions.REPOSITORY / "CHANGELOG.md", f"({versions.UNRELEASED})", "(2026-12-31)")
    assert "date-released: 2026-12-31" in " ".join(versions.problems(f"v{version}"))
    with (versions.REPOSITORY / "CITATION.cff").open("a") as citation:
        citation.write("date-released: 2026-12-31\n")
    assert versions.problems(f"v{version}") == []
    assert f"the tag is {version}" in versions.problems(version)[0]  # a tag starts with v


# The address ---------------------------------------------------------------------------------------------------------


def test_the_repository_gives_itself_one_address(address):
    assert address.strays() == []


def test_a_new_address_is_written_everywhere_and_a_stray_is_found(address, capsys):
    assert address.main(["jane-roe/A.book"]) == 0
    assert address.address() == "jane-roe/A.book"
    site = (address.REPOSITORY / "_config.yml").read_text("utf-8")
    assert "ogp_site_url: https://jane-roe.github.io/A.book/" in site
    for name in ("pyproject.toml", "CITATION.cff", "README.md", "chapters/03_rotations.ipynb"):
        assert "github.com/jane-roe/A.book" in (address.REPOSITORY / name).read_text("utf-8"), name
    stray = "github.com/" + "somebody/geometry-of-attention"
    (address.REPOSITORY / "stray.md").write_text(f"https://{stray}.git")
    assert address.main([]) == 1
    assert capsys.readouterr().out.endswith(f"stray.md: {stray}\n")
    with pytest.raises(SystemExit, match="REPO: got 'no address'"):
        address.main(["no address"])


def test_a_set_up_cell_that_finds_no_library_says_what_to_do(address, tmp_path):
    cell = re.sub(r"^ +%pip .*$", "    pass", address.setup_cell(), flags=re.M)
    said = python(tmp_path / "nowhere", tmp_path, "-c", f"import sys; sys.modules['geolib'] = None\n{cell}").stderr
    assert f"nothing could be installed from https://github.com/{address.address()}." in said.splitlines()[-1]
    assert "pip install -e '.[chapters]'" in said.splitlines()[-1]


def test_in_a_checkout_the_records_are_the_book_s():
    assert checkout() == REPOSITORY
    assert REPOSITORY / "book" / "results" == RECORDED
    assert record_files()


# Installed -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder that holds geolib as an installation lays it out, beside a pyproject.toml that another package left."""
    folder = tmp_path_factory.mktemp("site-packages")
    shutil.copytree(REPOSITORY / "geolib", folder / "geolib", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.make_archive(str(folder / "geolib" / "lab" / "results"), "zip", REPOSITORY / "book" / "results")
    (folder / "pyproject.toml").write_text("")
    return folder


def python(library, cwd, *words):
    """What Python says in a folder, with the library that lies in another."""
    said = {"PYTHONPATH": str(library), "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": f"{library}/cache"}
    return subprocess.run([sys.executable, *words], cwd=cwd, env=os.environ | said, capture_output=True, text=True)


def test_an_installed_library_prints_a_checkouts_tables_plans_a_run_and_asks_where_records_go(
    installed, tmp_path, capsys
):
    lab = lambda *words: python(installed, tmp_path, "-m", "geolib.lab", *words)  # noqa: E731
    assert main(["table", "digits-encodings"]) == 0
    here, there = capsys.readouterr().out, lab("table", "digits-encodings")
    assert (there.returncode, there.stdout) == (0, here)
    assert "±" in here
    plan = lab("run", "digits-encodings", "--dry-run")
    assert plan.returncode == 0, plan.stderr
    refused = lab("run", "digits-encodings", "--scale", "smoke")
    assert refused.returncode == 2
    assert "--out DIR" in refused.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", ["another", "none"])
def test_a_folder_that_another_package_wrote_into_says_so(installed, tmp_path, left):
    """PyPI's geolib puts its own __init__.py there; removing it takes the file away."""
    folder = tmp_path / "geolib"
    folder.mkdir()
    for name in ("_checks.py", "_package.py"):
        shutil.copy(installed / "geolib" / name, folder / name)
    if left == "another":
        (folder / "__init__.py").write_text('__version__ = "1.0.7"\n')
    said = python(tmp_path, tmp_path, "-c", "import geolib._checks").stderr.splitlines()[-1]
    assert said.startswith(f"ImportError: the folder {folder} mixes geometry-of-attention with another package")
    assert "pip install --force-reinstall --no-deps geometry-of-attention" in said
