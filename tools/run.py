"""`simgpu run`: derive, emit, assemble, simulate, compare with float64, report."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hardware.dtypes import dtype
from operators import reference
from tools.arrays import array_type, random_array, require_memory
from tools.console import print_json, progress, show
from tools.launching import add_device_options, device_of, launched, run_document, show_run
from tools.problem import add_problem_options, headline, problem_document, tree_of

if TYPE_CHECKING:
    from asm import EmittedKernel
    from operators.problem import GemmProblem
    from simgpu import Device, Run

WAITS = (
    "Plain mode completes every load at once, so a PASS does not vouch for the kernel's waits: "
    "`simgpu check` looks at them."
)


def configure(parser: ArgumentParser) -> None:
    """The verb's options."""
    add_problem_options(parser)
    add_device_options(parser)


def run(options: Namespace) -> int:
    """Runs the kernel on random inputs; status 1 if an element is outside the error bound."""
    import asm
    from hardware.codeobject import CodeObject
    from tools.resources import resource_documents, resource_rows, resource_table, split_note
    from tools.use import kernel_use

    tree = tree_of(options)
    kernel = asm.emit(tree)
    problem = tree.problem
    require_memory(_host_bytes(problem), f"gemm {problem.m} x {problem.n} x {problem.k}")
    device = device_of(options, options.target)
    code = kernel.assemble()
    parsed = CodeObject.parse(code)
    operands = Operands.random(problem, device.arch, options.seed)
    result, outcome = execute(device, kernel, code, operands)
    with progress("comparing with float64"):
        verdict = compare(problem, operands, result, device.arch)
    use = kernel_use(parsed, parsed.kernels[kernel.name])
    rows = resource_rows(tree.plan, use, outcome.counters)
    passed = verdict.passed and not outcome.findings
    if options.json:
        print_json({
            **problem_document(tree),
            "kernel": kernel.name,
            "grid": kernel.grid,
            "block": kernel.block,
            "error": verdict.document(),
            **run_document(outcome),
            "resources": resource_documents(rows),
            "vouches_for_waits": False,
            "pass": passed,
        })  # fmt: skip
        return 0 if passed else 1
    grid, block = (" x ".join(map(str, extents)) for extents in (kernel.grid, kernel.block))
    show(headline(tree), f"{kernel.name}: {use.instructions} instructions, grid {grid}, block {block}")
    show(resource_table(rows), *split_note(tree.plan))
    show_run(outcome)
    show(
        f"{problem.flops / max(outcome.seconds, 1e-9) / 1e9:.1f} GFLOP/s of useful product on this host",
        "",
        WAITS,
        "",
    )
    show(*verdict.lines())
    show("PASS" if passed else "FAIL")
    return 0 if passed else 1


def _host_bytes(problem: GemmProblem) -> int:
    """Upper bound on what a run allocates: operands on both sides, float64 copies, reference, bound."""
    element, size_c = problem.element.bytes, dtype(problem.dtype_c).bytes
    assert problem.lda and problem.ldb and problem.ldc
    rows = [shape[0] for shape in problem.stored_shapes]
    stored = (rows[0] * problem.lda + rows[1] * problem.ldb) * element + rows[2] * problem.ldc * size_c
    factors, outputs = (problem.m + problem.n) * problem.k, problem.m * problem.n
    return 2 * stored + 8 * (2 * factors + 6 * outputs)


@dataclass(frozen=True)
class Operands:
    """A, B, C as they lie in memory: flat, from the first element to the last, NaN in the rows' padding."""

    problem: GemmProblem
    flat: tuple[np.ndarray, np.ndarray, np.ndarray]

    @classmethod
    def random(cls, problem: GemmProblem, arch: str, seed: int) -> Operands:
        """Uniform in [-1, 1); C is NaN altogether where beta = 0, since it must not be read."""
        rng = np.random.default_rng(seed)
        kinds = (*[array_type(problem.dtype, arch)] * 2, array_type(problem.dtype_c, arch))
        flat = tuple(
            _padded(rng, kind, shape, stride, fill=name != "C" or problem.beta != 0)
            for name, kind, shape, stride in zip(
                "ABC", kinds, problem.stored_shapes, _strides(problem), strict=True
            )
        )
        return cls(problem, (flat[0], flat[1], flat[2]))

    def matrix(self, which: int, flat: np.ndarray | None = None) -> np.ndarray:
        """A view in the stored shape: operand `which` (0 A, 1 B, 2 C), or another array that lies like it."""
        return _window(
            self.flat[which] if flat is None else flat,
            self.problem.stored_shapes[which],
            _strides(self.problem)[which],
        )


def _strides(problem: GemmProblem) -> tuple[int, int, int]:
    assert problem.lda and problem.ldb and problem.ldc
    return problem.lda, problem.ldb, problem.ldc


def _window(flat: np.ndarray, shape: tuple[int, int], stride: int) -> np.ndarray:
    strides = (stride * flat.itemsize, flat.itemsize)
    return np.lib.stride_tricks.as_strided(flat, shape, strides)


def _padded(
    rng: np.random.Generator, kind: np.dtype, shape: tuple[int, int], stride: int, fill: bool
) -> np.ndarray:
    """A flat array of (rows - 1) * stride + columns elements: no access past the view is in it."""
    poison = np.nan if kind.kind not in "iu" else np.iinfo(kind).min
    flat = np.full((shape[0] - 1) * stride + shape[1], poison, kind)
    if fill:
        _window(flat, shape, stride)[...] = random_array(rng, kind, shape)
    return flat


def execute(device: Device, kernel: EmittedKernel, code: bytes, operands: Operands) -> tuple[np.ndarray, Run]:
    """Launches the code object; the flat C afterwards, and the run. KernelFailed if the kernel errs."""
    buffers = [device.upload(flat) for flat in operands.flat]
    entry = device.load(code)[kernel.name]
    arguments = kernel.arguments(*buffers)
    outcome = launched(
        kernel.name, lambda: entry.launch(grid=kernel.grid, block=kernel.block, args=arguments)
    )
    before = operands.flat[2]
    return buffers[2].download(before.dtype, before.shape), outcome


@dataclass(frozen=True)
class Verdict:
    """How far C is from float64: `wrong` of `total` elements are outside their bound; `touched` elements of
    C's padding were written. The worst element is the one with the largest error/bound, (row, column)."""

    total: int
    wrong: int
    touched: int
    max_error: float
    worst: tuple[int, int]
    got: float
    want: float
    error: float
    bound: float

    @property
    def passed(self) -> bool:
        return not self.wrong and not self.touched

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def lines(self) -> list[str]:
        """For people."""
        said = [
            f"Error against float64: at most {self.max_error:.3g}; nearest to its bound is "
            f"C{list(self.worst)} = {self.got:.9g}, want {self.want:.9g}: "
            f"off by {self.error:.3g}, bound {self.bound:.3g}"
        ]
        if self.wrong:
            said.append(f"{self.wrong:,} of {self.total:,} elements are outside their bound")
        if self.touched:
            said.append(f"{self.touched:,} elements of C's padding were written")
        return said


def compare(problem: GemmProblem, operands: Operands, result: np.ndarray, arch: str) -> Verdict:
    """`result` is the flat C; elementwise against the float64 reference and its error bound."""
    a, b = operands.matrix(0), operands.matrix(1)
    c = operands.matrix(2) if problem.beta != 0 else None
    got = operands.matrix(2, result).astype(np.float64)
    want = reference.gemm(problem, a, b, c)
    bound = reference.gemm_error_bound(problem, a, b, c, arch)
    error = np.abs(got - want)
    np.nan_to_num(error, copy=False, nan=np.inf)
    within = error <= bound
    ratio = np.divide(error, bound, out=np.where(within, 0.0, np.inf), where=bound > 0)
    row, column = (int(i) for i in np.unravel_index(int(np.argmax(ratio)), ratio.shape))
    return Verdict(
        total=error.size,
        wrong=int(error.size - np.count_nonzero(within)),
        touched=_touched(operands, result),
        max_error=float(error.max()),
        worst=(row, column),
        got=float(got[row, column]),
        want=float(want[row, column]),
        error=float(error[row, column]),
        bound=float(bound[row, column]),
    )


def _touched(operands: Operands, result: np.ndarray) -> int:
    """Elements outside C's view whose bits changed."""
    before = operands.flat[2]
    differ = (before.view(np.uint8) != result.view(np.uint8)).reshape(before.size, before.itemsize).any(1)
    operands.matrix(2, differ)[...] = False
    return int(np.count_nonzero(differ))
