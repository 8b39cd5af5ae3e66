"""Launches of an operator's kernel that show what a proof found: a fault, a wrong result, or other bytes than planned."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from simgpu.tools.cases.coverage import tile_layouts

if TYPE_CHECKING:
    from simgpu.hardware.code_object import CodeObject
    from simgpu.operators import TiledComputation

# Fields that change the result, and their values without that.
PRODUCT = {
    "alpha": 1.0, "beta": 0.0, "bias": False, "activation": "none", "residual": False, "scales": "none", "preshuffle_b": False,
    "groups": 0,
}  # fmt: skip
STEPS = 5  # of K in these launches
AROUND = (2, 0), (2, -1), (2, -2), (2, -3), (1, 1)  # launches that are tried: tiles, and elements more
MARGIN, UNWRITTEN = 8, 99  # rows and columns around C, and their value
MOST_PRODUCTS = 1 << 28  # of a launch that is compared with float64


def evidence(tree: TiledComputation, code: CodeObject, name: str) -> str:
    """Returns how a launch shows that a kernel is not as its plan: a fault, a wrong result, or other bytes; "" if none does."""
    plan = tree.plan
    if plan.split_k > 1 or any(getattr(tree.problem, field) != usual for field, usual in PRODUCT.items()):
        return _against_float64(tree, code, name)
    for whole, more in AROUND:
        m, n, k = (count * getattr(plan, f"tile_{axis}") + more for axis, count in zip("mnk", (whole, whole, STEPS), strict=True))
        problem = replace(tree.problem, m=m, n=n, k=k, lda=None, ldb=None, ldc=n + MARGIN, batch=1)
        found = _wrong(tree.like(problem), code, name, counted=not more)
        if found:
            return f"simulated with m = {m}, n = {n}, k = {k}: {found}"
    return ""


def _against_float64(tree: TiledComputation, code: CodeObject, name: str) -> str:
    """Launches a computation with and without beta, for each of which a kernel has code; returns what is wrong."""
    problem, plan = tree.problem, tree.plan
    if problem.batch * problem.m * problem.n * problem.k > MOST_PRODUCTS:
        problem = replace(problem, m=2 * plan.tile_m, n=2 * plan.tile_n, lda=None, ldb=None, ldc=None, batch=1)
    launches = (tree.like(replace(problem, beta=beta)) for beta in sorted({problem.beta, 0.0}, reverse=True))
    return next((found for one in launches if (found := _wrong_numbers(one, code, name))), "")


def _wrong_numbers(tree: TiledComputation, code: CodeObject, name: str) -> str:
    """Launches all kernels of a computation on random numbers, of which one is `code`'s; returns what is wrong."""
    from simgpu import Device
    from simgpu.asm import Prepared, emit
    from simgpu.hardware.errors import SimError
    from simgpu.tools.cases.operators import workload

    problem = tree.problem
    kernel = emit(tree)
    device = Device(kernel.target)
    work = workload(tree, device.arch, 1)
    buffers = [device.upload(array) for array in work.arrays]
    prepared = Prepared(kernel, device)
    at = [step.name for step in kernel.steps].index(name)
    prepared.entries[at] = device.load(bytes(code.data))[name]
    where = f"simulated with m = {problem.m}, n = {problem.n}, k = {problem.k}"
    try:
        prepared.launch(*buffers)
    except SimError as error:
        return f"{where}: {str(error).splitlines()[0]}"
    verdict = work.compare(buffers[work.result].download(work.arrays[work.result].dtype, work.arrays[work.result].shape), "C")
    if verdict.passed:
        return ""
    return f"{where}: C{list(verdict.worst)} is {verdict.got:.6g}, want {verdict.want:.6g}; {verdict.wrong} elements are wrong"


def _wrong(tree: TiledComputation, code: CodeObject, name: str, counted: bool) -> str:
    """Launches a kernel on whole numbers; returns what is wrong.

    counted: compare requested bytes, which include those of lanes outside the matrix.
    """
    from simgpu import Device
    from simgpu.asm import emit
    from simgpu.hardware.errors import SimError
    from simgpu.operators import gemm_counters
    from simgpu.tools.shared.arrays import array_type

    problem, kernel = tree.problem, emit(tree)
    kinds = [array_type(each, kernel.target) for each in (problem.dtype, problem.dtype_b, problem.dtype_c)]
    rng = np.random.default_rng(1)
    operands = [rng.integers(-2, 3, shape).astype(kind) for shape, kind in zip(problem.stored_shapes[:2], kinds, strict=False)]
    a, b = (
        each.astype(np.float64).T if turned else each.astype(np.float64)
        for each, turned in zip(operands, (problem.trans_a, problem.trans_b), strict=True)
    )  # fmt: skip
    result = np.full((problem.m + MARGIN, problem.n + MARGIN), UNWRITTEN, kinds[2])
    device = Device(kernel.target)
    buffers = [device.upload(each) for each in (*operands, result)]
    try:
        launch = device.load(bytes(code.data))[name]
        run = launch.launch(grid=kernel.grid, block=kernel.block, args=kernel.arguments(*buffers))
    except SimError as error:
        return str(error).splitlines()[0]
    expected = result.astype(np.float64)
    expected[: problem.m, : problem.n] = a @ b
    wrong = np.argwhere(buffers[2].download(kinds[2], result.shape).astype(np.float64) != expected)
    if len(wrong):
        return f"C{wrong[0].tolist()} is wrong, as are {len(wrong) - 1} other elements"
    bytes_ = run.counters["global_read_bytes"] + run.counters["global_write_bytes"]
    wanted = gemm_counters(tree.plan).global_bytes + _again(tree)
    return "" if bytes_ == wanted or not counted else f"{bytes_:,} bytes are requested, {wanted:,} by the plan"


def _again(tree: TiledComputation) -> int:
    """Returns the bytes that work-items load which another one also loads, for sizes that are multiples of the tile's."""
    layouts, problem, (columns, rows) = tile_layouts(tree), tree.problem, tree.plan.grid
    steps = problem.k // layouts.tile_k * rows * columns * problem.batch
    sides = (layouts.a, problem.element), (layouts.b, problem.element_b)
    return steps * sum(kind.packed_bytes(int((layout.times_loaded() - 1).sum())) for layout, kind in sides)
