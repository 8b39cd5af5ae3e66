"""Problems on which tiles are judged: listed ones, which the closed formulas were written against, and random ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from simgpu.operators import (
    AttentionBackwardProblem,
    AttentionProblem,
    Conv2dProblem,
    GemmProblem,
    LayerNorm,
    Quantise,
    RmsNorm,
    RmsNormGemm,
    SoftmaxProblem,
)

Shape = tuple[int, int, int]
NamedProblem = tuple[str, Any]  # kind, problem
GEMMS = 200
OF_SHAPES: dict[str, Callable[..., Any]] = {"gemm": GemmProblem, "rmsnorm_gemm": RmsNormGemm}  # problems of m, n, k
OF_ROWS: dict[str, Callable[..., Any]] = {  # problems of rows and n
    "softmax": SoftmaxProblem, "rmsnorm": RmsNorm, "layernorm": LayerNorm, "quantise": Quantise,
}  # fmt: skip
_LLAMA_FEW = ((4096, 4096), (11008, 4096), (4096, 11008), (28672, 8192), (8192, 28672))
_LLAMA_MANY = (
    (4096, 4096), (6144, 4096), (14336, 4096), (28672, 4096), (4096, 14336), (10240, 8192), (8192, 28672), (128256, 4096),
)  # fmt: skip
# Input channels, size, output channels, filter, stride: ResNet-50, VGG-16, U-Net, MobileNet's 1x1.
_LAYERS = (
    (3, 224, 64, 7, 2), (64, 56, 64, 1, 1), (64, 56, 64, 3, 1), (64, 56, 256, 1, 1), (256, 56, 128, 1, 1), (128, 56, 128, 3, 2),
    (128, 28, 128, 3, 1), (128, 28, 512, 1, 1), (512, 28, 256, 1, 1), (256, 14, 256, 3, 1), (256, 14, 1024, 1, 1),
    (1024, 14, 512, 1, 1), (512, 7, 512, 3, 1), (512, 7, 2048, 1, 1), (3, 224, 64, 3, 1), (64, 112, 128, 3, 1),
    (128, 112, 128, 3, 1), (512, 14, 512, 3, 1), (64, 96, 64, 5, 1), (96, 27, 256, 5, 1),
)  # fmt: skip


def listed_problems(op: str, dtype: str) -> Iterator[NamedProblem]:
    """Yields an operator's fixed problems."""
    if op in OF_SHAPES:
        yield from ((kind, OF_SHAPES[op](*shape, dtype)) for kind, shape in shapes())
    elif op == "conv2d":
        for images in (1, 8, 32):
            yield from ((f"{images} image(s)", _layer(images, *layer, dtype)) for layer in _LAYERS)
    elif op == "attention_backward":
        for length, (heads, batch), d in product((512, 1024, 2048, 4096, 8192), ((1, 1), (8, 1), (12, 3), (32, 2)), (64, 128)):
            for kind, causal in (("all pairs", False), ("causal", True)):
                yield kind, AttentionBackwardProblem(length, length, d, heads, batch=batch, causal=causal, dtype=dtype)
    elif op == "attention":
        for length in (512, 1024, 2048, 4096, 8192, 16384, 32768):
            for heads, batch in ((1, 1), (8, 1), (32, 1), (32, 8)):
                for d in (64, 128):
                    yield "prefill", AttentionProblem(length, length, d, heads, batch=batch, dtype=dtype)
                    yield "decode", AttentionProblem(1, length, d, heads, max(1, heads // 8), batch, dtype=dtype)
    else:
        for rows in (1, 16, 128, 1024, 8192, 65536):
            for n in (64, 1000, 4096, 16384, 32000, 128256, 1 << 20):
                if rows * n <= 1 << 30:
                    yield f"{rows} row(s)", OF_ROWS[op](rows, n, dtype)


def draw_problems(op: str, dtype: str, seed: int, count: int) -> Iterator[NamedProblem]:
    """Yields `count` random problems like the listed ones."""
    if op in OF_SHAPES:
        yield from ((kind, OF_SHAPES[op](*shape, dtype)) for kind, shape in drawn_shapes(seed, count))
        return
    source = np.random.default_rng(seed)

    def size(low: float, high: float) -> int:
        return int(2 ** source.uniform(low, high))

    for number in range(count):
        if op == "conv2d":
            channels = 3 if number % 8 == 0 else 8 * size(0, 7)
            edge = size(3, 7.8)
            filters = min((1, 3, 3, 5, 7)[number % 5], edge)
            yield "drawn", _layer(size(0, 5.5), channels, edge, 8 * size(2, 7), filters, 1 + number // 5 % 2, dtype)
        elif op == "attention_backward":
            width, keys, queries = (64, 128, 96, 80)[number % 4], size(7, 13), size(7, 13)
            queries = keys if number % 3 else queries
            made = AttentionBackwardProblem(queries, keys, width, size(0, 5), batch=size(0, 3), causal=number % 3 == 1, dtype=dtype)
            yield "drawn", made
        elif op == "attention":
            d, heads = (64, 128)[number % 2], size(0, 6)
            keys = size(7, 15)
            queries = keys if number % 3 else size(0, 4)
            yield "drawn", AttentionProblem(queries, keys, d, heads, batch=size(0, 4), dtype=dtype)
        else:
            n = size(4, 18)
            yield "drawn", OF_ROWS[op](min(size(0, 17), (1 << 29) // n), n, dtype)


def _layer(images: int, ic: int, edge: int, oc: int, filters: int, stride: int, dtype: str) -> Conv2dProblem:
    pad = filters // 2
    return Conv2dProblem(images, ic, edge, edge, oc, filters, filters, (stride, stride), (pad, pad), dtype=dtype)


def shapes() -> Iterator[tuple[str, Shape]]:
    """200 GEMMs: square, odd, Llama's projections at several token counts, skinny, and random ones from a fixed seed."""
    given: list[tuple[str, Shape]] = [("square", (x, x, x)) for x in (256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)]
    given += [("odd", (x, x, x)) for x in (100, 500, 777, 1000, 1111, 1500, 2000, 2500, 3000, 3333, 5000, 7000)]
    given += [("llama", (m, n, k)) for m in (1, 8, 16, 32, 64, 128) for n, k in _LLAMA_FEW]
    given += [("llama", (m, n, k)) for m in (512, 1024, 2048, 4096, 8192) for n, k in _LLAMA_MANY]
    for a in (64, 128, 256, 512):
        for b in (2048, 8192, 32768):
            given += [("skinny", shape) for shape in ((a, a, b), (a, b, a), (b, a, a), (b, b, a))]
    sizes = 2 ** np.random.default_rng(1).uniform(5, 13, (GEMMS - len(given), 3))
    yield from given
    yield from (("random", (int(m), int(n), int(k))) for m, n, k in sizes)


def drawn_shapes(seed: int, count: int) -> Iterator[tuple[str, Shape]]:
    """Yields `count` random GEMMs like the listed ones: square, odd, few tokens by wide layers, skinny, random."""
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


def deep_shape(source: np.random.Generator) -> Shape:
    """Returns a random GEMM that reduces many elements into few: m and n to 512, k to 32,768."""
    low, high = source.uniform(4, 9, 2), source.uniform(11, 15)
    return int(2 ** low[0]), int(2 ** low[1]), int(2**high)
