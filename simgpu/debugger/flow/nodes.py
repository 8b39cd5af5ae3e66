"""Nodes of an answer's graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from simgpu.debugger.flow.influence import Word
from simgpu.debugger.place import WavePlace

WHOLE = 0xFFFFFFFF


@dataclass(eq=False)
class FlowNode:
    """Bits of a register or bytes of memory at a moment, and their sources.

    Kinds: "instruction" (its result), "sum" (an element of D, by its products), "product", "stored" (memory that an instruction
    wrote), "memory" (bytes as the launch began), "argument" (of the kernel), "initial" (a register as the wave began) or
    "constant".
    """

    kind: str  # see above
    text: str = ""  # description
    word: Word | None = None  # the register
    mask: int = WHOLE  # the register's bits
    place: WavePlace | None = None  # the instruction's place
    record: int = -1  # the instruction's record
    sources: list[FlowNode] = field(default_factory=list)
    value: int | None = None  # of the register's whole word or of the memory, once known
    address: int = -1  # in device memory, for "stored" and "memory"
    size: int = 0  # bytes of memory
    factors: tuple[list[FlowNode], list[FlowNode]] = ((), ())  # type: ignore[assignment]  # of a product: elements of A and of B
    scales: list[FlowNode] = field(default_factory=list)  # for a product of a scaled instruction: A's and B's


def walk(root: FlowNode) -> Iterator[FlowNode]:
    """Yields a node and all its direct and indirect sources, each once."""
    seen = {id(root)}
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        for source in node.sources:
            if id(source) not in seen:
                seen.add(id(source))
                pending.append(source)


def leaves(root: FlowNode) -> Iterator[FlowNode]:
    """Returns the final sources of a node: arguments, memory, constants, unwritten registers."""
    return (node for node in walk(root) if not node.sources and node.kind != "product")
