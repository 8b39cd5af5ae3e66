"""End of a GEMM: accumulators through the epilogue to C, one row of the tile at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from simgpu.asm.builder.formula import log2, of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.gemm.leaves import StoredLeaf
from simgpu.asm.parts.buffers import OUTSIDE, REACH, clip
from simgpu.asm.parts.elements import Elements
from simgpu.asm.parts.epilogue import Epilogue
from simgpu.hardware.errors import ResourceError
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.gemm.layout import TileLayout

BATCH = 8  # most groups of C in flight at once, if beta reads them
DPP_ROW = 16  # lanes that DPP rotates among
ALL_LANES = {"row_mask": "0xf", "bank_mask": "0xf"}


@dataclass(frozen=True)
class Accumulators:
    """A wave's tile of C, atom by atom.

    A lane of group g (of G) holds, as element r of an atom, row 4G(r//4)+4g+r%4 of A's atom; row Gr+g if elements have 64 bits.
    """

    registers: Reg
    rows: TileLayout  # A's tile
    columns: TileLayout  # B's tile
    per_atom: int  # registers of an atom
    words: int  # registers of an element

    def element(self, mt: int, nt: int, r: int) -> Reg:
        """Returns the registers of one element."""
        return self.atom(mt, nt)[r * self.words : (r + 1) * self.words]

    def atom(self, mt: int, nt: int) -> Reg:
        """Returns the registers of one atom."""
        start = (mt * self.columns.atoms + nt) * self.per_atom
        return self.registers[start : start + self.per_atom]

    @property
    def lane_rows(self) -> int:
        """Number of A-rows from one lane group to the next."""
        return 4 if self.words == 1 else 1

    def tile_rows(self) -> Iterator[tuple[int, int, int]]:
        """Yields (mt, r, row) for each element r of each atom mt. row is for lane group 0; group g adds wide·lane_rows·g."""
        run = self.lane_rows
        for mt in range(self.rows.atoms):
            for r in range(self.per_atom // self.words):
                yield mt, r, self.rows.row_of(mt, run * self.rows.groups * (r // run) + r % run)


@dataclass
class StoreGroup:
    """Consecutive columns of one row in a lane: C[row][column..], moved by one access."""

    mt: int  # atom along rows
    r: int  # element of the lane
    row: int  # row of the tile, without the lane's own part
    block: int  # column block
    data: Reg  # registers of the sums
    old: Reg  # registers of C's old elements
    added: Reg  # registers of the residual
    address: Reg  # byte offset
    ends: Reg  # registers for single elements of C's old group and of the residual's, where the row ends


@dataclass
class TileStore:
    """Emits the store of one wave's tile: `emit(clipped, scaled)` for each of the four cases.

    clipped: True if groups outside the view are not accessed, and those that a row's end cuts by single elements. At most one
    group of a wave's row is cut, and all its rows alike. scaled: True if beta is not 0; only then C is read.

    Buffers are raw, at the tile's first element.
    """

    k: KernelBuilder
    acc: Accumulators
    resource: Reg  # buffer of C, or of partial products
    row: Reg  # VGPR: the lane's first row of the product in the tile
    column: Reg  # VGPR: the lane's first column of the product in the tile
    offset: Reg  # VGPR: C's byte offset there
    stride: Reg  # SGPR: bytes of a row of C
    rows_left: Reg  # SGPR: rows of the product's view from the tile's first on
    columns_left: Reg  # SGPR: columns of the product's view from the tile's first on
    epilogue: Epilogue
    elements: Elements  # of C and the residual
    gated: bool  # True if columns form pairs, gate and up
    bias: tuple[Reg, Elements] | None  # buffer at the tile's first column, and the type
    residual: Reg | None  # buffer
    scales: tuple[Reg, Reg] | None  # buffers of A's scales by row and B's by column
    leaf: StoredLeaf | None  # what becomes of a product before the epilogue

    def __post_init__(self) -> None:
        acc = self.acc
        self.wide, self.words, self.size = acc.columns.wide, self.elements.words, self.elements.size
        self.blocks = acc.columns.atoms // self.wide
        self.stored = max(1, self.wide // 2) if self.gated else self.wide  # elements of C in a group
        self.block_bytes = self.wide * acc.columns.atom * self.size // (2 if self.gated else 1)
        if self.blocks * self.block_bytes > REACH:
            raise ResourceError(
                f"a wave's {acc.columns.warp_rows} columns of C exceed a buffer offset's reach of "
                f"{REACH // self.size}: use more waves along n"
            )

    @property
    def splits_gate(self) -> bool:
        """True if gate and up are in two lanes. Only the first lane stores."""
        return self.gated and self.wide == 1

    def emit(self, clipped: bool, scaled: bool) -> None:
        k, clipped = self.k, clipped or self.splits_gate
        row_address = k.v.alloc("C row offset")
        bias, scales = self._load_bias(clipped), self._load_scales(clipped)
        self.of_rows, self.of_columns = self._load_leaf(clipped)
        self.inside = self._column_masks() if clipped else []
        self.cuts = clipped and self.stored > 1
        self.free = self.epilogue.scratch()
        self.spare = k.v.alloc("other element", self.words)
        slots = self._slots(scaled)
        groups = self._groups(slots)
        while batch := list(islice(groups, len(slots))):
            joins = []
            for group in batch:
                self._address(group, row_address, clipped)
                loaded = [(self.resource, group.old)] * scaled
                loaded += [(self.residual, group.added)] if self.residual is not None else []
                each = group.ends.count // max(1, len(loaded))
                ends = [group.ends[i * each : (i + 1) * each] for i in range(len(loaded))]
                for (resource, data), end in zip(loaded, ends, strict=True):
                    self._transfer("load", group, data, resource, end)
                joins.append(list(zip((data for _, data in loaded), ends, strict=True)))
            for group, join in zip(batch, joins, strict=True):
                self._join_ends(group, join)
                self._store(group, self._combine(group, scaled, bias, scales))
        for slot in slots:
            k.v.free(*(reg for reg in slot if reg.count))
        k.v.free(row_address, self.spare, *self.free, *bias, *(reg for regs in scales for reg in regs))
        k.v.free(*(reg for regs in (*self.of_rows.values(), *self.of_columns.values()) for reg in regs))
        k.s.free(*self.inside, *([self.cut, self.cut_block, self.rest] if self.cuts else []))

    def _slots(self, scaled: bool) -> list[tuple[Reg, ...]]:
        """Returns the registers of each group in flight: as many groups as the plan's registers allow, 1 to BATCH."""
        kind, residual = self.elements, self.residual is not None
        read, added = kind.registers(self.stored) * scaled, kind.registers(self.stored) * residual
        ends = kind.registers(1) * (self.stored - 1) * self.cuts * (scaled + residual)
        slots: list[tuple[Reg, ...]] = []
        sizes = (("C data", self.wide * self.words), ("C old", read), ("residual", added), ("C offset", 1), ("row's end", ends))
        while len(slots) < BATCH:
            taken: list[Reg] = []
            try:
                for name, count in sizes:
                    taken.append(self.k.v.alloc(name, count) if count else Reg("v", 0, 0))
            except ResourceError:
                self.k.v.free(*(reg for reg in taken if reg.count))
                if not slots:
                    raise
                break
            slots.append(tuple(taken))
        return slots

    # -- operands of rows and columns --------------------------------------------------------------

    def _load_vector(
        self, name: str, buffer: tuple[Reg, Elements], first: Reg, places: Sequence[int], left: Reg | None
    ) -> list[Reg]:
        """Loads elements of a vector, unconverted: those at `places`, counted from the lane's first.

        buffer: the vector's, and its type. first: VGPR. left: SGPR, number of elements, if there may be fewer; others read 0.
        """
        k, (resource, kind) = self.k, buffer
        offset, inside = k.vector(f"{name} offset", of(first) * kind.size), k.v.alloc(f"clipped {name} offset")
        values = []
        for place in places:
            if left is not None:
                clip(k, inside, offset, of(left) - place, first)
            values.append(k.v.alloc(name, kind.words))
            kind.load(values[-1], offset if left is None else inside, resource, place * kind.size, f"{name} {place}")
        k.v.free(offset, inside)
        return values

    def _by_column(self, name: str, buffer: tuple[Reg, Elements], clipped: bool) -> list[Reg]:
        """Loads the elements of a vector of n for the lane's columns, by column block, unconverted."""
        places = [self.acc.columns.row_of(number, 0) for number in range(self.blocks * self.wide)]
        return self._load_vector(name, buffer, self.column, places, self.columns_left if clipped else None)

    def _load_bias(self, clipped: bool) -> list[Reg]:
        """Loads the bias of the lane's columns, in the epilogue's type."""
        if self.bias is None:
            return []
        values = self._by_column("bias", self.bias, clipped)
        for value in values:
            self.bias[1].widen(value, value, 0)
        return values

    def _load_scales(self, clipped: bool) -> tuple[list[Reg], list[Reg]]:
        """Loads scales of A for the lane's rows, and of B for its columns. Rows past the view are not stored."""
        if self.scales is None:
            return [], []
        f32, left = Elements(self.k, "f32", "f32"), self.rows_left if clipped else None
        rows = self._load_vector("scale of A's row", (self.scales[0], f32), self.row, self._rows, left)
        return rows, self._by_column("scale of B's column", (self.scales[1], f32), clipped)

    def _load_leaf(self, clipped: bool) -> tuple[dict[str, list[Reg]], dict[str, list[Reg]]]:
        """Loads what the leaf on products takes: values of the lane's rows, and elements of its columns, by name."""
        if self.leaf is None:
            return {}, {}
        f32 = Elements(self.k, "f32", "f32")
        columns = {name: self._by_column(name, (resource, f32), clipped) for name, resource in self.leaf.columns.items()}
        return self.leaf.values.read(self.row, self._rows), columns

    @property
    def _rows(self) -> list[int]:
        """Rows of the tile that the lanes of group 0 have, in the order of `Accumulators.tile_rows`."""
        return [row for _, _, row in self.acc.tile_rows()]

    def _apply_leaf(self, group: StoreGroup, elements: list[Reg]) -> None:
        row = group.mt * (self.acc.per_atom // self.acc.words) + group.r
        for w, element in enumerate(elements if self.leaf is not None else []):
            given = {name: regs[row] for name, regs in self.of_rows.items()}
            given |= {name: regs[group.block * self.wide + w] for name, regs in self.of_columns.items()}
            self.leaf.apply(self.k, element, given)  # type: ignore[union-attr]  # the loop is empty without one

    # -- groups ----------------------------------------------------------------------------------

    def _groups(self, slots: list[tuple[Reg, ...]]) -> Iterator[StoreGroup]:
        number = 0
        for mt, r, row in self.acc.tile_rows():
            for block in range(self.blocks):
                yield StoreGroup(mt, r, row, block, *slots[number % len(slots)])
                number += 1

    def _column_masks(self) -> list[Reg]:
        """Returns a lane mask for each column block: groups that begin in the view.

        Also sets the mask, the block and the elements of C of a group that the view's end cuts. Groups of one element are not cut.
        """
        k, columns = self.k, self.acc.columns
        limit = k.s.alloc("limit")
        inside = [k.s.alloc("inside", 2) for _ in range(self.blocks)]
        if self.stored > 1:
            self.cut, self.cut_block = k.s.alloc("lanes with a cut group", 2), k.s.alloc("block with a cut group")
            self.rest = k.s.alloc("elements of the cut group")
            k.s_and_b32(self.rest, self.columns_left, self.wide - 1)
            k.s_mov_b64(self.cut, 0)
            k.s_mov_b32(self.cut_block, -1)
        for block in range(self.blocks):
            k.s_sub_u32(limit, self.columns_left, columns.row_of(block * self.wide, 0))
            k.v_cmp_gt_i32(inside[block], limit, self.column, note=f"groups of block {block} in the view")
            if self.stored > 1:
                k.s_sub_u32(limit, limit, self.rest)
                k.v_cmp_eq_u32("vcc", limit, self.column, note="the group that its end cuts, if any")
                k.s_and_b64("vcc", "vcc", inside[block])
                k.s_cselect_b32(self.cut_block, block, self.cut_block)
                k.s_or_b64(self.cut, self.cut, "vcc")
        if self.wide > self.stored > 1:
            k.s_lshr_b32(self.rest, self.rest, log2(self.wide // self.stored), note="elements of C")
        k.s.free(limit)
        return inside

    def _address(self, group: StoreGroup, row_address: Reg, clipped: bool) -> None:
        """Emits the group's byte offset, without the instruction's own offset."""
        k = self.k
        if group.block == 0 or not clipped:
            target = row_address if clipped else group.address
            k.set(target, of(self.offset) + of(self.stride) * group.row, note=f"C row {group.row} of the tile")
        if group.block == 0 and clipped:
            clip(k, row_address, row_address, of(self.rows_left) - group.row, self.row)
            if self.splits_gate:
                k.v_and_b32(group.address, 1, self.column)
                k.v_cmp_eq_u32("vcc", 0, group.address)
                k.v_cndmask_b32(row_address, OUTSIDE, row_address, "vcc", note="lanes with an up element store nothing")
        if clipped:
            k.v_cndmask_b32(group.address, OUTSIDE, row_address, self.inside[group.block])

    def _transfer(self, direction: str, group: StoreGroup, data: Reg, resource: Reg, ends: Reg | None = None) -> None:
        """Moves a group between memory and `data`, packed. ends: registers of single elements, to load."""
        k, kind = self.k, self.elements

        def move(moved: Reg, count: int, first: int = 0, high: bool = False) -> None:
            offset, note = group.block * self.block_bytes + first * self.size, f"C row {group.row}, column block {group.block}"
            k.emit(f"buffer_{direction}", moved, group.address, resource, 0, offset=offset, nbytes=count * self.size, high=high,
                   note=note + f", element {first}" * (first > 0))  # fmt: skip

        def move_one(j: int) -> None:
            if ends is None:
                one, high = kind.single(data, j, self.spare[0])
                move(one, 1, j, high)
            else:
                move(self._end(ends, j), 1, j)

        whole = data[0 : kind.registers(self.stored)]
        if not self.cuts:
            move(whole, self.stored)
            return
        moved = k.new_label("moved")
        with self._at_row_end(group, moved):
            k.s_not_b64("exec", self.cut, note="lanes whose group is inside the view")
            move(whole, self.stored)
            self._each_left(move_one)
        move(whole, self.stored)
        k.label(moved)

    def _join_ends(self, group: StoreGroup, loaded: list[tuple[Reg, Reg]]) -> None:
        """Packs single elements that were loaded. loaded: pairs of the group's registers, and those of single elements."""
        if not self.cuts or not loaded:
            return
        joined, insert = self.k.new_label("joined"), self.elements.insert
        with self._at_row_end(group, joined):
            self._each_left(lambda j: [insert(data, j, self._end(ends, j)) for data, ends in loaded])
        self.k.label(joined)

    @contextmanager
    def _at_row_end(self, group: StoreGroup, back: str) -> Iterator[None]:
        """Emits a block, out of line, for waves in which the view's end cuts the group of some lanes. back: the label after it."""
        with self.k.out_of_line("row_end", back) as start:
            yield
        self.k.branch(self.k.s_cmp_eq_u32(self.cut_block, group.block), start)

    def _each_left(self, move: Callable[[int], object]) -> None:
        """Emits `move` of each element that the view's end leaves of a cut group, in the lanes that have it."""
        k, done = self.k, self.k.new_label("row_end_done")
        with k.lanes(self.cut, note="lanes whose group the view's end cuts"):
            for j in range(self.stored - 1):
                k.branch(k.s_cmp_le_i32(self.rest, j), done)
                move(j)
            k.label(done)

    def _end(self, ends: Reg, j: int) -> Reg:
        """Returns the registers of single element j."""
        count = self.elements.registers(1)
        return ends[j * count : (j + 1) * count]

    def _combine(
        self, group: StoreGroup, scaled: bool, bias: list[Reg], scales: tuple[list[Reg], list[Reg]]
    ) -> list[Reg]:
        """Applies the epilogue to a group. Returns the registers of C's elements, consecutive."""
        k, words, epilogue = self.k, self.words, self.epilogue
        elements = [group.data[w * words : (w + 1) * words] for w in range(self.wide)]
        for w, element in enumerate(elements):
            source = self.acc.element(group.mt, group.block * self.wide + w, group.r)
            k.move(element[0 : self.acc.words], source, note=f"A·B: atom {group.mt}, element {group.r}")
        self._apply_leaf(group, elements)
        for element in elements:
            epilogue.scale(element)
        rows, columns = scales
        for w, element in enumerate(elements if rows else []):
            epilogue.multiply(element, columns[group.block * self.wide + w])
            epilogue.multiply(element, rows[group.mt * (self.acc.per_atom // self.acc.words) + group.r])
        for w, element in enumerate(elements if scaled else []):
            epilogue.add_scaled(element, self.elements.widen(self.spare, group.old, w))
        for w, element in enumerate(elements if bias else []):
            epilogue.add(element, bias[group.block * self.wide + w])
        if self.gated:
            elements = self._apply_gate(elements)
        else:
            for element in elements:
                epilogue.activate(element, self.free)
        for j, element in enumerate(elements if self.residual is not None else []):
            epilogue.add(element, self.elements.widen(self.spare, group.added, j))
        return elements

    def _apply_gate(self, elements: list[Reg]) -> list[Reg]:
        """Emits activation(gate)·up for pairs, and packs the results."""
        k, epilogue, columns, results = self.k, self.epilogue, self.acc.columns, []
        rotation = DPP_ROW - (columns.atom // columns.fold if columns.fold > 1 else 1)  # distance to the next column's lane
        ups = [self.spare] if self.splits_gate else elements[1::2]
        for number, (gate, up) in enumerate(zip(elements[:: 1 if self.splits_gate else 2], ups, strict=True)):
            if self.splits_gate:
                for word in range(self.words):
                    k.emit("v_mov_b32_dpp", up[word], gate[word], row_ror=rotation, **ALL_LANES, note="up, of the other lane")
            epilogue.activate(gate, self.free)
            epilogue.multiply(gate, up)
            target = elements[number]
            if target != gate:
                k.move(target, gate)
            results.append(target)
        return results

    def _store(self, group: StoreGroup, elements: list[Reg]) -> None:
        """Rounds and stores C's elements."""
        self.elements.narrow(elements, self.spare[0])
        self._transfer("store", group, group.data, self.resource)
