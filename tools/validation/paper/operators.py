"""Convolution and softmax of the paper, recomputed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from simgpu.operators import ComputeVisitor, Conv2dProblem, Softmax, SoftmaxProblem, SoftmaxState, reference, space_to_channel
from simgpu.tools.validation.paper.entry import PaperNumber, QuotedFigure, pair
from simgpu.tools.validation.paper.givens import Givens

SEED = 512  # of softmax's inputs
MACHINE_PRECISION = 4.0  # argument_ulps


def operators(g: Givens) -> Iterator[PaperNumber]:
    """Yields halo and replication; softmax's intensity, padding and result."""
    where = "Convolution and softmax"
    side = g.filter_side
    rgb = Conv2dProblem(1, 3, g.image, g.image, 64, side, side, padding=(side // 2, side // 2))
    factor = f"{rgb.halo_factor(*g.pixels):.2f}"
    yield PaperNumber(
        where, f"R of {side}x{side} on {g.pixels[0]}x{g.pixels[1]} tiles", '"reuse factor"', factor, factor, "E27",
        "a re-read factor; stride and dilation of one only, generalised here",
    )  # fmt: skip
    fewer, whole = space_to_channel(rgb, g.replication), space_to_channel(rgb, side)
    yield PaperNumber(
        where, f"IC = {rgb.ic} to {fewer.ic}: taps of {side}x{side} left", "1", QuotedFigure("1"), str(fewer.kh * fewer.kw), "E28",
        f"one tap needs {whole.ic} channels or a {g.replication}x{g.replication} filter",
    )  # fmt: skip
    soft = SoftmaxProblem(g.softmax, g.softmax)
    yield PaperNumber(
        where, "softmax FLOP/byte", "0.2", QuotedFigure("0.2"),
        f"{soft.intensity(2):.2f} (two reads), {soft.intensity(1):.2f} (one)",
        "E29", f"{soft.flops / (soft.rows * soft.n):g} FLOP an element, exp counted as one",
    )  # fmt: skip
    yield PaperNumber(
        where, "m <- -inf with a fully padded tile", "-1e38 in the text, -inf in Algorithm 1", *padded_rows(g.floor), "E30",
        "Algorithm 1's exp(-inf + inf); here a finite floor and a mask",
    )  # fmt: skip
    yield PaperNumber(
        where, f"softmax {g.softmax} x {g.softmax} against float64", "machine precision",
        *pair(softmax_verdict(Softmax(soft, gpu, policy)) for gpu, policy in ((g.gpu_a, "published"), (g.mi100, "corrected"))), "",
        "executed with numpy in f32; the kernels run in tests/asm/test_softmax.py",
    )  # fmt: skip
    yield PaperNumber(where, "3x3 kernel over naive (measured)", "1.7x", QuotedFigure("1.7x"), "", "", "no GPU has run ours")


def padded_rows(floor: float) -> tuple[str, str]:
    """Formats delta after a tile of only padding: by Algorithm 1 from m = floor, and by the state that the kernels keep."""
    scores = np.full((1, 8), floor)
    with np.errstate(invalid="ignore"):
        printed = np.exp(scores - np.maximum(floor, scores.max())).sum()
    state = SoftmaxState.empty((1,), np.dtype(float))
    kept = state.merge(SoftmaxState.of(scores, np.zeros(scores.shape, bool)))
    return f"delta = {printed:g}", f"delta = {kept.delta[0]:g}"


def argument_ulps(got: NDArray[np.floating], want: NDArray[np.floating]) -> NDArray[np.floating]:
    """Errors of a softmax's f32 weights (rows, n), in units of the error that exp can achieve.

    The unit is eps times the weight times (1 + the size of exp's argument), since the argument is itself rounded.
    """
    argument = np.log(want.max(-1, keepdims=True) / want)
    return np.asarray(np.abs(got - want) / (want * np.finfo(np.float32).eps * (1 + argument)))


def softmax_verdict(tree: Softmax) -> str:
    """Says whether a tree, executed wave by wave in f32 with numpy, is at machine precision: no error above 4 `argument_ulps`."""
    p = tree.problem
    x = np.random.default_rng(SEED).standard_normal((p.rows, p.n)).astype(np.float32)
    got = ComputeVisitor("warp", "problem").visit(tree, x)
    past = int((argument_ulps(got, reference.softmax(p, x)) > MACHINE_PRECISION).sum())
    return f"{p.rows} x {p.n}: " + (f"{past} past machine precision" if past else "at machine precision")
