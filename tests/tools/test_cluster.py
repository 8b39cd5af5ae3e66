"""Option `--cluster`, with a pretended Slurm command."""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

from simgpu.tools.benchmarks import corpus
from simgpu.tools.cases import cluster
from simgpu.tools.cases.cluster import executor_of, run_tasks
from simgpu.tools.cli import main
from simgpu.tools.robustness import fuzz
from simgpu.tools.shared.errors import UsageError
from tests.support.places import ROOT, SHARED

# A stand-in for Slurm's srun with the options that executorlib uses: a task runs here.
SRUN = """#!/bin/sh
printf '%s\\n' "$*" >> {log}
while true; do
  case "$1" in
    -n|-D) shift 2;;
    -*) shift;;
    *) exec "$@";;
  esac
done
"""


@pytest.fixture
def srun(tmp_path, monkeypatch):
    """Returns the file in which each call of the pretended command is a line."""
    pytest.importorskip("executorlib", reason="executorlib is not installed")
    log, command = tmp_path / "log", tmp_path / "srun"
    command.write_text(SRUN.format(log=log))
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("SLURM_NTASKS", raising=False)
    return log


def square(number: int) -> int:
    return number * number


def square_after_a_death(number: int, path: str) -> int:
    """Ends the process that runs it, the first time."""
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


@pytest.mark.slow
def test_tasks_of_srun_stay_and_are_replaced(srun, tmp_path):
    each = partial(square_after_a_death, path=str(tmp_path / "dead"))
    assert {task: future.result(60) for task, future in run_tasks("slurm:2", each, range(12), "squares")} == {
        number: number * number for number in range(12)
    }  # fmt: skip
    calls = srun.read_text().splitlines()
    assert 2 <= len(calls) <= 3 and all("interactive_serial" in call for call in calls)  # two, and perhaps one for the dead one


def test_without_slurm_it_says_what_to_do(monkeypatch, tmp_path, srun):
    monkeypatch.setenv("SLURM_NTASKS", "2")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")
    with pytest.raises(UsageError, match=r"larger than the available cores 2 < 3: give fewer"), executor_of("slurm:3"):
        pass
    monkeypatch.setitem(sys.modules, "executorlib", None)
    with pytest.raises(UsageError, match="pip install executorlib"), executor_of("slurm:2"):
        pass
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="there is no srun here: run it on a node of a Slurm cluster"), executor_of("slurm:2"):
        pass


@pytest.mark.parametrize("where", ["slurm:0", "slurm:x", "local:", "local:1025", "here:1", "tcp", ""])
def test_other_names(where):
    with pytest.raises(UsageError, match=r"give here, local:N or slurm:N|no Dask scheduler"), executor_of(where):
        pass


def test_what_a_task_raises_is_its_own():
    found = dict(run_tasks("here", square, [3, "x", 4], "squares"))
    assert (found[3].result(), found[4].result()) == (9, 16)
    with pytest.raises(TypeError):
        found["x"].result()


@pytest.mark.slow
def test_searches_are_the_same_wherever_they_run(capsys):
    words = ["tune", "gemm", "--budget", "10", "--problems", "3", "--json"]
    assert main(words) == 0
    here = json.loads(capsys.readouterr().out)
    assert main([*words, "--cluster", "local:2"]) == 0
    assert json.loads(capsys.readouterr().out) == here
    assert main([*words, "--device", "hip", "--cluster", "local:2"]) == 2


@pytest.mark.slow
def test_fuzzed_cases_run_in_processes_of_the_workers(monkeypatch):
    """A case must not end a cluster's worker: it has a process of its own."""
    monkeypatch.setattr(cluster, "executor_of", lambda where: executor_of("here"))
    monkeypatch.setattr(fuzz, "CASES_PER_TASK", 2)
    cases = [fuzz.FuzzCase("arrays", 1, number) for number in range(3)]
    found = list(fuzz.run_on("tcp://head:8786", cases, []))
    assert {case for case, _, _ in found} == set(cases) and not any(outcome.failed for _, outcome, _ in found)


@pytest.mark.corpus
@pytest.mark.skipif(not (SHARED / "corpus").is_dir(), reason="../shared/corpus is not here")
def test_kernels_are_timed_wherever_they_run(monkeypatch):
    monkeypatch.setattr(corpus, "run_tasks", lambda where, *rest: run_tasks("here", *rest))
    figures = corpus.measure_on("tcp://head:8786", str(SHARED / "corpus"), 1, ["cl_saxpy_O0.gfx908"])
    (row,) = figures["all"]
    assert row["name"] == "cl_saxpy_O0.gfx908" and row["seconds"] == figures["median_seconds"] > 0
