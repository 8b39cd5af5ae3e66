"""`simgpu run`: derive, emit, assemble, simulate or launch on a GPU, compare with float64, report."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.hardware.dtypes import dtype
from simgpu.operators import reference
from simgpu.tools.shared.agreement import Agreement, all_exact
from simgpu.tools.shared.arrays import array_type, random_array, require_memory
from simgpu.tools.shared.console import print_json, progress, show
from simgpu.tools.shared.gemm_options import headline, problem_document, tree_of
from simgpu.tools.shared.launching import (
    add_device_options,
    device_of,
    has_errors,
    is_simulated,
    launched,
    run_document,
    show_run,
    simulated_device,
    together,
)
from simgpu.tools.shared.operator_options import EMITTED, add_operator_options
from simgpu.tools.shared.verdict import WAITS, Verdict, judge

if TYPE_CHECKING:
    from simgpu import Device
    from simgpu.asm import EmittedKernel
    from simgpu.hardware import hip
    from simgpu.operators.gemm.problem import GemmProblem


def configure(parser: ArgumentParser) -> None:
    """The verb's options."""
    add_operator_options(parser, only=EMITTED, more=add_device_options, kernels=True)


def run(options: Namespace) -> int:
    """Runs the kernel on random inputs; status 1 if an element is outside the error bound."""
    if options.op != "gemm":
        from simgpu.tools.cases import operators

        return operators.run(options)
    from simgpu import asm
    from simgpu.hardware.code_object.code_object import CodeObject
    from simgpu.tools.tables.kernel_use import kernel_use
    from simgpu.tools.tables.resources import resource_documents, resource_rows, resource_table

    tree = tree_of(options)
    kernel = asm.emit(tree)
    problem = tree.problem
    require_memory(_host_bytes(problem), f"gemm {problem.m} x {problem.n} x {problem.k}")
    device = device_of(options, options.target)
    parsed = CodeObject.parse(kernel.assemble())
    operands = Operands.random(problem, device.arch, options.seed)
    result, outcome = execute(device, kernel, operands)
    with progress("comparing with float64"):
        verdict = compare(problem, operands, result, device.arch)
    use = kernel_use(parsed, parsed.kernels[kernel.name])
    simulated = is_simulated(outcome)
    agreement = None if simulated or not options.against_sim else against_sim(options, kernel, operands, result)
    rows = resource_rows(tree.plan, use, outcome.counters if simulated else None)
    passed = verdict.passed and not has_errors(outcome.findings) and (agreement is None or agreement.agrees)
    if options.json:
        print_json({
            **problem_document(tree),
            "kernel": kernel.name,
            "grid": kernel.grid,
            "block": kernel.block,
            "parts_of_k": tree.plan.split_k,
            "error": verdict.document(),
            **run_document(outcome),
            "resources": resource_documents(rows),
            "against_sim": agreement and agreement.document(),
            "vouches_for_waits": not simulated,
            "pass": passed,
        })  # fmt: skip
        return 0 if passed else 1
    grid, block = (" x ".join(map(str, extents)) for extents in (kernel.grid, kernel.block))
    show(headline(tree), f"{kernel.name}: {use.instructions} instructions, grid {grid}, block {block}")
    for step in kernel.following:
        parts = tree.plan.split_k
        does = f"adds the {parts} parts of K" if parts > 1 else "applies the epilogue"
        show(f"{step.name}: {does}, {step.resources.instructions} instructions, "
             f"grid {' x '.join(map(str, step.grid))}, block {step.block[0]}")  # fmt: skip
    show(resource_table(rows))
    show_run(outcome)
    where = "on this host" if simulated else "with one launch, cold; `simgpu bench` measures"
    show(f"{problem.flops / max(outcome.seconds, 1e-9) / 1e9:.1f} GFLOP/s of useful product {where}", "")
    if simulated:
        show(WAITS, "")
    show(*verdict.lines(), *([agreement.line()] if agreement else []))
    show("PASS" if passed else "FAIL")
    return 0 if passed else 1


def _host_bytes(problem: GemmProblem) -> int:
    """Upper bound on what a run allocates: operands on both sides, float64 copies, reference, bound."""
    element, size_c = problem.element.bytes, dtype(problem.dtype_c).bytes
    assert problem.lda and problem.ldb and problem.ldc
    rows = [shape[0] for shape in problem.stored_shapes]
    stored = (rows[0] * problem.lda + rows[1] * problem.ldb) * element + rows[2] * problem.ldc * size_c
    factors, outputs = (problem.m + problem.n) * problem.k, problem.m * problem.n
    stored *= problem.batch
    return 2 * stored + 8 * problem.batch * (2 * factors + 6 * outputs)


@dataclass(frozen=True)
class Operands:
    """A, B, C as they lie in memory: flat, from the first element to the last, NaN in the rows' padding; then the bias."""

    problem: GemmProblem
    flat: tuple[np.ndarray, ...]

    @classmethod
    def random(cls, problem: GemmProblem, arch: str, seed: int) -> Operands:
        """Uniform in [-1, 1); C is NaN altogether where beta = 0, since it must not be read."""
        rng = np.random.default_rng(seed)
        kinds = (*[array_type(problem.dtype, arch)] * 2, array_type(problem.dtype_c, arch))
        flat = tuple(
            _padded(rng, kind, (problem.batch * rows, columns), stride, fill=name != "C" or problem.beta != 0)
            for name, kind, (rows, columns), stride in zip(
                "ABC", kinds, problem.stored_shapes, _strides(problem), strict=True
            )
        )
        bias = (random_array(rng, kinds[2], (problem.n,)),) if problem.bias else ()
        return cls(problem, (*flat, *bias))

    def matrix(self, which: int, flat: np.ndarray | None = None) -> np.ndarray:
        """A view in the stored shape: operand `which` (0 A, 1 B, 2 C), or another array that lies like it."""
        outer = () if self.problem.batch == 1 else (self.problem.batch,)
        shape = (*outer, *self.problem.stored_shapes[which])
        return _window(self.flat[which] if flat is None else flat, shape, _strides(self.problem)[which])

    @property
    def bias(self) -> np.ndarray | None:
        """The bias, if the problem has one."""
        return self.flat[3] if self.problem.bias else None


def _strides(problem: GemmProblem) -> tuple[int, int, int]:
    assert problem.lda and problem.ldb and problem.ldc
    return problem.lda, problem.ldb, problem.ldc


def _window(flat: np.ndarray, shape: tuple[int, ...], stride: int) -> np.ndarray:
    """Rows `stride` elements apart, matrices right behind each other; numpy cannot stride what ml_dtypes adds, so as bytes."""
    *outer, rows, _ = shape
    size = flat.itemsize
    strides = (*((rows * stride * size,) if outer else ()), stride * size, size)
    raw = np.lib.stride_tricks.as_strided(flat.view(f"V{size}"), shape, strides)
    return raw.view(flat.dtype)


def _padded(
    rng: np.random.Generator, kind: np.dtype, shape: tuple[int, int], stride: int, fill: bool
) -> np.ndarray:
    """A flat array of (rows - 1) * stride + columns elements: no access past the view is in it."""
    poison = np.nan if kind.kind not in "iu" else np.iinfo(kind).min
    flat = np.full((shape[0] - 1) * stride + shape[1], poison, kind)
    if fill:
        _window(flat, shape, stride)[...] = random_array(rng, kind, shape)
    return flat


def execute(device: Device | hip.Device, kernel: EmittedKernel, operands: Operands) -> tuple[np.ndarray, Any]:
    """Launches all of the kernels; the flat C afterwards, and the runs as one. KernelFailed, HipError if one errs."""
    from simgpu import asm

    buffers = [device.upload(flat) for flat in operands.flat]
    runs = launched(kernel.name, lambda: asm.launch(kernel, device, *buffers))
    before = operands.flat[2]
    return buffers[2].download(before.dtype, before.shape), together(runs)


def against_sim(options: Namespace, kernel: EmittedKernel, operands: Operands, real: np.ndarray) -> Agreement:
    """The real GPU's C beside the simulated one."""
    result, outcome = execute(simulated_device(options, kernel.target), kernel, operands)
    return Agreement.of("C", real, result, all_exact(outcome.fidelity))


def compare(problem: GemmProblem, operands: Operands, result: np.ndarray, arch: str) -> Verdict:
    """`result` is the flat C; elementwise against the float64 reference and its error bound."""
    a, b = operands.matrix(0), operands.matrix(1)
    c = operands.matrix(2) if problem.beta != 0 else None
    got = operands.matrix(2, result).astype(np.float64)
    want = reference.gemm(problem, a, b, c, operands.bias)
    bound = reference.gemm_error_bound(problem, a, b, c, arch, operands.bias)
    return judge(got, want, bound, _touched(operands, result), "C")


def _touched(operands: Operands, result: np.ndarray) -> int:
    """Elements outside C's view whose bits changed."""
    before = operands.flat[2]
    differ = (before.view(np.uint8) != result.view(np.uint8)).reshape(before.size, before.itemsize).any(1)
    operands.matrix(2, differ)[...] = False
    return int(np.count_nonzero(differ))
