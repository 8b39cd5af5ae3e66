"""Whether a tree fits its target, which constraint binds, and what to change where it does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators.levels import Level
from simgpu.operators.resources import Constraint, Derivation
from simgpu.operators.tree import Node, Root


@dataclass(frozen=True)
class NodeReport:
    """One level: its title, the nominal tile of each operand, and the constraints that belong to it."""

    level: Level
    title: str
    tiles: dict[str, tuple[int, ...]]
    constraints: tuple[Constraint, ...]

    @property
    def feasible(self) -> bool:
        """Whether this level's hard constraints are satisfied."""
        return all(row.satisfied for row in self.constraints if row.hard)


@dataclass(frozen=True)
class FeasibilityReport:
    """The answer for a whole tree. `tiles` holds what the policy decided; `remedy` is empty if the tree is feasible."""

    target: str
    policy: str
    feasible: bool
    tiles: dict[str, int]
    constraints: tuple[Constraint, ...]
    binding: Constraint
    nodes: tuple[NodeReport, ...]
    remedy: str


def tree_report(tree: Root) -> FeasibilityReport:
    """The report of a whole tree, one NodeReport a level."""
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
    """The report of one level."""
    return NodeReport(
        level=node.level,
        title=node.describe()[0][0],
        tiles={view.operand: view.tile_shape for view in node.views},
        constraints=node.constraints(),
    )


class FeasibilityVisitor:
    """The paper's name for `tree_report` and `node_report`; with a descriptor, of the tree derived again for it."""

    def __init__(self, descriptor: HardwareDescriptor | None = None) -> None:
        self.descriptor = descriptor

    def visit(self, node: Node) -> Any:
        """A tree's FeasibilityReport, or the NodeReport of a node below its root."""
        if not isinstance(node, Root):
            return node_report(node)
        return tree_report(node if self.descriptor is None else node.on(self.descriptor))
