"""Measured times of attention in the paper (Table 3), and the one law that they follow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from simgpu.operators import AttentionProblem, AttentionTiles, plan_attention
from simgpu.tools.validation.paper.entry import PaperNumber
from simgpu.tools.validation.paper.givens import Givens


@dataclass(frozen=True)
class Fit:
    """T = factor * x by least squares of the relative errors: the factor minimizes the sum of (factor*x/T - 1)^2."""

    factor: float
    worst: float  # relative error

    @classmethod
    def of(cls, points: Iterable[tuple[float, float]]) -> Fit:
        """Fits points of (x, T)."""
        ratios = [x / t for x, t in points]
        factor = sum(ratios) / sum(ratio * ratio for ratio in ratios)
        return cls(factor, max(abs(factor * ratio - 1) for ratio in ratios))


def published_plan(g: Givens, length: int) -> AttentionTiles:
    """Returns the paper's plan of one head on its GPU."""
    return plan_attention(AttentionProblem(length, length, g.d), g.gpu_a, "published")


def fits(g: Givens) -> tuple[Fit, Fit]:
    """Returns (fused over L * rounds, unfused over L^2), both in ms, from the paper's four lengths (E24)."""
    rows = g.table_3
    fused = Fit.of((row.length * published_plan(g, row.length).rounds, row.fused) for row in rows)
    return fused, Fit.of((row.length**2, row.unfused) for row in rows)


def limit(g: Givens) -> float:
    """Limit of the speed-up by the two fits: rounds become L / (queries that the CUs take together)."""
    fused, unfused = fits(g)
    plan = published_plan(g, g.table_3[-1].length)
    return unfused.factor * plan.tile_Q * plan.descriptor.num_cus / fused.factor


def table_3(g: Givens) -> Iterator[PaperNumber]:
    """Yields each length, the crossover, the trend."""
    where = "Table 3: fused over unfused (times measured by the paper)"
    fused, unfused = fits(g)
    for row in g.table_3:
        plan = published_plan(g, row.length)
        tflops = plan.problem.flops / row.fused / 1e9
        yield PaperNumber(
            where, f"L = {row.length}: {row.fused:g} and {row.unfused:g} ms", row.printed, f"{row.unfused / row.fused:.2f}x",
            f"fit {fused.factor * 1e3:.2f} us * L * {plan.rounds} rounds = {fused.factor * row.length * plan.rounds:.1f} ms; "
            f"{tflops:.2f} TFLOPS",
            "E23, E24", f"divides correctly; {tflops / g.mi100.matrix_tflops('f32'):.1%} of matrix peak",
        )  # fmt: skip
    yield PaperNumber(
        where, "one law for all lengths", "none", f"within {fused.worst:.1%}: one Q tile a CU and round",
        f"unfused: {unfused.factor * 1e6:.2f} ns * L^2, within {unfused.worst:.1%}", "E24",
        "least squares of the relative errors over the times of this table",
    )  # fmt: skip
    first, last = g.table_3[0], g.table_3[-1]
    old, new = published_plan(g, first.length), plan_attention(AttentionProblem(first.length, first.length, g.d), g.mi100)
    yield PaperNumber(
        where, f"crossover at L = {first.length}", "LDS overhead", f"{old.q_tiles} tiles, {old.rounds} rounds, eta {old.eta:.0%}",
        f"keys split {new.split_kv}: eta {new.eta:.0%}", "E25", f"a tail of {old.q_tiles % old.descriptor.num_cus} tiles",
    )  # fmt: skip
    ends = [row.unfused / row.fused for row in (first, last)]
    yield PaperNumber(
        where, "speed-up over L", "grows linearly",
        f"{ends[0]:.2f} to {ends[1]:.2f} over {last.length / first.length:g}x in L", f"tends to {limit(g):.2f}", "E24",
        "the tail fills up",
    )  # fmt: skip
