"""Memory after a launch of IR: the terms of its run with a launch's numbers in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import z3

from simgpu.device import Device
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.lane_smt import FRACTION_BITS, SmtOps, concat, number
from simgpu.hardware.isa.types import Type
from simgpu.proof.counterexample import BufferContent, CounterexampleLaunch
from simgpu.proof.entry import AXES, KernelInputs, argument_symbol
from simgpu.proof.ir.execute import IrRun
from simgpu.proof.memory_log import Interval, LaneStore
from simgpu.proof.roots import GLOBAL, LDS, Roots
from simgpu.proof.state import WaveState
from simgpu.proof.terms import Lanes, NotModelled, subterms

Term = Any
LDS_BYTES = 1 << 16
OTHER_PRIVATE_START = 4160  # bytes: what depends on addresses of private memory may have any value
MOST_ITEMS = 256  # work-items of a launch, which are evaluated one after another


@dataclass(frozen=True)
class KnownBits:
    """A value and its unknown bits, which are 0 in `bits`. A condition has one bit."""

    bits: int
    unknown: int


class Undecided(Exception):
    """Raised if a launch has undefined behaviour, or its effect is unknown."""


@dataclass
class Images:
    """Buffers by address, and LDS of each workgroup, as they were at each barrier."""

    addresses: list[int]
    global_: list[list[np.ndarray]]  # by epoch and buffer; the last is being written
    free: list[np.ndarray]  # of each buffer
    lds: list[list[np.ndarray]]  # by epoch and workgroup

    def next_epoch(self) -> None:
        """Keeps memory as it is, for loads after a barrier."""
        self.global_.append([each.copy() for each in self.global_[-1]])
        self.lds.append([each.copy() for each in self.lds[-1]])

    def buffer(self, address: int, count: int) -> tuple[int, int] | None:
        """Returns the buffer and the offset in it; None for an address outside."""
        for index, (start, content) in enumerate(zip(self.addresses, self.global_[0], strict=True)):
            if start <= address and address + count <= start + len(content):
                return index, address - start
        return None


@dataclass(frozen=True)
class IrReference:
    """IR as one of two kernels. execute: runs it on terms, with private memory from an address on."""

    inputs: KernelInputs
    execute: Callable[[KernelInputs, SmtOps, int], tuple[IrRun, WaveState]]

    def run(self, launch: CounterexampleLaunch) -> list[BufferContent | None] | None:
        """Returns each buffer after a launch; None if its behaviour is undefined or unknown, or one of several."""
        runs = [self._run(launch, SmtOps, 0), self._run(launch, OtherNans, OTHER_PRIVATE_START)]
        if runs[0] is None or runs[1] is None:
            return None
        return [_either(*pair) for pair in zip(*runs, strict=True)]

    def _run(self, launch: CounterexampleLaunch, kind: type[SmtOps], private_start: int) -> list[BufferContent | None] | None:
        items = int(np.prod(launch.block)) * int(np.prod(launch.grid))
        if items > MOST_ITEMS:
            return None
        lanes = Lanes()
        roots = Roots(lanes, self.inputs.roots.budget, list, compares=False)
        inputs = KernelInputs("ir", self.inputs.code, self.inputs.info, lanes, roots, self.inputs.read_only)
        ops = kind(lanes.lane, payloads=False)
        ops.at = lanes.at  # type: ignore[method-assign]
        try:
            made, end = self.execute(inputs, ops, private_start)
            if made.loose or sum(each.space == 3 for each in made.module.variables.values()) > 1:
                return None  # one of several results is here; the compiler chooses the places of several variables in LDS
            return IrEvaluation(made, end, inputs, launch).memory()
        except (NotModelled, Undecided, z3.Z3Exception):
            return None

    def races(self, launch: CounterexampleLaunch) -> bool:
        """Returns False: the machine's run shows races."""
        return False


class OtherNans(SmtOps):
    """Arithmetic whose NaNs have other bits: a compiler may make any NaN, so what differs by it may have any value."""

    @staticmethod
    def nan(type_: Type) -> int:
        return SmtOps.nan(type_) ^ (1 << type_.bits - 1 | (1 << FRACTION_BITS[type_.name]) - 1)


def _either(a: BufferContent | None, b: BufferContent | None) -> BufferContent | None:
    """Returns what two runs of one launch left in a buffer: bytes that differ may have any value."""
    if a is None or b is None:
        return None
    free = np.zeros_like(a.content) if a.free is None or b.free is None else a.free | b.free
    return BufferContent(a.content, free | np.where(a.content != b.content, 255, 0).astype(np.uint8))


@dataclass
class IrEvaluation:
    """A run's terms, and a launch."""

    made: IrRun
    end: WaveState
    inputs: KernelInputs
    launch: CounterexampleLaunch
    images: Images = field(init=False)

    def __post_init__(self) -> None:
        device = Device(self.inputs.info.target)  # which places buffers as for the machine's run
        addresses, buffers = [], []
        for value in self.launch.arguments:
            if isinstance(value, np.ndarray):
                addresses.append(device.upload(value).address)
                buffers.append(value.copy())
        groups = int(np.prod(self.launch.grid))
        lds = [np.zeros(LDS_BYTES, np.uint8) for _ in range(groups)]
        self.images = Images(addresses, [buffers], [np.zeros_like(each) for each in buffers], [lds])
        self.images.next_epoch()

    def memory(self) -> list[BufferContent | None]:
        """Returns each buffer, None for other arguments. Raises Undecided."""
        log = self.end.memory
        intervals = [*log.intervals, Interval(tuple(log.events), z3.BoolVal(True))]
        for number_, interval in enumerate(intervals):
            for group, item in self._items():
                self._execute(interval, group, item, checked=number_ == len(intervals) - 1)
            self.images.next_epoch()
        found = iter(zip(self.images.global_[-1], self.images.free, strict=True))
        return [BufferContent(*next(found)) if isinstance(value, np.ndarray) else None for value in self.launch.arguments]

    def _items(self) -> Iterator[tuple[tuple[int, int, int], int]]:
        for group in np.ndindex(*reversed(self.launch.grid)):
            for item in range(int(np.prod(self.launch.block))):
                yield (group[2], group[1], group[0]), item

    def _execute(self, interval: Interval, group: tuple[int, int, int], item: int, checked: bool) -> None:
        """Does one work-item's stores of an interval. checked: True to look for undefined behaviour, too."""
        terms: list[Term] = []
        for event in interval.events:
            if not isinstance(event, LaneStore):
                raise Undecided
            terms += [event.guard, event.address.at(), concat(*event.data)]
            terms.append(concat(*event.free) if event.free else number(0, 8 * len(event.data)))
        known = []
        if checked:
            heap = self.made.heap
            known = [*self.made.undefined, *(z3.Not(each) for each in (*heap.aligned, *heap.padded))]
            for load in self.end.memory.read:
                known += [load.guard, load.address.at()]
        values = Numbers(self, group, item).of([*terms, *known])
        stores, rest = values[: len(terms)], values[len(terms) :]
        for at, event in enumerate(interval.events):
            if isinstance(event, LaneStore):
                self._store(event, stores[4 * at : 4 * at + 4], group)
        plain = len(known) - 2 * len(self.end.memory.read) if checked else 0
        if any(value.unknown or value.bits for value in rest[:plain]):
            raise Undecided
        for guard, address, load in zip(rest[plain::2], rest[plain + 1 :: 2], self.end.memory.read, strict=True) if checked else ():
            outside = address.unknown or self.images.buffer(address.bits, load.count) is None
            if guard.unknown or (guard.bits and outside):
                raise Undecided

    def _store(self, event: LaneStore, values: Sequence[KnownBits], group: tuple[int, int, int]) -> None:
        guard, where, data, free = values
        count, address = len(event.data), where.bits
        if not guard.unknown and not guard.bits:
            return
        if guard.unknown or where.unknown:
            raise Undecided
        unknown = data.unknown | free.unknown | free.bits
        stored = np.frombuffer(data.bits.to_bytes(count, "little"), np.uint8)
        masks = np.frombuffer(unknown.to_bytes(count, "little"), np.uint8)
        if event.address.space == LDS:
            if unknown or address + count > LDS_BYTES:
                raise Undecided
            self.images.lds[-1][self.group_number(group)][address : address + count] = stored
            return
        place = self.images.buffer(address, count)
        if place is None:
            raise Undecided
        index, start = place
        self.images.global_[-1][index][start : start + count] = stored
        self.images.free[index][start : start + count] = masks

    def group_number(self, group: tuple[int, int, int]) -> int:
        """Returns the number of a workgroup."""
        return group[0] + self.launch.grid[0] * (group[1] + self.launch.grid[1] * group[2])


@dataclass(frozen=True)
class Numbers:
    """Numbers of a work-item's symbols."""

    evaluation: IrEvaluation
    group: tuple[int, int, int]
    item: int

    def of(self, terms: Sequence[Term]) -> list[KnownBits]:
        """Returns the terms' values."""
        if not terms:
            return []
        bundle = z3.Function("bundle", *(each.sort() for each in terms), z3.BoolSort())(*terms)
        bundle = z3.simplify(z3.substitute(bundle, *self._symbols()))
        while True:
            found = {
                each.get_id(): (each, value)
                for each in subterms(bundle.children())
                if (value := self._application(each)) is not None
            }
            if not found:
                break
            bundle = z3.simplify(z3.substitute(bundle, *found.values()))
        return [known_bits(each) for each in bundle.children()]

    def _symbols(self) -> list[tuple[Term, Term]]:
        launch, info = self.evaluation.launch, self.evaluation.inputs.info
        found: list[tuple[Term, Term]] = [(z3.BitVec("lane", 32), number(self.item % WAVEFRONT, 32))]
        addresses = iter(self.evaluation.images.addresses)
        for index, (argument, value) in enumerate(zip(info.explicit_arguments, launch.arguments, strict=True)):
            raw = next(addresses) if isinstance(value, np.ndarray) else int.from_bytes(bytes(value), "little")
            found.append((argument_symbol(index, argument), number(raw, 8 * argument.size)))
        for axis, size, groups, group in zip(AXES, launch.block, launch.grid, self.group, strict=True):
            found += [
                (z3.BitVec(f"hidden_group_size_{axis}", 16), number(size, 16)),
                (z3.BitVec(f"workgroup_id_{axis}", 32), number(group, 32)),
                (z3.BitVec(f"hidden_block_count_{axis}", 32), number(groups, 32)),
                (z3.BitVec(f"hidden_remainder_{axis}", 16), number(0, 16)),
                (z3.BitVec(f"hidden_global_offset_{axis}", 64), number(0, 64)),
                (z3.BitVec(f"grid_size_{axis}", 32), number(size * groups, 32)),
            ]  # fmt: skip
        return found

    def _application(self, term: Term) -> Term | None:
        """Returns the value of a function of numbers: an id, or a byte of memory."""
        if term.num_args() != 1 or term.decl().kind() != z3.Z3_OP_UNINTERPRETED or not z3.is_bv_value(term.arg(0)):
            return None
        name, place = term.decl().name(), term.arg(0).as_long()
        images = self.evaluation.images
        if name.startswith("workitem_id_"):
            return number(self._ids(self.item - self.item % WAVEFRONT + place)[AXES.index(name[-1])], 32)
        if name.startswith(GLOBAL):
            epoch = int(name.removeprefix(GLOBAL).strip() or 0)
            found = images.buffer(place, 1)
            return number(int(images.global_[epoch][found[0]][found[1]]) if found else 0, 8)
        if name.startswith(LDS):
            lds = images.lds[int(name.removeprefix(LDS).strip())][self.evaluation.group_number(self.group)]
            return number(int(lds[place]) if place < LDS_BYTES else 0, 8)
        return None

    def _ids(self, item: int) -> tuple[int, int, int]:
        x, y, _ = self.evaluation.launch.block
        return item % x, item // x % y, item // (x * y)


def known_bits(term: Term) -> KnownBits:
    """Returns the bits of a term that are numbers.

    >>> known_bits(z3.Concat(number(3, 2), z3.BitVec("a", 2)))
    KnownBits(bits=12, unknown=3)
    """
    if z3.is_bool(term):
        return KnownBits(int(z3.is_true(term)), int(not (z3.is_true(term) or z3.is_false(term))))
    if z3.is_bv_value(term):
        return KnownBits(int(term.as_long()), 0)
    kind = term.decl().kind()
    if kind == z3.Z3_OP_CONCAT:
        bits = unknown = 0
        for child in term.children():
            part = known_bits(child)
            bits, unknown = bits << child.size() | part.bits, unknown << child.size() | part.unknown
        return KnownBits(bits, unknown)
    if kind == z3.Z3_OP_ITE:
        a, b = known_bits(term.arg(1)), known_bits(term.arg(2))
        unknown = a.unknown | b.unknown | a.bits ^ b.bits
        return KnownBits(a.bits & ~unknown, unknown)
    return KnownBits(0, (1 << term.size()) - 1)
