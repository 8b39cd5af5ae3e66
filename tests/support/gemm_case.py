"""GEMM on the simulated GPU, with operands in guarded memory, compared with float64: shared by the GEMM tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import simgpu
from simgpu import asm
from simgpu.hardware import target as board
from simgpu.hardware.dtypes import numpy_dtype
from simgpu.operators import reference
from simgpu.operators.error_model import TypicalError
from simgpu.operators.gemm.layout import TileLayouts
from simgpu.operators.gemm.plan import with_tiling
from simgpu.operators.gemm.problem import GemmProblem
from simgpu.operators.gemm.tree import TiledComputation
from simgpu.tools.shared.faithful import likeness
from tests.support.devices import device

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
TRANSPOSES = [(a, b) for a in (False, True) for b in (False, True)]
TYPES = ("f32", "f16", "bf16", "f64", "i8", "fp8", "bf8", "xf32")
GUARD = 41  # elements before and after each view; odd, so that views are aligned to their elements only


def bytes_by_mode(target: str, m: int, k: int, dtype: str, modes: Iterable[Mapping[str, Any]]) -> list[bytes]:
    """Returns the bytes of C of an m x 96 x k GEMM, launched on a device with each mode's options."""
    emitted = asm.emit(TiledComputation(m, 96, k, dtype=dtype, target=target))
    rng, kind = np.random.default_rng(0), numpy_dtype(dtype)
    a, b = rng.standard_normal((m, k)).astype(kind), rng.standard_normal((k, 96)).astype(kind)
    found = []
    for mode in modes:
        gpu = simgpu.Device(target, **mode)
        buffers = gpu.upload(a), gpu.upload(b), gpu.upload(np.full((m, 96), np.nan, np.float32))
        asm.launch(emitted, gpu, *buffers)
        found.append(buffers[2].download().tobytes())
    return found


@dataclass
class Result:
    got: np.ndarray
    want: np.ndarray
    bound: np.ndarray
    untouched: bool
    runs: list[Any]
    kernel: asm.EmittedKernel
    layouts: TileLayouts
    typical: TypicalError | None

    def check(self) -> None:
        """Asserts that every element is within its bound, and that nothing else was written.

        All elements must be as near as a faithful kernel's, and NaN and infinities must be where the reference has them.
        """
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
    """Returns the view of `shape` in its memory."""
    *outer, rows, columns = shape
    count = int(np.prod(outer, dtype=int)) * rows * stride
    return memory[guard : guard + count].reshape(*outer, rows, stride)[..., :columns]


def padded(shape: tuple[int, ...], stride: int, kind: np.dtype, source: np.random.Generator, guard: int = GUARD):
    """Returns a view of `shape` with rows `stride` apart, and its poisoned memory."""
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
         activation="none", policy="corrected", guard=GUARD, edit=None, descriptor=None, check=False, tiling=None,
         group_rows=(), code_of_k=None, **epilogue) -> Result:  # fmt: skip
    """Runs one GEMM; `edit(a, b, c)` changes the inputs.

    code_of_k: runs the code that was emitted for the same tile and another k.

    descriptor: a HardwareDescriptor that replaces the target's; check: the device's; tiling: replaces the plan's; group_rows:
    of a grouped product; epilogue: dtype_c, scale_c, residual, scales of GemmProblem.
    """
    source = np.random.default_rng(m * 90001 + n * 301 + k)
    outer, each = () if batch == 1 else (batch,), (len(group_rows),) if group_rows else ()
    problem = GemmProblem(
        m, n, k, name, *trans, alpha, beta, batch=batch, bias=bias, activation=activation, groups=len(group_rows), **epilogue
    )
    shapes = problem.stored_shapes
    strides = [shape[1] + pad for shape, pad in zip(shapes, pads)]
    kinds = [numpy_dtype(kind, target) for kind in (name, name, problem.dtype_c)]
    memories, views = zip(*(
        padded((*around, *shape), stride, kind, source, guard)
        for around, shape, stride, kind in zip((outer, outer + each, outer), shapes, strides, kinds)
    ))  # fmt: skip
    a, b, c = views
    values = source.integers(-9, 9, (*each, n)) if kinds[2].kind in "iu" else source.uniform(-1, 1, (*each, n))
    more = {"bias": values.astype(numpy_dtype(problem.dtype_addend, target))} if bias else {}
    more_memories = dict(more)
    if problem.residual:
        more_memories["residual"], more["residual"] = padded((*outer, *shapes[2]), strides[2], kinds[2], source, guard)
    for scale, shape, around in zip(("scale_a", "scale_b"), problem.scale_shapes or (), (outer, outer + each)):
        more[scale] = more_memories[scale] = source.uniform(0.25, 2, (*around, *shape)).astype("f4")
    if group_rows:
        more["group_rows"] = more_memories["group_rows"] = np.array(group_rows, "i4")
    if edit:
        edit(a, b, c)
    if beta == 0:
        c[...] = poison(kinds[2])
    strided = replace(problem, **dict(zip(("lda", "ldb", "ldc"), strides)))
    tree = TiledComputation.of(strided, descriptor or board(target), policy)
    if tiling is not None:
        tree.derivation = with_tiling(tree.problem, tree.descriptor, policy, tiling)
    kernel = asm.emit(tree)
    if code_of_k is not None:
        given = replace(problem, k=code_of_k, lda=None, ldb=None, ldc=None)
        other = TiledComputation.of(given, descriptor or board(target), policy)
        other.derivation = with_tiling(other.problem, other.descriptor, policy, tree.plan.tiling)
        kernel = replace(kernel, text=asm.emit(other).text)
    gpu = device(target, check)
    buffers = [gpu.upload(memory) for memory in memories]
    given = [buffer.address + guard * kind.itemsize for buffer, kind in zip(buffers, kinds)]
    for added, memory in more_memories.items():
        buffers.append(gpu.upload(memory))
        given.append(buffers[-1].address + (guard * kinds[2].itemsize if added == "residual" else 0))
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
        want = reference.gemm(tree.problem, *operands, **more, arch=target)
        bound = reference.gemm_error_bound(tree.problem, *operands, target, **more)
        typical = reference.gemm_typical_error(tree.problem, *operands, target, **more)
    return Result(got, want, bound, untouched, runs, kernel, TileLayouts.of(tree.first()), typical)
