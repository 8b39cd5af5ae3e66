"""Runs a few lines of assembly as a kernel of one workgroup and returns registers.

Around the lines: s[4:5] is the address of the input buffer, s[6:7] of the output buffer, v0 the lane's number, v60 four times
that. s[10:11] stay free for the test.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import simgpu
from simgpu.asm.builder import toolchain
from simgpu.engine.result import Run
from simgpu.hardware.errors import ToolchainError

SAVED = "v60"


def source(target: str, lines: str, dump: Sequence[str], options: dict[str, Any]) -> str:
    """Returns the kernel `k`; dump: registers to store consecutively, 256 bytes each and wave."""
    stores = []
    for register in dump:
        data = register
        if register.startswith(("s", "vcc", "m0", "exec")):
            stores += [f"v_mov_b32 v62, {register}"]
            data = "v62"
        elif register.startswith("a"):
            stores += [f"v_accvgpr_read_b32 v62, {register}", "s_nop 7"]
            data = "v62"
        stores += [f"global_store_dword v61, {data}, s[6:7]", "v_add_u32 v61, 0x400, v61"]
    given: dict[str, Any] = {
        "user_sgpr_kernarg_segment_ptr": 1, "next_free_vgpr": 64, "next_free_sgpr": 96,
    }  # fmt: skip
    if target != "gfx908":
        given["accum_offset"] = 64
        given["next_free_vgpr"] = 96
    given |= options
    private = given.get("private_segment_fixed_size", 0)
    kernarg, before = given.pop("kernarg", "s[0:1]"), given.pop("before", "")
    directives = "\n".join(f".amdhsa_{name} {value}" for name, value in given.items())
    tail = "\n".join(stores)
    lds = given.get("group_segment_fixed_size", 0)
    return f"""
.amdgcn_target "amdgcn-amd-amdhsa--{target}"
.text
.globl k
.p2align 8
.type k,@function
k:
{before}
s_load_dwordx4 s[4:7], {kernarg}, 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 {SAVED}, 2, v0
s_waitcnt lgkmcnt(0)
{lines}
s_mov_b64 exec, -1
s_waitcnt vmcnt(0) lgkmcnt(0)
v_mov_b32 v61, {SAVED}
{tail}
s_endpgm
.rodata
.p2align 6
.amdhsa_kernel k
{directives}
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: k
    .symbol: k.kd
    .kernarg_segment_size: 16
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: {private}
    .wavefront_size: 64
    .sgpr_count: 96
    .vgpr_count: 64
    .max_flat_workgroup_size: 256
    .args:
      - {{.name: a, .size: 8, .offset: 0, .value_kind: global_buffer, .address_space: global}}
      - {{.name: b, .size: 8, .offset: 8, .value_kind: global_buffer, .address_space: global}}
...
.end_amdgpu_metadata
"""


class Executed:
    """Results of a kernel: `rows` by dumped register, uint32 (work-items,), `memory` the input."""

    def __init__(self, rows: dict[str, np.ndarray], memory: np.ndarray, run: Run) -> None:
        self.rows = rows
        self.memory = memory
        self.run = run

    def __getitem__(self, register: str) -> np.ndarray:
        return self.rows[register]


class Kernel:
    """Assembled lines, to run on one workgroup any number of times.

    check: in checked mode; ring: in ring mode; options: `.amdhsa_` directives by name; also `kernarg`, the SGPR pair of the kernel
    arguments, and `before`, lines that come first.
    """

    def __init__(
        self, target: str, lines: str, dump: Sequence[str] = (), check: bool | str = False, ring: bool = False, **options: Any
    ) -> None:
        try:
            code = toolchain.assemble(source(target, lines, dump, options), target)
        except ToolchainError as error:
            if "clang" in str(error) and "error:" not in str(error):
                pytest.skip(str(error))
            raise
        self.gpu = simgpu.Device(target, check=check, ring=ring, threads=1, max_instructions=10_000_000)
        self.kernel = self.gpu.load(code)["k"]
        self.dump = list(dump)

    def run(self, data: np.ndarray | None = None, block: int = 64) -> Executed:
        """Runs the lines. data: contents of the input buffer."""
        given = self.gpu.upload(np.zeros(64, np.uint32) if data is None else data)
        count = max(1, len(self.dump))
        out = self.gpu.alloc(1024 * count)
        try:
            run = self.kernel.launch(grid=1, block=block, args=[given, out])
            table = out.download(np.uint32, (count, 256))
            rows = {name: table[number, :block] for number, name in enumerate(self.dump)}
            return Executed(rows, given.download(np.uint8), run)
        finally:
            self.gpu.free(given)
            self.gpu.free(out)


def execute(
    target: str,
    lines: str,
    dump: Sequence[str] = (),
    data: np.ndarray | None = None,
    block: int = 64,
    **options: Any,
) -> Executed:
    """Assembles the lines, runs them once, returns the dumped registers."""
    return Kernel(target, lines, dump, **options).run(data, block)
