"""Attention, or its gradients, by kernels in sequence: one derivation and one root of several kernels' trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators.resources import Constraint, Derivation
from simgpu.operators.tree import Node, Root, break_lines, render


@dataclass(frozen=True)
class SequencePlan(Derivation):
    """Derivations of the kernels, in order."""

    problem: Any
    descriptor: HardwareDescriptor
    policy: str  # tile policy
    parts: tuple[Derivation, ...]

    operator: ClassVar[str]  # for messages
    names: ClassVar[tuple[str, ...]]  # of the kernels
    main: ClassVar[int] = 0  # the kernel whose limit binds if all fit

    def __str__(self) -> str:
        """Returns the listings of the kernels under one title."""
        return "\n".join((self.title, *map(str, self.parts)))

    @property
    def title(self) -> str:
        """Sizes, type and target, for messages."""
        p = self.problem
        return (
            f"{self.operator} {p.batch}x{p.heads} heads, {p.lq} queries, {p.lk} keys, d = {p.d}, {p.dtype} on "
            f"{self.descriptor.name or self.descriptor.arch}"
        )

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes that the policy decided for each kernel, as kernel.name."""
        return {
            f"{name}.{key}": value for name, part in zip(self.names, self.parts, strict=True) for key, value in part.sizes.items()
        }

    @property
    def constraints(self) -> tuple[Constraint, ...]:  # type: ignore[override]
        """Rows of all kernels, as "kernel: name". The binding row is that of the first kernel that does not fit, else of `main`."""
        worst = next((part for part in self.parts if not part.feasible), self.parts[self.main])
        return tuple(
            replace(row, name=f"{name}: {row.name}", binding=row.binding and part is worst)
            for name, part in zip(self.names, self.parts, strict=True)
            for row in part.constraints
        )


class KernelSequence(Root):
    """Root whose children are the kernels' roots, `parts`, in order; made from problem, descriptor and policy."""

    parts: tuple[Root, ...]

    def children(self) -> Iterator[Node]:
        """Yields the kernels' roots, in order."""
        return iter(self.parts)

    def representatives(self) -> Iterator[Node]:
        """Yields the root, then each kernel's levels."""
        return chain((self,), *(part.representatives() for part in self.parts))

    def constraints(self) -> tuple[Constraint, ...]:
        """Returns nothing: each kernel has its own constraints."""
        return ()

    def tree(self) -> str:
        """Returns the header, then the tree of each kernel. ResourceError if one cannot fit."""
        self.derivation.check()
        title, *details = self.describe()[0]
        head = "\n".join((title, *break_lines("  ", details)))
        return "\n\n".join((head, *(render(part) for part in self.parts)))
