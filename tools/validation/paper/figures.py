"""Figures of the paper for docs/reference/paper.md: Figure 1 under both policies, and the fused tree for Figure 2."""

from __future__ import annotations

from simgpu.operators import AttentionProblem, FusedAttention, TiledComputation


def figure_1() -> str:
    """Returns the trees, in Markdown."""
    trees = (
        (
            "Figure 1, published on gpu_a: the paper's, line for line",
            TiledComputation(4096, 4096, 4096, "gpu_a", "published").tree(),
        ),
        ("Figure 1, corrected on MI100", TiledComputation(4096, 4096, 4096, "mi100").tree()),
        (
            "Figure 2 as a tree, published on gpu_a",
            FusedAttention(AttentionProblem(16384, 16384, 128), "gpu_a", "published").tree(),
        ),
        ("Figure 2 as a tree, corrected on MI100", FusedAttention(AttentionProblem(16384, 16384, 128), "mi100").tree()),
    )
    return "\n".join(f"## {title}\n\n```\n{text}\n```\n" for title, text in trees)
