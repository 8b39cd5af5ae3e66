"""Compiles and times candidates on the GPU at hand. PyTorch and Triton are imported here and in `kernels` only."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from statistics import median

import torch

from simgpu.operators import AttentionProblem, GemmProblem, SoftmaxProblem
from simgpu.tools.validation.paper.silicon import kernels
from simgpu.tools.validation.paper.silicon.candidates import CandidateTiles
from simgpu.tools.validation.paper.silicon.shapes import Problem

FLUSH_BYTES = 256 << 20  # more than the L2 of any GPU here
REPEATS = 7
GROUP = 8  # tiles of M that follow each other, for reuse in L2
TOLERANCE = {"gemm": 2e-2, "softmax": 2e-3, "attention": 2e-2}  # of the largest element: a kernel that is wrong is off by more


class ProblemWork:
    """Arrays of a problem, and its launches."""

    def __init__(self, problem: Problem, seed: int = 1) -> None:
        torch.manual_seed(seed)
        self.problem = problem

        def draw(*shape: int) -> torch.Tensor:
            return torch.randn(shape, device="cuda", dtype=torch.float16)

        if isinstance(problem, GemmProblem):
            self.given: tuple[torch.Tensor, ...] = (draw(problem.m, problem.k), draw(problem.k, problem.n))
            self.out = torch.empty((problem.m, problem.n), device="cuda", dtype=torch.float16)
            self.want = self.given[0] @ self.given[1]
        elif isinstance(problem, SoftmaxProblem):
            self.given = (draw(problem.rows, problem.n),)
            self.out = torch.empty_like(self.given[0])
            self.want = torch.softmax(self.given[0], 1)
        else:
            self.given = tuple(draw(problem.heads, problem.lq, problem.d) for _ in range(3))
            self.out = torch.empty_like(self.given[0])
            self.want = torch.nn.functional.scaled_dot_product_attention(*(x[None] for x in self.given))[0]

    def launch(self, c: CandidateTiles) -> None:
        """Computes `out` with the candidate's tiles."""
        p = self.problem
        options = {"num_warps": c.warps, "num_stages": c.stages}
        if isinstance(p, GemmProblem):
            grid = (-(-p.m // c.m) * -(-p.n // c.n), c.split)
            to = self.out if c.split == 1 else torch.empty((c.split, p.m, p.n), device="cuda", dtype=torch.float32)
            kernels.gemm[grid](*self.given, to, p.m, p.n, p.k, c.split, c.m, c.n, c.k, GROUP, **options)
            if c.split > 1:
                self.out.copy_(to.sum(0))
        elif isinstance(p, SoftmaxProblem):
            kernels.softmax[(-(-p.rows // c.m),)](*self.given, self.out, p.rows, p.n, c.m, c.n, c.whole, **options)
        else:
            grid = (-(-p.lq // c.m), p.heads)
            kernels.attention[grid](*self.given, self.out, p.lq, p.d**-0.5, p.d, c.m, c.n, **options)

    def is_right(self, tolerance: float) -> bool:
        """Tells whether `out` is PyTorch's result, up to a share of its largest element."""
        off = (self.out.float() - self.want.float()).abs().max()
        return bool(off <= tolerance * self.want.float().abs().max())


def microseconds(run: Callable[[], None], flush: torch.Tensor) -> float:
    """Returns the median time of `run` with a cold L2. The GPU has its launches as one graph, so it never waits for the host."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    times = []
    for _ in range(REPEATS):
        flush.zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return median(times)


def times(operator: str, problem: Problem, tiles: Iterable[CandidateTiles]) -> dict[CandidateTiles, float]:
    """Returns the microseconds of each candidate that compiles, fits and is right."""
    work, flush, found = ProblemWork(problem), torch.empty(FLUSH_BYTES, device="cuda", dtype=torch.uint8), {}
    for one in tiles:
        try:
            work.out.zero_()
            work.launch(one)
        except Exception as error:  # out of registers or shared memory: Triton says so by several exceptions
            if type(error).__name__ not in ("OutOfResources", "PTXASError", "CompilationError"):
                raise
            continue
        if not work.is_right(TOLERANCE[operator]):
            print(f"{operator} {problem}: {one} is wrong", flush=True)
            continue
        found[one] = microseconds(partial(work.launch, one), flush)
    return found


def compile_all(work: Iterable[tuple[Problem, CandidateTiles]]) -> None:
    """Compiles in processes of their own, whose results Triton keeps on disk."""
    distinct = {(type(p), getattr(p, "d", 0), replace(c, split=min(c.split, 2))): (p, c) for p, c in work}
    with ProcessPoolExecutor(max(1, (os.cpu_count() or 2) - 1), mp_context=get_context("spawn")) as pool:
        list(pool.map(_compile, distinct.values(), chunksize=4))


def _compile(pair: tuple[Problem, CandidateTiles]) -> None:
    p, c = pair
    half = torch.float16
    options = {"num_warps": c.warps, "num_stages": c.stages, "grid": (1,)}
    try:
        if isinstance(p, GemmProblem):
            to = half if c.split == 1 else torch.float32
            kernels.gemm.warmup(half, half, to, 1024, 1024, 1024, c.split, c.m, c.n, c.k, GROUP, **options)
        elif isinstance(p, SoftmaxProblem):
            kernels.softmax.warmup(half, half, 1024, 1024, c.m, c.n, c.whole, **options)
        elif isinstance(p, AttentionProblem):
            kernels.attention.warmup(half, half, half, half, 1024, 0.125, p.d, c.m, c.n, **options)
    except Exception as error:  # said again when it is launched
        print(f"{type(p).__name__} {c}: {type(error).__name__}", flush=True)
