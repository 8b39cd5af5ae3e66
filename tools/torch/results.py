"""Results of a run's tests, in a file that grows with it: an interrupted run keeps its results.

Lines of JSON. A line says that a test began: {"test": ..., "begun": seconds since 1970}. Another describes each of its phases,
setup, call and teardown: {"test", "phase", "outcome", "seconds", "error", "launches"}. A module that was not collected has a
line of the second kind. Tests that the file lists as ended do not run again: if a test ends the whole process, another process
continues with the next test.
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

LAUNCHES = "simgpu launches"  # property of a test's report: its number of launches
_LAST = ("teardown", "collection")  # the last phases of a test


@dataclass(frozen=True)
class SuiteOutcome:
    """A test that ran."""

    name: str  # name of the test
    error: str  # last line of its error, "" if it passed
    seconds: float
    launches: int | None  # kernels launched; None if not counted


@dataclass(frozen=True)
class UnfinishedTest:
    """A test that did not end."""

    name: str
    begun: float  # seconds since 1970


class ResultWriter:
    """A plugin of pytest: writes the results of a run to a file, and skips tests that are already there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = _ended_tests(_tests(path))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Removes tests that ran from the sample that was chosen before."""
        items[:] = [item for item in items if item.nodeid not in self._known]

    def _write(self, **said: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(said) + "\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Notes that a test begins."""
        self._write(test=nodeid, begun=time.time())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes that a phase of a test is over."""
        launches = dict(report.user_properties).get(LAUNCHES)
        error = _last_error(report.longreprtext) if report.failed else ""
        self._write(
            test=report.nodeid, phase=report.when, outcome=report.outcome, seconds=report.duration, error=error, launches=launches
        )  # fmt: skip

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Notes that a module was not collected."""
        if report.failed:
            error = _last_error(report.longreprtext)
            self._write(test=report.nodeid, phase="collection", outcome=report.outcome, seconds=0, error=error, launches=None)


def _last_error(text: str) -> str:
    """Returns the last line of a pytest error that names one; for a timeout, also the place that the test had reached."""
    lines = [line[1:].strip() for line in text.splitlines() if line.startswith("E ") and line[1:].strip()]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Failed|Timeout|Finding|Fault|Resources)\b", line)]
    error = (named or lines or [text.strip().splitlines()[-1] if text.strip() else "no reason given"])[-1][:300]
    places = re.findall(r"^(\S+:\d+): in \S+$", text, re.MULTILINE) if "pytest-timeout" in error else []
    return f"{error}, at {places[-1]}" if places else error


def _tests(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Returns the file's lines on each test, in order."""
    tests: dict[str, list[dict[str, Any]]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.endswith("}"):  # a killed process may leave half a line at the end
            said = json.loads(line)
            tests.setdefault(said["test"], []).append(said)
    return tests


def _ended_tests(tests: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Returns the tests that ended."""
    return {name: said for name, said in tests.items() if said[-1].get("phase") in _LAST}


def read(path: Path) -> tuple[list[SuiteOutcome], list[UnfinishedTest]]:
    """Returns the tests that ended and were not skipped, and the unfinished ones."""
    tests = _tests(path)
    over = _ended_tests(tests)
    running = [UnfinishedTest(name, said[0]["begun"]) for name, said in tests.items() if name not in over]
    return [_outcome(name, said) for name, said in over.items() if not _was_skipped(said)], running


def note_crash(path: Path, error: str) -> bool:
    """Marks the tests that were running when their process ended as failed by this error; True if there were any."""
    running = read(path)[1]
    with path.open("a") as file:
        for test in running:
            said = {"test": test.name, "phase": "teardown", "outcome": "failed", "error": error, "launches": None}
            file.write("\n" + json.dumps({**said, "seconds": time.time() - test.begun}) + "\n")
    return bool(running)


def _was_skipped(said: Iterable[dict[str, Any]]) -> bool:
    return any(phase.get("outcome") == "skipped" for phase in said) and not any(phase.get("error") for phase in said)


def _outcome(name: str, said: Iterable[dict[str, Any]]) -> SuiteOutcome:
    """Joins the phases of a test; a later phase's line includes the launches of earlier ones."""
    phases = [phase for phase in said if "phase" in phase]
    error = next((phase["error"] for phase in phases if phase["error"]), "")
    return SuiteOutcome(name, error, sum(phase["seconds"] for phase in phases), phases[-1]["launches"])
