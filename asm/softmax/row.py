"""A wave's part of a row in registers, as f32: loads, scale, masks, exponentials, stores.

Register r of a lane holds column 64·s + width·lane + i of the part, where r = s + i is in a group of `width` registers that
starts at s. Groups are as wide as a 128-bit load, and narrower at the end, so that loads and stores are contiguous over the wave.
A raw buffer that ends with the row clips both, by dwords. So the last 16-bit element of an odd number is moved on its own. The
code for such rows is apart: rows of whole dwords (`whole_dwords`) do not run any of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

from simgpu.asm.builder.kernel import WAVEFRONT, KernelBuilder
from simgpu.asm.parts.buffers import DWORDS, REACH
from simgpu.asm.parts.integer_math import log2
from simgpu.asm.parts.lanes import Narrowing, unpack, widen
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.softmax.plan import LOAD_BYTES


@dataclass(frozen=True)
class LoadGroup:
    """Registers of one load of a lane."""

    start: int  # first register
    width: int  # number of registers


def groups(count: int, widest: int) -> list[LoadGroup]:
    """Returns the groups of `count` registers."""
    found, start = [], 0
    for width in (widest, 4, 2, 1):
        while width <= count - start and width <= widest:
            found.append(LoadGroup(start, width))
            start += width
    return found


@dataclass(frozen=True)
class Window:
    """Columns of the part that count."""

    end: Reg  # SGPR: columns below this one count
    first: Reg | None  # SGPR: columns from this one on count; None: from 0
    everywhere: bool  # True if any register may hold a column outside; False: only the last group's


def whole_dwords(k: KernelBuilder, arguments: Mapping[str, Reg], nbytes: Mapping[str, int]) -> Reg:
    """Returns an SGPR that is 0 if n, or pointers and strides of 2-byte elements, are not multiples of 4 bytes.

    nbytes: bytes of an element by array.
    """
    aligned = k.s.alloc("rows of whole dwords")
    narrow = [name for name in ("X", "Y") if nbytes[name] == 2]
    k.s_mov_b32(aligned, arguments["n"])
    for name in narrow:
        k.s_or_b32(aligned, aligned, arguments[f"ld{name.lower()}"])
    k.s_lshl_b32(aligned, aligned, 1)
    for name in narrow:
        k.s_or_b32(aligned, aligned, arguments[name][0])
    k.s_and_b32(aligned, aligned, 3)
    k.s_cselect_b32(aligned, 0, 1, note="elements in pairs?")
    return aligned


class RowPart:
    """Emits the code for one part of a row.

        kinds       types of X and of Y; that of Y is not wider
        registers   VGPRs, one per element
        lane        VGPR, lane·16
        offset      a VGPR
        scratch     four VGPRs
        aligned     SGPR, 0 if rows of 16-bit elements may end with half a dword; None if there are none
    """

    def __init__(
        self, k: KernelBuilder, kinds: tuple[str, str], registers: Reg, lane: Reg, offset: Reg, scratch: Reg, aligned: Reg | None
    ) -> None:
        self.k, self.kind, self.registers, self.lane, self.offset = k, kinds[0], registers, lane, offset
        self.bytes, self.stored_bytes = (dtype(kind).bytes for kind in kinds)
        self.scratch, self.aligned = scratch, aligned
        self.groups = groups(registers.count, LOAD_BYTES // self.bytes)
        self.narrowing = Narrowing(k, kinds[1]) if self.stored_bytes == 2 else None

    @property
    def columns(self) -> int:
        """Number of columns in the part."""
        return WAVEFRONT * self.registers.count

    def lanes(self, group: LoadGroup) -> tuple[int, ...]:
        """Returns the group's registers, as indices into `registers`."""
        return tuple(range(group.start, group.start + group.width))

    def _addresses(self, element: int, among: Sequence[LoadGroup] | None = None) -> Iterator[tuple[LoadGroup, Reg, int]]:
        """Yields groups with the VGPR and the immediate of a lane's first element. The VGPR is valid until the next group.

        element: bytes of an element, 1 for a mask. among: groups, None for all.
        """
        k, base = self.k, None
        for group in among or self.groups:
            start, lane_bytes = WAVEFRONT * group.start * element, group.width * element
            key = lane_bytes, start // REACH
            if key != base:
                base = key
                address = self.lane if key == (LOAD_BYTES, 0) else self.offset
                if lane_bytes < LOAD_BYTES:
                    k.v_lshrrev_b32(self.offset, log2(LOAD_BYTES // lane_bytes), self.lane)
                if key[1]:
                    source = self.lane if lane_bytes == LOAD_BYTES else self.offset
                    k.v_add_u32(self.offset, key[1] * REACH, source)
            yield group, address, start % REACH

    def load(self, resource: Reg, name: str) -> None:
        """Loads the part into registers; 0 past the buffer's end."""
        self.load_all(((self, resource),), name)

    def load_all(self, parts: Sequence[tuple[RowPart, Reg]], name: str) -> None:
        """Loads parts of the same size as this one, each from its buffer; 0 past the buffer's end.

        All loads are issued before the first is waited for.
        """
        if self.aligned is None or self.bytes > 2:
            self._start_loads(parts, name)
            return
        with self._by_pairs("load") as odd:
            self._start_loads(parts, name)
            for part, _ in parts:
                part._unpack()
            odd()
            lasts = [self.scratch[i] for i in range(len(parts))]
            self._start_loads(parts, name)
            for (part, resource), last in zip(parts, lasts, strict=True):
                part._load_last(resource, last)
            for (part, resource), last in zip(parts, lasts, strict=True):
                part._place_last(resource, last)
                part._unpack()

    def _start_loads(self, parts: Sequence[tuple[RowPart, Reg]], name: str) -> None:
        for part, resource in parts:
            part._load_wide(resource, name)

    @contextmanager
    def _by_pairs(self, name: str) -> Iterator[Callable[[], None]]:
        """Emits two blocks: one for rows of whole dwords, one for others. Yields a call that ends the first."""
        k, odd, done = self.k, self.k.new_label(f"{name}_odd"), self.k.new_label(f"{name}_done")

        def other() -> None:
            k.s_branch(done)
            k.label(odd)

        assert self.aligned is not None
        k.s_cmp_eq_u32(self.aligned, 0)
        k.s_cbranch_scc1(odd)
        yield other
        k.label(done)

    def _dword(self, group: LoadGroup, i: int, stored: bool = False) -> Reg:
        """Returns dword i of a group as loaded or, if `stored`, as it will be stored."""
        return self.registers[group.start + i + (0 if stored else group.width - group.width // 2)]

    def _load_last(self, resource: Reg, last: Reg) -> None:
        """Loads the row's last element into a VGPR of all lanes, if it is half a dword."""
        k, done = self.k, self.k.new_label("last_loaded")
        with k.out_of_line("load_last", done) as start:
            at = k.s.alloc("last element")
            k.s_sub_u32(at, resource[2], self.bytes)
            k.v_mov_b32(last, at)
            k.buffer_load_ushort(last, last, resource, 0, offen=True, note="the row's last element, half a dword")
            k.s.free(at)
        k.s_bitcmp1_b32(resource[2], log2(self.bytes))
        k.s_cbranch_scc1(start)
        k.label(done)

    def _place_last(self, resource: Reg, last: Reg) -> None:
        """Moves what `_load_last` loaded to its dword, in the lane that holds the last element."""

        def place(group: LoadGroup, address: Reg, immediate: int) -> None:
            for i in range(group.width // 2):
                self.k.s_sub_u32(limit, resource[2], self.bytes + immediate + 2 * self.bytes * i)
                self.k.v_cmp_eq_u32("vcc", limit, address)
                held = self._dword(group, i)
                self.k.v_cndmask_b32(held, held, last, "vcc")

        limit = self.k.s.alloc("limit")
        self._at_last("place_last", resource, self.bytes, place)
        self.k.s.free(limit)

    def _store_last(self, resource: Reg) -> None:
        """Stores the row's last element, if it is half a dword: each lane of its group stores the lower half of its dwords."""

        def store(group: LoadGroup, address: Reg, immediate: int) -> None:
            for i in range(group.width // 2):
                self.k.buffer_store_short(self._dword(group, i, stored=True), address, resource, 0, offen=True,
                                          offset=immediate + 2 * self.stored_bytes * i, note="lower halves of dwords")  # fmt: skip

        self._at_last("store_last", resource, self.stored_bytes, store)

    def _at_last(self, name: str, resource: Reg, element: int, move: Callable[[LoadGroup, Reg, int], None]) -> None:
        """Emits `move` of the group with the row's last element, out of line for rows that end with half a dword."""
        k, done = self.k, self.k.new_label(f"{name}_done")
        with k.out_of_line(name, done) as start:
            for group, address, immediate in self._addresses(element, [group for group in self.groups if group.width > 1] or None):
                other, first = k.new_label("other_group"), WAVEFRONT * group.start * element
                k.s_cmp_le_u32(resource[2], first)
                k.s_cbranch_scc1(other)
                k.s_cmp_gt_u32(resource[2], first + WAVEFRONT * group.width * element)
                k.s_cbranch_scc1(other)
                move(group, address, immediate)
                k.label(other)
        k.s_bitcmp1_b32(resource[2], log2(element))
        k.s_cbranch_scc1(start)
        k.label(done)

    def _unpack(self) -> None:
        """Unpacks the elements that `_load_wide` loaded into the upper registers of each group, one per register."""
        for group in self.groups:
            half = group.width // 2
            for i in range(half):
                low, high = group.start + 2 * i, group.start + 2 * i + 1
                unpack(self.k, self.kind, self.registers[low], self.registers[high], self.registers[group.start + half + i])
            if not half:
                widen(self.k, self.kind, self.registers[group.start])

    def _load_wide(self, resource: Reg, name: str) -> None:
        for group, address, immediate in self._addresses(self.bytes):
            note = f"{name} columns {64 * group.start} + {group.width}·lane"
            words = group.width * self.bytes // 4
            start = group.start + group.width - max(1, words)
            target = self.registers[start : start + max(1, words)]
            ending = DWORDS[words] if words else "ushort"
            self.k.emit(f"buffer_load_{ending}", target, address, resource, 0, offen=True, offset=immediate, note=note)

    def store(self, resource: Reg, name: str) -> None:
        """Rounds the registers to the type and stores them. Overwrites them."""
        if self.narrowing is None or self.aligned is None:
            self._store_wide(resource, name)
            return
        with self._by_pairs("store") as odd:
            self._pack_pairs(self.narrowing)
            self._store_wide(resource, name)
            odd()
            self._pack_pairs(self.narrowing)
            self._store_wide(resource, name)
            self._store_last(resource)

    def _pack_pairs(self, narrowing: Narrowing) -> None:
        """Rounds pairs to the type, into the lower registers of each group."""
        for group in self.groups:
            for i in range(group.width // 2):
                low, high = group.start + 2 * i, group.start + 2 * i + 1
                narrowing.pack(self.registers[group.start + i], self.registers[low], self.registers[high], self.scratch[0])

    def _store_wide(self, resource: Reg, name: str) -> None:
        for group, address, immediate in self._addresses(self.stored_bytes):
            words = group.width * self.stored_bytes // 4
            source, ending = self.registers[group.start : group.start + max(1, words)], DWORDS.get(words, "")
            if not words:
                assert self.narrowing is not None
                ending = self.narrowing.narrow_one(source, self.scratch[0])
            note = f"{name} columns {64 * group.start} + {group.width}·lane"
            self.k.emit(f"buffer_store_{ending}", source, address, resource, 0, offen=True, offset=immediate, note=note)

    # -- values ------------------------------------------------------------------------------

    def scale(self, factor: Reg) -> None:
        """Multiplies every element by an SGPR or VGPR."""
        for r in range(self.registers.count):
            self.k.v_mul_f32(self.registers[r], factor, self.registers[r])

    def clip(self, window: Window) -> None:
        """Replaces elements outside the window by -infinity, so that they count 0 after exp (E30)."""
        k, width = self.k, 0
        self.leave_out_value()
        limit, within = k.s.alloc("limit"), k.s.alloc("columns from the first that counts")
        if window.first is not None:
            k.s_sub_i32(within, window.end, window.first)
            k.s_max_i32(within, within, 0)
        for group in self.groups if window.everywhere else self.groups[-1:]:
            if group.width != width:
                width = group.width
                k.v_lshrrev_b32(self.offset, log2(LOAD_BYTES // width), self.lane, note=f"{width}·lane")
            for i, r in enumerate(self.lanes(group)):
                column = WAVEFRONT * group.start + i
                if window.first is None:
                    k.s_sub_u32(limit, window.end, column)
                    k.v_cmp_gt_i32("vcc", limit, self.offset)
                else:
                    k.s_sub_u32(limit, column, window.first)
                    k.v_add_u32(self.scratch[0], limit, self.offset)
                    k.v_cmp_gt_u32("vcc", within, self.scratch[0])
                note = f"columns {column} + {width}·lane"
                self.leave_out(r, note)
        k.s.free(limit, within)

    def leave_out_value(self) -> None:
        """Emits the constant that `leave_out` needs: -infinity."""
        self.k.v_mov_b32(self.scratch[2], -inf)

    def leave_out(self, r: int, note: str = "") -> None:
        """Replaces element r by -infinity in lanes that VCC excludes."""
        self.k.v_cndmask_b32(self.registers[r], self.scratch[2], self.registers[r], "vcc", note=note)

    def mask(self, resource: Reg, flags: Reg) -> None:
        """Replaces elements whose byte of the mask is 0 by -infinity. flags: VGPRs for the widest group's bytes."""
        k = self.k
        self.leave_out_value()
        for group, address, immediate in self._addresses(1):
            for i in range(group.width):
                k.buffer_load_ubyte(flags[i], address, resource, 0, offen=True, offset=immediate + i, note="mask")
            for i, r in enumerate(self.lanes(group)):
                k.v_cmp_ne_u32("vcc", 0, flags[i])
                self.leave_out(r)

    def maximum(self, m: Reg) -> None:
        """Emits m = the largest of m and the lane's elements; NaNs do not count (v_max3_f32)."""
        k, count = self.k, self.registers.count
        for r in range(0, count - 1, 2):
            k.v_max3_f32(m, m, self.registers[r], self.registers[r + 1])
        if count % 2:
            k.v_max_f32(m, m, self.registers[count - 1])

    def exponentials(self, m: Reg) -> None:
        """Replaces every element by 2^(element - m)."""
        k = self.k
        for r in range(self.registers.count):
            k.v_subrev_f32(self.registers[r], m, self.registers[r])
        for r in range(self.registers.count):
            k.v_exp_f32(self.registers[r], self.registers[r])

    def add(self, delta: Reg) -> None:
        """Adds the lane's elements to delta."""
        for r in range(self.registers.count):
            self.k.v_add_f32(delta, self.registers[r], delta)
