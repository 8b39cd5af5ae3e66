"""A kernel in checked mode, and its races and barrier findings."""

from __future__ import annotations

import simgpu
from simgpu.engine.finding import Finding
from tests.support.kernels import KernelText, assemble

HEAD = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshrrev_b32 v9, 6, v0
v_readfirstlane_b32 s9, v9
v_lshlrev_b32 v1, 2, v0
v_mov_b32 v10, 0
v_mov_b32 v11, 1
s_waitcnt lgkmcnt(0)
"""


def check(
    lines: str, *, target: str = "gfx90a", grid: int = 1, block: int = 256, lds: int = 4096, threads: int = 1,
    how: bool | str = True, kinds: tuple[str, ...] = ("race", "barrier"), schedule: int | None = None,
    split: int = 0,
) -> list[Finding]:  # fmt: skip
    """Returns findings of some kinds, by default races and barriers, of a kernel.

    v0 is the work-item, v1 four times it, s9 the wave, v10 0, v11 1, s2 the workgroup, s[4:5] a buffer of 64 KiB, s[6:7]
    another; s8, v2.. are free. split: 1 for tgsplit mode
    """
    gpu = simgpu.Device(target, check=how, threads=threads, schedule=schedule)
    directives = {"group_segment_fixed_size": lds, **({"tg_split": 1} if split else {})}
    text = KernelText("k", HEAD + lines, ("buffer", "buffer"), directives)
    buffers = [gpu.alloc(1 << 16), gpu.alloc(1 << 16)]
    run = gpu.load(assemble(target, text))["k"].launch(grid=grid, block=block, args=buffers)
    return [finding for finding in run.findings if finding.kind in kinds]


def one(found: list[Finding], kind: str, text: str, other: str) -> Finding:
    """Returns the only finding, which must be of a kind and between two instructions."""
    assert [(f.kind, {f.text, f.other_text}) for f in found] == [(kind, {text, other})], [str(f) for f in found]
    return found[0]
