"""Kernels whose results must have the same bits on every host: operators of every kind, and handwritten ones.

As a program, it prints the digest of each as JSON, for a run with another CPU's name (`test_hosts`).
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import simgpu
from simgpu import asm
from simgpu.hardware import mfma
from simgpu.matrix.one_mfma import execute as execute_matrix
from simgpu.operators import (
    AttentionProblem,
    Conv2d,
    Conv2dProblem,
    FusedAttention,
    FusedTree,
    RmsNormGemm,
    Softmax,
    SoftmaxProblem,
    TiledComputation,
    UnfusedAttention,
)
from simgpu.tools.cases.operators import workload
from simgpu.tools.cases.workload import Workload
from tests.support.engine_kernel import execute


def gemm(target: str, name: str, m: int = 72, n: int = 40, k: int = 56) -> TiledComputation:
    return TiledComputation(m, n, k, target, dtype=name, alpha=2.0, beta=0.0 if name == "i8" else 0.5)


# Small, and each of several workgroups; attention of one row tile is cut along the keys and merged.
OPERATORS: dict[str, Callable[[], Any]] = {
    "gemm f32": lambda: gemm("gfx908", "f32", 200, 136),
    "gemm f64": lambda: gemm("gfx90a", "f64"),
    "gemm bf16": lambda: gemm("gfx908", "bf16"),
    "gemm f16 gfx90a": lambda: gemm("gfx90a", "f16"),
    "gemm f16 gfx942": lambda: gemm("gfx942", "f16", 200, 136),
    "gemm i8": lambda: gemm("gfx908", "i8"),
    "gemm split": lambda: gemm("gfx908", "f32", 24, 24, 900),
    "conv2d": lambda: Conv2d(Conv2dProblem(2, 9, 13, 11, 20, 3, 3), "gfx908"),
    "softmax": lambda: Softmax(SoftmaxProblem(37, 210, "f16"), "gfx90a"),
    "attention": lambda: FusedAttention(AttentionProblem(150, 170, 32, 2, causal=True), "gfx908"),
    "attention split": lambda: FusedAttention(AttentionProblem(16, 900, 16), "gfx942"),
    "rmsnorm_gemm": lambda: FusedTree(RmsNormGemm(70, 90, 130, "bf16"), "gfx90a"),
    "unfused attention": lambda: UnfusedAttention(AttentionProblem(70, 90, 32), "gfx908"),
}


@functools.cache
def prepared(name: str) -> tuple[str, asm.EmittedKernel, Workload]:
    """Returns target, kernel and random inputs of an operator."""
    tree = OPERATORS[name]()
    return tree.descriptor.arch, asm.emit(tree), workload(tree, tree.descriptor.arch, 0)


def operator(name: str, threads: int | None = None) -> bytes:
    """Returns the result of an operator's kernels."""
    target, kernel, work = prepared(name)
    gpu = simgpu.Device(target, threads=threads)
    buffers = [gpu.upload(array) for array in work.arrays]
    asm.launch(kernel, gpu, *buffers)
    return buffers[work.result].download(np.uint8).tobytes()


LOAD = """
v_lshlrev_b32 v1, 4, v0
global_load_dwordx4 v[4:7], v1, s[4:5]
s_waitcnt vmcnt(0)
"""
FLOATS = """
v_cvt_f32_f16 v10, v4
v_cvt_f16_f32 v11, v4
v_cvt_f32_f64 v12, v[4:5]
v_cvt_i32_f32 v13, v4
v_cvt_u32_f64 v14, v[4:5]
v_exp_f32 v15, v4
v_log_f32 v16, v4
v_rcp_f32 v17, v4
v_rsq_f32 v18, v4
v_sin_f32 v19, v4
v_sqrt_f32 v20, v4
v_rcp_f64 v[22:23], v[4:5]
v_sqrt_f64 v[24:25], v[4:5]
v_fma_f32 v26, v4, v5, v6
v_fma_f16 v27, v4, v5, v6
v_fma_f64 v[28:29], v[4:5], v[6:7], v[4:5]
v_exp_f16 v30, v4
v_pk_fma_f16 v31, v4, v5, v6
v_rndne_f64 v[32:33], v[4:5]
v_floor_f32 v34, v4
v_fract_f32 v35, v4
v_div_fixup_f32 v36, v4, v5, v6
"""
SMALL = """
v_cvt_pk_fp8_f32 v10, v4, v5
v_cvt_pk_bf8_f32 v11, v4, v5
v_cvt_f32_fp8 v12, v4
v_cvt_f32_bf8 v13, v4
v_dot2_f32_f16 v14, v4, v5, v6
v_fma_mix_f32 v15, v4, v5, v6
v_pk_mul_f32 v[16:17], v[4:5], v[6:7]
"""
ROUNDED = """
s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), {mode}
v_cvt_f16_f32 v10, v4
v_add_f16 v11, v4, v5
v_fma_f16 v12, v4, v5, v6
v_add_f32 v13, v4, v5
v_fma_f64 v[14:15], v[4:5], v[6:7], v[4:5]
v_cvt_f32_f64 v16, v[4:5]
s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 0
"""
SHARED = """
v_mov_b32 v2, 0
ds_write_b128 v1, v[4:7]
s_waitcnt lgkmcnt(0)
ds_read2_b32 v[10:11], v60 offset0:3 offset1:77
ds_read_u8 v12, v0 offset:5
ds_bpermute_b32 v13, v4, v5
ds_add_rtn_u32 v14, v2, v4
ds_add_rtn_f32 v15, v2, v4 offset:4
s_waitcnt lgkmcnt(0)
v_mov_b32_dpp v16, v4 row_shr:1 row_mask:0xf bank_mask:0xf
"""
# Kernels that compile in a moment, even on a host of narrow vectors: name, target, lines, rows to look at.
LINES: dict[str, tuple[str, str, int]] = {
    "floats": ("gfx90a", FLOATS, 37),
    "small floats": ("gfx942", SMALL, 18),
    "rounded up": ("gfx90a", ROUNDED.format(mode=0b0101), 17),
    "rounded to zero": ("gfx90a", ROUNDED.format(mode=0b1111), 17),
    "bf16": ("gfx950", "v_cvt_pk_bf16_f32 v10, v4, v5\nv_cvt_scalef32_pk_f32_fp8 v[12:13], v4, v5", 14),
    "lds": ("gfx90a", SHARED, 17),
}


def written(name: str) -> bytes:
    """Returns the rows that a handwritten kernel leaves, from ordinary numbers in one half of the lanes and any bits in the
    other."""
    target, lines, rows = LINES[name]
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2**32, (64, 4), dtype=np.uint32)
    bits[::2] = rng.integers(0x3C000000, 0x44000000, (32, 4), dtype=np.uint32)
    bits[1:9:2] = [[0, 0x80000000, 0x7F800001, 0x7C017C00], [1, 0xFF812345, 0xFC01FE00, 0x7F800000]] * 2
    dump = [f"v{row}" for row in range(10, rows)]
    found = execute(target, f"{''.join(f'v_mov_b32 {row}, 0{chr(10)}' for row in dump)}{LOAD}{lines}", dump, bits.ravel(),
                    group_segment_fixed_size=4096)  # fmt: skip
    return b"".join(found[row].tobytes() for row in dump)


# Types of matrix instruction whose sums pass NaN on by floating-point operations of the host.
MATRICES = [
    ("gfx908", "v_mfma_f32_16x16x4f32"), ("gfx908", "v_mfma_f32_4x4x1f32"), ("gfx908", "v_mfma_f32_16x16x8bf16"),
    ("gfx90a", "v_mfma_f32_16x16x16f16"), ("gfx90a", "v_mfma_f64_16x16x4f64"), ("gfx942", "v_mfma_f32_16x16x16_f16"),
    ("gfx942", "v_mfma_f32_16x16x32_fp8_fp8"), ("gfx942", "v_smfmac_f32_16x16x32_f16"),
]  # fmt: skip
# NaN of many payloads and both signs, quiet and signaling, and infinities: of f64 by their high words, f32, bf16, f16 and fp8.
NANS = [
    0x7FF80001, 0xFFF12345, 0x7FF00000, 0xFFF00000, 0x7F800001, 0xFFC54321, 0x7F800000, 0xFF800000, 0x7FC17F81, 0xFF81FFC2,
    0x7C017E55, 0xFC01FE77, 0x7C00FC00, 0x80808080, 0x3F803C00, 0x00000000,
]  # fmt: skip


def matrices() -> bytes:
    """Returns D of matrix instructions; a quarter of their registers' numbers are NaN or infinite."""
    rng, found = np.random.default_rng(11), []
    for target, mnemonic in MATRICES:
        row = mfma.find(mnemonic, target)
        for _ in range(6):
            registers = {}
            for name in ("A", "B", "C", *(["IDX"] if row.sparse else [])):
                shape = row.registers(name), 64
                ordinary = rng.integers(0x3C000000, 0x44000000, shape, dtype=np.uint32)
                special = rng.choice(np.array(NANS, np.uint32), shape)
                registers[name] = np.where(rng.random(shape) < 0.25, special, ordinary)
            found.append(execute_matrix(row, registers, {}).tobytes())
    return b"".join(found)


def result(name: str) -> bytes:
    """Returns the bytes that kernel `name` leaves."""
    if name == "matrices":
        return matrices()
    return written(name) if name in LINES else operator(name)


def digests(names: list[str]) -> dict[str, str]:
    """Returns the sha256 of each kernel's result."""
    return {name: hashlib.sha256(result(name)).hexdigest() for name in names}


if __name__ == "__main__":
    print(json.dumps(digests(sys.argv[1:] or [*OPERATORS, *LINES, "matrices"])))
