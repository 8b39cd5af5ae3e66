"""The first launch of an installation: the scheduler's loop is compiled by a process of its own, or here where that fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simgpu.engine.workers import scheduler
from tests.support.places import ROOT

FIRST = """import sys
from tests.support.engine_kernel import execute
from simgpu.engine.workers import scheduler
assert execute("gfx90a", "v_mov_b32 v1, 7", ["v1"])["v1"].tolist() == [7] * 64
print(scheduler.begin().returncode if scheduler.begin() else None, "numba" in sys.modules)
"""


def first(cache: Path) -> str:
    paths = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "PYTHONPATH": paths, "SIMGPU_CACHE_DIR": str(cache)}
    return subprocess.run([sys.executable, "-c", FIRST], env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_an_empty_cache_is_filled_by_another_process(tmp_path: Path) -> None:
    assert first(tmp_path) == ("None True" if os.cpu_count() == 1 else "0 False")
    assert first(tmp_path) == "None False"


@pytest.mark.parametrize(("program", "made"), [
    ("import sys; sys.stdout.write('there')", b"there"),
    ("import sys; sys.stdout.write('half'); sys.exit(1)", b"here"),
    (None, b"here"),
], ids=["made", "failed", "none"])  # fmt: skip
def test_a_process_that_fails_is_replaced(monkeypatch: pytest.MonkeyPatch, program: str | None, made: bytes) -> None:
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) if program else None
    monkeypatch.setattr(scheduler, "begin", lambda: child)
    monkeypatch.setattr(scheduler, "object_code", lambda name: b"here")
    assert scheduler._made("name") == made


def test_who_cannot_start_itself_compiles_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "LOOP", "a loop that is not kept")
    begin = scheduler.begin.__wrapped__
    monkeypatch.setattr(sys, "executable", "")
    assert begin() is None
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert begin() is None
