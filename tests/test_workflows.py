"""The workflows that publish the book: what they may do, what they run, and that it is what the README says."""

import re
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parent.parent
FOLDER = REPOSITORY / ".github" / "workflows"
WORKFLOWS = sorted(FOLDER.glob("*.yml"))
PINNED = re.compile(r"(?P<action>[\w.-]+/[\w./-]+)@(?P<commit>[0-9a-f]{40}) # (?P<version>v\d+\.\d+\.\d+)")

# Whatever else than to read the sources a job may do, and why it must.
MAY = {
    ("site.yml", "deploy"): {"pages": "write", "id-token": "write"},
    ("release.yml", "publish"): {"id-token": "write"},
}


def load(name):
    # YAML reads the key `on` as true.
    return yaml.safe_load((FOLDER / name).read_text("utf-8"))


def jobs():
    return [(path.name, name, job) for path in WORKFLOWS for name, job in load(path.name)["jobs"].items()]


def lines_run(job):
    """What a job's steps give to the shell."""
    return [line for step in job["steps"] for line in step.get("run", "").splitlines()]


def targets():
    """The targets of the Makefile, and the variables that a caller may set."""
    text = (REPOSITORY / "Makefile").read_text("utf-8")
    return set(re.findall(r"(?m)^([a-z][\w-]*):", text)), set(re.findall(r"(?m)^([A-Z]+) \?=", text))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_to_a_commit_and_says_its_version(path):
    uses = [line for line in path.read_text("utf-8").splitlines() if re.match(r"\s*-?\s*uses:", line)]
    assert uses
    for line in uses:
        assert PINNED.fullmatch(line.split("uses:", 1)[1].strip()), line


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_do_nothing_but_what_its_jobs_ask_for(path):
    assert load(path.name)["permissions"] == {}


@pytest.mark.parametrize(("workflow", "name", "job"), jobs(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_job_has_the_least_permissions_a_time_limit_and_no_secret(workflow, name, job):
    assert job["permissions"] == MAY.get((workflow, name), {"contents": "read"})
    assert job["timeout-minutes"] <= 120
    assert "secrets." not in str(job)
    for step in job["steps"]:
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize(("workflow", "name", "job"), jobs(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_job_runs_targets_of_the_makefile_and_nothing_else(workflow, name, job):
    known, variables = targets()
    for line in lines_run(job):
        assert "${{" not in line  # values reach the shell through the environment, never as text of the command
        command, target, *settings = line.split()
        assert (command, target in known) == ("make", True), line
        assert {setting.partition("=")[0] for setting in settings} <= variables, line


def test_what_is_published_was_built_by_the_job_before():
    release, site = load("release.yml"), load("site.yml")
    assert release[True] == {"push": {"tags": ["v*"]}}
    assert release["jobs"]["publish"]["needs"] == site["jobs"]["deploy"]["needs"] == "build"
    kept = next(step["with"] for step in release["jobs"]["build"]["steps"] if "upload-artifact" in step.get("uses", ""))
    taken = next(step["with"] for step in release["jobs"]["publish"]["steps"] if "download" in step["uses"])
    assert kept["name"] == taken["name"]
    assert 'TAG="$TAG"' in " ".join(lines_run(release["jobs"]["build"]))
    assert [step for step in release["jobs"]["publish"]["steps"] if "run" in step] == []  # nothing of ours runs there
