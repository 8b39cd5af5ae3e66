"""Staging of one operand from memory through LDS to fragments: addresses, loads, writes, reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from simgpu.asm.builder.formula import Formula, of
from simgpu.asm.builder.kernel import KernelBuilder, LdsRegion
from simgpu.asm.builder.registers import WORD, Operand
from simgpu.asm.parts.buffers import advance_buffer, clip, load_offset_to_row_end, move_to_front
from simgpu.asm.parts.integer_math import add_wide
from simgpu.asm.parts.transpose import Transposition
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.gemm.layout import TileLayout
from simgpu.operators.resources import DS_REACH, WIDEST

EIGHTS = 3  # reads of 8 bytes that fetch a lane's operand of 6-bit elements


@dataclass(frozen=True)
class StagingUnit:
    """A staging unit of a work-item. Its first element is at row + row_step, k + k_step."""

    row: Reg  # VGPR; clipped loads need it only if rows are contiguous
    k: Reg  # VGPR
    row_step: int  # rows from `row`
    k_step: int  # k from `k`
    offset: Reg  # bytes from the tile's first element; OUTSIDE if the row is out of the view


@dataclass(frozen=True)
class StagedFragment:
    """A read of LDS at `address` + `immediate`."""

    registers: Reg  # registers of the lane that it fills
    address: Reg
    immediate: int  # bytes
    feeds: tuple[tuple[int, int], ...]  # (atom, step) pairs that use it


class FragmentReads:
    """Reads of an operand's fragments from LDS, and the registers that matrix instructions take."""

    k: KernelBuilder
    layout: TileLayout
    fragment_registers: Reg

    def source(self, t: int, step: int) -> Reg:
        """Returns the registers of atom t's operand at a step of the turn."""
        first = self.layout.source(t, step)
        return self.fragment_registers[first : first + self.layout.operand]

    def read(self, fragment: StagedFragment, turn: int) -> None:
        """Emits one fragment's read."""
        t, s = fragment.feeds[0]
        note = f"{self.layout.name} fragment: turn {turn}, atom {t}, step {s}"
        self.k.ds_read(fragment.registers, fragment.address, offset=fragment.immediate, note=note)


class Staging(FragmentReads):
    """Emits the staging of one operand's tiles.

        resource   raw buffer whose base is the tile's first element
        stride     SGPR, bytes between stored rows
        rows_left  SGPR, rows of the view from the tile's first row on
        bits       bits of an element, if the layout counts bytes that elements share; 0: it counts elements
        length     SGPR, elements of a row of memory
    """

    def __init__(
        self,
        k: KernelBuilder,
        layout: TileLayout,
        region: LdsRegion,
        resource: Reg,
        stride: Reg,
        rows_left: Reg,
        bits: int = 0,
        *,
        length: Reg,
    ) -> None:
        self.k, self.layout, self.region, self.bits = k, layout, region, bits
        self.resource, self.stride, self.rows_left, self.length = resource, stride, rows_left, length
        self.units: list[StagingUnit] = []
        self.staged = k.array(f"{layout.name} staging", layout.staged_words)
        self.fragment_registers = k.array(f"{layout.name} fragments", layout.fragment_words)
        if layout.beside:
            parts = tuple(f", bytes from {8 * h}" for h in range(EIGHTS))
        elif layout.lines:
            parts = ("", ", odd blocks")[: 1 + layout.odd_blocks_apart]
        else:
            parts = tuple(f", chunks ^ {turn}" * (turn > 0) for turn in layout.read_turns)
        self.read_addresses = tuple(k.v.alloc(f"{layout.name} fragments' LDS address{part}") for part in parts)
        self.step: Reg | int = layout.k * self.apart_along_k
        self.transposition = Transposition(k, layout, self.staged) if layout.transposes else None

    @property
    def apart_along_k(self) -> int:
        """Bytes in memory from one k to the next, averaged over whole chunks: a preshuffled matrix interleaves a panel's rows."""
        return self.layout.element * max(1, self.layout.panel)

    # -- addresses ---------------------------------------------------------------------------

    def prepare_loads(self) -> None:
        """Emits every unit's offset, OUTSIDE for rows past the view, and the step to the next tile."""
        k, layout = self.k, self.layout
        k.comment(f"{layout.name}: {layout.loads} unit(s) of {layout.vec}x{layout.depth} elements a work-item and tile")
        for load in range(layout.loads):
            same = layout.offset_from_first(load) if load else None
            if same is not None:
                first = self.units[0]
                row, kk, (row_step, k_step) = first.row, first.k, same
            else:
                place = layout.staged_element(self._thread, load)
                row, kk = k.vectors(row=place[0], k=place[1])
                row_step = k_step = 0
            self.units.append(StagingUnit(row, kk, row_step, k_step, self._offset(row, kk, row_step, k_step)))
        if layout.k_contiguous:
            k.v.free(*{unit.row for unit in self.units})  # folded into the offsets
        else:
            self.step = k.s.alloc(f"{layout.name} bytes to the next tile")
            k.s_mul_i32(self.step, self.stride, layout.k)
        if layout.depth > 2:
            self.later_k = k.s.alloc(f"{layout.name} bytes to a unit's later k")

    @property
    def _thread(self) -> Formula:
        """A work-item's number, for closed forms of the layout."""
        return of(self.k.work_item, self.layout.threads)

    def _offset(self, row: Reg, kk: Reg, row_step: int, k_step: int) -> Reg:
        """Returns a new VGPR with the byte offset of (row + row_step, kk + k_step), OUTSIDE if the row is past the view."""
        k, layout = self.k, self.layout
        offset = k.vector(f"{layout.name} load offset", self._in_memory(of(row) + row_step, of(kk) + k_step))
        clip(k, offset, offset, of(self.rows_left) - row_step, row, note=f"rows of {layout.name} past the view: outside")
        return offset

    def _in_memory(self, row: Formula, kk: Formula) -> Formula:
        """Returns the byte of an element in memory. A preshuffled matrix is stored [panel][16 bytes of k][row][byte]."""
        layout = self.layout
        if not layout.panel:
            outer, inner = (row, kk) if layout.k_contiguous else (kk, row)
            return outer * self.stride + inner * layout.element
        in_panel, of_piece = row % layout.panel, kk % (WIDEST // layout.element)
        offset = (row - in_panel) * self.stride + in_panel * WIDEST + kk * self.apart_along_k
        if layout.vec * layout.element == WIDEST:
            return offset
        return offset - of_piece * (self.apart_along_k - layout.element)  # rows do not separate pieces of the same 16 bytes

    def prepare_reads(self, lane_row: Reg, group: Reg, wave_row: Reg) -> None:
        """Emits the LDS addresses of the lane's fragments.

        lane_row, group: VGPRs with i and g. wave_row: SGPR, the wave's first row.
        """
        k, layout, (address, *others) = self.k, self.layout, self.read_addresses
        i, g, row_bytes = of(lane_row, layout.atom), of(group, layout.groups), layout.row_chunks * layout.kw * WORD
        if layout.lines:
            for block, address in enumerate(self.read_addresses):
                row = i * layout.wide + wave_row + block * layout.swap ^ g % 2 * layout.swap
                k.set(address, (row + g * (layout.chunk * layout.rows)) * layout.element)
        elif layout.beside:  # each 8 of a lane's 24 bytes
            for h, address in enumerate(self.read_addresses):
                eight = g * EIGHTS + h
                k.set(address, ((eight // 2 ^ layout.swizzle(i)) * 2 | eight % 2) * 8 + (i + wave_row) * row_bytes)
        else:
            slot = layout.lane_slot(i)
            k.set(address, (slot + wave_row) * row_bytes + (layout.swizzle(slot) ^ g) * (layout.kw * WORD))
            for other, turn in zip(others, layout.read_turns[1:], strict=True):
                k.v_xor_b32(other, turn * layout.kw * WORD, address)
        for address in self.read_addresses if self.region.offset else ():
            k.v_add_u32(address, self.region.offset, address, note=f"fragments of {layout.name} in LDS")

    def other_stage(self, step: Reg) -> None:
        """Switches reads to the other stage. step: SGPR, bytes to it."""
        for address in self.read_addresses:
            self.k.v_add_u32(address, step, address, note="the other stage")

    @property
    def write_base(self) -> int:
        """Bytes of the region's offset that are in the write address because they exceed an instruction's immediate, else 0."""
        return self.region.offset if self.region.offset + self.layout.bytes > DS_REACH else 0

    @property
    def write_key(self) -> tuple[object, ...]:
        """Key of the write address: operands with the same key can share one."""
        if self.layout.transposes or self.layout.panel:
            return self.layout.name, self.write_base
        return self.layout.vec * self.layout.element, self.write_base

    def write_address(self) -> Reg:
        """Returns a new VGPR with the LDS address of the work-item's first write, without the immediates."""
        layout, thread = self.layout, self._thread
        if layout.transposes or layout.panel:
            row, kk = layout.staged_element(thread, 0)
            byte = layout.byte(row + layout.piece(thread, 0), kk)
        else:
            byte = thread * (layout.vec * layout.element)
        return self.k.vector(f"{layout.name}: LDS write address", byte + self.write_base)

    # -- moves -------------------------------------------------------------------------------

    def loads(self) -> list[list[Callable[[], None]]]:
        """Returns calls that emit the next tile's loads, by unit. They must be called in this order.

        Every k must be inside the view, and no chunk may pass the end of the matrix. A chunk at the end of another row of memory
        brings elements of the next one, which only rows outside the view get.
        """
        layout = self.layout

        def load(number: int, j: int) -> None:
            note = f"{layout.name} tile, unit {number}, k {j}" if layout.transposes else f"{layout.name} tile, load {number}"
            self._load(self._target(number, j, 0, layout.vec), self.units[number].offset, self._soffset(j), 0, note)

        return [[partial(load, number, j) for j in range(layout.depth)] for number in range(len(self.units))]

    def _soffset(self, j: int) -> Operand:
        """Returns the scalar offset of a unit's k number j. It must be called with j = 0, 1, 2, ... in order."""
        if j < 2:
            return self.stride if j else 0
        if j == 2:
            self.k.s_lshl_b32(self.later_k, self.stride, 1)
        else:
            self.k.s_add_u32(self.later_k, self.later_k, self.stride)
        return self.later_k

    def load_clipped(self, k_left: Reg) -> None:
        """Loads the next tile; rows and k outside the view read as 0, and nothing past a row's end is read.

        k_left: SGPR, k of the view from the tile's first k on.
        """
        k, layout = self.k, self.layout
        loaded = k.new_label(f"{layout.name}_loaded")
        if self.short_rows:
            with k.out_of_line(f"{layout.name}_short_rows", loaded) as short:
                k.comment(f"rows of less than {layout.vec} elements: element by element")
                self._load_elements(k_left)
            k.branch(k.s_cmp_lt_i32(self.length, layout.vec), short)
        with self._units_left(k_left) as left:
            self._load_to_row_ends(left)
        k.label(loaded)

    @property
    def short_rows(self) -> bool:
        """True if rows may be shorter than a chunk. Those of MX formats have at least a block, which is not."""
        return self.layout.vec > 1 and not self.bits

    @contextmanager
    def _units_left(self, k_left: Reg) -> Iterator[Reg]:
        """Yields an SGPR with k_left as the layout counts: in elements, or in bytes if elements share them."""
        if not self.bits:
            yield k_left
            return
        left = self.k.s.alloc("bytes of k left")
        self.k.s_mul_i32(left, k_left, self.bits)
        self.k.s_ashr_i32(left, left, 3)
        yield left
        self.k.s.free(left)

    def _load_to_row_ends(self, k_left: Reg) -> None:
        """Loads the next tile by chunks. Those that a row's end cuts are loaded earlier; `move_ends` moves them to the front."""
        k, layout = self.k, self.layout
        chunk = layout.vec * layout.element
        offset = k.v.alloc("clipped offset")
        add_wide(k, self.resource, -chunk, -1, note="chunks at a row's end are loaded earlier")
        for number, unit in enumerate(self.units):
            index, left, step = self._place_in_row(unit, k_left)
            for j in range(layout.depth):
                soffset = self._soffset(j)
                load_offset_to_row_end(k, offset, unit.offset, index, of(left) - step, layout.vec, layout.element)
                if not layout.k_contiguous:
                    clip(k, offset, offset, of(k_left) - (unit.k_step + j), unit.k, note="k past the view: outside")
                note = f"{layout.name} tile, unit {number}, k {j}, to the row's end"
                self._load(self._target(number, j, 0, layout.vec), offset, soffset, 0, note)
        add_wide(k, self.resource, chunk)
        k.v.free(offset)

    def _place_in_row(self, unit: StagingUnit, k_left: Reg) -> tuple[Reg, Reg, int]:
        """Returns a unit's place in its row of memory, without a step; the elements of that row from the tile on; the step."""
        return (unit.k, k_left, unit.k_step) if self.layout.k_contiguous else (unit.row, self.rows_left, unit.row_step)

    def move_ends(self, k_left: Reg) -> None:
        """Moves the elements of chunks that `load_clipped` loaded earlier to their places. k_left: as for that tile."""
        k, layout, moved = self.k, self.layout, self.k.new_label(f"{self.layout.name}_moved")
        if layout.vec == 1:
            return
        if self.short_rows:
            k.branch(k.s_cmp_lt_i32(self.length, layout.vec), moved)
        rest = k.s.alloc("elements of a row's last chunk")
        with self._units_left(k_left) as counted:
            k.s_and_b32(rest, counted if layout.k_contiguous else self.rows_left, layout.vec - 1)
            k.s_cbranch_scc0(moved)
            for number, unit in enumerate(self.units):
                index, left, step = self._place_in_row(unit, counted)
                with k.temporary(of(left) - rest - step) as limit:
                    k.v_cmp_eq_u32("vcc", limit, index)
                with k.lanes("vcc", note="lanes with the row's last chunk"):
                    for j in range(layout.depth):
                        move_to_front(k, self._target(number, j, 0, layout.vec), rest, layout.element)
        k.label(moved)
        k.s.free(rest)

    def _load_elements(self, k_left: Reg) -> None:
        """Loads the next tile element by element; rows and k outside the view read as 0."""
        k, layout = self.k, self.layout
        taken = []
        if not layout.k_contiguous:
            taken.append(offset := k.v.alloc("clipped offset"))
        if layout.k_contiguous or layout.vec > 1:
            taken.append(element := k.v.alloc("element offset"))
        halves = [k.v.alloc("element") for _ in range(layout.pack if layout.element < WORD else 0)]
        for number, unit in enumerate(self.units):
            for j in range(layout.depth):
                soffset = self._soffset(j)
                if layout.k_contiguous:
                    index, left, step, base = unit.k, k_left, unit.k_step, unit.offset
                else:
                    index, left, step, base = unit.row, self.rows_left, unit.row_step, offset
                    clip(k, offset, unit.offset, of(k_left) - (unit.k_step + j), unit.k, note="k past the view: outside")
                for e in range(layout.vec):
                    source = base
                    if layout.k_contiguous or e:
                        clip(k, element, base, of(left) - (step + e), index)
                        source = element
                    note = f"{layout.name} tile, unit {number}, k {j}, element {e}"
                    target = halves[e % layout.pack] if halves else self._target(number, j, e, 1)
                    self._load(target, source, soffset, e * layout.element, note, layout.element)
                    if halves and e % layout.pack == layout.pack - 1:
                        self._join(self._target(number, j, e + 1 - layout.pack, layout.pack), halves)
        k.v.free(*taken, *halves)

    def _join(self, target: Reg, parts: list[Reg]) -> None:
        """Packs zero-extended elements into one register, the first lowest."""
        bits = 8 * self.layout.element
        joined, into = parts[-1], target if target.file == "v" else parts[-1]
        for part in reversed(parts[:-1]):
            joined = self.k.v_lshl_or_b32(into, joined, bits, part)
        if into is not target:
            self.k.v_accvgpr_write_b32(target, into)

    def _target(self, unit: int, j: int, first: int, count: int) -> Reg:
        """Returns the staged registers of `count` elements of a unit's k number j, from element `first` on."""
        layout = self.layout
        start = unit * layout.unit_words + (j * layout.vec + first) * layout.element // WORD
        return self.staged[start : start + count * layout.element // WORD]

    def _load(self, target: Reg, offset: Reg, soffset: Operand, immediate: int, note: str, nbytes: int = WORD) -> None:
        self.k.buffer_load(target, offset, self.resource, soffset, offset=immediate, nbytes=nbytes, note=note)

    def advance(self) -> None:
        """Moves the buffer's base to the next k tile."""
        advance_buffer(self.k, self.resource, self.step, self.layout.name)

    def writes(self, address: Reg) -> list[Callable[[], None]]:
        """Returns calls that write staged registers to LDS, one for each write. address: `write_address`, in the right stage."""
        base = self.region.offset - self.write_base
        if self.transposition is not None:
            return self.transposition.writes(address, base)
        layout = self.layout

        def write(load: int) -> None:
            ahead = layout.write_step(load, 0)[1] if layout.panel else load * layout.threads * layout.vec * layout.element
            data = self._target(load, 0, 0, layout.vec)
            self.k.ds_write(address, data, offset=base + ahead, note=f"{layout.name} tile to LDS, load {load}")

        return [lambda load=load: write(load) for load in range(layout.loads)]  # type: ignore[misc]

    # -- fragments ---------------------------------------------------------------------------

    def fragments(self, turn: int) -> list[StagedFragment]:
        """Returns the reads of one turn. All turns use the same registers."""
        layout, registers = self.layout, self.fragment_registers
        if not layout.lines:
            words, reads = (8 // WORD, EIGHTS) if layout.beside else (layout.kw, layout.reads)
            width, operand, row_bytes = layout.atom_words, layout.operand, layout.row_chunks * layout.kw * WORD
            return [
                StagedFragment(
                    registers[t * width + h * words : t * width + (h + 1) * words],
                    self.read_addresses[h if layout.beside else layout.read_turns.index(layout.read_turn(t, turn * reads + h))],
                    (line * layout.rows + t * layout.atom) * row_bytes,
                    tuple((t, s) for s in range(h * words // operand, -(-(h + 1) * words // operand))),
                )
                for t in range(layout.atoms)
                for h, line in enumerate(turn if layout.beside else (turn * reads + h) // layout.line_spans for h in range(reads))
            ]
        groups, words, ways = layout.atoms // layout.wide, layout.wide * layout.operand, len(self.read_addresses)
        return [
            StagedFragment(
                registers[(s * groups + block) * words : (s * groups + block + 1) * words],
                self.read_addresses[block % ways],
                (self._line(turn, s) * layout.rows + block // ways * ways * layout.wide * layout.atom) * layout.element,
                tuple((block * layout.wide + w, s) for w in range(layout.wide)),
            )
            for s in range(layout.steps)
            for block in range(groups)
        ]

    def _line(self, turn: int, step: int) -> int:
        """Returns the k, without the lane group's part, of a step's line in the tile."""
        span, within = divmod(step, self.layout.chunk)
        return (turn * self.layout.reads + span) * self.layout.span + within
