"""Triton's variables in the debugger have numpy's values in any layout of a block; skipped if Triton is not installed."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is an optional extra")

from simgpu.debugger.debugger import Debugger
from simgpu.debugger.marks import SECTION, marks
from simgpu.debugger.variables import assigned_variables, variables
from simgpu.hardware.code_object.elf import SECTION_HEADER
from simgpu.hardware.errors import DecodeError, LaunchError
from simgpu.tools.cases.script import at_launch
from simgpu.tools.cli import main

SCRIPT = """
import numpy as np
import triton
import triton.language as tl


@triton.jit
def halved(block, by):
    half = block / by
    return half


@triton.jit
def product(A, B, C, rows, K: tl.constexpr, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    row, column, deep = tl.arange(0, M), tl.arange(0, N), tl.arange(0, STEP)
    acc = tl.zeros((M, N), tl.float32)
    for k in range(0, K, STEP):
        a = tl.load(A + row[:, None] * K + (k + deep)[None, :])
        b = tl.load(B + (k + deep)[:, None] * N + column[None, :])
        acc = tl.dot(a, b, acc)
    top = tl.max(acc, axis=1)
    inside = row < rows
    brain = acc.to(tl.bfloat16)
    scaled = halved(acc, 2.0)
    wide = row.to(tl.int64) * 5000000000
    if rows > 1000:
        never = top + 1
        scaled += never[:, None]
    tl.store(C + row[:, None] * N + column[None, :], scaled, mask=inside[:, None])


rng = np.random.default_rng(7)
A, B = (rng.standard_normal(shape).astype(np.float16) for shape in ((64, 48), (48, 32)))
C = np.zeros((64, 32), np.float32)
product[(1,)](A, B, C, 50, K=48, M=64, N=32, STEP=16)
"""
RNG = np.random.default_rng(7)
A, B = (RNG.standard_normal(shape).astype(np.float16) for shape in ((64, 48), (48, 32)))


def line(text: str) -> str:
    (number,) = [number for number, row in enumerate(SCRIPT.splitlines(), start=1) if text in row]
    return f"kernel.py:{number}"


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "kernel.py"
    path.write_text(SCRIPT)
    return str(path)


def values(debugger: Debugger, *names: str) -> Any:
    found = variables(debugger, names)
    assert not any(np.ma.getmaskarray(each.values).any() for each in found)
    held = [each.values.data for each in found]
    return held[0] if len(held) == 1 else held


def debugged(script: str, target: str, act: Callable[[Debugger], None], marked: bool = True) -> None:
    def look(subject: Any) -> int:
        with subject.debugger() as debugger:
            act(debugger)
        return 0

    assert at_launch(script, [], "product", target, look, variables=marked) == 0


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_blocks_are_what_numpy_computes(script: str, target: str) -> None:
    def look(debugger: Debugger) -> None:
        debugger.breakpoint(line("tl.store"))
        debugger.go_on()
        a, b, acc, top, inside, brain, scaled = values(debugger, "a", "b", "acc", "top", "inside", "brain", "scaled")
        assert a.dtype == np.float16 and np.array_equal(a, A[:, 32:]) and np.array_equal(b, B[32:])  # of the last step
        assert acc.dtype == np.float32 and np.allclose(acc, A.astype(np.float64) @ B, atol=1e-4)  # in the matrix units' layout
        assert np.array_equal(top, acc.max(1))  # a slice of it
        assert inside.dtype == bool and np.array_equal(inside, np.arange(64) < 50)
        assert np.array_equal(brain, acc.astype(ml_dtypes.bfloat16)) and np.array_equal(scaled, acc / 2)
        assert np.array_equal(values(debugger, "wide"), 5000000000 * np.arange(64))
        assert np.array_equal(values(debugger, "halved.half"), scaled) and values(debugger, "rows") == 50
        at = line("never = top").rpartition(":")[2]
        with pytest.raises(LaunchError, match=f"never has no value yet in wave 0: it is assigned at line {at}"):
            variables(debugger, ["never"])

    debugged(script, target, look)


def test_a_variable_is_what_was_assigned_last(script: str) -> None:
    """A variable's value is right at each visit of a line in the loop, whatever other waves have done meanwhile; backward as
    forward."""

    def look(debugger: Debugger) -> None:
        debugger.breakpoint(line("acc = tl.dot"), wave=0)
        here = debugger.stop
        with pytest.raises(LaunchError, match="acc has no value yet"):
            variables(debugger, ["acc"])
        assert debugger.stop == here
        for step in range(3):
            debugger.go_on()
            k, a, acc = values(debugger, "k", "a", "acc")
            assert k == 16 * step and np.array_equal(a, A[:, 16 * step : 16 * step + 16])
            assert np.allclose(acc, A[:, : 16 * step].astype(np.float64) @ B[: 16 * step], atol=1e-4)
        debugger.reverse_go_on()
        assert values(debugger, "k") == 16 and len(debugger.breakpoints) == 1
        assert {each.name for each in assigned_variables(debugger)} >= {"A", "rows", "row", "column", "deep", "acc", "k", "a", "b"}

    debugged(script, "gfx942", look)


def test_code_without_marks_says_how_to_have_them(script: str) -> None:
    def look(debugger: Debugger) -> None:
        with pytest.raises(LaunchError, match="--variables"):
            variables(debugger, ["acc"])

    debugged(script, "gfx942", look, marked=False)


def test_a_damaged_section_is_told() -> None:
    def held(rows: bytes) -> Any:
        names = b"\0" + SECTION.encode() + b"\0.names\0"
        behind, at = 64 + len(rows), 64 + len(rows) + len(names)
        sections = (1, 1, 0, 0, 64, len(rows), 0, 0, 1, 0), (2 + len(SECTION), 3, 0, 0, behind, len(names), 0, 0, 1, 0)
        head = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 0, at, 0, 64, 56, 0, 64, 3, 2)
        return SimpleNamespace(data=head + rows + names + b"".join(SECTION_HEADER.pack(*row) for row in ((0,) * 10, *sections)))

    row = bytes(8) + b"3 acc fp32 64x64 37 v12 v80\0"
    (mark,) = marks(held(row))
    assert (mark.name, mark.shape, mark.line, mark.dtype) == ("acc", (64, 64), 37, np.float32)
    for rows in (row[:-1], row[:5], bytes(8) + b"3 acc\0", row + b"\1"):
        with pytest.raises(DecodeError, match="damaged"):
            marks(held(rows))


def test_the_prompt_prints_them(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    commands = [f"break {line('top =')}", "continue", "print k", "print row[3:5]", "print A[0,1]", "print acc[2]", "print acc[64]"]
    options = [word for command in commands for word in ("-ex", command)]
    assert main(["debug", "--variables", *options, "--batch", script]) == 1
    said = capsys.readouterr().out
    assert "k = 32\n" in said and "row[3:5] = [3 4]\n" in said and f"A[0,1] = {float(A[0, 1]):.7g} at 0x" in said
    assert f"acc[2] = [{(A[2].astype(np.float64) @ B)[0]:.3f}"[:14] in said.replace("[ ", "[")
    assert "acc[64]: acc has the shape 64x32" in said
    assert main(["debug", "--variables", "gemm", "-m", "4", "-n", "4", "-k", "4"]) == 2
