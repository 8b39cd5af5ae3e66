"""Breakpoints and watchpoints: parses them, makes their points, and describes their stops."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from simgpu.debugger.armed import Point
from simgpu.debugger.code import ReplayCode
from simgpu.debugger.named import element
from simgpu.debugger.native import points
from simgpu.debugger.native.conditions import Expression
from simgpu.debugger.native.points import BLOCK_HEADER, NAN_SEEN, OWN, STOPS
from simgpu.debugger.place import WavePlace
from simgpu.debugger.replay import Replay
from simgpu.engine.finding import lane_ranges, lanes_of
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.code.operands import register_text
from simgpu.hardware.isa.instruction import EXEC, M0, VCC, Reg
from simgpu.machine import layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from simgpu.debugger.named import NamedArray
    from simgpu.engine.finding import Finding

_REGISTERS = re.compile(r"\$?([sva])(?:(\d+)|\[(\d+):(\d+)\])(?:\[(\d+)\])?")
_LDS = re.compile(r"lds\[\s*(\w+)\s*(?::\s*(\w+)\s*)?\]")
SPECIAL = {"vcc": Reg("s", VCC, 2), "exec": Reg("s", EXEC, 2), "m0": Reg("s", M0)}
FILES = {"s": 102, "v": 256, "a": 256}


@dataclass(frozen=True)
class RegisterNames:
    """Registers as users type them: v17, v[4:7], a0, s[8:9], v17[3] (one lane), vcc, exec, m0."""

    reg: Reg
    lane: int | None = None

    @staticmethod
    def parse(text: str) -> RegisterNames:
        """Parses text. Raises LaunchError if it names no register, or one past the file's last."""
        name = text.strip()
        if name.lstrip("$") in SPECIAL:
            return RegisterNames(SPECIAL[name.lstrip("$")])
        match = _REGISTERS.fullmatch(name)
        if not match:
            raise LaunchError(f"{text!r} is no register: give v4, v[4:7], a0, s[8:9], v17[3], vcc, exec or m0")
        file, one, first, last, lane = match.groups()
        start, stop = (int(one), int(one)) if one else (int(first), int(last))
        if not start <= stop < FILES[file]:
            raise LaunchError(f"{text!r} is past the file: the registers are {file}0 to {file}{FILES[file] - 1}")
        if lane is not None and (file == "s" or int(lane) >= layout.LANES):
            raise LaunchError(f"{text!r}: lanes are 0 to {layout.LANES - 1}, of v and a registers")
        return RegisterNames(Reg(file, start, stop - start + 1), None if lane is None else int(lane))

    def __str__(self) -> str:
        return register_text(self.reg) + ("" if self.lane is None else f"[{self.lane}]")

    @property
    def span(self) -> tuple[int, int]:
        """Offset in a wave's state, and bytes. With a lane, they are those of the first register only."""
        if self.reg.file == "s":
            return 4 * self.reg.index, 4 * self.reg.count
        row = layout.vector_register(self.reg.file, self.reg.index)
        if self.lane is None:
            return row, layout.ROW * self.reg.count
        return row + 4 * self.lane, 4


@dataclass
class Breakpoint:
    """A breakpoint or watchpoint."""

    number: int
    kind: str  # "breakpoint" or "watchpoint"
    what: str  # as it was typed
    condition: str = ""  # as it was typed, or ""
    wave: int = -1  # the only wave that it stops, -1 for all
    points: list[tuple[int, Point]] = field(default_factory=list, repr=False)  # (record, point)
    hits: int = 0  # number of stops
    block: np.ndarray | None = field(default=None, repr=False)  # for a watched value, see `points.changed_test`
    nbytes: int = 0  # bytes of the watched value
    space: int = 0  # its space: FROM_WAVE, FROM_LDS or FROM_HOST of `native.points`
    at: int = 0  # offset in the wave or in LDS, or device address
    findings: list[Finding] = field(default_factory=list, repr=False)  # findings at whose places it stops
    said: dict[int, str] = field(default_factory=dict, repr=False)  # messages of findings by `Point.address`

    def is_hit(self, hit: tuple[Point, ...]) -> bool:
        """True if one of these points belongs to it."""
        return any(point is own for point in hit for _, own in self.points)

    def values(self, wave: int) -> tuple[bytes, bytes]:
        """Returns the watched bytes before and after they changed."""
        assert self.block is not None
        block = self.block[wave if self.space == points.FROM_WAVE else 0].view(np.uint8)[BLOCK_HEADER:]
        return block[self.nbytes : 2 * self.nbytes].tobytes(), block[: self.nbytes].tobytes()

    def words(self, hit: tuple[Point, ...]) -> str:
        """Returns the messages of its points that hit."""
        return "; ".join(self.said[point.address] for point in hit if point.address in self.said)

    def lanes(self, hit: tuple[Point, ...]) -> str:
        """Returns the lanes in which NaN was written, as text."""
        mask = next((int(p.words[OWN + NAN_SEEN]) for p in hit if len(p.words) > OWN + NAN_SEEN), 0)
        return lane_ranges(lanes_of(mask & (1 << 64) - 1))

    def refresh(self, replay: Replay, begins: bool) -> None:
        """Takes the current contents of a watched value as its old value. begins: True if no wave has begun."""
        if self.block is None:
            return
        raw = self.block.view(np.uint8).reshape(len(self.block), -1)
        raw[:] = 0
        if self.space == points.FROM_WAVE:
            held = [] if begins else [(wave, replay.bytes_of(wave)) for wave in range(len(replay))]
        elif self.space == points.FROM_LDS:
            held = [(0, np.zeros(self.at + self.nbytes, np.uint8) if begins else replay.lds())]
        else:
            allocation = replay.device.memory.find(self.at)
            assert allocation is not None
            held = [(0, allocation.data[self.at - allocation.base :])]
        for number, memory in held:
            first = 0 if self.space == points.FROM_HOST else self.at
            raw[number, 0] = 1
            raw[number, BLOCK_HEADER : BLOCK_HEADER + self.nbytes] = memory[first : first + self.nbytes]


class Maker:
    """Makes breakpoints for a replay's code. names: arrays whose elements may be watched."""

    def __init__(self, replay: Replay, code: ReplayCode, names: Mapping[str, NamedArray]) -> None:
        self.replay, self.code, self.names = replay, code, names
        self.compiler = replay.device.compiler

    def at(self, number: int, where: str, records: list[int], condition: str, wave: int = -1) -> Breakpoint:
        """Makes a breakpoint before the instructions at some records."""
        test = Expression(condition).test(self.compiler) if condition else points.always_test(self.compiler)
        point = Point(test, wave)
        return Breakpoint(number, "breakpoint", where, condition, wave, [(record, point) for record in records])

    def place(self, number: int, place: WavePlace, record: int) -> Breakpoint:
        """Makes a breakpoint at a place. record: the record of the wave's next instruction there."""
        own = points.place_words(record, self.replay.launch.entry, place.retired)
        point = Point(points.arrival(self.compiler, STOPS), place.wave, own)
        return Breakpoint(number, "breakpoint", str(place), points=[(record, point)])

    def findings(self, number: int, what: str, found: Sequence[Finding]) -> Breakpoint:
        """Makes a breakpoint at the places of findings."""
        made = Breakpoint(number, "breakpoint", what, findings=list(found))
        for each in found:
            place = WavePlace.parse(each.when)
            for pc in {each.pc, each.pc if each.other_pc is None else each.other_pc}:  # the racing wave is at either
                record = self.code.record(pc)
                own = points.place_words(record, self.replay.launch.entry, place.retired)
                point = Point(points.arrival(self.compiler, STOPS), place.wave, own)
                made.points.append((record, point))
                made.said[point.address] = f"{each.kind}: {each.message}"
        return made

    def nan(self, number: int) -> Breakpoint:
        """Makes a breakpoint that stops after an instruction wrote NaN in an active lane."""
        test = points.nan(self.compiler)
        results: dict[int, tuple[int, ...]] = {}
        for record, reg, bits in self.code.floats():
            for after in self.code.following([record]):
                results[after] = (record, layout.vector_register(reg.file, reg.index), reg.count, bits)
        records = {held[0] for held in results.values()} | results.keys()
        own = {record: (record, *results.get(record, (-2, 0, 1, 0)), 0) for record in records}
        return Breakpoint(number, "breakpoint", "nan", points=[(at, Point(test, -1, own[at])) for at in sorted(own)])

    def watch(self, number: int, what: str) -> Breakpoint:
        """Makes a watchpoint of a register, a part of LDS or an element of a buffer. Its points are after each instruction that may
        write there."""
        if match := _LDS.fullmatch(what.strip()):
            return self._watch_lds(number, what, match[1], match[2])
        if what.split("[")[0].strip() in self.names or what.startswith("0x"):
            address, kind = element(self.names, what)
            allocation = self.replay.device.memory.find(address)
            if allocation is None or address + kind.itemsize > allocation.end:
                raise LaunchError(f"{what}: {self.replay.device.memory.describe(address)}")
            host = int(allocation.data.ctypes.data) + address - allocation.base
            return self._watch(number, what, points.FROM_HOST, host, kind.itemsize, self.code.stores(lds=False), address)
        try:
            registers = RegisterNames.parse(what)
        except LaunchError as error:
            known = ", ".join(self.names) or "none has a type and shape"
            raise LaunchError(f"{error}; or lds[0x2000], or an element of an array ({known})") from None
        offset, nbytes = registers.span
        return self._watch(number, what, points.FROM_WAVE, offset, nbytes, self.code.writers(registers.reg), offset)

    def _watch_lds(self, number: int, what: str, first: str, count: str | None) -> Breakpoint:
        try:
            offset, nbytes = int(first, 0), int(count or "4", 0)
        except ValueError:
            raise LaunchError(f"{what!r}: give an offset in bytes, or an offset and bytes: lds[0x2000:16]") from None
        if nbytes < 1 or offset + nbytes > self.replay.launch.lds_bytes:
            raise LaunchError(f"{what!r}: the workgroup has {self.replay.launch.lds_bytes} bytes of LDS")
        return self._watch(number, what, points.FROM_LDS, offset, nbytes, self.code.stores(lds=True), offset)

    def _watch(self, number: int, what: str, space: int, where: int, nbytes: int, writers: list[int], at: int) -> Breakpoint:
        whole = nbytes % 4 == 0
        stride = BLOCK_HEADER + -(-2 * nbytes // 8) * 8
        block = np.zeros((self.replay.launch.waves if space == points.FROM_WAVE else 1, stride // 8), np.int64)
        own = nbytes, block.ctypes.data, stride if space == points.FROM_WAVE else 0, where
        point = Point(points.changed_test(self.compiler, space, whole), -1, own)
        records = self.code.following(writers)
        if space == points.FROM_WAVE:
            records = sorted({*records, self.replay.launch.entry})  # for the value when the wave begins
        pairs = [(record, point) for record in records]
        return Breakpoint(number, "watchpoint", what, points=pairs, block=block, nbytes=nbytes, space=space, at=at)

