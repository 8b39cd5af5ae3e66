"""Makes findings of kind "uninitialized" from the events of `runtime`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.checks.uninitialized.matrix import ROLES
from simgpu.checks.uninitialized.runtime import NEVER, ORIGIN_SHIFT, PARTIAL, ROLE_SHIFT, UndefinedUse
from simgpu.engine.events import finding_of
from simgpu.engine.finding import Finding, Severity
from simgpu.engine.positions import Event, finding_at
from simgpu.hardware.isa import instruction as isa
from simgpu.machine import layout

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch

_SCALARS = {
    isa.VCC: "vcc_lo", isa.VCC + 1: "vcc_hi", isa.M0: "m0", isa.EXEC: "exec", isa.EXEC + 1: "exec_hi",
    isa.FLAT_SCRATCH: "flat_scratch_lo", isa.FLAT_SCRATCH + 1: "flat_scratch_hi",
    104: "xnack_mask_lo", 105: "xnack_mask_hi", layout.SCC // 4: "scc",
}  # fmt: skip


def register_name(offset: int) -> str:
    """Returns the name of the register at a byte offset of the wave."""
    if offset >= layout.AGPR:
        return f"a{(offset - layout.AGPR) // layout.ROW}"
    if offset >= layout.VGPR:
        return f"v{(offset - layout.VGPR) // layout.ROW}"
    number = offset // 4
    return _SCALARS.get(number, f"s{number}")


def _finding(launch: Dispatch, event: Event, what: str, place: str = "", severity: Severity = "error") -> Finding:
    origin = (event.extra >> ORIGIN_SHIFT) - 1
    earlier = origin if origin >= 0 else None
    return finding_at(launch, event.record, "uninitialized", what, earlier=earlier, event=event, place=place, severity=severity)


def _describe(event: Event, used: str) -> tuple[str, str]:
    """Returns the message for a register's use, and the register's name. used: format of the message, with {name}."""
    name = register_name(event.extra & (1 << ROLE_SHIFT) - 1)
    if event.extra & NEVER:
        state = "which nothing wrote"
    else:
        whole = event.address in (0, 0xFFFFFFFF) or name == "scc"
        holds = "which holds" if whole else f"whose bits {event.address:#010x} hold"
        loaded = event.extra >> ORIGIN_SHIFT
        state = f"{holds} data loaded from memory that nothing wrote" if loaded else f"{holds} uninitialized data"
    return f"{used.format(name=name)}, {state}", name


@finding_of(UndefinedUse.ADDRESS)
def _address(launch: Dispatch, event: Event) -> Finding:
    return _finding(launch, event, *_describe(event, "the address depends on {name}"))


@finding_of(UndefinedUse.BRANCH)
def _branch(launch: Dispatch, event: Event) -> Finding:
    return _finding(launch, event, *_describe(event, "the branch depends on {name}"))


@finding_of(UndefinedUse.EXEC)
def _exec(launch: Dispatch, event: Event) -> Finding:
    return _finding(launch, event, "EXEC gets bits that nothing defined", "exec")


@finding_of(UndefinedUse.STORE)
def _store(launch: Dispatch, event: Event) -> Finding:
    what, place = _describe(event, "device memory gets {name}")
    return _finding(launch, event, what, place, "note" if _padding(launch, event) else "error")


# Spaces whose loads may be of structs, which compilers copy with their padding. In a C++ kernel any load may be; in assembly, LDS
# and device memory are taken to hold elements.
STRUCTS = ("scratch", "flat", "buffer")
MANGLED = "_Z"  # start of a C++ kernel's name


def _padding(launch: Dispatch, event: Event) -> bool:
    """True if the stored bits look like a struct with padding between its fields: they were loaded, and some are defined."""
    inst = launch.instruction((event.extra >> ORIGIN_SHIFT) - 1)
    memory = inst.spec.memory if inst is not None else None
    if not event.extra & PARTIAL or memory is None:
        return False
    return memory.space in STRUCTS or (memory.op == "load" and launch.info.name.startswith(MANGLED))


@finding_of(UndefinedUse.MEMORY)
def _memory(launch: Dispatch, event: Event) -> Finding:
    return _finding(launch, event, "device memory gets a value made of bytes that nothing wrote")


@finding_of(UndefinedUse.MATRIX)
def _matrix(launch: Dispatch, event: Event) -> Finding:
    role = ROLES[event.extra >> ROLE_SHIFT & 15]
    return _finding(launch, event, *_describe(event, "the product takes " + role + " from {name}"))
