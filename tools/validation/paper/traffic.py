"""Attention's HBM traffic, recomputed."""

from __future__ import annotations

from collections.abc import Iterator

from simgpu.operators import AttentionProblem, UnfusedAttention, plan_attention
from simgpu.tools.validation.paper.entry import PaperNumber, QuotedFigure
from simgpu.tools.validation.paper.givens import Givens


def split_traffic(g: Givens, length: int) -> tuple[int, float, int]:
    """Returns (HBM bytes, ratio of the unfused kernels' bytes to them, blocks that share a Q tile) of the corrected plan of one
    head.

    It counts every array once, and the partial O and statistics of split keys, written and read.
    """
    problem = AttentionProblem(length, length, g.d)
    plan = plan_attention(problem, g.mi100)
    moved = problem.bytes_once + plan.partial_bytes
    return moved, UnfusedAttention(problem, g.mi100).bytes_once / moved, plan.split_kv


def traffic(g: Givens) -> Iterator[PaperNumber]:
    """Yields fused and unfused traffic, at the paper's lengths."""
    where = f"HBM traffic of one head, d = {g.d}"
    length, d, a, mi100 = g.length, g.d, g.gpu_a, g.mi100
    short, long = AttentionProblem(length, length, d), AttentionProblem(g.longer, g.longer, d)
    unfused, longer = UnfusedAttention(short, a), UnfusedAttention(long, a)
    plan = plan_attention(short, a, "published")

    def same(what: str, paper: str, value: str) -> PaperNumber:
        return PaperNumber(where, what, paper, value, value, "E19", "reproduces")

    yield same(f"fused, L = {length}", "34 MB", f"{short.bytes_once / 1e6:.1f} MB")
    yield same("S", "1,074 MB", f"{unfused.score_bytes / 1e6:,.1f} MB")
    yield same("unfused", "4,329 MB", f"{unfused.bytes_once / 1e6:,.1f} MB")
    yield same("unfused / fused", "129x", f"{unfused.bytes_once / short.bytes_once:.1f}x")
    yield same(f"unfused, L = {g.longer}", "17 GB", f"{longer.bytes_once / 1e9:.2f} GB")
    passes = (unfused.bytes_once - short.bytes_once) / unfused.score_bytes
    yield PaperNumber(
        where, f"savings formula at L = {length}", "L/(4d) = 32", f"{length / (4 * d):g}", f"1 + L/d = {1 + length / d:g}", "E20",
        f"S is passed {passes:g} times",
    )  # fmt: skip
    for row in g.table_3:
        moved, saved, split = split_traffic(g, row.length)
        if split > 1:
            once = AttentionProblem(row.length, row.length, d).bytes_once
            yield PaperNumber(
                where, f"fused at L = {row.length}; saved", "Q, K, V, R once; L/(4d)",
                f"{once / 1e6:.1f} MB; {row.length / (4 * d):g}x", f"{moved / 1e6:.1f} MB; {saved:.1f}x", "E20, E25",
                f"{split} blocks share a Q tile's keys: partial O is written and read; not 1 + L/d = {1 + row.length / d:g}",
            )  # fmt: skip
    saving = unfused.bytes_once / plan.lockstep_bytes
    yield PaperNumber(
        where, "K and V read again each round", "34 MB, whatever the tiles", f"{short.bytes_once / 1e6:.0f} MB",
        f"{plan.lockstep_bytes / 1e6:.0f} MB, {saving:.0f}x saved", "E21",
        f"K + V, {short.kv_bytes / 1e6:.1f} MB, do not fit in {mi100.l2_bytes >> 20} MB of L2",
    )  # fmt: skip
    compute, memory = short.flops / mi100.matrix_tflops("f32") / 1e9, unfused.bytes_once / mi100.hbm_bandwidth_tb / 1e9
    yield PaperNumber(
        where, "speed-up at the roofline", "~33x", f"1 + L/(4d) = {1 + length / (4 * d):g}",
        f"{memory / compute:.1f}x (overlapped) to {(memory + compute) / compute:.1f}x (serial)", "E22",
        "the paper's is a ratio of traffic, not of time",
    )  # fmt: skip
    yield PaperNumber(
        where, f"S of one head at L = {g.longer}", "would not fit in HBM", QuotedFigure("would not fit"),
        f"{longer.score_bytes / 1e9:.2f} GB: fits {int(mi100.hbm_bytes // longer.score_bytes)} times", "E26",
    )  # fmt: skip
