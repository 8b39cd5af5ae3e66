"""Kernel of the closed form against kernels of other tiles, each emitted and timed by the model of time (`simgpu time`).

The other tiles are ALTERNATIVES of a problem's space (`space`): half are those of least closed cost, half are drawn among tiles
of at most FAR times the least. So the two judges can disagree: regret is the modelled time of the formula's kernel over the
least, `judges` the closed cost of that kernel over its modelled time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import simgpu
from simgpu.hardware import cache, target, targets
from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators import AttentionBackwardProblem, AttentionProblem, Conv2dProblem, GemmProblem, RmsNormGemm
from simgpu.operators.tree import Root
from simgpu.tools.cost.names import TYPES
from simgpu.tools.cost.problems import OF_ROWS, Shape, deep_shape
from simgpu.tools.cost.space import ROOTS, Space, Tile, space
from simgpu.tools.tables.schedule_report import predictions

ALTERNATIVES = 20
FAR = 2.0  # times the least closed cost: tiles beyond it are not drawn
APART = 1.3  # factor between the two judges from which a problem is listed
COLUMNS = ("board", "type", "kind", "problem", "tile", "closed us", "us", "best tile", "closed us ", "us ", "regret", "judges",
           "tiles")  # fmt: skip
FIELDS = ("board", "type", "kind", "problem", "tile", "closed_us", "us", "best_tile", "best_closed_us", "best_us", "regret",
          "judges", "tiles")  # fmt: skip
KINDS = ("odd", "deep", "any")  # of the drawn problems, a third each
# Rooms whose sources decide a row, below the package.
_ROOMS = ("hardware", "operators", "asm", "timing", "sampling", "tools/cost")


@dataclass(frozen=True)
class EmittedRanking:
    """A problem's kernel by the closed form beside the best of its alternatives, in seconds of both judges."""

    board: str
    dtype: str
    kind: str
    problem: str
    chosen: Tile
    closed: float  # by the closed cost
    seconds: float  # by the model of time
    best: Tile
    best_closed: float
    least: float  # by the model of time, of all kernels with the chosen one
    tiles: int  # alternatives that were timed

    def row(self) -> tuple[Any, ...]:
        """Returns the values of FIELDS, and of COLUMNS."""
        chosen, best = ("x".join(map(str, tile)) for tile in (self.chosen, self.best))
        times = [1e6 * value for value in (self.closed, self.seconds, self.best_closed, self.least)]
        regret, judges = self.seconds / self.least, self.closed / self.seconds
        return (self.board, self.dtype, self.kind, self.problem, chosen, *times[:2], best, *times[2:], regret, judges, self.tiles)


@functools.cache
def sources() -> str:
    """Returns a digest of the sources that decide a row: formulas, emitters and the model of time."""
    package = Path(simgpu.__file__).parent
    return cache.digest_of(sorted(path for room in _ROOMS for path in (package / room).rglob("*.py"))).hex()[:12]


def drawn_cases(op: str, seed: int, count: int) -> Iterator[tuple[str, str, Any]]:
    """Yields (kind, board, problem): random problems, boards and types, the kinds of KINDS in turn.

    Odd ones have odd extents. Deep ones reduce many elements into few: K, input channels, keys, long rows.
    """
    source = np.random.default_rng(seed)
    for number in range(count):
        kind, (board, dtype) = KINDS[number % len(KINDS)], draw_board(op, source)
        yield kind, board, _DRAWS[op](kind, dtype, source)


def draw_board(op: str, source: np.random.Generator) -> tuple[str, str]:
    """Draws a board of AMD's, and a type of it that the operator has."""
    boards = [name for name in targets() if not name.startswith("gpu_")]
    board = boards[int(source.integers(len(boards)))]
    known = [name for name in target(board).dtypes() if name in TYPES.get(op, (name,))]
    return board, known[int(source.integers(len(known)))]


def _size(source: np.random.Generator, low: float, high: float, odd: bool = False) -> int:
    size = int(2 ** source.uniform(low, high))
    return size | 1 if odd else size


def _gemm(kind: str, dtype: str, source: np.random.Generator) -> GemmProblem:
    trans_a, trans_b = (bool(bit) for bit in source.integers(2, size=2))
    return GemmProblem(*_shape(kind, source), dtype, trans_a=trans_a, trans_b=trans_b)


def _rmsnorm_gemm(kind: str, dtype: str, source: np.random.Generator) -> RmsNormGemm:
    return RmsNormGemm(*_shape(kind, source), dtype, trans_b=bool(source.integers(2)))


def _shape(kind: str, source: np.random.Generator) -> Shape:
    """Draws m, n and k."""
    if kind == "deep":
        return deep_shape(source)
    if kind == "odd":
        return _size(source, 5, 12, odd=True), _size(source, 5, 12, odd=True), _size(source, 5, 12, odd=True)
    return _size(source, 0, 12), 64 * _size(source, 0, 6), 64 * _size(source, 1, 6)


def _conv2d(kind: str, dtype: str, source: np.random.Generator) -> Conv2dProblem:
    odd = kind == "odd"
    images, filters, stride = _size(source, 0, 4), (1, 3, 3, 5)[int(source.integers(4))], 1 + int(source.integers(4) == 0)
    edge = max(filters, _size(source, 3, 5 if kind == "deep" else 6.5, odd))
    ic = _size(source, 4, 8, odd) if odd else 64 * _size(source, 2, 5) if kind == "deep" else 8 * _size(source, 0, 6)
    oc = _size(source, 4, 8, odd) if odd else 8 * _size(source, 2, 6)
    layout = ("nchw", "nhwc")[int(source.integers(2))]
    pad = (filters // 2, filters // 2)
    return Conv2dProblem(images, ic, edge, edge, oc, filters, filters, (stride, stride), pad, dtype=dtype, layout=layout)


def _attention(kind: str, dtype: str, source: np.random.Generator) -> AttentionProblem:
    d, heads, odd = (64, 128, 96, 80)[int(source.integers(4))], _size(source, 0, 5.5), kind == "odd"
    keys = _size(source, 9, 14) if kind == "deep" else _size(source, 6, 12, odd)
    queries = _size(source, 0, 5) if kind == "deep" else keys
    causal = bool(source.integers(2)) and queries == keys
    return AttentionProblem(queries, keys, d, heads, batch=_size(source, 0, 3), causal=causal, dtype=dtype)


def _attention_backward(kind: str, dtype: str, source: np.random.Generator) -> AttentionBackwardProblem:
    p = _attention(kind, dtype, source)
    return AttentionBackwardProblem(p.lq, p.lk, p.d, min(p.heads, 16), batch=min(p.batch, 4), causal=p.causal, dtype=dtype)


def _rows(op: str, kind: str, dtype: str, source: np.random.Generator) -> Any:
    n = _size(source, 14, 20) if kind == "deep" else _size(source, 4, 16, kind == "odd")
    return OF_ROWS[op](min(_size(source, 0, 5 if kind == "deep" else 14), (1 << 26) // n), n, dtype)


_DRAWS: dict[str, Callable[[str, str, np.random.Generator], Any]] = {
    "gemm": _gemm, "conv2d": _conv2d, "attention": _attention, "attention_backward": _attention_backward,
    "rmsnorm_gemm": _rmsnorm_gemm,
    **{op: functools.partial(_rows, op) for op in OF_ROWS},
}  # fmt: skip


def rank_emitted(op: str, problem: Any, descriptor: HardwareDescriptor, kind: str = "", seed: int = 0) -> EmittedRanking:
    """Emits and times the formula's kernel and ALTERNATIVES of its space, or all if there are fewer.

    Raises as `simgpu.asm.emit` and the model of time.
    """
    found, formula = space(op, problem, descriptor), ROOTS[op](problem, descriptor)
    seconds = modelled_seconds(formula)
    best, best_closed, least, tiles = found.chosen, found.chosen_seconds, seconds, 0
    for tile, closed, tree in alternatives(found, formula, ALTERNATIVES, seed):
        tiles += 1
        if (other := modelled_seconds(tree)) < least:
            best, best_closed, least = tile, closed, other
    return EmittedRanking(
        descriptor.name, problem.dtype, kind, found.problem, found.chosen, found.chosen_seconds, seconds, best, best_closed, least,
        tiles,
    )  # fmt: skip


def modelled_seconds(tree: Root) -> float:
    """Returns the seconds of all kernels of a tree by the model of time."""
    return sum(one.seconds for one in predictions(tree).values())


def alternatives(found: Space, formula: Root, count: int, seed: int) -> Iterator[tuple[Tile, float, Root]]:
    """Yields (tile, closed seconds, tree) of other feasible tiles: half of `count` of least closed cost, then drawn ones."""
    flat = found.seconds.ravel()
    order = [int(place) for place in np.argsort(flat, kind="stable") if flat[place] <= FAR * flat.min()]
    drawn = [order[place] for place in np.random.default_rng(seed).permutation(len(order))]
    known, made = {_sizes(formula)}, 0
    for places, most in ((order, count // 2), (drawn, count)):
        for place in places:
            if made >= most:
                break
            row, column = divmod(place, len(found.splits))
            tile = (*found.rows[row], found.splits[column])
            tree = found.tree(tile)
            # Splits that give the same blocks are one tile.
            if tree.derivation.feasible and _sizes(tree) not in known:
                known.add(_sizes(tree))
                made += 1
                yield tile, float(flat[place]), tree


def _sizes(tree: Root) -> tuple[tuple[str, int], ...]:
    return tuple(tree.derivation.sizes.items())
