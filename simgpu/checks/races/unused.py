"""Finds races that have no effect: nobody uses the value that the wave loaded.

If a block has fewer elements than the program has threads, several waves load it, and one stores it. If it is updated in place,
the loads of the others race with the store. A loaded value has no effect outside of the wave's registers under two conditions.
On every path it goes only into registers and into the data of stores, not into an address or a special register. And no lane of
the wave writes by one of these stores (`uses`). A branch or a mask of lanes may depend on it if all paths after it meet again
and only write registers before that (`reconvergence`).

A load that no wave uses is reported as usual, and so is one that all waves may use.

A dword's cells hold only two readers, so a racing wave may be missing from them. A race is reported as usual if such an unseen
reader of the same memory, in the same epochs, may use its value. It is also reported as usual if the waves are of different
workgroups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simgpu.checks.races.lanes import ACROSS_LANES, is_vector, narrows, overwritten_registers
from simgpu.checks.races.reconvergence import region
from simgpu.checks.races.uses import SEVERAL, USE
from simgpu.engine.program import Program
from simgpu.hardware.isa.code.flow import INDIRECT
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import STATE_BRANCHES
from simgpu.hardware.timing_rules.effect import Effect
from simgpu.hardware.timing_rules.register_use import Register

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch

Stores = frozenset[int] | None  # records; None if the value also goes elsewhere
DependentRegisters = tuple[
    frozenset[Register], frozenset[Register]
]  # registers that depend on the value: in active lanes, in others
ALL_WAVES = (1 << 16) - 1  # waves of a workgroup, as bits
SCRATCH = "scratch_"  # no other wave sees a spilled value, but it comes back
PLAIN = frozenset(("vcc", "scc"))  # registers without a number that are data


def is_unused(launch: Dispatch, load: int) -> bool:
    """True if a load's races have no effect: some waves may use its value, but none that races. load: its record."""
    kept = launch.checks.setdefault("unused", {})
    if load not in kept:
        table = _table(launch)
        use = table[load]
        kept[load] = (
            not use["crossed"]
            and _users(launch, table, load, ALL_WAVES) not in (0, ALL_WAVES)
            and not _users(launch, table, load, use["raced"])
            and not _is_unseen(launch, table, use)
        )
    return bool(kept[load])


def _is_unseen(launch: Dispatch, table: np.ndarray, use: np.ndarray) -> bool:
    """True if an unseen reader may have raced in the same area and epochs as a load, and may use its value."""
    writers = int(use["writers"])
    alone = writers if writers & (writers - 1) == 0 else 0  # a wave does not race with itself
    there = (table["unseen_in"] == use["raced_in"]) | (table["unseen_in"] == SEVERAL) | (use["raced_in"] == SEVERAL)
    then = (table["unseen_first"] <= use["raced_last"]) & (table["unseen_last"] >= use["raced_first"])
    concerned = np.flatnonzero((table["unseen"] != 0) & there & then)
    return any(_users(launch, table, int(at), int(table[at]["unseen"]) & ~alone) for at in concerned)


def _table(launch: Dispatch) -> np.ndarray:
    """Returns `uses.RecordUse` by record, of all workers."""
    whole = launch.checks["uses"][0].view(USE).copy()
    for worker in (table.view(USE) for table in launch.checks["uses"][1:]):
        for name in whole.dtype.names:
            held, more = whole[name], worker[name]
            if name.endswith("_in"):
                both = np.where(held == more, held, SEVERAL)
            else:
                both = np.minimum(held, more) if name.endswith("_first") else np.maximum(held, more)
            if name.endswith(("_in", "_first")):  # 0: none
                whole[name] = np.where(held == 0, more, np.where(more == 0, held, both))
            else:
                whole[name] = both if name.endswith("_last") else held | more
    return whole


def _users(launch: Dispatch, table: np.ndarray, load: int, waves: int) -> int:
    """Returns the waves, as bits and among `waves`, that may use the value of a load."""
    program = launch.program
    key = "unused", load
    if key not in program.kept:
        program.kept[key] = stores_of(program, load)
    stores = program.kept[key]
    if stores is None:
        return int(waves)
    return int(waves) & int(np.bitwise_or.reduce(table["wrote"][sorted(stores)], initial=0))


def stores_of(program: Program, load: int) -> Stores:
    """Returns the stores whose data may depend on a load's value, on any path; None if anything else may depend on it."""
    inst = program.instructions.get(load)
    if inst is None or inst.spec.memory is None or inst.spec.memory.op != "load" or program.effect(load).dma:
        return None
    if any(inst.mods.get(bit) for bit in ("glc", "sc0", "sc1")):  # loads that order others
        return None
    first: DependentRegisters = program.effect(load).access.writes, frozenset()
    held: dict[int, DependentRegisters] = {}
    pending = [(at, first) for at in program.following(load)]
    stores: set[int] = set()
    while pending:
        at, (active, other) = pending.pop()
        before = held.get(at, (frozenset(), frozenset()))
        active, other = active | before[0], other | before[1]
        if at in held and (active, other) == before:
            continue
        held[at] = active, other
        inst = program.instructions.get(at)
        if inst is None:
            return None
        if _decides(inst, program.effect(at), active, other):
            ways = region(program, at)
            if ways is None:
                return None
            pending.append((ways.end, (active | ways.writes, other)))
            continue
        behind = _dependents_after(inst, program.effect(at), active, other)
        if behind is None:
            return None
        if inst.spec.memory is not None and program.effect(at).access.read(("data",)) & active:
            stores.add(at)
        pending += [(following, behind) for following in program.following(at)]
    return frozenset(stores)


def _dependents(effect: Effect, active: frozenset[Register], other: frozenset[Register]) -> frozenset[Register]:
    """Returns the registers that depend on the value, as an instruction sees them."""
    across = bool(effect.access.classes & ACROSS_LANES) or "ds" in effect.access.classes
    return active | frozenset(register for register in other if across or not is_vector(register))


def _decides(inst: Instruction, effect: Effect, active: frozenset[Register], other: frozenset[Register]) -> bool:
    """True if the wave's path or its active lanes depend on the value."""
    moves = inst.spec.control in STATE_BRANCHES or "exec" in effect.access.writes
    return moves and bool(_dependents(effect, active, other) & effect.access.read())


def _dependents_after(
    inst: Instruction, effect: Effect, active: frozenset[Register], other: frozenset[Register]
) -> DependentRegisters | None:
    """Returns the registers that depend on the value after an instruction, None if anything but registers and stores depends on
    it."""
    access = effect.access
    known = _dependents(effect, active, other)
    made: frozenset[Register] = frozenset()
    if known & access.read():
        if inst.spec.kind == "control" or access.classes & {"movrel", "setreg", "sendmsg"}:
            return None
        if inst.spec.memory is not None and (inst.mnemonic.startswith(SCRATCH) or known & _not_data(effect)):
            return None
        made = access.writes
        if any(isinstance(register, str) and register not in PLAIN for register in made):
            return None
    if inst.spec.control in INDIRECT and active | other:
        return None
    gone = overwritten_registers(inst, effect)
    active = (active - gone) | made
    other = frozenset(register for register in other if is_vector(register) or register not in gone)
    if "exec" in access.writes:
        active, other = (active, other | active) if narrows(inst) else (active | other, active | other)
    return active, other


def _not_data(effect: Effect) -> frozenset[Register]:
    """Returns the registers that a memory instruction reads for its address."""
    return frozenset().union(*(registers for role, registers in effect.access.reads if role != "data"))
