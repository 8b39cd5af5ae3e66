"""First launch of an installation: its loop is translated and kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import PYTHON_PATH

FIRST = """import sys
from simgpu.machine.jit import compiler
from tests.support.engine_kernel import execute
assert execute("gfx90a", "v_mov_b32 v1, 7", ["v1"], check=True)["v1"].tolist() == [7] * 64
print(bool(compiler().compiled), "simgpu.machine.runtime.translate" in sys.modules)
"""


def first(cache: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH, "SIMGPU_CACHE_DIR": str(cache)}
    return subprocess.run([sys.executable, "-c", FIRST], env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    assert first(tmp_path) == "True True"
    assert first(tmp_path) == "False True"
