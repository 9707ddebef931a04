"""What a runner decides, without any run: what a time holds, what a job is told, whose turn it is, what is kept."""

import contextlib
import io
import itertools
import os
import random
import subprocess
import sys
import types
from dataclasses import replace

import pytest
import torch

import geolib
from geolib.lab import Config, LabError, runner
from geolib.lab.config import Options
from geolib.lab.experiments.estimates import CPU, GPU, H100, Estimate
from geolib.lab.experiments.plan import Stage
from geolib.lab.records import Folders
from geolib.lab.runner import ChildFailed, Job, Locked, Machine, Planned, Request, Runner, packed
from geolib.lab.watch import Diverged, Stopped


def test_torchrun_tells_how_many_processes_there_are_and_which_this_is(monkeypatch):
    for name in ("WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    assert (runner.torchrun_size(), runner.torchrun_rank()) == (1, 0)
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("RANK", "5")
    assert (runner.torchrun_size(), runner.torchrun_rank()) == (8, 5)


def test_a_machine_is_named_as_records_name_it(monkeypatch):
    monkeypatch.setattr(runner, "device_name", lambda device: f"a {device.type}")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert Machine.at_hand(torch.device("cuda"), 3) == Machine("a cuda", GPU, True, 3)
    here = Machine.at_hand(torch.device("cpu"), 3)
    assert replace(here, speed=CPU) == Machine("a cpu", CPU, False, 3)
    assert here.speed == replace(CPU, flops=4 * CPU.flops, number=CPU.number / 4)
    assert Machine.h100() == Machine(H100, GPU, True)
    for alone in (Machine.at_hand(torch.device("cuda")), Machine.at_hand(torch.device("cpu")), Machine.h100()):
        assert alone.devices == 1


def test_a_machine_estimates_by_its_own_records_and_speed(monkeypatch):
    monkeypatch.setattr(runner, "estimate", lambda *given: given)
    mine = Machine("mine", CPU, False)
    assert mine.estimate("a run", ["records"], "a kind") == ("a run", ["records"], "mine", CPU, "a kind")


@pytest.mark.parametrize(
    ("of_run", "asked", "on_gpu", "here"),
    [
        (None, None, "bf16", "fp32"),
        (None, "float32", "fp32", "fp32"),
        (None, "bfloat16", "bf16", "bf16"),
        ("bfloat16", None, "bf16", "bf16"),
        ("float32", "auto", "fp32", "fp32"),
    ],
)
def test_estimates_go_by_the_precision_that_a_run_will_have(of_run, asked, on_gpu, here):
    experiment, config = types.SimpleNamespace(name="e"), Config("digits", precision=of_run)
    for machine, wanted in ((Machine.h100(), on_gpu), (Machine("a core", CPU, False), here)):
        kind = machine.kind(experiment, "cpu", config, asked)
        assert (kind.experiment, kind.scale, kind.on_gpu) == ("e", "cpu", machine.is_gpu)
        assert kind.precision == {"fp32": "float32"}.get(wanted, wanted)


def held(stages, missing, seconds, left):
    """What a time holds, by sets: the runs that fit."""
    held = set()
    for number, groups in enumerate(stages):
        for place, group in enumerate(groups):
            new = set(group) & missing - held
            later = set(itertools.chain(*itertools.chain(*stages[number + 1 :]))) & missing - held - new
            needed = sum(seconds[run] for run in new)
            if needed + (sum(seconds[run] for run in later) if place else 0) <= left:
                held, left = held | new, left - needed
    return held


def test_a_time_holds_whole_groups_by_importance_and_what_later_stages_need():
    draw = random.Random(0)
    for _ in range(300):
        runs = [types.SimpleNamespace(hash=f"{i}", name=f"run {i}") for i in range(7)]
        seconds = {run.hash: draw.randint(1, 9) for run in runs}
        missing = {run.hash for run in runs if draw.random() < 0.8}
        stages = [[draw.sample(runs, draw.randint(1, 3)) for _ in range(draw.randint(1, 3))] for _ in range(3)]
        left, devices = draw.randint(0, 30), draw.choice([1, 2])
        plan = packed(
            [Stage([[("an experiment", run) for run in group] for group in groups]) for groups in stages],
            lambda run, missing=missing: run.hash in missing,
            lambda of, run, seconds=seconds: Estimate(seconds[run.hash] if of == "an experiment" else 100, "drawn"),
            left,
            devices,
        )
        hashes = [[[run.hash for run in group] for group in groups] for groups in stages]
        met = list(itertools.chain(*itertools.chain(*hashes)))
        assert {item.config.hash for item in plan} == missing & set(met)
        assert len(plan) == len({item.config.hash for item in plan})
        assert {item.config.hash for item in plan if item.fits} == held(hashes, missing, seconds, left * devices)
        assert all(item.estimate.seconds == seconds[item.config.hash] for item in plan)
        for item in plan:
            assert item.config.hash in itertools.chain(*hashes[item.stage])


def test_a_child_that_failed_is_told_by_its_last_error_or_its_code():
    assert str(ChildFailed("geolib.lab: no such folder", 2)) == "no such folder"
    assert str(ChildFailed("Killed", 9)) == "Killed"
    assert str(ChildFailed("", 9)) == "ended with code 9"


@pytest.fixture
def job(tmp_path):
    return Job(Config("digits"), "test", "smoke", Folders.below(tmp_path), Options(device="cpu"), at_a_time=3)


def test_a_job_trains_with_its_data_its_place_and_what_is_left_of_the_time(job, monkeypatch):
    monkeypatch.setattr(runner, "run", lambda config, **given: (config, given))
    monkeypatch.setattr(runner.time, "time", lambda: 100.0)
    config, given = replace(job, deadline=107.5).do("the data")
    assert config == job.config
    wanted = {"data": "the data", "out": job.folders, "experiment": "test", "scale": "smoke", "jobs": 3}
    assert given == wanted | {"after": runner.after_training, "options": Options(device="cpu", time_budget=7.5)}
    assert job.do()[1]["options"].time_budget is None
    job.record_path.parent.mkdir(parents=True)
    job.record_path.touch()
    with pytest.raises(Locked, match=f"^{job.config.name}: another process has just made this run$"):
        job.do()
    assert replace(job, again=True).do()[0] == job.config


@pytest.mark.parametrize(
    ("before", "cores", "threads"), [({}, 8, "2"), ({}, None, "1"), ({"OMP_NUM_THREADS": "5"}, 8, "5")]
)
def test_a_child_finds_the_library_first_and_its_share_of_the_cores(job, monkeypatch, before, cores, threads):
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    for name in ("OMP_NUM_THREADS", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    for others in ([], ["/elsewhere"]):
        if others:
            monkeypatch.setenv("PYTHONPATH", *others)
        monkeypatch.setattr(subprocess, "Popen", lambda words, **given: given | {"words": words})
        given = runner._start(job, 3).process
        assert given["words"] == [sys.executable, "-m", "geolib.lab", "job"]
        assert given["start_new_session"]
        assert given["stdout"] == subprocess.DEVNULL  # what it prints is the parent's to say
        found = given["env"]
        root = os.path.dirname(os.path.dirname(os.path.abspath(geolib.__file__)))
        assert found["PYTHONPATH"].split(os.pathsep) == [root, *others]
        assert found["OMP_NUM_THREADS"] == threads


@pytest.fixture
def made(tmp_path, monkeypatch):
    """made(runs, **request): a runner of so many runs in two stages, and none of them recorded."""

    def make(count=3, **request):
        configs = [Config("digits", seed=seed) for seed in range(count)]
        one = types.SimpleNamespace(name="e")
        stages = [Stage([[(one, config)] for config in half]) for half in (configs[:2], configs[2:])]
        what = types.SimpleNamespace(name="e", stages=lambda *_: stages)
        return Runner(Request(what, "smoke", Folders.below(tmp_path), Machine("a core", CPU, False), **request))

    monkeypatch.setattr(Machine, "estimate", lambda *_: Estimate(60.0, "drawn"))
    monkeypatch.setattr(Machine, "kind", lambda *_: None)
    return make


def test_a_look_at_the_folder_forgets_what_followed_from_the_one_before(made):
    runner = made()
    before = runner.stages, runner.names
    runner.look()
    assert not vars(runner).keys() & {"stages", "names"}
    assert before == (runner.stages, runner.names)


def test_what_is_read_anew_is_the_folder_of_records(made, monkeypatch):
    asked = made()
    monkeypatch.setattr(runner.store, "load_records", lambda folder: ([folder], ["a problem"]))
    asked.look()
    assert (asked.records, asked.problems) == ([asked.request.folders.records], ["a problem"])


def test_a_run_is_missing_until_it_has_ended_or_any_experiment_has_its_record(made):
    asked, again = made(), made(again=True)
    (experiment, config), (_, other), *_ = asked.runs
    assert asked.is_missing(config)
    path = runner.store.path_of(config, experiment.name, asked.request.folders.records)
    path.parent.mkdir(parents=True)
    path.touch()  # also a damaged one: only its owner may delete it
    assert (asked.recorded(config), asked.recorded(other)) == (experiment.name, None)
    assert (asked.is_missing(config), asked.is_missing(other)) == (False, True)
    assert again.is_missing(config)
    for one in (asked, again):
        one.ended = {config.hash, other.hash}
        assert not one.is_missing(config)
        assert not one.is_missing(other)


def test_a_run_that_is_under_way_asks_nothing_of_the_budget(made):
    asked = made(2, time_budget=61.0)  # each takes 60
    assert [item.fits for item in asked.plan()] == [True, False]
    (_, config), _ = asked.runs
    asked.working = {config.hash}
    assert [(item.estimate.seconds, item.fits) for item in asked.plan()] == [(0.0, True), (60.0, True)]
    asked.working = set()
    with runner.lock(asked.request.folders.checkpoint(config)):
        assert [item.fits for item in asked.plan()] == [True, True]


def test_the_next_run_is_waited_for_while_others_are_at_all_that_can_be_started(made, monkeypatch):
    asked, theirs = made(3), {Config("digits", seed=seed).hash for seed in (0, 1)}
    waited = []

    def sleep(seconds):
        waited.append(seconds)
        if len(waited) == 3:
            asked.ended |= theirs

    monkeypatch.setattr(runner.time, "sleep", sleep)
    monkeypatch.setattr(Runner, "is_under_way", lambda self, config: config.hash in theirs)
    assert asked.next().config.seed == 2
    assert waited == [runner._POLL_SECONDS] * 3
    asked.ended.add(Config("digits", seed=2).hash)
    assert asked.next() is None


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_runs_are_made_here_one_after_another_or_in_processes_where_several_at_a_time_are_asked_for(
    made, monkeypatch, jobs
):
    done, loaded = [], []
    monkeypatch.setattr(runner, "load", lambda name: loaded.append(name) or name)
    monkeypatch.setattr(Runner, "run_in_processes", lambda self: done.append("in processes"))
    monkeypatch.setattr(Runner, "run_here", lambda self, item: done.append(item) or self.ended.add(item.config.hash))
    made(3, jobs=jobs).run()
    assert loaded == ["digits"]
    assert ([item.config.seed for item in done] == [0, 1, 2]) if jobs == 1 else (done == ["in processes"])


def test_a_run_made_here_is_told_at_once_with_its_record(made, monkeypatch):
    class Told(io.StringIO):
        flushed = ""

        def flush(self):
            self.flushed = self.getvalue()

    asked, told = made(), Told()
    item = asked.plan()[0]
    done = types.SimpleNamespace(name="a run", result="fine", wall_seconds=1.25, speed="9 images/s")
    asked.sets["digits"] = "the data"
    monkeypatch.setattr(Job, "do", lambda job, data: done if data == "the data" else None)
    with contextlib.redirect_stdout(told):
        asked.run_here(item)
    assert told.flushed == f"a run: fine, 1.2 s, 9 images/s; wrote {asked.job(item).record_path}\n"
    assert (asked.ended, asked.failures) == ({item.config.hash}, [])


def test_all_tables_of_what_was_asked_for_are_shown_from_the_records_of_now(made, monkeypatch):
    asked, table = made(), lambda word: types.SimpleNamespace(plain=lambda: word)
    monkeypatch.setattr(runner.store, "load_records", lambda folder: (["new"], []))
    monkeypatch.setattr(runner, "tables_of", lambda *given: [table(str(given == wanted)), table("another")])
    wanted = (asked.request.what, "smoke", ["new"])
    assert asked.tables() == "True\n\nanother"


def test_seconds_are_whole_and_have_a_digit_more_where_they_are_few():
    told = ["0.0 s", "4.2 s", "9.9 s", "10 s", "11 s", "1.0 min", "6.7 min"]
    assert [runner.lasting(x) for x in (0, 4.25, 9.9, 10, 10.6, 60, 400)] == told


def test_an_estimate_is_for_the_precision_asked_for(made, monkeypatch):
    monkeypatch.setattr(Machine, "kind", lambda *given: given[1:])
    monkeypatch.setattr(Machine, "estimate", lambda self, config, records, kind: kind)
    asked = made(options=Options(precision="auto"))
    (experiment, config), *_ = asked.runs
    assert asked.estimate(experiment, config) == (experiment, "smoke", config, "auto")


def test_every_run_that_has_a_record_is_told(made, monkeypatch, capsys):
    monkeypatch.setattr(Runner, "recorded", lambda self, config: "e" if config.seed else None)
    monkeypatch.setattr(runner.store, "read", lambda path: types.SimpleNamespace(result="fine"))
    asked = made(3)
    configs = [Config("digits", seed=seed) for seed in (1, 2)]
    paths = [runner.store.path_of(config, "e", asked.request.folders.records) for config in configs]
    asked.say_what_is_recorded()
    assert capsys.readouterr().out.splitlines() == [
        f"{config.name}: recorded already, fine ({path}); --again repeats it" for config, path in zip(configs, paths)
    ]
    made(3, again=True).say_what_is_recorded()
    assert capsys.readouterr().out == ""  # they will be made anew


def test_a_record_that_cannot_be_read_keeps_no_other_from_being_told(made, monkeypatch, capsys):
    asked = made(3)
    folder = asked.request.folders.records
    torn, *others = (runner.store.path_of(config, "e", folder) for _, config in asked.runs)

    def read(path):
        if path == torn:
            raise LabError("torn")
        return types.SimpleNamespace(result="fine")

    monkeypatch.setattr(Runner, "recorded", lambda self, config: "e")
    monkeypatch.setattr(runner.store, "read", read)
    asked.say_what_is_recorded()
    said = capsys.readouterr().out
    assert [str(path) in said for path in (torn, *others)] == [False, True, True]


def test_a_job_has_what_was_asked_of_every_run(made, monkeypatch):
    asked = made(options=Options(step="eager"), again=True, time_budget=50.0)
    job = asked.job(asked.plan()[0])
    assert (job.options, job.again, job.deadline, job.experiment, job.scale) == (
        Options(step="eager"), True, asked.deadline, "e", "smoke",
    )  # fmt: skip


@pytest.mark.parametrize(
    "trouble",
    [Stopped("no time"), Diverged("nan"), LabError("no disk"), RuntimeError("?"), Locked(), Stopped("by INT", 2)],
)
def test_only_a_signal_ends_a_runner_and_other_trouble_is_kept(made, monkeypatch, trouble, capsys):
    def fail(job, data):
        raise trouble

    asked = made()
    item = asked.plan()[0]
    monkeypatch.setattr(Job, "do", fail)
    asked.sets["digits"] = None
    if getattr(trouble, "signal", None):
        with pytest.raises(Stopped, match="by INT"):
            asked.run_here(item)
    else:
        asked.run_here(item)
    kept = not isinstance(trouble, Locked) and not getattr(trouble, "signal", None)
    assert asked.failures == ([(item.config.name, trouble)] if kept else [])
    assert asked.ended == ({item.config.hash} if kept else set())
    assert ("Traceback" in capsys.readouterr().err) == isinstance(trouble, RuntimeError)


def test_jobs_are_given_out_once_and_a_stage_waits_for_the_one_before(made, monkeypatch):
    asked, clock = made(3), itertools.count()
    monkeypatch.setattr(runner, "time", types.SimpleNamespace(monotonic=lambda: 0.2 * next(clock), time=lambda: 0.0))
    given, jobs = [], asked.jobs()
    for job in itertools.islice(jobs, 40):
        if job is not None:
            given.append(job.config.seed)
        if len(given) == 2:
            break
    assert given == [0, 1]
    assert [job for job in itertools.islice(jobs, 20) if job] == []  # both are under way
    asked.ended |= asked.working
    asked.working.clear()
    assert [job.config.seed for job in itertools.islice(jobs, 20) if job] == [2]
    asked.ended |= asked.working
    assert [job for job in jobs if job] == []


@pytest.mark.parametrize(
    ("basis", "budget", "started", "left_out"),
    [
        ("nothing measured", 30.0, 1, 2),
        ("measured", 30.0, 0, 3),
        ("nothing measured", 0.0, 0, 3),
        ("measured", 70.0, 1, 2),
        ("nothing measured", 200.0, 2, 0),  # the third is of the next stage
        ("nothing measured", None, 2, 0),
    ],
)
def test_an_assumption_alone_refuses_no_run_while_there_is_time(made, monkeypatch, basis, budget, started, left_out):
    monkeypatch.setattr(Machine, "estimate", lambda *_: Estimate(60.0, f"assumed speeds, {basis} here"))
    asked = made(3, time_budget=budget)
    assert len(asked.startable()) == started
    assert len(asked.left_out) == left_out


def test_runs_in_processes_are_counted_kept_or_left_to_others(made, monkeypatch, capsys):
    asked = made(3, jobs=2, options=Options(quiet=True))
    jobs = [asked.job(item) for item in asked.plan()]
    ended = [(jobs[0], runner.LOCKED, ""), (jobs[1], 1, "geolib.lab: no disk"), (jobs[2], 0, "")]
    monkeypatch.setattr(Runner, "jobs", lambda self: jobs)
    monkeypatch.setattr(runner, "side_by_side", lambda *given: iter(ended if given == (jobs, 2) else []))
    monkeypatch.setattr(runner.store, "read", lambda path: path)
    monkeypatch.setattr(Runner, "report", lambda self, record, job: print(record.name, job.config.name))
    asked.working = {job.config.hash for job in jobs}
    asked.run_in_processes()
    assert asked.working == set()
    assert asked.ended == {job.config.hash for job in jobs[1:]}
    assert [(name, str(e), e.code) for name, e in asked.failures] == [(jobs[1].config.name, "no disk", 1)]
    said = capsys.readouterr()
    assert (said.out.split(), said.err) == ([jobs[2].record_path.name, jobs[2].config.name], "")


def test_a_plan_in_words_has_a_line_for_each_run_and_the_time_of_those_that_fit(made):
    first, second, third, last = made(3, time_budget=121.0).dry_run().splitlines()
    names = [Config("digits", seed=seed).name for seed in range(3)]
    assert first == f"stage 1     1.0 min  e  {names[0]}  [drawn]"
    assert second == f"left out    1.0 min  e  {names[1]}  [drawn]"  # the next stage needs its time
    assert third == f"stage 2     1.0 min  e  {names[2]}  [drawn]"
    assert last == "2 of 3 missing runs, about 2.0 min on a core, of a budget of 2.0 min"
    side = replace(made(2).request, machine=Machine("a card", GPU, True, devices=2))
    assert Runner(side).dry_run().endswith("2 of 2 missing runs, about 1.0 min on a card, 2 at a time")


def test_planned_runs_that_do_not_fit_are_told_with_what_is_left(made, monkeypatch, capsys):
    asked = made(time_budget=9.0)
    asked.left_out = [Planned(None, Config("digits"), Estimate(60.0, "drawn"), 0, False)]
    for left, said in ((4.5, "4.5"), (-3.0, "0.0")):
        monkeypatch.setattr(runner.time, "time", lambda left=left: asked.deadline - left)
        asked.say_what_was_left_out()
        told = f"{said} s of the time budget are left, it takes about 1.0 min (drawn)"
        assert capsys.readouterr().out == f"{Config('digits').name}: not started, {told}\n"
