"""`simgpu run` for operators other than gemm: random inputs, NaN around them, launches, comparison with float64."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.hardware.dtypes import dtype
from simgpu.operators import packed_filter, reference
from simgpu.operators.attention.tree import FusedAttention
from simgpu.operators.attention.unfused import UnfusedAttention
from simgpu.operators.conv2d.tree import Conv2d
from simgpu.operators.softmax.tree import Softmax
from simgpu.operators.tree import Extent
from simgpu.tools.shared.agreement import Agreement, all_exact
from simgpu.tools.shared.arrays import array_type, random_array, require_memory
from simgpu.tools.shared.console import print_json, progress, show
from simgpu.tools.shared.launching import device_of, has_errors, is_simulated, launched, run_document, show_run, simulated_device
from simgpu.tools.shared.operator_options import emitted, operator_document, operator_tree
from simgpu.tools.shared.verdict import WAITS, judge

if TYPE_CHECKING:
    from simgpu import Device
    from simgpu.hardware import hip
    from simgpu.operators.tree import Root

_BLOCK_SCORES = 1 << 24  # scores that float64 attention holds at once: some arrays of 128 MiB
_GUARD = 64  # bytes of NaN behind each array; its start is aligned as a caller's would be


@dataclass(frozen=True)
class Strided:
    """An array as it lies in memory: flat, NaN where no element of the view is. shape: of the view; strides: in elements."""

    flat: np.ndarray
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def empty(cls, kind: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> Strided:
        """NaN throughout (integers: the smallest)."""
        size = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)) + _GUARD // kind.itemsize
        return cls(np.full(size, np.nan if kind.kind not in "iu" else np.iinfo(kind).min, kind), shape, strides)

    @property
    def view(self) -> np.ndarray:
        """The elements; numpy cannot stride what ml_dtypes adds, so as bytes."""
        size = self.flat.itemsize
        raw = np.lib.stride_tricks.as_strided(self.flat.view(f"V{size}"), self.shape, tuple(size * s for s in self.strides))
        return raw.view(self.flat.dtype)

    def filled(self, values: np.ndarray) -> Strided:
        """With these elements."""
        made = replace(self, flat=self.flat.copy())
        made.view[...] = values
        return made

    def touched(self, after: np.ndarray) -> int:
        """Elements outside the view whose bits are others in `after`."""
        differ = (self.flat.view(np.uint8) != after.view(np.uint8)).reshape(self.flat.size, -1).any(1)
        replace(self, flat=differ).view[...] = False
        return int(np.count_nonzero(differ))


@dataclass(frozen=True)
class Case:
    """One run: the operands in the kernel's order, the result's place among them, float64 and bound from the inputs."""

    operands: tuple[Strided, ...]
    result: int
    want: Callable[[], np.ndarray]
    bound: Callable[[], np.ndarray]


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a row-major array."""
    return tuple(int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(len(shape)))


def _softmax(tree: Softmax, arch: str, rng: np.random.Generator) -> Case:
    p = tree.problem
    assert p.ldx and p.ldy
    kind, shape = array_type(p.dtype, arch), (p.rows, p.n)
    x = Strided.empty(kind, shape, (p.ldx, 1)).filled(random_array(rng, kind, shape))
    keep = rng.random(shape) < 0.5 if p.mask else None
    mask = () if keep is None else (Strided.empty(np.dtype(np.uint8), shape, (p.n, 1)).filled(keep),)
    y = Strided.empty(kind, shape, (p.ldy, 1))
    want, bound = (partial(judged, p, x.view, keep) for judged in (reference.softmax, reference.softmax_error_bound))
    return Case((x, y, *mask), 1, want, bound)


def _attention(tree: FusedAttention | UnfusedAttention, arch: str, rng: np.random.Generator) -> Case:
    p = tree.problem
    kind, result = array_type(p.dtype, arch), array_type(p.dtype_c, arch)
    inputs = [Strided.empty(kind, shape, contiguous(shape)).filled(random_array(rng, kind, shape))
              for shape in (p.q_shape, p.kv_shape, p.kv_shape)]  # fmt: skip
    q, k, v = (operand.view for operand in inputs)
    rows = max(1, _BLOCK_SCORES // (p.batch * p.heads * p.lk))

    def by_rows(one: Callable[[Extent], np.ndarray]) -> np.ndarray:
        return np.concatenate([one(block) for block in Extent.whole(p.lq).split(rows)], axis=2)

    return Case(
        (*inputs, Strided.empty(result, p.q_shape, contiguous(p.q_shape))), 3,
        lambda: by_rows(lambda block: reference.attention(p, q, k, v, queries=block)),
        lambda: by_rows(lambda block: reference.attention_error_bound(p, q, k, v, arch, block)),
    )  # fmt: skip


def _conv2d(tree: Conv2d, arch: str, rng: np.random.Generator) -> Case:
    """The filter goes in packed, as `operators.packed_filter` has it."""
    return _convolution(tree, arch, rng, packed=True)


def _naive(tree: Conv2d, arch: str, rng: np.random.Generator) -> Case:
    return _convolution(tree, arch, rng, packed=False)


def _convolution(tree: Conv2d, arch: str, rng: np.random.Generator, packed: bool) -> Case:
    p = tree.problem
    x, w = (random_array(rng, array_type(p.dtype, arch), shape) for shape in p.shapes[:2])
    y = Strided.empty(array_type(p.dtype_c, arch), p.shapes[2], contiguous(p.shapes[2]))
    operands = _row_major(x), _row_major(packed_filter(tree.plan, w) if packed else w), y
    return Case(operands, 2, lambda: reference.conv2d(p, x, w), lambda: reference.conv2d_error_bound(p, x, w, arch))


def _pack(tree: Conv2d, arch: str, rng: np.random.Generator) -> Case:
    """What the packing kernel writes is what the function computes, to the bit."""
    w = random_array(rng, array_type(tree.problem.dtype, arch), tree.problem.shapes[1])
    want = packed_filter(tree.plan, w)
    packed = Strided.empty(want.dtype, want.shape, contiguous(want.shape))
    return Case((_row_major(w), packed), 1, lambda: want.astype(np.float64), lambda: np.zeros(want.shape))


def _row_major(array: np.ndarray) -> Strided:
    return Strided.empty(array.dtype, array.shape, contiguous(array.shape)).filled(array)


CASES: dict[type[Root], Callable[[Any, str, np.random.Generator], Case]] = {
    Softmax: _softmax, Conv2d: _conv2d, FusedAttention: _attention, UnfusedAttention: _attention,
}  # fmt: skip
# Of kernels that are not the tree's (`simgpu.tools.shared.operator_options.emitted`).
OTHER_CASES: dict[str, Callable[[Any, str, np.random.Generator], Case]] = {"naive": _naive, "pack": _pack}


def run(options: Namespace) -> int:
    """Runs the operator's kernels on random inputs; status 1 if an element is outside the error bound."""
    from simgpu.hardware.code_object.code_object import CodeObject
    from simgpu.tools.tables.kernel_use import kernel_use
    from simgpu.tools.tables.resources import constraint_rows, resource_documents, resource_table

    tree = operator_tree(options)
    kernel = emitted(tree, options)
    make = OTHER_CASES.get(getattr(options, "kernel", ""), CASES[type(tree)])
    problem = tree.problem
    require_memory(10 * problem.bytes_once * 8 // dtype(problem.dtype).bytes, tree.derivation.title)
    device = device_of(options, options.target)
    with progress("inputs"):
        case = make(tree, device.arch, np.random.default_rng(options.seed))
    rows = []
    parsed = CodeObject.parse(kernel.assemble())
    for step in kernel.steps:
        use = kernel_use(parsed, parsed.kernels[step.name])
        rows.append((step, constraint_rows(step.plan, use) if step.plan else []))
    after, runs = _execute(device, kernel, case)
    with progress("comparing with float64"):
        result = case.operands[case.result]
        got = replace(result, flat=after).view.astype(np.float64)
        verdict = judge(got, case.want(), case.bound(), result.touched(after), kernel.operands[case.result])
    simulated = all(is_simulated(outcome) for outcome in runs)
    agreement = against_sim(options, kernel, case, after) if options.against_sim else None
    clean = not any(has_errors(outcome.findings) for outcome in runs)
    passed = verdict.passed and clean and (agreement is None or agreement.agrees)
    if options.json:
        print_json({
            **operator_document(tree, options.op),
            "kernels": [
                {"kernel": step.name, "grid": step.grid, "block": step.block, **run_document(outcome),
                 "resources": resource_documents(r)}
                for (step, r), outcome in zip(rows, runs, strict=True)
            ],
            "error": verdict.document(),
            "against_sim": agreement and agreement.document(),
            "vouches_for_waits": not simulated,
            "pass": passed,
        })  # fmt: skip
        return 0 if passed else 1
    show(f"{tree.derivation.title}, {tree.derivation.policy} tiles")
    for (step, r), outcome in zip(rows, runs, strict=True):
        grid, block = (" x ".join(map(str, extents)) for extents in (step.grid, step.block))
        show(f"\n{step.name}: {step.resources.instructions} instructions, grid {grid}, block {block}")
        show(*([resource_table(r)] if r else []))
        show_run(outcome)
    show("", *((WAITS, "") if simulated else ()), *verdict.lines(), *([agreement.line()] if agreement else []))
    show("PASS" if passed else "FAIL")
    return 0 if passed else 1


def against_sim(options: Namespace, kernel: Any, case: Case, real: np.ndarray) -> Agreement:
    """The real GPU's result beside the simulated one."""
    result, runs = _execute(simulated_device(options, kernel.target), kernel, case)
    return Agreement.of("result", real, result, all(all_exact(run.fidelity) for run in runs))


def _execute(device: Device | hip.Device, kernel: Any, case: Case) -> tuple[np.ndarray, list[Any]]:
    """The result's memory afterwards, and the runs; KernelFailed if a kernel errs."""
    from simgpu import asm

    buffers = [device.upload(operand.flat) for operand in case.operands]
    runs = launched(kernel.name, lambda: asm.launch(kernel, device, *buffers))
    flat = case.operands[case.result].flat
    return buffers[case.result].download(flat.dtype, flat.shape), runs
