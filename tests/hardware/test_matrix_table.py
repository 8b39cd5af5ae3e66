"""A matrix instruction is one row. Added to a copy of the sources, it is laid out, decoded, run and chosen for GEMMs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.places import ROOT, copied

# gfx942 has none with k = 64, and its opcode 83 is free.
ROW = '    ("mfma", "f32", 16, 16, 64, 1, "f16", "f16", 83, (0, 0, 4, 0)),\n'
USE = """
import numpy as np
import simgpu
from simgpu.hardware import mfma, target
from simgpu.operators import GemmProblem, plan_gemm

name = "v_mfma_f32_16x16x64_f16"
row = mfma.find(name, "gfx942")
assert row.registers("A") == 8 and row.owner("A", 3, 17) == (0, 19, 16)  # 16 k a lane: k = 17 is the second of lane group 1

atom = target("mi300x").atom("f16")
assert (atom.mnemonic, atom.m, atom.n, atom.k, atom.dtype_acc, atom.passes) == (name, 16, 16, 64, "f32", 4)
assert plan_gemm(GemmProblem(512, 512, 512, dtype="f16"), target("mi300x")).atom == atom

code = (0xD3D30000 | 4).to_bytes(4, "little") + (256 + 8 | 256 + 16 << 9 | 256 + 4 << 18).to_bytes(4, "little")
assert simgpu.disassemble(code, "gfx942") == [(0, name + " v[4:7], v[8:15], v[16:23], v[4:7]")]

rng = np.random.default_rng(1)
a, b = rng.integers(-8, 9, (16, 64)).astype(np.float16), rng.integers(-8, 9, (64, 16)).astype(np.float16)
c = rng.integers(-99, 100, (16, 16)).astype(np.float32)
assert (simgpu.mfma(name, a, b, c, "gfx942") == a.astype(np.float64) @ b + c).all()
raw = mfma.multiply(row, a.view(np.uint16)[None], b.view(np.uint16)[None], c.view(np.uint32)[None])
assert (raw.view(np.float32)[0] == a.astype(np.float64) @ b + c).all()
"""


def test_one_row_is_an_instruction(tmp_path: Path) -> None:
    copied(ROOT / "simgpu", tmp_path / "simgpu")  # links become folders
    table = tmp_path / "simgpu" / "hardware" / "matrix_table.py"
    head, start, rows = table.read_text().partition("_ROWS: tuple[_Row, ...] = (\n")
    table.write_text(head + start + ROW + rows)
    environment = {**os.environ, "SIMGPU_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", USE], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
