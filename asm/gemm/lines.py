"""Main loop of operands loaded by whole cache lines (`parts/line_ring.py` has the rules): four K steps of code.

Step t has phase (t + 1) % 4: the number of the line that is written to LDS among its matrix instructions. Phase 3 writes no
line. The moves of phase 0 also precede step 0. Lines and scales that are cut by the view's end, or are past it, are loaded like
others, with their lanes' offsets set outside. So the loop runs up to the last step, which is a copy without the moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from simgpu.asm.builder.formula import log2, of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.gemm.mx_scales import MxScales
from simgpu.asm.gemm.turn import load_numbers
from simgpu.asm.parts.line_ring import LineStaging, RingPointer
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.gemm.layout import LineRing
from simgpu.operators.gemm.limits import CACHE_LINE, LINE_STEPS, LINES
from simgpu.operators.gemm.problem import MX_BLOCK
from simgpu.operators.resources import WIDEST

Move = Callable[[], None]
NO_LINE = LINE_STEPS - 1  # the phase that writes no line
HALF = WIDEST // 2
SIMULATED = 4  # rounds of four steps; the last but one is the steady state


@dataclass(frozen=True)
class Pace:
    """Places of a step's writes and loads among its matrix instructions.

    A unit of a line is one load of each work-item, and the write of its data to LDS.
    """

    count: int  # matrix instructions of a step
    room: int  # writes come before this number
    end: int  # loads come before this number
    wait: int  # matrix instructions from a load to the write of its data
    scales: int  # writes of scales in a step
    units: int  # units of a line
    held: int  # units that registers hold

    def write(self, number: int) -> int:
        """Returns the place of a step's write: scales first, then units."""
        return number * self.room // (self.scales + self.units)

    def _write_of(self, unit: int) -> int:
        """Returns the place of a unit's write, counted from its step. Units are numbered from a line of phase 0."""
        line, place = divmod(unit, self.units)
        step = line // LINES * LINE_STEPS + line % LINES
        return step * self.count + self.write(self.scales + place)

    @cached_property
    def loads(self) -> list[list[tuple[int, int]]]:
        """Pairs (unit, place of its load) by phase, for the units of three lines from the first that is loaded in phase 0.

        Each load follows the write that frees its registers: that of the unit `held` before.
        """
        some = range(SIMULATED * LINES * self.units)
        begins = [self._write_of(unit - self.held) for unit in some]
        numbers = load_numbers(begins, [self._write_of(unit) - self.wait for unit in some])
        before, last = LINE_STEPS * self.count * (SIMULATED - 2), max(self.room, self.end)
        first = next(unit for unit in some if numbers[unit] >= before)
        found: list[list[tuple[int, int]]] = [[] for _ in range(LINE_STEPS)]
        for unit in some[first : first + LINES * self.units]:
            phase = min((numbers[unit] - before) // self.count, LINE_STEPS - 1)
            place = min(numbers[unit] - before - phase * self.count, last)
            found[phase].append((unit - (SIMULATED - 2) * LINES * self.units, place))
        return found


@dataclass(frozen=True)
class Lines:
    """A's and B's lines and scales between memory and LDS."""

    k: KernelBuilder
    staging: tuple[LineStaging, LineStaging]
    scales: tuple[MxScales, ...]
    write: RingPointer
    read: RingPointer
    write_scales: Reg  # VGPR: LDS address
    stage_step: Reg  # SGPR: bytes to the scales' other stage
    unread: Reg  # SGPR: bytes of a row from the next line to be loaded
    unwritten: Reg  # SGPR: bytes of a row from the next line to be written
    k_left: Reg  # SGPR: k left to multiply
    k_unloaded: Reg  # SGPR: k whose scales are left to load
    step_k: int  # k of a step
    scales_ahead: int  # K steps whose scales registers hold, a divisor of four

    @property
    def line(self) -> list[tuple[LineStaging, int]]:
        """Units of a line. A's and B's have the same pace: at half the line, half of each operand's units are done."""
        counts = [staging.ring.units for staging in self.staging]
        units = sorted((unit / count, at, unit) for at, count in enumerate(counts) for unit in range(count))
        return [(self.staging[at], unit) for _, at, unit in units]

    # -- the moves of a step -----------------------------------------------------------------------

    def writes(self, phase: int) -> list[Move]:
        """Returns calls that write a phase's line to LDS, one for each write."""
        if phase == NO_LINE:
            return []

        def write(number: int) -> None:
            if number == 0:
                self._mend(phase)
            staging, unit = self.line[number]
            staging.write(phase * staging.ring.units + unit, self._address(staging))

        return [lambda number=number: write(number) for number in range(len(self.line))]  # type: ignore[misc]

    def step_write_line(self, phase: int) -> None:
        """Advances to the next line after a step's writes."""
        if phase != NO_LINE:
            self.write.step()
            self.k.s_sub_u32(self.unwritten, self.unwritten, CACHE_LINE)

    def _address(self, staging: LineStaging) -> Reg:
        return self.write.a if staging is self.staging[0] else self.write.b

    def _load(self, number: int) -> None:
        """Loads a unit, numbered from the first line's first."""
        line, place = divmod(number, len(self.line))
        staging, unit = self.line[place]
        if number and place == 0:
            self._next_line()
        staging.load(line * staging.ring.units + unit)

    def add_moves(self, add: Callable[[int, Move], None], phase: int, pace: Pace) -> int:
        """Adds a step's writes and loads. Returns the number of the matrix instruction that the last load follows."""
        for number, write in enumerate([*self._scale_writes(phase), *self.writes(phase)]):
            add(pace.write(number), write)
        loads = [(pace.write(number), load) for number, load in enumerate(self._scale_loads(phase))]
        loads += [(place, partial(self._load, unit)) for unit, place in pace.loads[phase]]
        for place, load in loads:
            add(place, load)
        return max(place for place, _ in loads)

    def _scale_writes(self, phase: int) -> list[Move]:
        return [write for scales in self.scales for write in scales.writes(self.write_scales, phase % self.scales_ahead)]

    def _scale_loads(self, phase: int) -> list[Move]:
        return [load for scales in self.scales for unit in scales.loads(phase % self.scales_ahead) for load in unit]

    def next_scales(self) -> None:
        """Advances to the scales of the K step after the loaded ones."""
        for scales in self.scales:
            scales.advance()
        self.k.s_sub_u32(self.k_unloaded, self.k_unloaded, self.step_k)
        self._cut_scales()

    def count_down(self) -> None:
        """Sets SCC if the next step is the last."""
        self.k.s_sub_u32(self.k_left, self.k_left, self.step_k)
        self.k.s_cmp_le_i32(self.k_left, 0)

    # -- the end of the rows -----------------------------------------------------------------------

    def _next_line(self) -> None:
        for staging in self.staging:
            staging.advance()
        self.k.s_sub_u32(self.unread, self.unread, CACHE_LINE)
        self._cut_line()

    def _cut_line(self) -> None:
        """Emits, out of line, for lines at or past the rows' end: offsets of 16-byte pieces past the end become OUTSIDE.

        A piece of which only 8 bytes are left is loaded from 8 bytes earlier.
        """
        k = self.k
        with k.aside(k.s_cmp_lt_i32(self.unread, CACHE_LINE), "cut_line", "loaded_from"):
            byte, early = self._byte(), k.v.alloc("bytes back")
            k.v_mov_b32(early, 0)
            with k.temporary(of(self.unread) - HALF) as limit:
                k.v_cmp_ne_i32("vcc", limit, byte)
            k.v_cndmask_b32(early, HALF, early, "vcc", note="half a piece is left: 8 bytes before it, too")
            k.v_cmp_gt_i32("vcc", self.unread, byte)
            for staging in self.staging:
                staging.cut_offsets("vcc", early)
            k.v.free(byte, early)

    def _mend(self, phase: int) -> None:
        """Emits, out of line, for a line at the rows' end before it is written: moves data that `_cut_line` loaded 8 bytes
        early."""
        k = self.k
        with k.aside(k.s_cmp_lt_u32(self.unwritten, CACHE_LINE), "cut_piece", "mended"):
            byte = self._byte()
            with k.temporary(of(self.unwritten) - HALF) as limit:
                k.v_cmp_ne_i32("vcc", limit, byte)
            for staging, unit in self.line:
                staging.mend(phase * staging.ring.units + unit, "vcc")
            k.v.free(byte)

    def _byte(self) -> Reg:
        """Returns a new VGPR with the byte of a line that a work-item moves."""
        return self.k.vector("byte of the line", LineRing.place(of(self.k.work_item))[1])

    def _cut_scales(self) -> None:
        """Makes offsets of scales past the view's k OUTSIDE, so that these scales are 0."""
        k, blocks = self.k, self.k.s.alloc("blocks left")
        k.s_ashr_i32(blocks, self.k_unloaded, log2(MX_BLOCK))
        for scales in self.scales:
            scales.cut_offset(blocks)
        k.s.free(blocks)

    # -- the loop ----------------------------------------------------------------------------------

    def loop(self, pace: Pace, step: Callable[[int], None], last: Move, read_first: Move) -> None:
        """Emits all K steps.

        pace: of each step. step, last: emit a step's matrix instructions, with a phase's moves or with none; step ends with
        `count_down`. read_first: emits the reads of a step's first fragments.
        """
        k, end = self.k, self.k.new_label("last_tile")
        self._cut_scales()
        self._cut_line()
        ahead = [partial(self._load, unit) for unit in range(min(unit for phase in pace.loads for unit, _ in phase))]
        for held in range(self.scales_ahead):
            self._run(self._scale_loads(held))
            self.next_scales()
        self._run(ahead, self._scale_writes(0))
        k.v_add_u32(self.write_scales, self.stage_step, self.write_scales, note="the other stage next")
        self._run(self._scale_loads(0), self.writes(0))
        self.step_write_line(0)
        self._run([partial(self._load, unit) for unit, _ in pace.loads[0]])
        self.next_scales()
        k.s_barrier(note="the first tile is in LDS")
        read_first()
        self.count_down()
        k.s_cbranch_scc1(end)
        top = k.new_label("whole_tile")
        k.label(top)
        for phase in (*range(1, LINE_STEPS), 0):
            step(phase)
            if phase:
                k.s_cbranch_scc1(end)
            else:
                k.s_cbranch_scc0(top)
        k.label(end)
        last()

    @staticmethod
    def _run(*moves: Sequence[Move]) -> None:
        for some in moves:
            for move in some:
                move()
