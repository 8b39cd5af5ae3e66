"""pytest --simgpu: an existing suite on several simulated targets, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SUITE = '''
import numpy as np
import pytest
import triton
import triton.language as tl

@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

@pytest.mark.parametrize("n", [3, 60])
def test_double(n):
    x, out = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    double[(1,)](x, out, n, BLOCK=64)
    assert (out == 2 * x).all()

def test_past_the_end():
    double[(1,)](np.zeros(60, np.float32), np.zeros(64, np.float32), 64, BLOCK=64)
'''


def suite(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_suite.py").write_text(SUITE)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # the checkout's plugin, not an installed one
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tools.pytest_plugin", "-rA", "-q", *options]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_every_test_runs_on_every_target(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is an optional extra")
    done = suite(tmp_path, "--simgpu", "mi300x,gfx90a")
    assert "4 passed" in done.stdout and "2 failed" in done.stdout, done.stdout + done.stderr
    for target in ("mi300x", "gfx90a"):
        assert f"test_double[3-{target}]" in done.stdout or f"test_double[{target}-3]" in done.stdout
    assert "test_suite.py:10" in done.stdout and "past the end of argument x" in done.stdout


def test_an_unknown_target_is_told(tmp_path: Path) -> None:
    done = suite(tmp_path, "--simgpu", "mi9")
    assert done.returncode == 4 and "unknown target 'mi9'" in done.stderr and "Traceback" not in done.stderr


def test_a_missing_triton_is_told(tmp_path: Path) -> None:
    (tmp_path / "triton.py").write_text("raise ModuleNotFoundError(\"No module named 'triton'\", name='triton')\n")
    done = suite(tmp_path, "--simgpu", "mi300x", "-p", "no:doctest")
    assert done.returncode == 4 and "pip install 'simgpu[triton]'" in done.stderr, done.stderr
