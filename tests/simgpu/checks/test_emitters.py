"""Findings in kernels that this project emits name the Python line that emitted the instruction."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import simgpu
from simgpu import asm, operators
from simgpu.asm import EmittedKernel
from simgpu.engine.finding import Finding
from simgpu.tools.cli import main

SIZES = (33, 32, 64)


@pytest.fixture(scope="module")
def kernel() -> EmittedKernel:
    return asm.emit(operators.TiledComputation(*SIZES, target="gfx90a"))


def found(kernel: EmittedKernel, check: bool | str = True) -> list[Finding]:
    m, n, k = SIZES
    gpu = simgpu.Device("gfx90a", check=check, threads=1)
    a, b = np.ones((m, k), "f4"), np.ones((k, n), "f4")
    buffers = gpu.upload(a), gpu.upload(b), gpu.alloc(4 * m * n)
    return [finding for run in asm.launch(kernel, gpu, *buffers) for finding in run.findings if finding.kind != "resource"]


def line_of(source: str, where: str) -> str:
    """Returns the instruction at a `Finding.source` of the text."""
    return source.split("\n")[int(where.partition(":")[2]) - 1]


def test_a_missing_wait_names_both_python_lines(kernel: EmittedKernel) -> None:
    first, wait, *rest = re.split(r"(\n  s_waitcnt vmcnt[^\n]*)", kernel.text)
    broken = replace(kernel, text="".join([first, *rest]))
    finding = found(broken)[0]
    assert finding.kind == "missing-wait" and wait
    for source, emitter, text in (
        (finding.source, finding.emitter, finding.text), (finding.other_source, finding.other_emitter, finding.other_text),
    ):  # fmt: skip
        line = line_of(broken.source, source)
        assert line.split()[0] in text and line.endswith(f"[{emitter}]")
        file, _, number = emitter.partition(":")
        assert int(number) <= len((Path(asm.__file__).parent / file).read_text().splitlines())
        assert f"({source}, {emitter})" in str(finding)
    assert finding.document()["emitter"] == finding.emitter
    assert found(kernel) == []


def test_notes_of_the_command_name_them(capsys: pytest.CaptureFixture[str]) -> None:
    m, n, k = SIZES
    assert main(["check", "gemm", "-m", f"{m}", "-n", f"{n}", "-k", f"{k}", "--target", "gfx90a", "--performance"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"at \w+\+0x[0-9a-f]+ `s_waitcnt [^`]*` \(kernel\.s:\d+, before (gemm|parts)/\w+\.py:\d+\)", said), said


def test_other_code_has_none() -> None:
    """A foreign code object has only its DWARF lines."""
    finding = Finding("race", "x", 16, "s_nop 0", source="k.cl:3")
    assert "(k.cl:3)" in str(finding) and finding.emitter == ""
