"""Finished kernels: text, resources, launch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simgpu.asm.builder.metadata import Resources, join_kernels
from simgpu.asm.builder.toolchain import SOURCE_NAME, assemble
from simgpu.hardware.errors import LaunchError

if TYPE_CHECKING:
    from simgpu.asm.builder.waits import Item

EMITTED = re.compile(r"\[([^\[\]]+:\d+)\]$")  # `simgpu.asm.builder.kernel` writes this at the end of an instruction's line


@dataclass(frozen=True, repr=False)
class EmittedKernel:
    """A kernel as text, and how to launch it. If `following` is not empty, the computation needs those kernels after it.

    >>> from simgpu import asm, operators
    >>> kernel = asm.emit(operators.TiledComputation(100, 77, 33, target="mi300x"))
    >>> kernel.operands, kernel.grid, kernel.block
    (('A', 'B', 'C'), (12, 1, 1), (256, 1, 1))
    >>> kernel.assemble()[1:4]
    b'ELF'
    """

    text: str  # assembly of this kernel only
    name: str
    target: str
    block: tuple[int, int, int]  # work-items of a workgroup
    resources: Resources  # registers and LDS that the code object requests
    grid: tuple[int, int, int] = (1, 1, 1)  # workgroups
    plan: Any = None  # the operator's plan; None for a kernel without tiles, such as one that adds parts of a sum
    scalars: tuple[int | float, ...] = ()  # arguments after the pointers, in order
    buffers: tuple[str, ...] = ()  # names of the pointers, in order
    operands: tuple[str, ...] = ()  # names of the arrays that a caller passes for the whole computation, in order
    scratch: tuple[tuple[str, int], ...] = ()  # name and bytes of scratch memory that the computation also needs
    following: tuple[EmittedKernel, ...] = ()  # kernels to launch after this one; their pointers have the same names
    items: tuple[Item, ...] = field(default=(), repr=False, compare=False)  # instructions, labels and comments, with waits inserted

    def __repr__(self) -> str:
        grid, block = ("x".join(map(str, extents)) for extents in (self.grid, self.block))
        behind = f", {len(list(self.steps)) - 1} kernel(s) behind it" if self.following else ""
        return f"<EmittedKernel {self.name} for {self.target}: grid {grid}, block {block}, {self.resources}{behind}>"

    def arguments(self, *buffers: object) -> list[object]:
        """Returns the launch's arguments: the buffers (or addresses), then `scalars`.

        LaunchError for a wrong number of buffers, or if the computation needs more than one launch.
        """
        if self.following:
            raise LaunchError(
                f"{self.name} is the first of {1 + len(self.following)} kernels that share scratch memory: "
                f"use asm.launch(kernel, device, {', '.join(self.operands)})"
            )
        if self.buffers and len(buffers) != len(self.buffers):
            raise LaunchError(f"{self.name} takes {len(self.buffers)} buffers ({', '.join(self.buffers)}), not {len(buffers)}")
        return [*buffers, *self.scalars]

    def bind(self, named: Mapping[str, object]) -> list[object]:
        """Returns the launch's arguments, with its pointers looked up by name."""
        return [*(named[name] for name in self.buffers), *self.scalars]

    @property
    def steps(self) -> Iterator[EmittedKernel]:
        """Yields this kernel and the following ones, in launch order."""
        yield self
        for kernel in self.following:
            yield from kernel.steps

    @property
    def source(self) -> str:
        """Assembly of all kernels as one file."""
        return join_kernels([kernel.text for kernel in self.steps])

    @property
    def origins(self) -> dict[str, str]:
        """Python line that emitted each instruction, by its line of `source` as the code object names it.

        For an inserted s_waitcnt or s_nop, the value is "before " and the line of the instruction that it delays.
        """
        found: dict[str, str] = {}
        delayed = ""
        lines = self.source.split("\n")
        for number in range(len(lines), 0, -1):
            line = lines[number - 1]
            if emitted := EMITTED.search(line):
                delayed = found[f"{SOURCE_NAME}:{number}"] = emitted[1]
            elif delayed and line.split()[:1] in (["s_waitcnt"], ["s_nop"]):
                found[f"{SOURCE_NAME}:{number}"] = f"before {delayed}"
        return found

    def assemble(self) -> bytes:
        """Returns the linked code object with all kernels. Raises ToolchainError."""
        return assemble(self.source, self.target)
