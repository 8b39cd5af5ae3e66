"""Counters of small HIP kernels against counts by hand: bytes, requests, bank conflicts and instructions by class."""

from __future__ import annotations

from typing import NamedTuple

import pytest

import simgpu
from simgpu.advice.costs import line_costs
from simgpu.advice.counters import counters
from simgpu.tools.cases.sources import compile

WAVE, F32 = 64, 4  # lanes, bytes
INDEX = "int i = threadIdx.x + blockIdx.x * blockDim.x;"


class HandCount(NamedTuple):
    """A kernel, its launch, and its known counters."""

    body: str  # with `int i`, the lane's number in the launch
    groups: int
    block: int
    words: int  # of the arrays `to` and `from`
    known: dict[str, float]  # counters, for each wave of the launch
    kilobytes: tuple[float, float] = (-1, -1)  # FETCH_SIZE and WRITE_SIZE of the launch, without arguments; -1: not counted

    @property
    def waves(self) -> int:
        return self.groups * -(-self.block // WAVE)


WAVES = 4 * 304  # of a launch of 304 workgroups of 256 lanes
KB = WAVES * WAVE * F32 / 1024  # a word for each lane
KERNELS = {
    # A wave loads 256 consecutive bytes: 2 lines of 128, and stores 4 pieces of 64.
    "copy": HandCount(
        "to[i] = from[i];", 304, 256, WAVES * WAVE,
        {"SQ_INSTS_VMEM_RD": 1, "SQ_INSTS_VMEM_WR": 1, "TCP_TCC_READ_REQ_sum": 2, "TCP_TCC_WRITE_REQ_sum": 4,
         "SQ_INSTS_LDS": 0, "SQ_INSTS_MFMA": 0, "TCP_TOTAL_CACHE_ACCESSES_sum": 4}, (KB, KB),
    ),
    # 16 bytes a lane: 8 lines and 16 pieces of a wave, in one instruction each.
    "copy of four": HandCount(
        "((float4 *)to)[i] = ((const float4 *)from)[i];", 304, 256, 4 * WAVES * WAVE,
        {"SQ_INSTS_VMEM_RD": 1, "SQ_INSTS_VMEM_WR": 1, "TCP_TCC_READ_REQ_sum": 8, "TCP_TCC_WRITE_REQ_sum": 16}, (4 * KB, 4 * KB),
    ),
    # Each lane wants a word of a line of its own: L2 fetches all 128 bytes.
    "a line a lane": HandCount(
        "to[i] = from[32 * i];", 76, 256, 32 * 76 * 256, {"TCP_TCC_READ_REQ_sum": 64, "TCP_TCC_WRITE_REQ_sum": 4},
        (32 * KB / 4, KB / 4),
    ),
    # 16 lanes store to the first 64 bytes of each line: half of it is written.
    "halves": HandCount(
        "to[(i / 16) * 32 + i % 16] = i;", 304, 256, 2 * WAVES * WAVE, {"SQ_INSTS_VMEM_RD": 0, "TCP_TCC_WRITE_REQ_sum": 4}, (0, KB),
    ),
    # All lanes load the same word: one request of each wave, by the vector or the scalar cache.
    "one word": HandCount("to[i] = from[(i & 1) / 2];", 304, 256, WAVES * WAVE, {"SQ_INSTS_VMEM_WR": 1}, (-1, KB)),
    # 32 of 64 lanes of the last wave of a workgroup exist.
    "96 lanes": HandCount(
        "to[i] = from[i];", 608, 96, 608 * 96, {"SQ_INSTS_VMEM_RD": 1, "TCP_TCC_READ_REQ_sum": 1.5, "TCP_TCC_WRITE_REQ_sum": 3},
        (608 * 96 * F32 / 1024, 608 * 96 * F32 / 1024),
    ),
    # LDS, 32 banks of words, half a wave at a time: word 2 i is in 16 banks, so that takes 4 clocks, and 2 without conflicts.
    "every second word": HandCount(
        "__shared__ float s[512]; s[2 * threadIdx.x] = i; __syncthreads(); to[i] = s[2 * (threadIdx.x ^ 1)];", 304, 256,
        WAVES * WAVE, {"SQ_INSTS_LDS": 2, "SQ_LDS_IDX_ACTIVE": 2 * 4, "SQ_LDS_BANK_CONFLICT": 2 * (4 - 2)},
    ),
    # Word 32 i is in one bank: 64 clocks.
    "one bank": HandCount(
        "__shared__ float s[8192]; s[32 * threadIdx.x] = i; __syncthreads(); to[i] = s[32 * (threadIdx.x ^ 1)];", 304, 256,
        WAVES * WAVE, {"SQ_INSTS_LDS": 2, "SQ_LDS_IDX_ACTIVE": 2 * 64, "SQ_LDS_BANK_CONFLICT": 2 * (64 - 2)},
    ),
    # All lanes load one word, which the bank broadcasts.
    "broadcast": HandCount(
        "__shared__ float s[256]; s[threadIdx.x] = i; __syncthreads(); to[i] = s[blockIdx.x & 15];", 304, 256, WAVES * WAVE,
        {"SQ_INSTS_LDS": 2, "SQ_LDS_BANK_CONFLICT": 0},
    ),
    # 16x16x4 of f32: 32 clocks each on gfx942.
    "matrix": HandCount(
        "typedef float v4 __attribute__((ext_vector_type(4))); v4 c = {};"
        + "c = __builtin_amdgcn_mfma_f32_16x16x4f32(i, i, c, 0, 0, 0);" * 5 + "to[i] = c[0];", 304, 256, WAVES * WAVE,
        {"SQ_INSTS_MFMA": 5, "SQ_VALU_MFMA_BUSY_CYCLES": 5 * 32},
    ),
}
LONGER = {  # instructions, a counter, and how often a wave executes them more
    "v_add_u32 v0, v0, v0": ("SQ_INSTS_VALU", 1), "s_add_u32 s40, s40, s40": ("SQ_INSTS_SALU", 1),
    "s_load_dwordx2 s[40:41], s[4:5], 0x0": ("SQ_INSTS_SMEM", 1), "s_branch 1f\\n1:": ("SQ_INSTS_BRANCH", 1),
    "v_mov_b32 v0, v0\\ns_nop 0": ("SQ_INSTS_VALU", 1),
}


def counted(body: str, groups: int, block: int, words: int, board: str = "mi300x") -> dict[str, float]:
    """Returns the counters of a launch on a board whose caches are empty."""
    gpu = simgpu.Device(board, threads=1)
    text = f'extern "C" __global__ void k(float *to, const float *from) {{\n{INDEX} {body}\n}}'
    one = gpu.load(compile(text, board))["k"].time(groups, block, [gpu.zeros(words), gpu.zeros(words)])
    return counters(one, line_costs(one, lambda offset: ""))


@pytest.mark.parametrize("name", KERNELS)
def test_counters_are_those_counted_by_hand(name: str) -> None:
    one = KERNELS[name]
    made = counted(one.body, one.groups, one.block, one.words)
    assert made["SQ_WAVES"] == one.waves
    found = {counter: made[counter] / one.waves for counter in one.known}
    assert found == pytest.approx(one.known, rel=1e-3, abs=1e-3)
    for counter, kilobytes in zip(("FETCH_SIZE", "WRITE_SIZE"), one.kilobytes, strict=True):
        if kilobytes >= 0:  # arguments are a few lines of each XCD
            assert made[counter] == pytest.approx(kilobytes, rel=1e-3, abs=4), counter


# Lines a wave, from ROCm's seismic stencils on MI250X: a row of 64 floats takes 4 if it begins on a line, otherwise 8; by two
# floats a lane 16 and 24. Along y, 10,737 MB are 10 x 8 lines of 64 bytes for each of 2^21 waves.
LOOKED_UP = {
    "to[i] = from[i];": 4 + 4, "to[i] = from[i + 4];": 8 + 4, "to[i + 4] = from[i + 4];": 8 + 8,
    "((float2 *)to)[i] = ((const float2 *)from)[i];": 16 + 16, "((float2 *)to)[i] = ((const float2 *)from)[i + 2];": 24 + 16,
}  # fmt: skip


@pytest.mark.parametrize("body", LOOKED_UP)
def test_mi200_looks_up_a_line_in_each_clock_of_coalescing(body: str) -> None:
    made = counted(body, 208, 256, 2 * 208 * 256 + 4, "mi250x")
    assert made["TCP_TOTAL_CACHE_ACCESSES_sum"] / made["SQ_WAVES"] == LOOKED_UP[body]


@pytest.mark.parametrize("text", LONGER)
def test_instructions_are_counted_by_class(text: str) -> None:
    """A kernel with seven of them has seven more than one without, in their class only."""
    counter, each = LONGER[text]
    without, with_them = (
        counted(f'asm volatile(".rept {count}\\n{text}\\n.endr" ::: "v0", "s40", "s41"); to[i] = i;', 304, 256, WAVES * WAVE)
        for count in (1, 8)
    )
    classes = [name for name in without if name.startswith("SQ_INSTS")]
    more = {name: (with_them[name] - without[name]) / WAVES for name in classes}
    assert more == {name: 7 * each * (name == counter) for name in classes}
