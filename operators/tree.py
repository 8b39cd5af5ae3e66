"""The algorithm tree (paper, section Computational Model): one node model for every operator.

A node stands for one level of the machine and carries views, windows into the operands with the nominal tile size and the valid
extent. The tree is never materialised: `children()` makes the next level's nodes one by one. What an element outside the valid
extent reads as is the boundary policy; how large a tile is, the tiling policy. The two do not know each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from html import escape
from math import prod
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators.levels import Level
from simgpu.operators.resources import Constraint

FINITE_FLOOR = -1e38  # stands for -inf in f32: exp(floor - floor) is 1, never NaN (paper, Online Softmax; erratum E30)
T = TypeVar("T")


@dataclass(frozen=True)
class Extent:
    """Indices min_ <= i < max_ of one dimension, cut from a tile of nominal size `tile`; clipped where max_ - min_ < tile."""

    min_: int
    max_: int
    tile: int

    @classmethod
    def whole(cls, size: int) -> Extent:
        """The full dimension of `size` elements."""
        return cls(0, size, size)

    def __len__(self) -> int:
        return self.max_ - self.min_

    @property
    def slice(self) -> slice:
        """The valid indices, for numpy."""
        return slice(self.min_, self.max_)

    def split(self, tile: int) -> Split:
        """Consecutive extents of nominal size `tile`; the last one ends where this extent does."""
        return Split(self, tile)


@dataclass(frozen=True)
class Split:
    """The tiles of an extent, made as they are asked for, as often as they are."""

    whole: Extent
    tile: int

    def __iter__(self) -> Iterator[Extent]:
        for low in range(self.whole.min_, self.whole.max_, self.tile):
            yield Extent(low, min(low + self.tile, self.whole.max_), self.tile)


def product(*axes: Iterable[T]) -> Iterator[tuple[T, ...]]:
    """All combinations, the last axis fastest; itertools' product holds every axis, and a device may have 10^11 tiles.

    axes: each can be gone through again and again.
    """
    if not axes:
        yield ()
        return
    for one in axes[0]:
        for rest in product(*axes[1:]):
            yield one, *rest


@dataclass(frozen=True)
class Boundary:
    """Boundary policy: what an element outside the valid extent of an operand reads as."""

    fill: float
    text: str

    def read(self, array: NDArray[Any], *window: tuple[int, int]) -> NDArray[Any]:
        """`array` over the half-open index ranges `window`, one a dimension; what lies outside the array is `fill`."""
        inside = tuple(
            slice(min(max(low, 0), size), max(min(high, size), 0)) for (low, high), size in zip(window, array.shape, strict=True)
        )
        shape = tuple(high - low for low, high in window)
        found = array[inside]
        if found.shape == shape:
            return found
        out = np.full(shape, self.fill, array.dtype)
        places = zip(inside, window, found.shape, strict=True)
        out[tuple(slice(i.start - low, i.start - low + n) for i, (low, _), n in places)] = found
        return out


ZERO = Boundary(0.0, "0")
FLOOR = Boundary(FINITE_FLOOR, f"the finite floor {FINITE_FLOOR:g}, and counts 0 after exp")


@dataclass(frozen=True)
class View:
    """A window of an operand: rows x columns, under the outer dimensions (batch, heads, channels) where it has them."""

    operand: str
    rows: Extent
    cols: Extent
    outer: tuple[Extent, ...] = ()

    @property
    def extents(self) -> tuple[Extent, ...]:
        """One extent a dimension, outermost first."""
        return *self.outer, self.rows, self.cols

    @property
    def tile_shape(self) -> tuple[int, ...]:
        """Nominal size, as the tiling policy gives it."""
        return tuple(extent.tile for extent in self.extents)

    @property
    def shape(self) -> tuple[int, ...]:
        """Valid size, after clipping."""
        return tuple(len(extent) for extent in self.extents)

    @property
    def elements(self) -> int:
        """Valid elements."""
        return prod(self.shape)

    @property
    def index(self) -> tuple[slice, ...]:
        """The valid window, as a numpy index into the whole operand."""
        return tuple(extent.slice for extent in self.extents)

    def within(self, whole: View) -> tuple[slice, ...]:
        """This window as a numpy index into `whole`, a window of the same operand that contains it."""
        pairs = zip(self.extents, whole.extents, strict=True)
        return tuple(slice(inner.min_ - outer.min_, inner.max_ - outer.min_) for inner, outer in pairs)

    def __str__(self) -> str:
        return f"{self.operand}:({','.join(map(str, self.tile_shape))})"


class Node(ABC):
    """One node of an algorithm tree: `views` are the operands' windows at this node."""

    level: ClassVar[Level]
    views: tuple[View, ...]

    @abstractmethod
    def children(self) -> Iterator[Node]:
        """The nodes one level down, made as they are asked for; none below a leaf."""

    @abstractmethod
    def constraints(self) -> tuple[Constraint, ...]:
        """The limits that apply at this level, whether met or not."""

    @abstractmethod
    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Sections of text for `render`: each a title and its detail lines."""

    def first(self) -> Node | None:
        """The first child, which stands for its level where all tiles are alike; None at a leaf."""
        return next(self.children(), None)


class Root(Node):
    """A node of the device level: a whole operator on a target under a policy.

    Subclasses set `problem`, `descriptor` and `derivation`; a problem that the target cannot run still has a derivation.
    """

    level: ClassVar[Level] = Level.DEVICE
    problem: Any
    descriptor: HardwareDescriptor
    derivation: Any

    def __repr__(self) -> str:
        """The problem by what differs from its defaults; a type that none was given for is the operands'."""
        given = []
        for entry in fields(self.problem):
            value = getattr(self.problem, entry.name)
            default = self.problem.dtype if entry.default == "" else entry.default
            if value != default:
                given.append(f"{entry.name}={value!r}")
        return f"<{type(self).__name__} {', '.join(given)} on {self.descriptor.name}>"

    @abstractmethod
    def on(self, descriptor: HardwareDescriptor) -> Root:
        """The same problem and policy, derived again for another descriptor."""

    @property
    def plan(self) -> Any:
        """The feasible derivation; ResourceError names the violated limit and what to change."""
        return self.derivation.check()

    def constraints(self) -> tuple[Constraint, ...]:
        """The derivation's rows of the device level."""
        rows: tuple[Constraint, ...] = self.derivation.at(self.level)
        return rows

    def representatives(self) -> Iterator[Node]:
        """The root and one node of each level below it."""
        return representatives(self)

    def _repr_html_(self) -> str:
        """For Jupyter: the tree, and every limit with its use; what does not fit is told with what to change."""
        shown = f"<pre>{escape(render(self))}</pre>" if self.derivation.feasible else ""
        return shown + str(self.derivation._repr_html_())

    def tree(self) -> str:
        """The tree as text, in the form of the paper's Figure 1; ResourceError if the tiles cannot fit."""
        self.derivation.check()
        return render(self)


class Visitor:
    """Dispatches a node to visit_device, visit_block, visit_warp or visit_atom by its level."""

    def visit(self, node: Node, *args: Any) -> Any:
        """Calls the method of the node's level with the node and `args`."""
        return getattr(self, f"visit_{node.level}")(node, *args)


def representatives(root: Node) -> Iterator[Node]:
    """The root and the first node of each level below it."""
    node: Node | None = root
    while node is not None:
        yield node
        node = node.first()


def render(root: Node) -> str:
    """The tree as text, one section a level, in the form of the paper's Figure 1."""
    head, *sections = [section for node in representatives(root) for section in node.describe()]
    lines = [head[0], *(f"  {line}" for line in head[1:])]
    for number, (title, *details) in enumerate(sections, start=1):
        bar = "|" if number < len(sections) else " "
        lines += ["  |", f"  +-- {title}", *(f"  {bar}     {line}" for line in details)]
    return "\n".join(lines)
