"""Pairs of instructions as kernels: checked mode's findings on each, by the line of the text."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import simgpu
from simgpu import Finding
from simgpu.asm.builder import toolchain
from simgpu.hardware.errors import ToolchainError
from tests.support.engine_kernel import source

OPTIONS: dict[str, Any] = {"group_segment_fixed_size": 16384, "next_free_vgpr": 128}
UNIFIED = {"accum_offset": 128, "next_free_vgpr": 192}


@functools.cache
def device(target: str) -> simgpu.Device:
    return simgpu.Device(target, check=True, threads=1)


def assembled(target: str, lines: Sequence[str]) -> bytes:
    """Assembles the lines inside `engine_kernel.source`: s[4:5], s[6:7] two buffers, v60 4·lane, v61 16·lane."""
    arch = target.partition(":")[0]
    options = {**OPTIONS, **({} if arch == "gfx908" else UNIFIED)}
    try:
        return toolchain.assemble(source(target, "\n".join(lines), (), options), target)
    except ToolchainError as error:
        if "clang" in str(error) and "error:" not in str(error):
            pytest.skip(str(error))
        raise


def findings(target: str, lines: Sequence[str], block: int = 64, grid: int = 1) -> list[Finding]:
    """Returns checked mode's findings, in the order of the code; a finding's source is its line of the text.

    These pairs compute on registers that nothing wrote; findings on that are left out.
    """
    gpu = device(target.partition(":")[0])
    buffers = [gpu.upload(np.zeros(4096, np.uint32)) for _ in range(2)]
    try:
        run = gpu.load(assembled(target, lines))["k"].launch(grid=grid, block=block, args=buffers)
        return [finding for finding in run.findings if finding.kind != "uninitialized"]
    finally:
        for buffer in buffers:
            gpu.free(buffer)


def line_of(target: str, lines: Sequence[str], index: int) -> str:
    """Returns the `Finding.source` of lines[index]; each entry is one line."""
    text = source(target, "\n".join(lines), (), {})
    before = text.index("\n".join(lines))
    return f"kernel.s:{text.count(chr(10), 0, before) + 1 + index}"
