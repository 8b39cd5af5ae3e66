"""Test suites of others on a simulated GPU, from checkouts: `python -m simgpu.tools.torch.suites aiter=~/src/aiter`.

Runs a random sample of each suite and prints a table: suite, version, target, tests that ran, passed, without a launch, time.
Then it lists the tests that did not pass, each with the last line of its error.
docs/notes/2026-11-26-triton-suites.md has tables that this printed.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import IO

import pytest

from simgpu import hardware
from simgpu.hardware.errors import SimError
from simgpu.tools.shared.console import show, table
from simgpu.tools.torch.environment import TARGET
from simgpu.tools.torch.pytest_plugin import sample_of
from simgpu.tools.torch.results import SuiteOutcome, note_crash, read


@dataclass(frozen=True)
class Suite:
    """Tests of a checkout, and the settings that they run with."""

    tests: tuple[str, ...] = ("tests",)  # files, folders and options for pytest, or a pattern of scripts
    folder: str = "."  # working directory
    imports: tuple[str, ...] = (".",)  # folders on Python's path
    variables: Mapping[str, str] = field(default_factory=dict)  # of the environment
    scripts: bool = False  # tests is a pattern of scripts, run one by one


_UNIT = "python/test/unit"
# By the name given with a checkout; other suites have their tests in `tests`.
SUITES: dict[str, Suite] = {
    "triton-core": Suite(("language/test_core.py",), _UNIT, (_UNIT,)),
    "triton-unit": Suite(("language", "runtime", "tools", "--ignore=language/test_core.py"), _UNIT, (_UNIT,)),
    "triton-kernels": Suite(folder="python/triton_kernels"),
    "triton-tutorials": Suite(("[0-9]*.py",), "python/tutorials", scripts=True),
    # Without its compiled modules, nothing puts aiter/jit/utils, the folder of `build_targets`, on the path.
    "aiter": Suite(("op_tests/triton_tests",), imports=(".", "aiter/jit/utils"), variables={"AITER_TRITON_ONLY": "1"}),
    "liger": Suite(("test/transformers",), imports=("src",)),
    "flaggems": Suite((".", "--quick"), folder="tests", imports=("src",)),
    "fla": Suite(("tests/modules", "tests/ops")),
}
# An installed simgpu is loaded by pytest itself.
_PLUGIN = () if entry_points(group="pytest11", name="simgpu") else ("-p", "simgpu.tools.torch.pytest_plugin")

USAGE = """examples:
  python -m simgpu.tools.torch.suites triton-core=~/src/triton --sample 100:7
  python -m simgpu.tools.torch.suites aiter=~/src/aiter liger=~/src/Liger-Kernel --target mi210 --check
  python -m simgpu.tools.torch.suites mine=~/src/mine     tests are in ~/src/mine/tests

Names with paths of tests of their own: """ + ", ".join(SUITES)


@dataclass(frozen=True)
class SampleResult:
    """Outcomes of a suite's sample."""

    suite: str
    version: str
    outcomes: list[SuiteOutcome]  # tests that were not skipped
    seconds: float  # of all tests
    ended: str  # why it ended early, "" if it did not


def version_of(checkout: Path) -> str:
    """Returns commit and date of a checkout, or the version in its pyproject.toml, or "-"."""
    with contextlib.suppress(OSError):
        asked = ["git", "-C", str(checkout), "log", "-1", "--format=%h of %cs"]
        told = subprocess.run(asked, capture_output=True, text=True, check=False)
        if told.returncode == 0 and (checkout / ".git").exists():
            return told.stdout.strip()
    with contextlib.suppress(OSError):
        found = re.search(r'^version\s*=\s*"([^"]+)"', (checkout / "pyproject.toml").read_text(), re.MULTILINE)
        return found[1] if found else "-"
    return "-"


def environment(suite: Suite, checkout: Path, options: Namespace) -> dict[str, str]:
    """Returns the variables of a suite's process: its own modules first on Python's path, then this simgpu's."""
    import simgpu

    ours = str(Path(simgpu.__file__).resolve().parents[1])
    path = [*(str(checkout / folder) for folder in suite.imports), ours, os.environ.get("PYTHONPATH", "")]
    given = {"PYTHONPATH": os.pathsep.join(filter(None, path)), "MPLBACKEND": "Agg", "HF_HUB_OFFLINE": "1"}
    return {**os.environ, "SIMGPU_AUTOTUNE": str(options.autotune), **given, **suite.variables}


def run_tests(name: str, checkout: Path, options: Namespace) -> SampleResult:
    """Runs a sample of a suite under pytest."""
    suite = SUITES.get(name, Suite())
    with tempfile.TemporaryDirectory(prefix="simgpu-suite-") as scratch:
        results = Path(scratch, "results")
        command = [
            sys.executable, "-m", "pytest", "-q", *_PLUGIN, "-p", "no:cacheprovider", "-W", "ignore", "--tb=short",
            "--continue-on-collection-errors", f"--simgpu-results={results}", "--simgpu", options.target,
            "--simgpu-check", "yes" if options.check else "no", "--simgpu-sample", options.sample, *suite.tests, *options.option,
        ]  # fmt: skip
        begun = time.monotonic()
        variables, left = environment(suite, checkout, options), options.seconds
        status: int | None = None  # None: out of time
        while left > 0:
            status = _status(command, checkout / suite.folder, variables, left, subprocess.DEVNULL)
            left = begun + options.seconds - time.monotonic()
            if status is None or not note_crash(results, f"pytest ended with it, by {_status_name(status)}"):
                break
        seconds = time.monotonic() - begun
        outcomes, running = read(results)
    ended = "" if outcomes else "no test ran"
    if status is None:
        ended = f"ended after {seconds:.0f} s"
        ended += "".join(f"; {test.name} was running, for {time.time() - test.begun:.0f} s" for test in running)
    elif status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        ended = f"pytest ended with {_status_name(status)}"
    return SampleResult(name, version_of(checkout), outcomes, seconds, ended)


def run_scripts(name: str, checkout: Path, options: Namespace) -> SampleResult:
    """Runs scripts one by one, each for at most `seconds`; a script passes with status 0."""
    suite = SUITES[name]
    folder, outcomes = checkout / suite.folder, []
    variables = environment(suite, checkout, options) | {TARGET: options.target}
    for script in sorted(path for pattern in suite.tests for path in folder.glob(pattern)):
        begun = time.monotonic()
        with tempfile.TemporaryFile("w+") as said:
            status = _status([sys.executable, "-W", "ignore", script.name], folder, variables, options.seconds, said)
            said.seek(0)
            last = (said.read().strip().splitlines() or [""])[-1]
        end = "did not end in time" if status is None else f"status {status}"
        error = f"{end}; the last line was {last!r}" if status != 0 else ""
        outcomes.append(SuiteOutcome(script.name, error, time.monotonic() - begun, None))
    return SampleResult(name, version_of(checkout), outcomes, sum(outcome.seconds for outcome in outcomes), "")


def _status_name(status: int) -> str:
    """Names a process's exit status, or the signal that ended it."""
    return f"status {status}" if status >= 0 else signal.Signals(-status).name


def _status(command: Sequence[str], folder: Path, variables: Mapping[str, str], seconds: float, out: IO[str] | int) -> int | None:
    """Returns a process's exit status, None after a timeout; an interrupted pytest may still undo its fixtures."""
    process = subprocess.Popen(
        command, cwd=folder, env=dict(variables), stdout=out, stderr=subprocess.STDOUT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # it is ignored in the background of a shell
    )  # fmt: skip
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()
        process.wait()
        return None


def tell(ran: Sequence[SampleResult], options: Namespace) -> None:
    """Prints the table, and the tests that did not pass."""
    columns = ("suite", "version", "target", "ran", "passed", "rate", "passed without a launch", "seconds")
    rows = []
    for one in ran:
        passed = [outcome for outcome in one.outcomes if not outcome.error]
        idle = sum(outcome.launches == 0 for outcome in passed)
        rate = f"{len(passed) / len(one.outcomes):.1%}" if one.outcomes else "-"
        rows.append((one.suite, one.version, options.target, len(one.outcomes), len(passed), rate, idle, round(one.seconds)))
    show(table(f"{options.sample} (tests:seed), {'checked' if options.check else 'plain'} mode", columns, rows))
    for one in ran:
        if one.ended:
            show(f"{one.suite}: {one.ended}")
        for outcome in one.outcomes:
            if outcome.error:
                show(f"{one.suite}: {outcome.name}: {outcome.error}")
    if options.slowest:
        slow = sorted(((outcome, one) for one in ran for outcome in one.outcomes), key=lambda pair: -pair[0].seconds)
        times = ((one.suite, outcome.name, outcome.launches, round(outcome.seconds, 1)) for outcome, one in slow[: options.slowest])
        show("", table("slowest", ("suite", "test", "launches", "seconds"), times))


def parser() -> ArgumentParser:
    """Makes the command's parser."""
    made = ArgumentParser(
        prog="python -m simgpu.tools.torch.suites", description=(__doc__ or "").split("\n\n")[1], epilog=USAGE,
        formatter_class=RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.add_argument("checkouts", nargs="+", metavar="NAME=PATH", help="a suite's name and its checkout")
    made.add_argument("--target", default="mi300x", help="board or architecture (mi300x); mi300x:2 is two")
    made.add_argument("--sample", default="40:1", metavar="N[:SEED]", help="tests of each suite, chosen by the seed (40:1)")
    made.add_argument("--check", action="store_true", help="checked mode")
    made.add_argument("--seconds", type=float, default=1800, help="time limit of a suite, or of a script (1800)")
    made.add_argument("--autotune", type=int, default=1, metavar="N", help="candidates that an autotuner tries (1)")
    made.add_argument("--slowest", type=int, default=0, metavar="N", help="also list the N slowest tests")
    made.add_argument("--option", action="append", default=[], metavar="OPTION", help="for pytest: --option=--timeout=150")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the suites and prints the table; returns 1 if a test did not pass."""
    made = parser()
    options = made.parse_args(arguments)
    named = [text.partition("=") for text in options.checkouts]
    try:
        hardware.target_count(options.target)
        sample_of(options.sample)
    except (SimError, pytest.UsageError) as error:
        made.error(str(error))
    for name, _, path in named:
        folder = Path(path).expanduser() / SUITES.get(name, Suite()).folder
        if not path or not folder.is_dir():
            made.error(f"{name}={path}: give NAME=PATH, where {folder} is a folder")
    if twice := [name for name, count in Counter(name for name, _, _ in named).items() if count > 1]:
        made.error(f"{twice[0]} is given twice")
    ran = []
    for name, _, path in named:
        runs = run_scripts if SUITES.get(name, Suite()).scripts else run_tests
        ran.append(runs(name, Path(path).expanduser().resolve(), options))
    tell(ran, options)
    return int(any(one.ended or any(outcome.error for outcome in one.outcomes) for one in ran))


if __name__ == "__main__":
    sys.exit(main())
