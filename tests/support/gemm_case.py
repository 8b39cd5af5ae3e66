"""One GEMM on the simulated GPU, its operands in guarded memory, beside float64: what the GEMM tests share."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

import simgpu
from simgpu import asm
from simgpu.hardware.dtypes import dtype, numpy_dtype
from simgpu.operators import reference
from simgpu.operators.error_model import TypicalError
from simgpu.operators.gemm.tree import TiledComputation
from simgpu.tools.shared.faithful import likeness

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
TRANSPOSES = [(a, b) for a in (False, True) for b in (False, True)]
TYPES = ("f32", "f16", "bf16", "f64", "i8", "fp8", "bf8", "xf32")
GUARD = 41  # elements before and after each view; odd, so that views are aligned to their elements only


@functools.cache
def device(target: str, check: bool | str = False) -> simgpu.Device:
    return simgpu.Device(target, check=check)


@dataclass
class Result:
    got: np.ndarray
    want: np.ndarray
    bound: np.ndarray
    untouched: bool
    runs: list[Any]
    kernel: asm.EmittedKernel
    typical: TypicalError | None

    def check(self) -> None:
        """Every element within its bound and all as near as a faithful kernel's, NaN and infinities where the reference has them,
        nothing else written."""
        finite = np.isfinite(self.want) & np.isfinite(self.bound)
        error = np.abs(np.where(finite, self.got - np.where(finite, self.want, 0), 0))
        bad = ~(error <= np.where(finite, self.bound, 0))
        assert not bad.any(), (
            f"{bad.sum()} of {bad.size} wrong, first {np.argwhere(bad)[:3]}: {self.got[bad][:3]} not {self.want[bad][:3]}"
        )
        special = ~np.isfinite(self.want)
        same = (self.got == self.want) | (np.isnan(self.got) & np.isnan(self.want))
        assert same[special].all(), (self.got[special & ~same][:5], self.want[special & ~same][:5])
        assert self.untouched, "memory around C was written"
        if self.typical is not None:
            like = likeness(self.got, self.typical)
            assert like.passed, like


def poison(kind: np.dtype) -> Any:
    return np.iinfo(kind).min if kind.kind in "iu" else np.nan


def window(memory: np.ndarray, shape: tuple[int, ...], stride: int, guard: int) -> np.ndarray:
    """The view of `shape` in its memory."""
    *outer, rows, columns = shape
    count = int(np.prod(outer, dtype=int)) * rows * stride
    return memory[guard : guard + count].reshape(*outer, rows, stride)[..., :columns]


def padded(shape: tuple[int, ...], stride: int, kind: np.dtype, source: np.random.Generator, guard: int = GUARD):
    """A view of `shape` with rows `stride` apart, and the poisoned memory that it lies in."""
    *outer, rows, _ = shape
    count = int(np.prod(outer, dtype=int)) * rows
    memory = np.full(2 * guard + count * stride, poison(kind), kind)
    view = window(memory, shape, stride, guard)
    if kind.kind in "iu":
        view[...] = source.integers(-100, 100, shape).astype(kind)
    else:
        view[...] = source.uniform(-1, 1, shape).astype(kind)
    return memory, view


def gemm(m, n, k, target="gfx908", name="f32", trans=(False, False), alpha=1.0, beta=0.0, pads=(0, 0, 0), batch=1, bias=False,
         activation="none", policy="corrected", guard=GUARD, edit=None, descriptor=None, check=False) -> Result:  # fmt: skip
    """Runs one; `edit(a, b, c)` changes the inputs; descriptor: a HardwareDescriptor in place of the target's; check: the
    device's."""
    source = np.random.default_rng(m * 90001 + n * 301 + k)
    outer = () if batch == 1 else (batch,)
    shapes = ((k, m) if trans[0] else (m, k), (n, k) if trans[1] else (k, n), (m, n))
    strides = [shape[1] + pad for shape, pad in zip(shapes, pads)]
    kinds = [numpy_dtype(name, target)] * 2 + [numpy_dtype(dtype(name).accumulator, target)]
    memories, views = zip(*(
        padded((*outer, *shape), stride, kind, source, guard) for shape, stride, kind in zip(shapes, strides, kinds)
    ))  # fmt: skip
    a, b, c = views
    values = source.uniform(-1, 1, n) if kinds[2].kind == "f" else source.integers(-9, 9, n)
    bias_array = values.astype(kinds[2])
    if edit:
        edit(a, b, c)
    if beta == 0:
        c[...] = poison(kinds[2])
    tree = TiledComputation(m, n, k, descriptor or target, policy, name, *trans, alpha, beta, *strides, batch, bias, activation)
    kernel = asm.emit(tree)
    gpu = device(target, check)
    buffers = [gpu.upload(memory) for memory in memories]
    given = [buffer.address + guard * kind.itemsize for buffer, kind in zip(buffers, kinds)]
    if bias:
        buffers.append(gpu.upload(bias_array))
        given.append(buffers[-1].address)
    runs = asm.launch(kernel, gpu, *given)
    after = buffers[2].download(kinds[2], memories[2].shape)
    for buffer in buffers:
        gpu.free(buffer)
    got = window(after, c.shape, strides[2], guard).astype(np.float64)
    outside = np.ones(after.shape, bool)
    window(outside, c.shape, strides[2], guard)[...] = False
    word = np.dtype(f"u{c.itemsize}")
    untouched = bool((after.view(word) == memories[2].view(word))[outside].all())
    read = (a, b) if alpha else (np.zeros_like(a), np.zeros_like(b))
    operands = (*read, c if beta else None)
    with np.errstate(all="ignore"):
        want = reference.gemm(tree.problem, *operands, bias_array if bias else None)
        bound = reference.gemm_error_bound(tree.problem, *operands, target, bias_array if bias else None)
        typical = reference.gemm_typical_error(tree.problem, *operands, target, bias_array if bias else None)
    return Result(got, want, bound, untouched, runs, kernel, typical)
