"""`simgpu regret`: how the closed form's GEMM tiles rank against a plain exhaustive search. The product never searches; this does.

One scalar, seconds:  T = max(FLOP/(peak*eta*fill), HBM bytes/HBM bandwidth, re-read bytes/re-read bandwidth), with eta the
quantised occupancy, fill the useful share of padded work, partial tiles of a split K written and read in both byte counts. The
search goes over all tiles aligned to the waves' atoms (tM, tN multiples of 2*atom; tK one or two K spans) that fit a CU with the
closed form's stages, and over all splits of K up to `MOST_PARTS`. It may fill the CU with one block, where the closed form leaves
room for two. Regret is T of the closed form over the least T. The listed shapes are those that the formulas were written against;
`--seed` draws others.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.hardware.dtypes import dtype
from simgpu.tools.shared.console import add_json_option, print_json, progress, show, table

if TYPE_CHECKING:
    from simgpu.hardware.descriptor import HardwareDescriptor
    from simgpu.operators.gemm.plan import GemmPlan

Shape = tuple[int, int, int]
MOST_PARTS = 128
_LARGEST_SIDE = 256
SHAPES = 200
SUMMARY = ("kind", "shapes", "geometric mean", "worst", "above 1.3")


@dataclass(frozen=True)
class Ranking:
    """The closed form's tile of one shape beside the best that the search found; a tile is (tM, tN, tK, split)."""

    shape: Shape
    kind: str
    chosen: tuple[int, int, int, int]  # by the closed form
    seconds: float  # of the chosen tile
    best: tuple[int, int, int, int]
    least: float  # seconds of the best tile

    @property
    def regret(self) -> float:
        """seconds over the least seconds, at least 1 if the search covers the closed form."""
        return self.seconds / self.least


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("--target", default="mi100", help="board or architecture (default: mi100)")
    parser.add_argument("--dtype", default="f32", help="type of A and B (default: f32)")
    parser.add_argument("--all", action="store_true", help="every board and type instead, a line each")
    parser.add_argument("--seed", type=int, help="200 shapes drawn with this seed instead of the listed ones")
    parser.add_argument("--worst", type=int, default=10, help="shapes with the largest regret to list (default: 10)")
    add_json_option(parser)


def run(options: Namespace) -> int:
    """Prints the table of regrets for 200 shapes."""
    from simgpu.hardware import target

    wanted = list(shapes() if options.seed is None else drawn(options.seed))
    if options.all:
        return _every_row(wanted, options.json)
    descriptor = target(options.target)
    with progress("searching"):
        rows = [rank(descriptor, options.dtype, kind, shape) for kind, shape in wanted]
    summary = [
        summarise(kind, [row for row in rows if kind in (row.kind, "all")])
        for kind in (*dict.fromkeys(kind for kind, _ in wanted), "all")
    ]
    worst = sorted(rows, key=lambda row: -row.regret)[: options.worst]
    columns = ("shape", "kind", "tile", "split", "best tile", "split ", "regret")
    if options.json:
        print_json({
            "target": options.target, "dtype": options.dtype,
            "summary": [dict(zip(SUMMARY, line, strict=True)) for line in summary],
            "shapes": [{"shape": r.shape, "kind": r.kind, "chosen": r.chosen, "best": r.best, "regret": r.regret} for r in rows],
        })  # fmt: skip
        return 0
    show(
        f"Closed-form GEMM tiles against exhaustive search on {options.target}, {options.dtype}: T over the least T",
        table("Regret", SUMMARY, summary),
        table("Largest", columns, (
            ("x".join(map(str, r.shape)), r.kind, "x".join(map(str, r.chosen[:3])), r.chosen[3],
             "x".join(map(str, r.best[:3])), r.best[3], r.regret) for r in worst), left=2),
    )  # fmt: skip
    return 0


def _every_row(wanted: list[tuple[str, Shape]], as_json: bool) -> int:
    """Prints the summary of all shapes for every board and type."""
    from simgpu.hardware import target, targets

    names = ("target", "dtype", *SUMMARY[1:], "worst shape")
    lines = []
    with progress("searching"):
        for descriptor in (target(name) for name in targets() if not name.startswith("gpu")):
            for kind_of_element in descriptor.dtypes():
                rows = [rank(descriptor, kind_of_element, kind, shape) for kind, shape in wanted]
                worst = max(rows, key=lambda row: row.regret)
                lines.append((descriptor.name, kind_of_element, *summarise("all", rows)[1:], "x".join(map(str, worst.shape))))
    if as_json:
        print_json({"rows": [dict(zip(names, line, strict=True)) for line in lines]})
        return 0
    show("Closed-form GEMM tiles against exhaustive search: T over the least T", table("Regret", names, lines, left=2))
    return 0


def summarise(kind: str, rows: list[Ranking]) -> tuple[str, int, float, float, int]:
    """Kind, shapes, geometric mean and worst of the regret, shapes above 1.3."""
    every = [row.regret for row in rows]
    return kind, len(rows), exp(sum(map(log, every)) / len(every)), max(every), sum(value > 1.3 for value in every)


def shapes() -> Iterator[tuple[str, Shape]]:
    """200 shapes: square, odd, Llama's projections at several token counts, skinny, and random ones from a fixed seed."""
    listed: list[tuple[str, Shape]] = [("square", (x, x, x)) for x in (256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)]
    listed += [("odd", (x, x, x)) for x in (100, 500, 777, 1000, 1111, 1500, 2000, 2500, 3000, 3333, 5000, 7000)]
    for m in (1, 8, 16, 32, 64, 128):
        listed += [("llama", (m, n, k)) for n, k in ((4096, 4096), (11008, 4096), (4096, 11008), (28672, 8192), (8192, 28672))]
    for m in (512, 1024, 2048, 4096, 8192):
        wide = (
            (4096, 4096),
            (6144, 4096),
            (14336, 4096),
            (28672, 4096),
            (4096, 14336),
            (10240, 8192),
            (8192, 28672),
            (128256, 4096),
        )
        listed += [("llama", (m, n, k)) for n, k in wide]
    for a in (64, 128, 256, 512):
        for b in (2048, 8192, 32768):
            listed += [("skinny", shape) for shape in ((a, a, b), (a, b, a), (b, a, a), (b, b, a))]
    sizes = 2 ** np.random.default_rng(1).uniform(5, 13, (SHAPES - len(listed), 3))
    yield from listed
    yield from (("random", (int(m), int(n), int(k))) for m, n, k in sizes)


def drawn(seed: int, count: int = SHAPES) -> Iterator[tuple[str, Shape]]:
    """`count` shapes like the listed ones, drawn: square, odd, few tokens by wide layers, skinny, random."""
    source = np.random.default_rng(seed)

    def size(low: float, high: float) -> int:
        return int(2 ** source.uniform(low, high))

    for number in range(count):
        kind = ("square", "odd", "llama", "skinny", "random")[number % 5]
        if kind == "square":
            yield kind, (64 * size(1, 7),) * 3
        elif kind == "odd":
            yield kind, (2 * size(5, 12) + 1, 2 * size(5, 12) + 1, 2 * size(5, 12) + 1)
        elif kind == "llama":
            yield kind, (size(0, 13), 128 * size(3, 8), 128 * size(3, 8))
        elif kind == "skinny":
            small, other, large = size(5, 9), size(5, 9), size(11, 15)
            places = ((small, other, large), (small, large, other), (large, small, other), (large, size(10, 13), small))
            yield kind, places[int(source.integers(4))]
        else:
            yield kind, (size(5, 13), size(5, 13), size(5, 13))


def rank(descriptor: HardwareDescriptor, kind_of_element: str, kind: str, shape: Shape) -> Ranking:
    """The closed form's answer for a shape, and the best of all aligned tiles."""
    from simgpu.operators import GemmProblem, plan_gemm

    plan = plan_gemm(GemmProblem(*shape, kind_of_element), descriptor)
    chosen = (plan.tile_m, plan.tile_n, plan.tile_k, plan.split_k)
    side = np.arange(2 * plan.atom.m, _LARGEST_SIDE + 1, 2 * plan.atom.m)
    axes = np.ix_(side, side, np.array([1, 2]) * plan.warp_k, np.arange(1, MOST_PARTS + 1))
    times = np.where(fits(plan, *axes[:3]), seconds(plan, *axes), np.inf)
    place = np.unravel_index(int(times.argmin()), times.shape)
    best = tuple(int(axis.ravel()[i]) for axis, i in zip(axes, place, strict=True))
    mine = float(seconds(plan, *(np.array(value) for value in chosen)))
    return Ranking(shape, kind, chosen, mine, best, float(times[place]))  # type: ignore[arg-type]


def fits(plan: GemmPlan, tile_m: Any, tile_n: Any, tile_k: Any) -> Any:
    """Whether tiles fit one block a CU: LDS of all stages, accumulators, fragments and staging, counted here again."""
    d, e = plan.descriptor, plan.problem.element.bytes
    arch, acc, total = d.vgpr_budget(1)
    lds = plan.stages * (tile_m + tile_n) * tile_k * e
    accumulators = tile_m * tile_n // 4 // 64 * dtype(plan.problem.dtype_c).registers
    others = (tile_m + tile_n) // 2 * plan.warp_k * e // 256 + (tile_m + tile_n) * tile_k * e // 1024 + 32
    return (lds <= d.lds_bytes) & (accumulators <= acc) & (others <= arch) & (accumulators + others <= total)


def seconds(plan: GemmPlan, tile_m: Any, tile_n: Any, tile_k: Any, split: Any) -> Any:
    """T of tiles for the plan's problem, elementwise."""
    p, d = plan.problem, plan.descriptor
    c_bytes = p.m * p.n * dtype(p.dtype_c).bytes
    gx, gy, steps = -(-p.n // tile_n), -(-p.m // tile_m), -(-p.k // tile_k)
    each = -(-steps // split)
    parts = -(-steps // each)
    tiles = gx * gy * parts
    eta = tiles / d.num_cus / -(-tiles // d.num_cus)
    padded = 2.0 * tiles * tile_m * tile_n * each * tile_k
    partial = np.where(parts > 1, 2 * parts * c_bytes, 0)
    compute = padded / (d.matrix_tflops(p.dtype) * 1e12 * eta)
    hbm = (p.bytes_once + partial) / (d.hbm_bandwidth_tb * 1e12)
    reread = (p.k * p.element.bytes * (p.m * gx + p.n * gy) + c_bytes + partial) / (d.reread_bandwidth_tb * 1e12)
    return np.maximum(np.maximum(compute, hbm), reread)
