"""The algorithm tree (paper, section Computational Model): one node model for every operator.

A node stands for one level of the machine and carries views, windows into the operands with the nominal tile size and the valid extent.
The tree is never materialised: `children()` makes the next level's nodes one by one. What an element outside the valid extent reads as
is the boundary policy; how large a tile is, the tiling policy. The two do not know each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from operators.resources import Constraint


class Level(StrEnum):
    """The levels of the machine, outermost first."""

    DEVICE = "device"
    BLOCK = "block"
    WARP = "warp"
    ATOM = "atom"

    @property
    def depth(self) -> int:
        """0 for the device, 3 for the atom."""
        return list(Level).index(self)


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

    def split(self, tile: int) -> Iterator[Extent]:
        """Consecutive extents of nominal size `tile`; the last one is clipped to this extent's end."""
        for low in range(self.min_, self.max_, tile):
            yield Extent(low, min(low + tile, self.max_), tile)


@dataclass(frozen=True)
class View:
    """A window of a matrix operand: rows x columns."""

    operand: str
    rows: Extent
    cols: Extent

    @property
    def tile_shape(self) -> tuple[int, int]:
        """Nominal size, as the tiling policy gives it."""
        return self.rows.tile, self.cols.tile

    @property
    def shape(self) -> tuple[int, int]:
        """Valid size, after clipping."""
        return len(self.rows), len(self.cols)

    @property
    def elements(self) -> int:
        """Valid elements."""
        return len(self.rows) * len(self.cols)

    @property
    def index(self) -> tuple[slice, slice]:
        """The valid window, as a numpy index into the whole operand."""
        return self.rows.slice, self.cols.slice

    def __str__(self) -> str:
        return f"{self.operand}:({self.rows.tile},{self.cols.tile})"


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
