"""Our kernels in a ring of elements: every bit as numpy's integers say, whatever the tiles and splits."""

from __future__ import annotations

import pytest

from simgpu.operators import (
    AttentionProblem,
    Conv2d,
    Conv2dProblem,
    FusedAttention,
    Softmax,
    SoftmaxProblem,
    TiledComputation,
)
from tests.support.ring_operators import differing

BOARDS = ("mi100", "mi210", "mi300x", "mi355x")
NEW = {"fp8": ("mi300x", "mi355x"), "bf8": ("mi300x", "mi355x"), "xf32": ("mi300x",), "f64": ("mi210", "mi300x", "mi355x")}
SOME = [("mi300x", "f32"), ("mi100", "bf16"), ("mi355x", "fp8")]
PRODUCTS = [(board, kind) for kind in ("f32", "f16", "bf16", *NEW) for board in NEW.get(kind, BOARDS) if (board, kind) not in SOME]
OPTIONS = ({}, {"trans_a": True, "alpha": 0.5, "beta": 2.0}, {"trans_b": True, "dtype_c": "f16"}, {"batch": 2, "dtype_c": "bf16"})


@pytest.mark.parametrize(("board", "kind"), SOME)
def test_products(board: str, kind: str) -> None:
    assert not differing(TiledComputation(37, 45, 71, target=board, dtype=kind))


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "plain")
@pytest.mark.parametrize(("board", "kind"), [*SOME, *PRODUCTS])
def test_products_of_all_types(board: str, kind: str, options: dict[str, object]) -> None:
    if kind == "f64" and "dtype_c" in options:
        pytest.skip("C of f64 products is f64")
    for m, n, k in ((37, 45, 71), (64, 16, 1030)):  # the second splits k
        assert not differing(TiledComputation(m, n, k, target=board, dtype=kind, **options))


def test_attention_may_take_keys_in_any_order() -> None:
    """Compares orders of keys. The online softmax moves its reference, so they agree only as exp2(a + b) = exp2(a)·exp2(b)."""
    problem = AttentionProblem(33, 65, 64, dtype="bf16", heads=2, causal=True)
    assert not differing(FusedAttention(problem, "mi300x"), narrow=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ("f32", "f16", "bf16"))
@pytest.mark.parametrize("board", BOARDS)
def test_attention_and_softmax_of_all_types(board: str, kind: str) -> None:
    for masks in ({}, {"causal": True}, {"causal": True, "window": 13}):
        for keys in (65, 130):
            problem = AttentionProblem(33, keys, 64, dtype=kind, heads=2, **masks)
            assert not differing(FusedAttention(problem, board), narrow=kind != "f32")
    for options in ({}, {"scale": 0.5}, {"mask": True}):
        for n in (100, 1000):
            assert not differing(Softmax(SoftmaxProblem(5, n, kind, **options), board))


def test_softmax_with_a_mask() -> None:
    assert not differing(Softmax(SoftmaxProblem(5, 100, "f16", mask=True), "mi100"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ("f32", "f16", "bf16"))
@pytest.mark.parametrize("board", BOARDS)
def test_convolutions(board: str, kind: str) -> None:
    for extents in ((2, 5, 9, 11, 7, 3, 3, (1, 1), (1, 1)), (1, 16, 8, 8, 20, 1, 1, (2, 2), (0, 0))):
        problem = Conv2dProblem(*extents, (1, 1), 1, kind)
        assert not differing(Conv2d(problem, board))
