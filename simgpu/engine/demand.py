"""Finds matrix instructions whose results reach only stored data, by the registers that addresses, branches and EXEC depend on.

The analysis goes backward from each use. A vector instruction writes active lanes only, so it ends the demand for a register only
if EXEC is the same at the use, or has all lanes at the write. Demands from there and from under another EXEC are separate.

Memory is not followed: `Demand` names the loads that decide something and the stores whose data may depend on matrix results, and
whoever leaves out the matrix instructions checks that no such load reads what such a store wrote. LDS is: if a load from it decides
something, all data in it do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simgpu.engine.numbers import EXEC, FILES, STATES, bits_of
from simgpu.hardware.errors import SimError
from simgpu.hardware.isa.code.flow import FORKS, INDIRECT, Blocks, successors
from simgpu.hardware.isa.instruction import Const, Instruction
from simgpu.hardware.isa.kinds import GPR_INDEXING, ControlKind, Flag
from simgpu.hardware.timing_rules.effects import effect_of

VECTORS = -1 << FILES["v"]  # the bits of VGPRs and AccVGPRs
# Code with these is not analysed: their targets or registers are data.
OPAQUE = INDIRECT | FORKS | GPR_INDEXING | {ControlKind.MOVRELS, ControlKind.MOVRELD, ControlKind.SETVSKIP, ControlKind.ADDPC}
ACROSS = frozenset(("mfma", "dpp", "readlane", "writelane", "permlane_swap"))  # classes that read inactive lanes, too
PARTIAL = frozenset(("dpp", "writelane", "partial_write"))  # classes that leave parts of active lanes' results as they were
REGISTER = 32  # bits
RECORD = 4  # bytes of code
VCC = 1 << STATES["vcc"]
HALVES = frozenset((Flag.PRESERVE_HIGH, Flag.WRITE_HIGH))
ALL_LANES = Const(193)  # the inline constant -1
ENTRY, FULL, UNKNOWN = 1, 2, 4  # EXEC may be as at the kernel's entry, and not written since; have all lanes; be another one


class Demand(NamedTuple):
    """Instructions of a kernel, by record."""

    unneeded: frozenset[int] = frozenset()  # matrix instructions whose results reach only stored data
    deciding: frozenset[int] = frozenset()  # loads whose values may decide addresses, branches or EXEC
    doubtful: frozenset[int] = frozenset()  # stores and atomics whose data may depend on an unneeded instruction


@dataclass(frozen=True)
class _Use:
    """An instruction's registers, as bits."""

    always: int  # demanded whenever it executes
    sources: int  # demanded if its result is
    writes: int
    data: int  # of a store or atomic: what memory gets
    across: bool  # it reads inactive lanes, too
    replaced: int  # what it writes in all lanes
    active: int  # what it writes in all active lanes
    matrix: bool = False
    loads: str = ""  # "lds" or "memory", or both, if it loads from there
    stores: str = ""  # the same
    fills: bool = False  # it sets EXEC to all lanes


class _Wanted(NamedTuple):
    """Demanded registers, as bits."""

    same: int = 0  # in lanes of the EXEC of this place
    other: int = 0  # in any lanes
    # in lanes that are outside of EXEC since the kernel's entry: only instructions that write inactive lanes wrote there
    outside: int = 0


def demand_of(code: bytes, decode: Callable[[int], Instruction], entry: int) -> Demand:
    """Returns the demand of the code that record `entry` reaches; an empty one if it cannot be followed. decode: returns the
    instruction at a record."""
    found = _reached_instructions(decode, entry, len(code) // RECORD)
    if not any(inst.spec.kind == "matrix" for inst in found.values()) or any(one.spec.control in OPAQUE for one in found.values()):
        return Demand()
    records = list(found)
    number = {record: node for node, record in enumerate(records)}
    following = [
        [number[at // RECORD] for at in dict.fromkeys(successors(found[record], RECORD * record)) if at // RECORD in number]
        for record in records
    ]
    blocks, uses = Blocks(following, [0]), list(_uses(code, found))
    lanes = _exec_before(blocks, uses)
    needed, deciding = _needed_instructions(blocks, uses, lanes, False)
    if any("lds" in uses[node].loads for node in deciding):
        needed, deciding = _needed_instructions(blocks, uses, lanes, True)
    unneeded = {node for node, use in enumerate(uses) if use.matrix} - needed
    doubtful = _doubtful(blocks, uses, unneeded | {node for node, use in enumerate(uses) if use.loads} - deciding)
    named = [frozenset(records[node] for node in nodes) for nodes in (unneeded, deciding, doubtful)]
    return Demand(*named) if unneeded else Demand()


def _reached_instructions(decode: Callable[[int], Instruction], entry: int, count: int) -> dict[int, Instruction]:
    """Returns the instructions that direct control flow reaches, the entry first."""
    found: dict[int, Instruction] = {}
    pending = [entry]
    while pending:
        record = pending.pop()
        if record in found or not 0 <= record < count:
            continue
        try:
            found[record] = decode(record)
        except SimError:
            continue
        pending += [at // RECORD for at in successors(found[record], RECORD * record)]
    return found


def _uses(code: bytes, found: Mapping[int, Instruction]) -> Iterator[_Use]:
    """Yields the use of each instruction. Unrolled loops repeat many."""
    known: dict[bytes, _Use] = {}
    for record, inst in found.items():
        words = code[RECORD * record : RECORD * record + inst.size]
        if words not in known:
            known[words] = _use_of(inst)
        yield known[words]


def _use_of(inst: Instruction) -> _Use:
    spec, effect = inst.spec, effect_of(inst)
    access, memory = effect.access, spec.memory
    reads, writes = bits_of(access.read()), bits_of(access.writes | effect.pending)
    if spec.kind == "matrix":
        return _Use(0, reads, writes, 0, True, writes, 0, matrix=True)
    active = writes & VECTORS if access.classes.isdisjoint(PARTIAL) and HALVES.isdisjoint(spec.flags) else 0
    if not access.classes.isdisjoint(("vmem", "ds")):
        data = bits_of(access.read(("data",)))
        place = "lds" if effect.lds and not effect.dma else "lds memory" if memory and memory.space == "flat" else "memory"
        load = memory is None or memory.op == "load"
        loads = place if (writes and (memory or effect.lds)) or (effect.dma and load) else ""
        stores = "lds" if effect.dma and load else place if memory and not load else ""
        narrow = memory is None or memory.bits * memory.count < REGISTER
        return _Use(reads & ~data, data, writes, data, memory is None, 0, 0 if narrow else active, False, loads, stores)
    scalar = spec.encoding.startswith("s") or spec.kind == "control"
    halves = VCC if scalar or "readlane" in access.classes else 0  # these may write one half of VCC only
    across = not access.classes.isdisjoint(ACROSS)
    loads = "memory" if spec.encoding == "smem" and memory else ""
    return _Use(
        reads if scalar or writes & EXEC else 0, reads, writes, 0, across, writes & ~VECTORS & ~halves, active, loads=loads,
        fills=inst.mnemonic == "s_mov_b64" and bool(writes & EXEC) and inst.args["src0"] == ALL_LANES,
    )  # fmt: skip


def _demanded_before(use: _Use, after: _Wanted, known: int, lds: bool) -> tuple[_Wanted, bool]:
    """Returns the demand before an instruction, and True if its result is demanded. known: what EXEC may be before it (ENTRY, FULL,
    UNKNOWN); lds: True if all data in LDS are demanded."""
    same, other, outside = after
    if use.writes & EXEC or not known & ENTRY:
        outside = 0
    inactive = use.writes & VECTORS & ~use.active & outside
    hit = bool(use.writes & (same | other) or inactive)
    if use.writes & EXEC:
        same, other = 0, same | other
    if not known & UNKNOWN:
        outside |= other & use.active if known & ENTRY else 0
        other &= ~use.active
    same, other, outside = same & ~use.replaced & ~use.active, other & ~use.replaced, outside & ~use.replaced
    wanted = use.always | (use.sources if hit else 0) | (use.data if lds and "lds" in use.stores else 0)
    if use.across or inactive:
        return _Wanted(same, other | wanted, outside), hit
    return _Wanted(same | wanted, other, outside), hit


def _exec_before(blocks: Blocks, uses: Sequence[_Use]) -> list[list[int]]:
    """Returns what EXEC may be before each node of each block: a sum of ENTRY, FULL and UNKNOWN."""

    def follow(block: int, known: int) -> list[int]:
        found = [known]
        for node in blocks.nodes[block]:
            if uses[node].writes & EXEC:
                known = FULL if uses[node].fills else UNKNOWN
            found.append(known)
        return found

    before: dict[int, int] = dict.fromkeys(blocks.entries, ENTRY)
    pending = list(blocks.entries)
    while pending:
        block = pending.pop()
        after = follow(block, before[block])[-1]
        for following in blocks.following[block]:
            had = before.get(following, 0)
            if had | after != had:
                before[following] = had | after
                pending.append(following)
    return [follow(block, before[block]) for block in range(len(blocks.nodes))]


def _needed_instructions(
    blocks: Blocks, uses: Sequence[_Use], lanes: Sequence[Sequence[int]], lds: bool
) -> tuple[set[int], set[int]]:
    """Returns the matrix instructions and the loads whose results are demanded. lanes: see `_exec_before`."""
    before = [_Wanted()] * len(blocks.nodes)
    pending = list(range(len(blocks.nodes)))  # the last block first
    waiting = set(pending)
    needed: list[set[int]] = [set() for _ in blocks.nodes]
    while pending:
        block = pending.pop()
        waiting.discard(block)
        demand = _Wanted()
        for after in blocks.following[block]:
            demand = _Wanted(*(mine | more for mine, more in zip(demand, before[after], strict=True)))
        for at, node in reversed(list(enumerate(blocks.nodes[block]))):
            use = uses[node]
            demand, hit = _demanded_before(use, demand, lanes[block][at], lds)
            scalar, to_lds = use.writes & ~VECTORS, lds and "lds" in use.stores
            if (use.matrix and hit) or (use.loads and (hit or scalar or to_lds)):
                needed[block].add(node)
        if demand != before[block]:
            before[block] = demand
            new = [one for one in blocks.preceding[block] if one not in waiting]
            waiting.update(new)
            pending += new
    found = {node for nodes in needed for node in nodes}
    return {node for node in found if uses[node].matrix}, {node for node in found if uses[node].loads}


def _doubtful(blocks: Blocks, uses: Sequence[_Use], sources: set[int]) -> set[int]:
    """Returns the stores and atomics to memory whose data may depend on these instructions, or are LDS's."""
    before: dict[int, tuple[int, int]] = {entry: (0, 0) for entry in blocks.entries}
    pending = list(blocks.entries)
    found = set()
    while pending:
        block = pending.pop()
        # Registers that may depend on one; those that do not in the lanes that are active, since EXEC was written.
        tainted, clean = before[block]
        for node in blocks.nodes[block]:
            use = uses[node]
            if "memory" in use.stores and (use.data & tainted & ~clean or not use.data):
                found.add(node)
            read = (use.always | use.sources) & (tainted if use.across else tainted & ~clean)
            if node in sources or read:
                tainted, clean = tainted | use.writes, clean & ~use.writes
            else:
                tainted, clean = tainted & ~use.replaced, clean | use.active
            if use.writes & EXEC:
                clean = 0
        for after in blocks.following[block]:
            had = before.get(after)
            made = (tainted, clean) if had is None else (had[0] | tainted, had[1] & clean)
            if made != had:
                before[after] = made
                pending.append(after)
    return found
