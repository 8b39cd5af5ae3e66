"""Products of 16-bit matrices as the matrix units sum them: by a Triton kernel, on a simulated device of its own.

A GPU's libraries multiply by the instructions that Triton's `tl.dot` compiles to, and sum over k in ascending order. A
reference and a kernel agree there to the last bit, and tests with narrow tolerances rely on that. The CPU's f32 sums have
another order.
"""

from __future__ import annotations

import functools
import math

import torch
import triton.language as tl
from triton.runtime.jit import JITFunction

from simgpu.device import Device, Kernel
from simgpu.engine.launch import launch
from simgpu.hardware.code_object.arguments import Geometry
from simgpu.tools.torch.operators.compiled import WARP, WARPS, compile_kernel
from simgpu.triton.driver import active_driver
from simgpu.triton.tensors import SharedTensors

TILE = 64
# Multiplications of a product above which the CPU computes it: the simulated one takes four to six times as long.
MOST = 2**31
_TYPES = {torch.float16: "*fp16", torch.bfloat16: "*bf16"}


@JITFunction  # also with TRITON_INTERPRET=1, when functions made by `triton.jit`, and Triton's own library, do not compile
def _product(a, b, out, rows, columns, depth, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Stores out (batch, rows, columns) of f32 = a (batch, rows, depth) times b (batch, columns, depth) transposed; all of
    whole tiles."""
    batch = tl.program_id(2).to(tl.int64)
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    by = tl.program_id(1) * TILE + tl.arange(0, TILE)
    k = tl.arange(0, TILE)
    a += batch * rows * depth + at[:, None] * depth + k[None, :]
    b += batch * columns * depth + by[None, :] * depth + k[:, None]
    total = tl.full((TILE, TILE), 0.0, tl.float32)
    for _ in range(0, depth, TILE):
        total = tl.dot(tl.load(a), tl.load(b), total)
        a += TILE
        b += TILE
    tl.store(out + batch * rows * columns + at[:, None] * columns + by[None, :], total)


@functools.cache
def _kernel(board: str, pointer: str) -> tuple[Kernel, int]:
    """Returns the kernel for operands of a type, on its own device, and the bytes of LDS that it needs."""
    device = Device(board)
    made = compile_kernel(_product, (pointer, pointer, "*fp32", "i32", "i32", "i32"), (TILE,), device.arch, aligned=True)
    return device.load(made.code)[made.name], made.lds


def serves(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if the matrix units' sum is used for a times b: 16-bit matrices that fit each other, not too many multiplications."""
    fits = a.dtype == b.dtype and a.dtype in _TYPES and a.dim() == b.dim() and a.dim() in (2, 3)
    if not (fits and a.shape[-1] == b.shape[-2] and a.shape[:-2] == b.shape[:-2]):
        return False
    return 0 < math.prod(a.shape[:-2]) * _round_up(a.shape[-2]) * _round_up(b.shape[-1]) * a.shape[-1] <= MOST


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiplies a (m, k) by b (k, n), or a batch of both in a first axis, of one 16-bit type, in f32."""
    if a.dim() == 2:
        return product(a[None], b[None])[0]
    left, right = _pad(a), _pad(b.transpose(1, 2))
    batch, rows, k = left.shape
    columns = right.shape[1]
    out = torch.empty(batch, rows, columns, dtype=torch.float32)
    kernel, lds = _kernel(active_driver().session.board, _TYPES[a.dtype])
    geometry = Geometry.of((rows // TILE, columns // TILE, batch), WARP * WARPS, lds)
    args = [left.data_ptr(), right.data_ptr(), out.data_ptr(), rows, columns, k, 0, 0]  # the last two: unused scratch
    with SharedTensors(kernel.module.device.memory, [("a", left), ("b", right), ("out", out)]):
        launch(kernel, geometry, args)
    return out[:, : a.shape[1], : b.shape[2]]


def _round_up(extent: int) -> int:
    """Rounds an extent up to whole tiles."""
    return -(-extent // TILE) * TILE


def _pad(matrices: torch.Tensor) -> torch.Tensor:
    """Pads matrices (batch, rows, k), contiguous, with zeros up to whole tiles, which change no sum."""
    batch, rows, k = matrices.shape
    padded = torch.zeros(batch, _round_up(rows), _round_up(k), dtype=matrices.dtype)
    padded[:, :rows, :k] = matrices
    return padded
