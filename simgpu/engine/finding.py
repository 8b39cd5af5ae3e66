"""A finding: what is wrong, where, against which other instruction, and what would be right."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from simgpu.hardware.isa import text

if TYPE_CHECKING:
    from simgpu.engine.launch import Launch

KINDS = (
    "missing-wait", "hazard", "race", "barrier", "uninitialized", "out-of-bounds", "use-after-free",
    "misaligned", "buffer", "resource", "performance",
)  # fmt: skip
Severity = Literal["error", "note"]


@dataclass(frozen=True)
class Finding:
    """Something wrong with a kernel that checked mode saw.

    kind: of `KINDS`; pc: virtual address in the code object, text: the instruction there; wave, in
    its workgroup, lanes: of the first time it was seen, count: how often it was; source: file:line or
    ""; emitter: the Python line of `asm` that emitted the instruction, or ""; other_*: the earlier
    instruction or the other side (pc None where there is none); place: the register, e.g. "v3", or
    address; needed, found: wait states or counter values, -1 where neither.
    """

    kind: str
    message: str
    pc: int
    text: str
    wave: int = 0
    lanes: tuple[int, ...] = ()
    count: int = 1
    severity: Severity = "error"
    workgroup: tuple[int, int, int] = (0, 0, 0)
    source: str = ""
    kernel: str = ""
    other_pc: int | None = None
    other_text: str = ""
    other_source: str = ""
    place: str = ""
    needed: int = -1
    found: int = -1
    emitter: str = ""
    other_emitter: str = ""

    def __str__(self) -> str:
        """For people, over several lines."""
        lines = [f"{self.severity}: {self.kind}: {self.message}", f"  at {_spot(self.pc, self.text, self.source, self.emitter)}"]
        if self.other_pc is not None:
            lines.append(f"  earlier {_spot(self.other_pc, self.other_text, self.other_source, self.other_emitter)}")
        who = f"workgroup {self.workgroup}, wave {self.wave}"
        if self.lanes:
            who += f", lanes {lane_ranges(self.lanes)}"
        times = "once" if self.count == 1 else f"{self.count} times"
        lines.append(f"  {self.kernel + ': ' if self.kernel else ''}{who}; seen {times}")
        return "\n".join(lines)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def _spot(pc: int, shown: str, *lines: str) -> str:
    where = ", ".join(line for line in lines if line)
    return f"{pc:#x} `{shown}`" + (f" ({where})" if where else "")


def lane_ranges(lanes: tuple[int, ...]) -> str:
    """Lane numbers as 0-3,7."""
    ranges: list[list[int]] = []
    for lane in lanes:
        if ranges and ranges[-1][1] == lane - 1:
            ranges[-1][1] = lane
        else:
            ranges.append([lane, lane])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def lanes_of(mask: int) -> tuple[int, ...]:
    """The lanes of a 64-bit mask."""
    return tuple(lane for lane in range(64) if mask >> lane & 1)


@dataclass(frozen=True)
class Place:
    """A record as a finding names it."""

    pc: int
    text: str
    source: str


def place_of(launch: Launch, index: int) -> Place:
    """Virtual address, text and source line of a record."""
    inst = launch.instruction(index)
    pc = launch.program.base + 4 * index - launch.kernel.module.bias
    line = launch.kernel.module.code.source_line(pc)
    return Place(pc, text(inst) if inst is not None else "", line or "")
