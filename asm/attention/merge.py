"""Sums of partial O: of a block's waves through LDS, divided by the row sums and stored; of split keys' parts, by a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from simgpu.asm.attention.frame import LSE, PARTIAL, STATISTICS
from simgpu.asm.attention.shape import QUAD
from simgpu.asm.attention.softmax import SoftmaxUpdate, inverse, log_sum_exp
from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.formula import Formula, log2, of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.add_parts import in_batches
from simgpu.asm.parts.buffers import OUTSIDE, clip, new_buffer
from simgpu.asm.parts.integer_math import add_wide, multiply_wide
from simgpu.asm.parts.matrix import read_scaled
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.attention.problem import ATOM
from simgpu.operators.attention.registers import LOOP_RANGES, WAVES, merge_row_words, partial_columns
from simgpu.operators.attention.tree import FusedAttention
from simgpu.operators.cost import TOGETHER

LARGEST = 3.4028234663852886e38  # -m of a query that saw no key: larger than any other, so that other waves' m are used
STATE_BYTES = 2 * WORD
THREADS = WAVES * WAVEFRONT


@dataclass(frozen=True)
class AttentionOutput:
    """Destination of R, or of a part's undivided O if the keys are split."""

    buffer: Reg  # raw buffer at the block's first query
    columns: int  # columns of a row
    statistics: Reg | None  # buffer of the block's (-m, row sum) pairs, if the keys are split
    logarithms: Reg | None  # buffer of the block's log(sum(exp)), if it is wanted


class Merge:
    """Emits the end of a block. Its LDS is allocated here."""

    def __init__(self, softmax: SoftmaxUpdate) -> None:
        self.softmax, self.wave, self.k, self.block = softmax, softmax.wave, softmax.k, softmax.block
        self.partial, self.statistics = (self.k.region(array.name, array.nbytes) for array in self.block.plan.resources.lds)
        self.queries = ATOM * self.wave.shape.nq
        self.row_bytes = merge_row_words(self.wave.shape.dv, self.wave.shape.e) * WORD

    def emit(self, output: AttentionOutput) -> None:
        """Emits partial sums and O to memory."""
        k, self.output = self.k, output
        k.comment("the waves' references and row sums meet in LDS")
        spent = (self.wave.ranges[name] for name in LOOP_RANGES if name in self.wave.ranges)
        k.v.free(*(held for held in spent if held.file == "v"), listed=True)
        self._exchange_statistics()
        self.parts = k.v.alloc("partial O", WAVES * QUAD)
        factors = k.v.alloc("O's factor", self.wave.shape.nq)
        for q in range(self.wave.shape.nq):
            self._factor(q, factors[q])
        self._add_partials(factors)

    def _exchange_statistics(self) -> None:
        k, softmax = self.k, self.softmax
        none, address = k.v.alloc("none"), k.v.alloc("statistics address")
        k.v_mov_b32(none, LARGEST)
        k.set(address, of(softmax.lane_row) * WORD + of(self.block.wave_number) * (2 * self.queries * WORD))
        for q in range(self.wave.shape.nq):
            softmax.end(q)
            k.v_cmp_gt_f32("vcc", 0, softmax.thresholds[q], note="no key seen")
            k.v_cndmask_b32(softmax.references[q], softmax.references[q], none, "vcc")
            for number, value in enumerate((softmax.references[q], softmax.sums[q])):
                k.ds_write_b32(address, value, offset=self._place(0, number, q))
        k.s_barrier()
        k.v.free(none, address)

    def _place(self, wave: int, number: int, q: int) -> int:
        """Returns the LDS offset, relative to a lane's 4i, of a wave's reference (number 0) or row sum (1) of query 16q + i."""
        return self.statistics.offset + ((2 * wave + number) * self.queries + ATOM * q) * WORD

    def _factor(self, q: int, factor: Reg) -> None:
        """Emits factor = 2^(m - M), with the wave's m and the largest M of the four waves.

        It is divided by the total row sum unless a later kernel divides, and multiplied by V's scale, if there is one.
        """
        k, softmax, output = self.k, self.softmax, self.output
        references, sums, pair, address = self.parts[0:4], self.parts[4:8], self.parts[8:10], self.parts[10]
        largest, total = pair[0], pair[1]
        k.v_lshlrev_b32(address, log2(WORD), softmax.lane_row)
        for number, target in enumerate((references, sums)):
            for wave in range(WAVES):
                k.ds_read_b32(target[wave], address, offset=self._place(wave, number, q))
        k.v_min3_f32(largest, references[0], references[1], references[2])
        k.v_min_f32(largest, largest, references[3])
        k.v_mov_b32(total, 0)
        for wave in range(WAVES):
            k.v_exp_f32(references[wave], k.v_sub_f32(references[wave], largest, references[wave]))
            k.v_fmac_f32(total, references[wave], sums[wave])
        k.v_exp_f32(factor, k.v_sub_f32(factor, largest, softmax.references[q]))
        if output.logarithms is not None:
            log_sum_exp(k, self.parts[11], total, largest)
            self._store_row(q, self.parts[11:12], output.logarithms, "log(sum(exp))")
        if output.statistics is None:
            inverse(k, total, total)
            k.v_mul_f32(factor, factor, total)
        else:
            self._store_row(q, pair, output.statistics, "-m, row sum")
        if self.block.scale_v is not None:
            k.v_mul_f32(factor, self.block.scale_v, factor)

    def _store_row(self, q: int, value: Reg, buffer: Reg, what: str) -> None:
        """Stores one or two words of each query of an atom, by the first wave."""
        with self.k.jump_over(self.k.s_cmp_lg_u32(self.block.wave_number, 0), "stored"):
            self.block.store_of_rows(q, value, buffer, [self.parts[n] for n in (12, 13, 14)], what)

    def _add_partials(self, factors: Reg) -> None:
        k, shape = self.k, self.wave.shape
        row = of(self.block.wave_number) * ATOM + self.softmax.lane_row
        write = k.vector("LDS write address", row * self.row_bytes)
        values = k.v.alloc("O", QUAD)
        rows = {wide: k.vector(f"row, {wide} atoms", of(k.work_item) // (QUAD * wide)) for wide in shape.widths}
        place = {wide: of(row) * self.row_bytes + self._column(wide) * WORD for wide, row in rows.items()}
        readers = {wide: (k.vector(f"LDS read address, {wide} atoms", place[wide]), row) for wide, row in rows.items()}
        for q in range(shape.nq):
            for block, (column, wide) in enumerate(shape.blocks):
                k.comment(f"queries {ATOM * q}.., columns {column}..: the waves' O to LDS, added from there")
                if q or block:
                    k.s_barrier(note="the last sums have been read")
                self._write(q, block, factors[q], write, values)
                k.s_barrier()
                self._sum(q, column, wide, readers[wide])
        k.v.free(write, values)

    def _write(self, q: int, block: int, factor: Reg, write: Reg, values: Reg) -> None:
        """Writes a lane's 4·wide adjacent columns to LDS, four at a time."""
        k = self.k
        atoms = self.wave.shape.atoms_of(block)
        wide = len(atoms)
        group = k.vector("column", of(self.softmax.group) * (QUAD * wide * WORD) + write)
        for first in range(0, QUAD * wide, QUAD):
            places = (divmod(n, wide) for n in range(first, first + QUAD))
            read_scaled(k, values, [self.wave.output(atoms[w], q)[r] for r, w in places], [factor] * QUAD)
            k.ds_write_b128(group, values, offset=self.partial.offset + first * WORD)
        k.v.free(group)

    def _column(self, wide: int) -> Formula:
        """Returns the first of a work-item's four columns in a block of `wide` atoms."""
        return of(self.k.work_item) % (QUAD * wide) * QUAD

    def _sum(self, q: int, column: int, wide: int, reader: tuple[Reg, Reg]) -> None:
        k = self.k
        address, row = reader
        done = k.new_label("added")
        if wide < WAVES:
            k.branch(k.s_cmp_ge_u32(self.block.wave_number, wide), done)
        parts = self.parts
        rows = ATOM * WAVES // max(WAVES, wide)  # rows that a round of the work-items covers
        for first in range(0, ATOM, rows):
            for wave in range(WAVES):
                k.ds_read_b128(parts.group(wave, QUAD), address,
                               offset=self.partial.offset + (wave * ATOM + first) * self.row_bytes)  # fmt: skip
            for wave in range(1, WAVES):
                for n in range(QUAD):
                    k.v_add_f32(parts[n], parts[n], parts[QUAD * wave + n])
            self._store(parts, ATOM * q + first, row, column, wide)
        k.label(done)

    def _store(self, parts: Reg, first: int, row: Reg, column: int, wide: int) -> None:
        """Stores a work-item's four columns of row `first` + row. Columns that do not exist are skipped."""
        k, a, output = self.k, self.block.arguments, self.output
        offset, spare, place = parts[4], parts[5], parts[6]
        k.v_add_u32(place, first, row)
        self.block.row_offset(offset, place, (a["R_row"], a["R_head"]), spare)
        k.set(place, self._column(wide) + column)
        k.set(offset, of(place) * WORD + offset)
        ends = column + wide * ATOM > output.columns
        store_columns(k, parts[0:QUAD], offset, place, output.buffer, output.columns, ends, spare)


def store_columns(
    k: KernelBuilder, values: Reg, offset: Reg, column: Reg, buffer: Reg, columns: int, ends: bool, spare: Reg, first: int = 0,
    note: str = "",
) -> None:  # fmt: skip
    """Stores four adjacent columns, from column + `first` on, of a row with `columns` columns.

    ends: True if the row may end among them. offset: VGPR, bytes to `column`. spare: a VGPR.
    """
    whole = columns % QUAD == 0 or not ends
    for n in range(1 if whole else QUAD):
        if ends:
            clip(k, spare, offset, columns - first - n, column, note="columns that do not exist")
        data = values if whole else values[n]
        k.buffer_store(data, spare if ends else offset, buffer, 0, offset=(first + n) * WORD, note=note)


def scratch(root: FusedAttention) -> tuple[tuple[str, int], ...]:
    """Returns names and bytes of the parts' scratch memory."""
    p = root.problem
    rows = root.trips("keys") * p.batch * p.heads * p.lq
    return ((PARTIAL, rows * partial_columns(p.dv) * WORD), (STATISTICS, rows * STATE_BYTES))


def emit_merge(root: FusedAttention) -> EmittedKernel:
    """Returns the kernel that merges the parts of split keys. A work-item has four columns of a row, and loops over its parts."""
    p, parts = root.problem, root.trips("keys")
    k = KernelBuilder(f"attention_merge_{parts}_d{p.dv}" + "_lse" * p.lse, root.descriptor.arch, THREADS)
    width = partial_columns(p.dv)
    pieces = width // QUAD
    rows = THREADS // pieces
    k.comment(f"one workgroup per {rows} rows of R; a part's m and row sum merge with ⊕")
    k.declare("pointer", PARTIAL, STATISTICS, "R", *((LSE,) if p.lse else ()))
    k.declare("i32", "rows", "R_row")
    arguments = k.load_arguments()
    k.work_item_x()
    row = k.vector("row", of(k.work_item, THREADS) // pieces)
    piece = k.vector("piece", of(k.work_item, THREADS) - of(row) * pieces)
    first = k.scalar("first row", of(k.group_x) * rows)
    left = k.scalar("rows left", (of(arguments["rows"]) - first).least(rows, "i32"))
    partial, states = _buffer(k, PARTIAL, arguments, first, width * WORD), _buffer(k, STATISTICS, arguments, first, STATE_BYTES)
    offset = k.vector("partial O offset", of(row) * (width * WORD) + of(piece) * (QUAD * WORD))
    clip(k, offset, offset, left, row, note="rows past the last: outside")
    state_offset = k.vector("statistics offset", of(row) * STATE_BYTES)
    clip(k, state_offset, state_offset, left, row)
    out, total, lowest = _parts(k, parts, (partial, states), (offset, state_offset), width)
    result, address = _result(k, arguments, row, piece, first)
    if p.lse:
        _store_logarithms(k, arguments[LSE], total, lowest, (row, piece, first, left))
    inverse(k, total, total)
    for n in range(QUAD):
        k.v_mul_f32(out[n], out[n], total)
    clip(k, address, address, left, row)
    k.v_lshlrev_b32(piece, 2, piece)
    store_columns(k, out, address, piece, result, p.dv, p.dv < width, k.v.alloc("address of a column"))
    k.s_endpgm()
    count = p.batch * p.heads * p.lq
    scalars = (count, p.dv * WORD)
    return k.finish(grid=(-(-count // rows), 1, 1), scalars=scalars)


def _buffer(k: KernelBuilder, name: str, arguments: dict[str, Reg], first: Reg, row_bytes: int) -> tuple[Reg, Reg, Reg]:
    """Returns a raw buffer at the workgroup's first row of part 0, and the 64-bit step to the next part's."""
    resource, step = new_buffer(k, arguments[name], name, (first, row_bytes)), k.s.alloc(f"{name} step", 2)
    multiply_wide(k, step, arguments["rows"], row_bytes)
    return resource, step[0], step[1]


def _parts(
    k: KernelBuilder, split: int, buffers: tuple[tuple[Reg, Reg, Reg], ...], offsets: tuple[Reg, Reg], d: int
) -> tuple[Reg, Reg, Reg]:
    """Emits the sum of the parts, up to TOGETHER at a time.

    Returns VGPRs with O and row sum, relative to the largest m of all parts, and with minus that m.
    """
    out, total, lowest = k.v.alloc("O", QUAD), k.v.alloc("row sum"), k.v.alloc("-m")
    count = min(split, TOGETHER)
    parts = [(k.v.alloc("part's O", QUAD), k.v.alloc("part's -m, row sum", 2)) for _ in range(count)]
    joint, old = k.v.alloc("joint -m"), k.v.alloc("factor")
    for register in (*(out[n] for n in range(QUAD)), total):
        k.v_mov_b32(register, 0)
    k.v_mov_b32(lowest, LARGEST, note="no key seen")

    def add(number: int) -> None:
        (partial, low, high), (states, state_low, state_high) = buffers
        for part, state in parts[:number]:
            k.buffer_load(state, offsets[1], states, 0)
            k.buffer_load(part, offsets[0], partial, 0, note=f"4 of {d} columns")
            for resource, words in ((partial, (low, high)), (states, (state_low, state_high))):
                add_wide(k, resource, *words, note="next part")
        for part, state in parts[:number]:
            k.v_min_f32(joint, lowest, state[0])
            k.v_exp_f32(old, k.v_sub_f32(old, joint, lowest))
            k.v_exp_f32(state[0], k.v_sub_f32(state[0], joint, state[0]))
            k.v_mov_b32(lowest, joint)
            for sum_, addend in ((total, state[1]), *((out[n], part[n]) for n in range(QUAD))):
                k.v_mul_f32(sum_, old, sum_)
                k.v_fmac_f32(sum_, state[0], addend)

    in_batches(k, split, count, add)
    return out, total, lowest


def _store_logarithms(k: KernelBuilder, base: Reg, total: Reg, lowest: Reg, places: tuple[Reg, Reg, Reg, Reg]) -> None:
    """Stores log(sum(exp)) of the rows, by the work-items of their first columns.

    places: VGPRs row and piece, SGPRs first row and rows left.
    """
    row, piece, first, left = places
    resource, value = new_buffer(k, base, LSE, (first, WORD)), k.v.alloc("LSE")
    log_sum_exp(k, value, total, lowest)
    address = k.vector("LSE offset", of(row) * WORD)
    clip(k, address, address, left, row)
    k.v_cndmask_b32(address, OUTSIDE, address, k.v_cmp_eq_u32("vcc", 0, piece), note="by one work-item a row")
    k.buffer_store(value, address, resource, 0, note="log(sum(exp))")


def _result(k: KernelBuilder, arguments: dict[str, Reg], row: Reg, piece: Reg, first: Reg) -> tuple[Reg, Reg]:
    """Returns R's buffer at the workgroup's first row, and a lane's offset from there. Heads are as contiguous as rows."""
    resource = new_buffer(k, arguments["R"], "R", (first, arguments["R_row"]))
    return resource, k.vector("R offset", of(row) * arguments["R_row"] + of(piece) * (QUAD * WORD))
