"""HIP programs, compiled as users compile them, on the simulated boards: each checks its own results."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hip_compiler import program
from tests.support.places import ROOT

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
SECONDS = 300


def hip(*words: object) -> subprocess.CompletedProcess[str]:
    """`simgpu hip WORDS` in a process of its own."""
    command = [sys.executable, "-P", "-m", "simgpu.tools.cli", "hip", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment)


@pytest.mark.parametrize("target", TARGETS)
def test_a_program_ends_as_on_hardware(target: str) -> None:
    done = hip("--target", target, program("vector_add", *TARGETS))
    assert (done.stdout, done.returncode) == ("PASS\n", 0), done.stderr


def test_a_program_for_another_board_is_told_which_to_choose() -> None:
    done = hip("--target", "mi100", program("vector_add", "gfx90a"))
    assert "it has code for gfx90a: give --target mi210 or mi250x" in done.stderr
    assert done.returncode == 1 and "hipErrorNoBinaryForGpu" in done.stdout


def test_what_is_no_program_is_said(tmp_path: Path) -> None:
    done = hip(tmp_path / "nothing")
    assert done.returncode == 2 and "no such program" in done.stderr
