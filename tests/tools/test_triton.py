"""`simgpu triton`: an unchanged program with Triton kernels; skipped if Triton is not installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from simgpu.tools.cli import main
from tests.support.places import ROOT

pytest.importorskip("triton", reason="Triton is an optional extra")

PROGRAM = """
import os, sys
import numpy as np
import triton
import triton.language as tl

@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

assert __name__ == "__main__" and os.environ["SIMGPU"] == "mi210"
x = np.arange(1000, dtype=np.float32)
out = np.zeros_like(x)
double[(4,)](x, out, int(sys.argv[1]), BLOCK=256)
print(np.array_equal(out, 2 * x), sys.argv[1:])
if "exit" in sys.argv:
    sys.exit(7)
if "raise" in sys.argv:
    raise ValueError("the program's own")
"""
SUPPRESSED = "{\n known\n simgpu:*\n fun:double\n src:program.py:10\n}\n"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text(PROGRAM)
    Path("known.supp").write_text(SUPPRESSED)
    return "program.py"


@pytest.mark.parametrize("how", [("program.py",), ("-m", "program")])
def test_a_program_runs_and_is_reported(program: str, how: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["triton", "--target", "mi210", "--check", "--report", "--times", "--json", "run.json", *how, "1000"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "True ['1000']\n" and "double" in printed.err
    (kernel,) = json.loads(Path("run.json").read_text())["kernels"]
    assert kernel["kernel"] == "double" and kernel["launches"] == 1 and kernel["findings"] == 0
    assert kernel["instructions"] > 0 and kernel["milliseconds"] > 0 and kernel["vgprs"] > 0


def test_nothing_follows_the_program(program: str) -> None:
    """nanobind, which binds Triton's compiler, prints some 30 lines if objects are left at the end."""
    command = [sys.executable, "-m", "simgpu", "triton", "--target", "mi210", program, "1000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0 and "nanobind" not in done.stderr, done.stderr


def test_findings_are_told_at_the_end_and_make_the_status(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["triton", "--target", "mi210", "--check", program, "1001"]) == 1
    printed = capsys.readouterr()
    assert printed.out.endswith("['1001']\n") and "past the end of argument x" in printed.err and "program.py:10" in printed.err


def test_known_findings_are_not_told(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["triton", "--target", "mi210", "--check", "--report", "--suppressions", "known.supp", program, "1001"]
    assert main(command) == 0
    said = capsys.readouterr().err
    assert "suppressed once: known" in said and "past the end" not in said


@pytest.mark.parametrize(("word", "status", "said"), [("exit", 7, ""), ("raise", 1, "ValueError: the program's own")])
def test_the_status_is_the_program_s(program: str, word: str, status: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["triton", "--target", "mi210", program, "1000", word]) == status
    told = capsys.readouterr().err
    assert said in told and "runpy" not in told and str(ROOT / "simgpu") not in told


def test_a_fault_shows_the_program_s_lines_alone(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["triton", "--target", "mi210", program, "1001"]) == 1
    told = capsys.readouterr().err
    assert "program.py" in told and "MemoryFault" in told and "jit.py" not in told and "session.py" not in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name the program"), (["nowhere.py"], "nowhere.py: no such program"), (["--target", "mi9", "x.py"], "unknown target"),
        (["--suppressions", "program.py", "program.py"], "program.py:"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_told(program: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["triton", *words]) == 2
    told = capsys.readouterr().err
    assert said in told and "Traceback" not in told
