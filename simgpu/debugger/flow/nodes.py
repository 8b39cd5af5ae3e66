"""The nodes of an answer: some bits at a moment, and what they came from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from simgpu.debugger.flow.influence import Word
from simgpu.debugger.place import WavePlace

WHOLE = 0xFFFFFFFF


@dataclass(eq=False)
class FlowNode:
    """Some bits at a moment, and what they came from.

    kind: "instruction" (its result), "sum" (an element of D, by its products), "product", "stored" (memory that an instruction
    wrote), "memory" (bytes as the launch began), "argument" (of the kernel), "initial" (a register as the wave began) or
    "constant"; word, mask: the register's bits; place, record: the instruction's; text: what it is, in words; value: of the
    register's word, once known.
    """

    kind: str
    text: str = ""
    word: Word | None = None
    mask: int = WHOLE
    place: WavePlace | None = None
    record: int = -1
    sources: list[FlowNode] = field(default_factory=list)
    value: int | None = None
    address: int = -1  # of memory
    size: int = 0  # bytes of memory
    factors: tuple[list[FlowNode], list[FlowNode]] = ((), ())  # type: ignore[assignment]  # of a product: an element of A, and of B
    scales: list[FlowNode] = field(default_factory=list)  # of a product of a scaled instruction: A's and B's


def every(root: FlowNode) -> Iterator[FlowNode]:
    """A node and all that it came from, each once."""
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
    """What a node came from in the end: arguments, memory, constants, what nobody wrote."""
    return (node for node in every(root) if not node.sources and node.kind != "product")
