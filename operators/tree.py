"""Algorithm tree (paper, section Computational Model): one node model for every operator.

A node represents one level of the machine. It has views: windows into the operands with the nominal tile size and the valid
extent. The tree is never materialised: `children()` yields the next level's nodes one by one. The boundary policy defines the
value of an element outside the valid extent. The tiling policy defines the size of a tile. The two are independent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import cached_property
from html import escape
from itertools import zip_longest
from math import prod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from simgpu.hardware import target as find_target
from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.errors import LaunchError
from simgpu.operators.levels import Level, Nest, TileLoop
from simgpu.operators.resources import Constraint, break_line

FINITE_FLOOR = -1e38  # replaces -inf in f32: exp(floor - floor) is 1, never NaN (paper, Online Softmax; erratum E30)


@dataclass(frozen=True)
class Extent:
    """Indices min_ <= i < max_ of one dimension; a tile that an edge clips has max_ - min_ < tile."""

    min_: int
    max_: int
    tile: int  # nominal size of the tile

    @classmethod
    def whole(cls, size: int) -> Extent:
        """Returns the full dimension of `size` elements."""
        return cls(0, size, size)

    def __len__(self) -> int:
        return self.max_ - self.min_

    @property
    def slice(self) -> slice:
        """Slice of the valid indices, for numpy."""
        return slice(self.min_, self.max_)

    def split(self, tile: int) -> Split:
        """Returns consecutive extents of nominal size `tile`; the last one ends where this extent does."""
        return Split(self, tile)


@dataclass(frozen=True)
class Split:
    """Tiles of an extent, generated at each iteration."""

    whole: Extent
    tile: int

    def __iter__(self) -> Iterator[Extent]:
        for low in range(self.whole.min_, self.whole.max_, self.tile):
            yield Extent(low, min(low + self.tile, self.whole.max_), self.tile)

    def __len__(self) -> int:
        return -(-len(self.whole) // self.tile)


@dataclass(frozen=True)
class Boundary:
    """Boundary policy: the value of an element outside the valid extent of an operand."""

    fill: float
    text: str  # value in words

    def read(self, array: NDArray[Any], *window: tuple[int, int]) -> NDArray[Any]:
        """Returns `array` over the half-open index ranges `window`, one a dimension. Elements outside the array are `fill`."""
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
    """A window of an operand: rows x columns, with outer dimensions (batch, heads, channels) if it has them."""

    operand: str  # name
    rows: Extent
    cols: Extent
    outer: tuple[Extent, ...] = ()

    @property
    def extents(self) -> tuple[Extent, ...]:
        """Extents of all dimensions, outermost first."""
        return *self.outer, self.rows, self.cols

    @property
    def tile_shape(self) -> tuple[int, ...]:
        """Nominal size, from the tiling policy."""
        return tuple(extent.tile for extent in self.extents)

    @property
    def shape(self) -> tuple[int, ...]:
        """Valid size, after clipping."""
        return tuple(len(extent) for extent in self.extents)

    @property
    def elements(self) -> int:
        """Number of valid elements."""
        return prod(self.shape)

    @property
    def index(self) -> tuple[slice, ...]:
        """Valid window, as a numpy index into the whole operand."""
        return tuple(extent.slice for extent in self.extents)

    def within(self, whole: View) -> tuple[slice, ...]:
        """Returns this window as a numpy index into `whole`, a window of the same operand that contains it."""
        pairs = zip(self.extents, whole.extents, strict=True)
        return tuple(slice(inner.min_ - outer.min_, inner.max_ - outer.min_) for inner, outer in pairs)

    def __str__(self) -> str:
        return f"{self.operand}:({','.join(map(str, self.tile_shape))})"


Axes = Mapping[str, Extent]  # what loops run over, by name: a node's indices of each dimension of the computation


class Node(ABC):
    """A node of an algorithm tree: extents of axes, and the loops that cut them for the nodes one level down.

    `axes`, `loops` and `views` are all that a visitor needs to know of sizes. The one that executes a node runs its loops; the
    one that emits code turns them into the grid, into a block's waves or into loops of the kernel, with the edges of the axes.
    """

    level: ClassVar[Level]
    plan: Any  # the derivation, which has the tree's loops
    axes: Axes  # extents of the axes at this node
    views: tuple[View, ...]  # the operands' windows at this node

    @property
    def loops(self) -> tuple[TileLoop, ...]:
        """Loops over the axes, outermost first; none at a leaf."""
        nest: Nest = self.plan.nest
        return nest.get(self.level, ())

    def tiles(self, loop: TileLoop, axes: Axes) -> Split | tuple[Extent, ...]:
        """Returns the tiles that a loop runs over. axes: of its iteration, as the outer loops have cut them."""
        return axes[loop.axis].split(loop.tile)

    def windows(self, loops: tuple[TileLoop, ...], axes: Axes | None = None) -> Iterator[Axes]:
        """Yields the axes of each iteration of the loops, the last loop fastest. axes: outside the loops; None: the node's."""
        axes = self.axes if axes is None else axes
        if not loops:
            yield axes
            return
        for tile in self.tiles(loops[0], axes):
            yield from self.windows(loops[1:], {**axes, loops[0].axis: tile})

    def loop(self, axis: str) -> TileLoop:
        """Returns the outermost loop over an axis."""
        return next(loop for loop in self.loops if loop.axis == axis)

    def trips(self, axis: str) -> int:
        """Returns the iterations of the outermost loop over an axis: 1 without one."""
        return next((len(self.tiles(loop, self.axes)) for loop in self.loops if loop.axis == axis), 1)

    def child(self, axes: Axes) -> Node:
        """Returns the node one level down with these axes."""
        raise NotImplementedError(f"{type(self).__name__} has loops, but no child")

    def children(self) -> Iterator[Node]:
        """Yields the nodes one level down, one at a time; a leaf yields none."""
        return map(self.child, self.windows(self.loops)) if self.loops else iter(())

    def constraints(self) -> tuple[Constraint, ...]:
        """Returns the plan's limits of this level, satisfied or violated."""
        rows: tuple[Constraint, ...] = self.plan.at(self.level)
        return rows

    @abstractmethod
    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns sections of text for `render`: each a title and its detail lines."""

    def first(self) -> Node | None:
        """Returns the first child, which represents its level if all tiles are alike; None at a leaf."""
        return next(self.children(), None)


@dataclass(frozen=True)
class TileNode(Node):
    """A node whose views follow from its axes, and whose children are all of one class.

    >>> from simgpu.operators import Softmax, SoftmaxProblem
    >>> block = Softmax(SoftmaxProblem(rows=64, n=1000), "mi300x").first()
    >>> type(block).below.__name__
    'WarpSoftmaxNode'
    """

    plan: Any
    axes: Axes

    below: ClassVar[Any] = None  # class of the nodes one level down; None: it is a leaf

    @staticmethod
    def views_of(plan: Any, axes: Axes) -> tuple[View, ...]:
        """Returns the operands' windows at a node with these axes."""
        raise NotImplementedError

    @cached_property
    def views(self) -> tuple[View, ...]:  # type: ignore[override]
        """Windows of the operands."""
        return self.views_of(self.plan, self.axes)

    def child(self, axes: Axes) -> Node:
        """Returns the node one level down with these axes."""
        made: Node = self.below(self.plan, axes)
        return made


class Root(Node):
    """A node of the device level: a whole operator on a target under a policy.

    Subclasses set `problem`, `descriptor` and `derivation`. Infeasible problems also have a derivation.
    """

    level: ClassVar[Level] = Level.DEVICE
    problem: Any
    descriptor: HardwareDescriptor
    derivation: Any  # the plan, feasible or not
    extents: Axes = {}  # noqa: RUF012  axes of the whole computation

    @property
    def axes(self) -> Axes:  # type: ignore[override]
        """Extents of the axes of the whole computation."""
        return self.extents

    @property
    def loops(self) -> tuple[TileLoop, ...]:
        """Loops over the axes, outermost first."""
        nest: Nest = self.derivation.nest
        return nest.get(self.level, ())

    def with_loops(self, level: Level, loops: tuple[TileLoop, ...]) -> Self:
        """Returns the tree with other tiles of a level's loops, and the resources that they need.

        LaunchError for loops that the operator's kernels cannot run, such as the same ones in another order.

        >>> from simgpu.operators import Softmax, SoftmaxProblem
        >>> from simgpu.operators.levels import Level, TileLoop
        >>> tree = Softmax(SoftmaxProblem(rows=2, n=1 << 20), "mi300x")
        >>> rows, _ = tree.first().loops
        >>> print(tree.with_loops(Level.BLOCK, (rows, TileLoop("n", 2048))).first().first().views[0])
        X:(1,2048)
        """
        plan = self.derivation
        wrong = "{}: no kernel has the {}'s loop '{}' here: use '{}'"
        for own, loop in zip_longest(plan.nest.get(level, ()), loops):
            if not (own and loop and replace(own, tile=loop.tile) == loop and loop.tile > 0):
                raise LaunchError(wrong.format(plan.title, level, loop, own))
        other = self.with_plan(self.fit({**plan.nest, level: loops}))
        for near, loop in zip(other.derivation.nest[level], loops, strict=True):
            if near != loop:
                raise LaunchError(wrong.format(plan.title, level, loop, near))
        return other

    def with_plan(self, plan: Any) -> Self:
        """Returns the tree with another plan of the same problem and target."""
        other = copy(self)
        vars(other).pop("views", None)  # of this plan
        other.derivation = plan
        return other

    def fit(self, nest: Nest) -> Any:
        """Returns the plan of other tiles, as near to the loops as a kernel can be. LaunchError if none is."""
        raise LaunchError(f"{self.derivation.title}: its loops are fixed")

    def clip(self, **ends: int) -> Self:
        """Returns the tree of the first indices of some axes. The operands keep their sizes in memory.

        LaunchError for an axis that the operator cannot clip, or that is shorter.

        >>> from simgpu.operators import Softmax, SoftmaxProblem
        >>> print(*Softmax(SoftmaxProblem(rows=20, n=1000), "mi300x").clip(rows=10).views)
        X:(10,1000) Y:(10,1000)
        """
        other = copy(self)
        for axis, end in ends.items():
            size = len(self.axes.get(axis, ()))
            if not 0 < end <= size:
                known = ", ".join(f"{name} ({len(extent)})" for name, extent in self.axes.items())
                raise LaunchError(f"{self.derivation.title}: axis {axis} cannot end at {end}; the axes and their ends are {known}")
            if end < size and (reason := self.whole_only(axis)):
                raise LaunchError(f"{self.derivation.title}: axis {axis} cannot end at {end} of {size}: {reason}")
            other.extents = {**other.extents, axis: Extent.whole(end)}
        return other

    def whole_only(self, axis: str) -> str:
        """Returns the reason why an axis cannot be clipped; empty if it can."""
        return "the operator cannot clip any" if axis else ""

    def __repr__(self) -> str:
        """Returns the class, the problem's fields that differ from their defaults, and the target.

        A type that defaults to "" is shown if it differs from `problem.dtype`.
        """
        given = []
        for entry in fields(self.problem):
            value = getattr(self.problem, entry.name)
            default = self.problem.dtype if entry.default == "" else entry.default
            if value != default:
                given.append(f"{entry.name}={value!r}")
        return f"<{type(self).__name__} {', '.join(given)} on {self.descriptor.name}>"

    def on(self, descriptor: HardwareDescriptor) -> Self:
        """Derives the same problem and policy again for another descriptor."""
        return type(self)(self.problem, descriptor, self.derivation.policy)  # type: ignore[call-arg]

    @property
    def plan(self) -> Any:
        """Feasible derivation. ResourceError names the violated limit and what to change."""
        return self.derivation.check()

    def constraints(self) -> tuple[Constraint, ...]:
        """Returns the plan's limits of the device level."""
        rows: tuple[Constraint, ...] = self.derivation.at(self.level)
        return rows

    def representatives(self) -> Iterator[Node]:
        """Yields the root and one node of each level below it."""
        return representatives(self)

    def _repr_html_(self) -> str:
        """Returns HTML for Jupyter: the tree, and every limit with its use; for an infeasible tree, what to change."""
        shown = f"<pre>{escape(render(self))}</pre>" if self.derivation.feasible else ""
        return shown + str(self.derivation._repr_html_())

    def tree(self) -> str:
        """Returns the tree as text, in the form of the paper's Figure 1. ResourceError if the tiles cannot fit."""
        self.derivation.check()
        return render(self)


class TileRoot(Root):
    """A root with tile nodes: its axes are lengths of the problem, its views those of a node with these axes.

    >>> from simgpu.operators import Softmax, SoftmaxProblem
    >>> print(*Softmax(SoftmaxProblem(rows=64, n=1000), "mi300x").views)
    X:(64,1000) Y:(64,1000)
    """

    below: ClassVar[Any]  # class of the blocks' nodes
    derive: Any  # function that returns the plan of problem, descriptor and policy
    refit: Any  # function that returns the plan of other loops, of a plan and the loops of each level
    lengths: ClassVar[Mapping[str, str]] = {}  # axis -> the problem's attribute with its length

    def __init__(self, problem: Any, target: str | HardwareDescriptor = "mi100", policy: str = "corrected") -> None:
        self.problem = problem
        self.descriptor = find_target(target)
        self.derivation = self.derive(problem, self.descriptor, policy=policy)
        self.extents = {axis: Extent.whole(getattr(problem, name)) for axis, name in self.lengths.items()}

    @property
    def views(self) -> tuple[View, ...]:  # type: ignore[override]
        """Windows of the operands."""
        found: tuple[View, ...] = self.below.views_of(self.derivation, self.extents)
        return found

    def fit(self, nest: Nest) -> Any:
        """Returns the plan of other tiles, as near to the loops as a kernel can be."""
        return self.refit(self.derivation, nest)

    def child(self, axes: Axes) -> Node:
        """Returns the node of a block."""
        made: Node = self.below(self.derivation, axes)
        return made


class Visitor:
    """Dispatches a node to visit_device, visit_block, visit_warp or visit_atom by its level."""

    def visit(self, node: Node, *args: Any, **more: Any) -> Any:
        """Calls the method of the node's level with the node and the other arguments."""
        return getattr(self, f"visit_{node.level}")(node, *args, **more)


def representatives(root: Node) -> Iterator[Node]:
    """Yields the root and the first node of each level below it."""
    node: Node | None = root
    while node is not None:
        yield node
        node = node.first()


def render(root: Node) -> str:
    """Returns the tree as text, one section a level, in the form of the paper's Figure 1."""
    head, *sections = [section for node in representatives(root) for section in node.describe()]
    lines = [head[0], *break_lines("  ", head[1:])]
    for number, (title, *details) in enumerate(sections, start=1):
        bar = "|" if number < len(sections) else " "
        lines += ["  |", *break_line(f"  +-- {title}", f"  {bar}       "), *break_lines(f"  {bar}     ", details)]
    return "\n".join(lines)


def break_lines(indent: str, lines: Iterable[str]) -> Iterator[str]:
    """Yields the lines after `indent`, broken where they are too long."""
    for line in lines:
        blanks = line[: len(line) - len(line.lstrip())]
        yield from break_line(indent + line, f"{indent}{blanks}  ")
