"""What became of the tests of a run, in a file that grows with it: a run that is ended keeps what it did until then.

Lines of JSON. One says that a test began, {"test": ..., "begun": seconds since 1970}; one tells of each of its phases, setup, call
and teardown, {"test", "phase", "outcome", "seconds", "error", "launches"}. A module that was not collected has one of the latter.
Tests that ended by the file are not run again: where one ends the whole process, another process goes on behind it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

LAUNCHES = "simgpu launches"  # the property of a test's report that says how many there were
_LAST = ("teardown", "collection")  # the phases with which a test is over


@dataclass(frozen=True)
class SuiteOutcome:
    """One test that ran: name, last line of its error ("" where it passed), seconds, kernels launched (None where not counted)."""

    name: str
    error: str
    seconds: float
    launches: int | None


@dataclass(frozen=True)
class UnfinishedTest:
    """A test that did not end: name, when it began (seconds since 1970)."""

    name: str
    begun: float


class Written:
    """A plugin of pytest: writes the results of a run to a file, and leaves out tests that are there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = _over(_tests(path))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leaves out what ran, of the sample that was chosen before."""
        items[:] = [item for item in items if item.nodeid not in self._known]

    def _write(self, **said: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(said) + "\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self._write(test=nodeid, begun=time.time())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test is over."""
        launches = dict(report.user_properties).get(LAUNCHES)
        error = _last_error(report.longreprtext) if report.failed else ""
        self._write(
            test=report.nodeid, phase=report.when, outcome=report.outcome, seconds=report.duration, error=error, launches=launches
        )  # fmt: skip

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module was not collected."""
        if report.failed:
            error = _last_error(report.longreprtext)
            self._write(test=report.nodeid, phase="collection", outcome=report.outcome, seconds=0, error=error, launches=None)


def _last_error(text: str) -> str:
    """The last line of an error as pytest shows it that names one; where a test's time was over, the place that it had come to."""
    lines = [line[1:].strip() for line in text.splitlines() if line.startswith("E ") and line[1:].strip()]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Failed|Timeout|Finding|Fault|Resources)\b", line)]
    error = (named or lines or [text.strip().splitlines()[-1] if text.strip() else "no reason given"])[-1][:300]
    places = re.findall(r"^(\S+:\d+): in \S+$", text, re.MULTILINE) if "pytest-timeout" in error else []
    return f"{error}, at {places[-1]}" if places else error


def _tests(path: Path) -> dict[str, list[dict[str, Any]]]:
    """What the file says of each test, in order."""
    tests: dict[str, list[dict[str, Any]]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.endswith("}"):  # the last line of a process that was killed may be half of one
            said = json.loads(line)
            tests.setdefault(said["test"], []).append(said)
    return tests


def _over(tests: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Of these, the tests that ended."""
    return {name: said for name, said in tests.items() if said[-1].get("phase") in _LAST}


def read(path: Path) -> tuple[list[SuiteOutcome], list[UnfinishedTest]]:
    """The tests that ended and were not skipped, and those that did not end."""
    tests = _tests(path)
    over = _over(tests)
    running = [UnfinishedTest(name, said[0]["begun"]) for name, said in tests.items() if name not in over]
    return [_outcome(name, said) for name, said in over.items() if not _skipped(said)], running


def note_crash(path: Path, error: str) -> bool:
    """Says of the tests that were running when their process ended that they failed by this error; whether there were any."""
    running = read(path)[1]
    with path.open("a") as file:
        for test in running:
            said = {"test": test.name, "phase": "teardown", "outcome": "failed", "error": error, "launches": None}
            file.write("\n" + json.dumps({**said, "seconds": time.time() - test.begun}) + "\n")
    return bool(running)


def _skipped(said: Iterable[dict[str, Any]]) -> bool:
    return any(phase.get("outcome") == "skipped" for phase in said) and not any(phase.get("error") for phase in said)


def _outcome(name: str, said: Iterable[dict[str, Any]]) -> SuiteOutcome:
    """What the phases of a test say together; a line that tells of a later phase knows the launches of the ones before."""
    phases = [phase for phase in said if "phase" in phase]
    error = next((phase["error"] for phase in phases if phase["error"]), "")
    return SuiteOutcome(name, error, sum(phase["seconds"] for phase in phases), phases[-1]["launches"])
