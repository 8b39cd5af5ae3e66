"""FeasibilityVisitor: walks a tree with a descriptor and says whether it fits, what binds, and what to change if it does not."""

from __future__ import annotations

from dataclasses import dataclass

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators.levels import Level
from simgpu.operators.resources import Constraint, Derivation
from simgpu.operators.tree import Node, Root, Visitor


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


class FeasibilityVisitor(Visitor):
    """Checks the constraints at each level; with a descriptor, of the tree derived again for it.

    `visit(tree)` returns a FeasibilityReport; visiting a lower node returns its level's NodeReport.
    """

    def __init__(self, descriptor: HardwareDescriptor | None = None) -> None:
        self.descriptor = descriptor

    def visit_device(self, tree: Root) -> FeasibilityReport:
        """The report of the whole tree, one NodeReport a level."""
        tree = tree if self.descriptor is None else tree.on(self.descriptor)
        plan: Derivation = tree.derivation
        nodes = tuple(self._node(node) for node in tree.representatives())
        return FeasibilityReport(
            target=tree.descriptor.name or tree.descriptor.arch,
            policy=tree.derivation.policy,
            feasible=plan.feasible,
            tiles=plan.sizes,
            constraints=plan.constraints,
            binding=plan.binding,
            nodes=nodes,
            remedy=plan.remedy,
        )

    def visit_block(self, node: Node) -> NodeReport:
        """LDS, workgroup and wave limits."""
        return self._node(node)

    def visit_warp(self, node: Node) -> NodeReport:
        """Register files."""
        return self._node(node)

    def visit_atom(self, node: Node) -> NodeReport:
        """Alignment to the matrix instruction."""
        return self._node(node)

    @staticmethod
    def _node(node: Node) -> NodeReport:
        return NodeReport(
            level=node.level,
            title=node.describe()[0][0],
            tiles={view.operand: view.tile_shape for view in node.views},
            constraints=node.constraints(),
        )
