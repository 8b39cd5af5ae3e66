"""Lowers instructions to records: decodes the code that a wave can reach, compiles handlers, and fills the records' slots.

Lowering follows control flow from a wave's current record. Records nearby that were not lowered have a handler that returns
LOWER; records far from lowered code are empty. Targets of indirect jumps are lowered at their first use.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from simgpu.alu.control import NO_EFFECT, RESUMED, Control
from simgpu.engine.demand import Demand, demand_of
from simgpu.engine.failures import CheckFailed, name_of
from simgpu.engine.lowering import ahead
from simgpu.engine.lowering.handlers import FIXED, compile_handler, falling_through_of, fault, skipping
from simgpu.engine.lowering.turns import lets_others_on
from simgpu.engine.numbers import NumberFlow
from simgpu.engine.workers import running
from simgpu.engine.workers.desk import RecordCounts
from simgpu.hardware.errors import DecodeError, ForeignInstruction, SimError
from simgpu.hardware.isa import decode
from simgpu.hardware.isa.code.flow import INDIRECT, successors
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.effect import Effect
from simgpu.hardware.timing_rules.effects import effect_of, effect_of_code
from simgpu.machine import layout
from simgpu.machine.compiling.batch import Batch
from simgpu.machine.frame import Hooks
from simgpu.machine.host_memory import aligned_bytes
from simgpu.machine.jit import Compiler, pause_gc
from simgpu.machine.layout import SLOTS, Fault
from simgpu.machine.mode import Mode
from simgpu.machine.operands import BadRegister, Plan
from simgpu.matrix import element_registers, fma_tile, tiles

FILLED = 1024  # records that get the LOWER handler at once

T = TypeVar("T")


class Program:
    """Records of one code region in one mode, one per dword of code. base: device address of the code.

    fuse: True if a record may do the work of the next ones (`matrix.tiles`) or have a lean handler (see `complete`); False if the
    caller reads registers between instructions
    starts: uint8 (count + 9,), 1 at the first record of each lowered instruction; programs of the same code share it
    """

    def __init__(
        self, code: bytes, base: int, target: str, mode: Mode, compiler: Compiler,
        checks: Sequence[Hooks] = (), fuse: bool = True, starts: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.code = code
        self.base = base
        self.target = target
        self.mode = mode
        self.compiler = compiler
        self.checks = tuple(checks)
        self.failures: list[tuple[int, CheckFailed]] = []  # checks that failed in a record's handler; later handlers omit them
        self.count = len(code) // 4
        # Filled only near lowered code, because a module may have far more code than the kernels that run.
        fits = all(check.values and (check.sums or (check.tiles and not mode.ring)) for check in checks)
        self._fuse = fuse and fits and not mode.indexed and not mode.skips
        # Records after the last of the code are for tiles whose instructions run one by one (`_set_apart`).
        self._next_apart, room = self.count + 1, 2 * self.count if self._fuse and checks else 0
        self.records = aligned_bytes((self.count + 1 + room) * layout.RECORD).view(np.uint32).reshape(-1, SLOTS)
        self._filled: set[int] = set()  # pieces of FILLED records
        self.instructions: dict[int, Instruction] = {}
        self.problems: dict[int, str] = {}
        self._seen: dict[int, Instruction] = {}  # decoded instructions by record
        self._leans = fuse
        # Records that control may enter other than from the previous instruction, and records of instructions that control may
        # leave other than to the next one.
        self._entered: set[int] = set()
        self._left: set[int] = set()
        self._indirect = False  # True if a jump may lead anywhere
        self.fused: dict[int, tuple[int, ...]] = {}  # all records of a tile, by each of them
        self._holding = 0  # D's of tiles that leave elements of a ring there, as bits (`tiles.registers_of`)
        self._since: dict[int, int] = {}  # by first record of a tile that shares factors with earlier ones: where their run begins
        self._releasing: set[int] = set()  # records of instructions that first make registers floats again
        self._tables: list[np.ndarray] = []  # tables of all tiles; never freed, as handlers may be reading them
        self.kept: dict[tuple[str, int], Any] = {}  # facts about the code, by name and entry
        self.counts: list[RecordCounts] = []  # zeroed counts for workers of later launches
        self.starts = np.zeros(self.count + 9, np.uint8) if starts is None else starts
        self.version = 0  # changes whenever instructions are lowered
        self._known: dict[Callable[[Instruction], Any], dict[int, Any]] = {}  # facts about instructions, by record
        self._following: dict[int, list[int]] = {}
        self._batch = Batch(compiler)
        self._handlers: dict[int, int] = {}  # `Batch.address` by record, for `_publish`
        self._complete: dict[str, bool] = {}  # by handler's key, see `_has_complete`
        self.floats = NumberFlow(self._decode, self.count) if mode.ring else None
        self.demands: dict[int, Demand] = {}  # by entry, if matrix instructions that reach only stored data are left out
        self._omits = bool(checks) and not any(check.values for check in checks)
        self._unneeded: frozenset[int] = frozenset()
        self._plain = replace(mode, ring=False)
        self._lock = threading.Lock()

    @functools.cached_property
    def address(self) -> int:
        """Host address of the first record."""
        return int(self.records.ctypes.data)

    def effect(self, index: int) -> Effect:
        """Returns the `Effect` of a lowered instruction."""
        known = self._known.setdefault(effect_of, {})
        if index not in known:
            known[index] = effect_of_code(self._code_of(index, self.instructions[index]), self.target)
        return known[index]

    def _code_of(self, index: int, inst: Instruction) -> bytes:
        """Returns the bytes of the instruction at a record."""
        return self.code[4 * index : 4 * index + inst.size]

    def map_instructions(self, function: Callable[[Instruction], T], records: Iterable[int] | None = None) -> dict[int, T]:
        """Returns function(instruction) of lowered instructions, by record. Results are cached by function. Default: all."""
        with self._lock:
            known, lowered = self._known.setdefault(function, {}), self.instructions
            wanted = lowered if records is None else records
            known |= {index: function(lowered[index]) for index in wanted if index not in known}
            return {index: known[index] for index in wanted}

    def begin_at(self, index: int) -> None:
        """Notes a record as the entry of a kernel, before code of the kernel is lowered: its registers hold no floats there."""
        if self.floats is not None:
            with self._lock:
                self.floats.follow(index, first=True)

    def is_lowered(self, index: int) -> bool:
        """True if `lower` would do nothing at record `index`."""
        known = index in self.instructions or index in self.problems
        return known and index in self._entered and index not in self._handlers

    def lower(self, index: int, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Lowers all code that direct control flow reaches from record `index`. Stops early if `goes_on` returns False."""
        with self._lock, pause_gc():
            before = len(self.instructions)
            self.version += 1
            if self.floats is not None:
                self.floats.follow(index, first=False)
            if self._omits and not self._indirect:
                self.demands[index] = demand_of(self.code, self._decode, index)
                self._unneeded |= self.demands[index].unneeded
            self._entered.add(index)
            pending = [index]
            while pending:
                at = pending.pop()
                while at not in self.instructions and at not in self.problems and goes_on():
                    following = self._lower_one(at)
                    if not following:
                        break
                    pending.extend(following[1:])
                    at = following[0]
            if self._fuse:
                changed = self._separate()
                fresh = itertools.islice(reversed(self.instructions.values()), len(self.instructions) - before)
                if any(inst.spec.kind == "matrix" for inst in fresh):
                    self._join()
                    changed = True
                self._guard()
                if changed:
                    self._pass_over()
            if before == 0:
                self._batch.address_of_source(running.LOOP, running.loop_source)  # which a launch also needs
            self._batch.finish(goes_on)
            self._publish()
        if self.compiler.compiled:
            ahead.begin(self.target, self.compiler)

    def complete(self, index: int, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Replaces a record's lean handler by the complete one, which never returns WHOLE. Stops early if `goes_on` returns
        False."""
        with self._lock, pause_gc():
            self._checked_place(index, self.instructions[index], lean=False)
            self._batch.finish(goes_on)
            self._publish()

    def reachable(self, index: int) -> set[int]:
        """Returns the lowered records that direct control flow reaches from record `index`."""
        found: set[int] = set()
        pending = [index]
        while pending:
            at = pending.pop()
            if at in self.instructions and at not in found:
                found.add(at)
                pending += self._following[at]
        return found

    def executable(self, index: int) -> set[int]:
        """Returns the lowered records that a wave at record `index` may execute: all if its code jumps through a register."""
        found = self.reachable(index)
        if any(self.instructions[at].spec.control in INDIRECT for at in found):
            return set(self.instructions)
        return found

    def is_settled(self, records: Iterable[int]) -> bool:
        """True if control flow from these lowered records leads only to them: what is lowered later does not change that."""
        inside = set(records)
        left = {after for at in inside for after in self._following[at]} - inside
        return left <= self.problems.keys() and not any(self.instructions[at].spec.control in INDIRECT for at in inside)

    def may_meet(self, index: int) -> bool:
        """True if a wave at record `index` may reach an s_barrier. Code after a computed jump counts as having one."""
        key = "barrier", index
        if key not in self.kept:
            found = {self.instructions[at].spec.control for at in self.reachable(index)}
            self.kept[key] = not found.isdisjoint((ControlKind.BARRIER, *INDIRECT))
        known: bool = self.kept[key]
        return known

    def following(self, index: int) -> list[int]:
        """Returns the successors of a lowered record by direct control flow."""
        return self._following[index]

    def _separate(self, everything: bool = False) -> bool:
        """Splits tiles that control may now enter in the middle, or all tiles. Returns True if it split any."""
        before = len(self.fused)
        for members in set(self.fused.values()):
            midst = set(range(self._since.get(members[0], members[0]) + 1, members[-1] + 1))
            if not everything and not self._indirect and not self._entered & midst:
                continue
            for at in members:
                del self.fused[at]
                self._place(at, self.instructions[at])
        return len(self.fused) < before

    def _join(self) -> None:
        """Makes tiles of consecutive instructions that certainly run in sequence."""
        if self._indirect:
            return
        runs: list[list[tuple[int, Instruction]]] = [[]]
        expected = -1
        for at in sorted(self.instructions):
            if at != expected or at in self._entered or at in self._left:
                runs.append([])
            if at not in self._left:
                runs[-1].append((at, self.instructions[at]))
            expected = at + self.instructions[at].size // 4
        found = [(run, list(tiles.tiles(run, self.fused, self.mode.ring))) for run in runs
                 if sum(inst.spec.kind == "matrix" for _, inst in run) >= 2]  # fmt: skip
        for tile in (tile for _, of_run in found for tile in of_run if fma_tile.keeps_elements(tile.first, self.mode.ring)):
            for _, inst in tile.steps[0]:
                self._holding |= tiles.registers_of(inst, ("vdst",))
        for run, of_run in found:
            self._join_run(run, of_run)

    def _join_run(self, run: list[tuple[int, Instruction]], found: list[tiles.Tile]) -> None:
        lists = tiles.factor_lists(run, found) if self.mode.ring else [[] for _ in found]
        for tile, factors in zip(found, lists, strict=True):
            tests = [check for check in self.checks if not check.sums and check.concerns(tile.first)]
            if (apart := self._set_apart(tile) if tests else 0) is None:
                continue
            if fma_tile.keeps_elements(tile.first, self.mode.ring):
                self._since[tile.records[0]] = run[0][0]
                if self._reads_held(tile.records):
                    self._releasing.add(tile.records[0])
            table = np.array([*tile.table, *factors, *(tiles.register_blocks(tile) if tests else [])], np.uint32)
            self._tables.append(table)
            plan = Plan(tile.first)
            for word in (0, table.ctypes.data, table.ctypes.data >> 32, *[apart] * bool(tests)):
                plan.word(word)
            count = len(tile.steps[0])
            plan.note(f"tile={count}", *(f"{name}={value}" for name, value in sorted(tile.first.mods.items())))
            emitter = functools.partial(fma_tile.emit_tile, inst=tile.first, count=count, ring=self.mode.ring, tests=tests)
            plan.note("ring" * self.mode.ring, *(f"tested={check.kind.__name__}" for check in tests))
            first, *others = tile.records
            alike = [check for check in self.checks if check not in tests]
            handler = compile_handler(tile.first, plan, emitter, self._batch, alike, first in self._releasing)
            self._set(first, handler, plan.slots)
            for at in others:
                self._set(at, self._fixed_address("idle"), [])
            self.fused |= dict.fromkeys(tile.records, tile.records)

    def _set_apart(self, tile: tiles.Tile) -> int | None:
        """Copies the records of a tile's instructions, as they run one by one, to where no other code is.

        They continue after the tile's first instruction. Returns the bytes to them from its record, None if there is no room.
        """
        first, start = tile.records[0], self._next_apart
        if start + 2 * sum(self.instructions[at].size // 4 for at in tile.records) > len(self.records):
            return None
        for at, following in zip(tile.records, (*tile.records[1:], -1), strict=True):
            place, size = self._next_apart, self.instructions[at].size // 4
            self.records[place] = self.records[at]
            if at in self._handlers:
                self._handlers[place] = self._handlers[at]
            self._next_apart += size
            if at + size != following:
                beyond = first + self.instructions[first].size // 4 - self._next_apart if following < 0 else 1
                self._set(self._next_apart, self._fixed_address("idle"), [beyond * layout.RECORD & 0xFFFFFFFF])
                self._next_apart += 1
        return (start - first) * layout.RECORD

    def _guard(self) -> None:
        """Makes instructions outside tiles release the registers in which tiles leave elements of a ring, before they use them.

        Tiles do so for their factors. One that was made before a later tile's D's were known is split.
        """
        if not self._holding:
            return
        for members in set(self.fused.values()):
            if members[0] not in self._releasing and self._reads_held(members):
                for at in members:
                    del self.fused[at]
        for at, inst in self.instructions.items():
            if at in self.fused or at in self._releasing:
                continue
            if tiles.registers_of(inst) & self._holding or element_registers.changes_mode(inst):
                self._releasing.add(at)
                self._place(at, inst)

    def _reads_held(self, records: Iterable[int]) -> bool:
        """True if factors of matrix instructions may be registers that hold elements."""
        return any(tiles.registers_of(self.instructions[at], ("src0", "src1")) & self._holding for at in records)

    def _pass_over(self) -> None:
        """Makes instructions of tiles skip the next ones, whose work the first of their tile does."""
        behind: dict[int, int] = {}
        for at in sorted(self.fused, reverse=True):
            after = at + self.instructions[at].size // 4
            after = behind.get(after, after)
            self.records[at, fma_tile.NEXT_SLOT] = (after - at) * layout.RECORD
            if at != self.fused[at][0]:
                behind[at] = after

    def patch(self, offset: int, data: bytes) -> None:
        """Replaces instructions at byte `offset` of the code. The bytes before and after are whole instructions."""
        self.code = self.code[:offset] + data + self.code[offset + len(data) :]
        self.kept.clear()
        self._separate(everything=True)
        for index in range(offset // 4, (offset + len(data)) // 4):
            tables: tuple[dict[int, Any], ...] = (self.instructions, self.problems, self._seen, *self._known.values())
            for table in tables:
                table.pop(index, None)
        self.lower(offset // 4)

    def _fill(self, index: int) -> None:
        """Gives the record and its neighbours the handler that returns LOWER, once."""
        piece = index // FILLED
        if piece in self._filled:
            return
        self._filled.add(piece)
        first, end = piece * FILLED, min((piece + 1) * FILLED, self.count + 1)
        self.records[first:end, layout.SLOT_INDEX] = np.arange(first, end)
        self._fence()
        self.records.view(np.uint64)[first:end, 0] = self._fixed_address("lower")

    def _lower_one(self, index: int) -> list[int]:
        """Lowers one record. Returns its successors; none if it cannot be executed."""
        self._fill(self._clamp(index))
        if not 0 <= index < self.count:
            self._fault(min(max(index, 0), self.count), Fault.JUMP, "the code ends here")
            return []
        try:
            inst = self._decode(index)
        except ForeignInstruction as error:
            return self._mark_unsupported(index, str(error))
        except DecodeError as error:
            self._fault(index, Fault.UNDECODABLE, str(error))
            return []
        try:
            following = self._checked_place(index, inst)
        except BadRegister as error:
            self._fault(index, Fault.REGISTER, str(error))
            return []
        except SimError as error:
            return self._mark_unsupported(index, str(error))
        except Exception as error:  # an internal error only stops the kernels that execute it, with a message
            why = f"internal: {type(error).__name__}: {error} in the lowering of {inst.mnemonic}"
            return self._mark_unsupported(index, why)
        self.instructions[index] = inst
        self.starts[index] = 1
        self._following[index] = [self._clamp(at) for at in following]
        for at in self._following[index]:
            self._fill(at)  # in case lowering stops before it
        return self._following[index]

    def _mark_unsupported(self, index: int, why: str) -> list[int]:
        self.problems[index] = why
        self._set(index, self._faulting, [])
        return []

    def _clamp(self, index: int) -> int:
        return index if 0 <= index < self.count else self.count

    def _fault(self, index: int, kind: int, why: str) -> None:
        self.problems[index] = why
        key = f"fault{int(kind)}"
        self._set(index, self.compiler.address(key, fault(kind)), [])

    def _set(self, index: int, handler: int, slots: list[int]) -> None:
        self.records[index, 2 : 2 + len(slots)] = slots
        self._handlers[index] = handler

    def _publish(self) -> None:
        """Writes the addresses of compiled handlers into their records, after all slots: other threads may run these records.

        A computed jump into newly lowered code reads the handler first (`Frame.jump_record`).
        """
        settled = {index: self._settle(index, handler) for index, handler in self._handlers.items()}
        made = {index: address for index, address in settled.items() if address is not None}
        # A tile comes after the instructions that release its registers.
        for chosen in (made.keys() & self._releasing, made.keys() - self._releasing):
            self._fence()
            places = np.fromiter(chosen, np.int64, len(chosen))
            self.records.view(np.uint64)[places, 0] = np.fromiter((made[at] for at in chosen), np.uint64, len(chosen))
        for index in made:
            del self._handlers[index]

    def _settle(self, index: int, handler: int) -> int | None:
        """Returns the address of a record's handler, None if it is not compiled yet: the record keeps its old handler."""
        try:
            return self._batch.settle(handler)
        except SimError as error:
            self.problems[index] = str(error)
            return self._faulting

    @property
    def _faulting(self) -> int:
        """Address of the handler that returns UNSUPPORTED."""
        return self._fixed_address("unsupported")

    def _fixed_address(self, key: str) -> int:
        return self.compiler.address(key, FIXED[key])

    def _fence(self) -> None:
        """Orders this thread's stores before it and after it."""
        ctypes.CFUNCTYPE(None)(self._fixed_address("fence"))()

    def _has_complete(self, key: str) -> bool:
        """True if the complete handler for `key` was cached when this program first asked. The cache's files are slow to ask."""
        if key not in self._complete:
            self._complete[key] = self.compiler.find(key) is not None
        return self._complete[key]

    def _checked_place(self, index: int, inst: Instruction, lean: bool = True) -> list[int]:
        """Calls `_place`. Drops each check that fails, and tries again."""
        while True:
            try:
                return self._place(index, inst, lean)
            except CheckFailed as error:
                self.failures.append((index, error))
                self.checks = tuple(check for check in self.checks if name_of(check) != error.name)

    def _decode(self, index: int) -> Instruction:
        """Returns the instruction at a record, decoded at its first use."""
        if index not in self._seen:
            self._seen[index] = decode(self.code, 4 * index, self.target)
        return self._seen[index]

    def _instructions_after(self, index: int, inst: Instruction) -> Iterator[Instruction]:
        """Yields the instructions after one in the code, until one cannot be decoded."""
        with contextlib.suppress(SimError):
            while True:
                index += inst.size // 4
                inst = self._decode(index)
                yield inst

    def _place(self, index: int, inst: Instruction, lean: bool = False) -> list[int]:
        """Sets a record's slots and handler. Returns its successors.

        lean: True to use a lean handler, if there is one and the complete one is not cached
        """
        if index in self._unneeded or (self.mode.skips and not inst.spec.encoding.startswith("s")):
            self._set(index, skipping(inst.spec, self.target, inst.size).address(self._batch), [])
            return [index + inst.size // 4]
        turns = lets_others_on(inst, self._instructions_after(index, inst))
        if inst.spec.kind != "control":
            mode = self._plain if self.floats is not None and self.floats.is_plain(index, inst) else self.mode
            releases = index in self._releasing
            made, slots = falling_through_of(self._code_of(index, inst), self.target, mode, self.checks, turns, releases)
            lean = lean and self._leans and made.leans and not self._has_complete(made.key)
            self._set(index, made.address(self._batch, lean), slots)
            return [index + inst.size // 4]
        following = [at // 4 for at in successors(inst, 4 * index)]
        plan = Plan(inst)
        control = Control(inst, plan, turns)
        if inst.spec.control not in (*NO_EFFECT, *RESUMED):
            self._left.add(index)
            self._indirect |= inst.spec.control in INDIRECT
            self._entered.update(self._clamp(at) for at in following)
        if control.target:
            control.outside = not 0 <= control.jump_target() < self.count
            plan.slots[control.target - 2] = control.jump_target() & 0xFFFFFFFF
            if control.outside:
                plan.note("outside")
        handler = compile_handler(inst, plan, control.emit, self._batch, self.checks, index in self._releasing)
        self._set(index, handler, plan.slots)
        return following
