"""Machine code of checks is kept between processes, until its sources change."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simgpu.asm.builder.toolchain import assemble
from simgpu.tools.matrix.kernel import NAME, kernel
from tests.support.places import ROOT, copied

FINDINGS = f"""
import sys
from simgpu import Device
gpu = Device("gfx908", check=True, threads=1)
data = gpu.alloc(256)
with open(sys.argv[1], "rb") as file:
    run = gpu.load(file.read())["{NAME}"].launch(grid=1, args=[data, data])
print([(finding.kind, finding.text, finding.message) for finding in run.findings])
"""


@pytest.mark.exhaustive
def test_another_layout_is_another_compilation(tmp_path: Path) -> None:
    """A copy of the package reports the same of a register before and after the wave's state got longer
    (`layout.STREAM_COUNT`)."""
    copied(ROOT / "simgpu", tmp_path / "simgpu")  # links become folders
    code = tmp_path / "code.o"
    store = "global_store_dword v0, v9, s[6:7]"
    lines = ["s_mov_b64 exec, 0xffff", "v_mov_b32 v9, v0", "s_mov_b64 exec, -1", store]  # a part of v9 is defined
    code.write_bytes(assemble(kernel("gfx908", lines), "gfx908"))

    def findings() -> str:
        environment = {**os.environ, "SIMGPU_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
        program = [sys.executable, "-c", FINDINGS, str(code)]
        return subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout

    before = findings()
    assert "uninitialized" in before and store in before
    layout = tmp_path / "simgpu" / "machine" / "layout.py"
    text = layout.read_text()
    assert text.count("STREAM_COUNT = 512 ") == 1
    layout.write_text(text.replace("STREAM_COUNT = 512", "STREAM_COUNT = 1024"))
    assert findings() == before
