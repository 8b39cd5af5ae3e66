"""A finding: what is wrong, where, against which other instruction, and what would be right."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from simgpu.hardware.isa import text

if TYPE_CHECKING:
    from simgpu.engine.events import Report
    from simgpu.engine.launch import Launch

Severity = Literal["error", "note"]
CHECK_FAILED = "internal-error"  # a kind, see `Finding.is_internal`


@dataclass(frozen=True)
class Finding:
    """Something wrong with a kernel that checked mode saw. Workgroup: the lowest; wave and lanes: its first."""

    kind: str  # what is wrong, docs/check.md lists them: "missing-wait", "race", ...
    message: str
    pc: int  # virtual address of the instruction in the code object
    text: str  # the instruction there
    wave: int = 0  # in its workgroup
    lanes: tuple[int, ...] = ()
    count: int = 1  # how often it was seen; 0 where nothing ran (`simgpu lint`)
    severity: Severity = "error"
    workgroup: tuple[int, int, int] = (0, 0, 0)
    source: str = ""  # file:line, or ""
    kernel: str = ""
    other_pc: int | None = None  # the earlier instruction, or the other side of a race; None where there is none
    other_text: str = ""
    other_source: str = ""
    place: str = ""  # the register, e.g. "v3", or the address
    needed: int = -1  # wait states or a counter's value; -1 where neither
    found: int = -1
    emitter: str = ""  # the Python line of `asm` that emitted the instruction, or ""
    other_emitter: str = ""

    @property
    def is_internal(self) -> bool:
        """Whether it is a check's own error, which says nothing of the kernel."""
        return self.kind == CHECK_FAILED

    def __str__(self) -> str:
        """For people, over several lines."""
        lines = [f"{self.severity}: {self.kind}: {self.message}", f"  at {_spot(self.pc, self.text, self.source, self.emitter)}"]
        if self.other_pc is not None:
            lines.append(f"  earlier {_spot(self.other_pc, self.other_text, self.other_source, self.other_emitter)}")
        lines.append(f"  {self.kernel + ': ' if self.kernel else ''}{self._who()}")
        return "\n".join(lines)

    def _who(self) -> str:
        """Which wave met it and how often; on what path, where nothing ran."""
        if not self.count:
            return "on some path"
        who = f"workgroup {self.workgroup}, wave {self.wave}"
        if self.lanes:
            who += f", lanes {lane_ranges(self.lanes)}"
        return f"{who}; seen {_times(self.count)}"

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def _spot(pc: int, shown: str, *lines: str) -> str:
    where = ", ".join(line for line in lines if line)
    return f"{pc:#x} `{shown}`" + (f" ({where})" if where else "")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def wait_message(place: str, what: str, earlier: str, waits: str) -> str:
    """What a missing s_waitcnt means. what: read, overwritten, or ended for LDS that a load is yet to write when the wave ends."""
    wanted = f"s_waitcnt {waits} is needed before it"
    if what == "ended":
        return f"the wave ends while `{earlier}` may still write its LDS: {wanted}"
    return f"{place} is {what} before `{earlier}` is sure to have written it: {wanted}"


def hazard_message(rule: str, place: str, earlier: str, needed: int, found: int) -> str:
    """What too few wait states mean, and the s_nop that would do."""
    about = f" ({place})" if place else ""
    lacking = needed - found
    nops = " and ".join(f"s_nop {min(8, lacking - at) - 1}" for at in range(0, lacking, 8))
    return f"{rule}{about}: {found} wait states lie behind `{earlier}`, {needed} are needed; {nops} would do"


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
class Location:
    """Where an instruction stands in the code object."""

    pc: int  # virtual address
    text: str  # as LLVM prints it
    source: str  # file:line, or ""


def location_of(launch: Launch, record: int) -> Location:
    """The location of a record's instruction."""
    inst = launch.instruction(record)
    pc = launch.program.base + 4 * record - launch.kernel.module.bias
    line = launch.kernel.module.code.source_line(pc)
    return Location(pc, text(inst) if inst is not None else "", line or "")


def finding_at(
    launch: Launch, record: int, kind: str, message: str, *,
    earlier: int | None = None, event: Report | None = None, **fields: Any,
) -> Finding:  # fmt: skip
    """A finding at a record's instruction.

    earlier: record of the other instruction that it names; event: what a handler reported, whose wave, lanes and count it has.
    """
    here = location_of(launch, record)
    if earlier is not None:
        there = location_of(launch, earlier)
        fields |= {"other_pc": there.pc, "other_text": there.text, "other_source": there.source}
    if event is not None:
        seen = {"wave": event.wave, "workgroup": event.workgroup, "lanes": lanes_of(event.lanes), "count": event.count}
        fields = seen | fields
    return Finding(kind, message, here.pc, here.text, source=here.source, kernel=launch.info.name, **fields)
