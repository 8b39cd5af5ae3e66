"""Reports whether a tree fits its target, which constraint binds, and what to change if it does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators.levels import Level
from simgpu.operators.resources import Constraint, Derivation
from simgpu.operators.tree import Node, Root


@dataclass(frozen=True)
class NodeReport:
    """Report on one level of a tree."""

    level: Level
    title: str  # title of the node
    tiles: dict[str, tuple[int, ...]]  # nominal tile of each operand
    constraints: tuple[Constraint, ...]  # constraints of this level

    @property
    def feasible(self) -> bool:
        """True if this level's hard constraints are satisfied."""
        return all(row.satisfied for row in self.constraints if row.hard)


@dataclass(frozen=True)
class FeasibilityReport:
    """Report on a whole tree.

    >>> from simgpu import operators
    >>> report = operators.FeasibilityVisitor().visit(operators.TiledComputation(256, 256, 256, target="mi300x"))
    >>> report.tiles["tile_m"], [node.title.split()[0] for node in report.nodes]
    (32, ['TiledComputation', 'BlockGemmNode', 'WarpGemmNode', 'AtomHint'])
    """

    target: str  # name of the target
    policy: str  # tile policy
    feasible: bool  # True if every hard constraint is satisfied
    tiles: dict[str, int]  # sizes that the policy decided, by name
    constraints: tuple[Constraint, ...]  # constraints of all levels
    binding: Constraint  # the constraint that stopped the tile from growing, or is violated
    nodes: tuple[NodeReport, ...]  # one a level
    remedy: str  # what to change; empty if the tree is feasible


def tree_report(tree: Root) -> FeasibilityReport:
    """Returns the report of a whole tree, one NodeReport a level."""
    plan: Derivation = tree.derivation
    return FeasibilityReport(
        target=tree.descriptor.name or tree.descriptor.arch,
        policy=tree.derivation.policy,
        feasible=plan.feasible,
        tiles=plan.sizes,
        constraints=plan.constraints,
        binding=plan.binding,
        nodes=tuple(node_report(node) for node in tree.representatives()),
        remedy=plan.remedy,
    )


def node_report(node: Node) -> NodeReport:
    """Returns the report of one level."""
    return NodeReport(
        level=node.level,
        title=node.describe()[0][0],
        tiles={view.operand: view.tile_shape for view in node.views},
        constraints=node.constraints(),
    )


class FeasibilityVisitor:
    """Visitor, named as in the paper, that returns `tree_report` or `node_report`.

    If a descriptor is passed, the tree is first derived again for that target.

    >>> from simgpu import operators
    >>> report = operators.FeasibilityVisitor().visit(operators.TiledComputation(256, 256, 256, target="mi300x"))
    >>> report.feasible, report.binding.name
    (True, 'LDS')
    """

    def __init__(self, descriptor: HardwareDescriptor | None = None) -> None:
        self.descriptor = descriptor

    def visit(self, node: Node) -> Any:
        """Returns a tree's FeasibilityReport, or the NodeReport of a node below its root."""
        if not isinstance(node, Root):
            return node_report(node)
        return tree_report(node if self.descriptor is None else node.on(self.descriptor))
