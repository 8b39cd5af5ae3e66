"""Second product of the paper's attention kernels: matrix instructions with E^T from LDS, or v_fmac_f32 with rows of E."""

from __future__ import annotations

from simgpu.asm.attention.frame import scalar_constants
from simgpu.asm.attention.paper import PaperEmitter
from simgpu.asm.attention.shape import widest
from simgpu.asm.builder.formula import log2, of
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import clip
from simgpu.asm.parts.lanes import HIGH_HALVES, LOW_HALVES, Narrowing, gather_column, widen
from simgpu.asm.parts.matrix import read_scaled, scale
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.attention.paper.registers import FRAGMENTS, GROUPS, QUAD, chunks
from simgpu.operators.attention.problem import ATOM


class MatrixValues(PaperEmitter):
    """MFMA+MFMA: the second product by matrix instructions."""

    kind = "attention_mfma_mfma"

    def value_addresses(self) -> None:
        k = self.k
        self.e_write, self.e_read = k.v.alloc("E write address"), k.v.alloc("E read address")
        widths = dict.fromkeys(wide for _, wide in self.blocks)
        self.v_read = {wide: self.tile_address(f"V address, {wide} atoms") for wide in widths}

    def _start(self) -> None:
        k, plan = self.k, self.plan
        self.narrow = self.e_bytes < WORD
        # Keys of one step. A lane group has one of them in f32, a D register's four in 2-byte types.
        self.keys = ATOM if self.narrow else GROUPS
        self.value_row = widest(self.rows, self.keys)
        self.o = k.array("O", self.tile_q * plan.d // WAVEFRONT)
        k.move(self.o, 0)
        self.weights_of = 2 if self.narrow else 1  # registers of a lane's E
        self.rows_of_e = k.array("E fragments", 2 * self.nq * self.weights_of)
        if self.narrow:
            self.columns = k.array("V fragments", 2 * self.blocks[0][1])
            self.narrowing = Narrowing(k, plan.problem.dtype)
            self.pack = scalar_constants(k, "selector of halves", LOW_HALVES, HIGH_HALVES)
        i, g, first = of(self.block.lane_row), of(self.block.group), of(self.block.group) * (self.keys // GROUPS)
        base = self.weights.offset
        k.set(self.e_write, (i * self.tile_q + g * QUAD) * self.e_bytes + base, note="[key i][query 4g]")
        k.set(self.e_read, (first * self.tile_q + i) * self.e_bytes + base, note="[the group's first key][query i]")
        for wide, address in self.v_read.items():
            k.set(address, (first * plan.d + i * wide) * self.e_bytes, note="[the group's first key][column wide·i]")
            self._reach(address)

    def _output(self, t: int, q: int) -> Reg:
        return self.o.group(t * self.nq + q, QUAD)

    def _store_weights(self) -> None:
        k = self.k
        k.comment("E^T to LDS at [key·tQ + query]")
        for q in range(self.nq):
            for n in range(self.nk):
                e = self._score(self.e, q, n)
                if self.narrow:
                    for pair in (0, 1):
                        self.narrowing.pack(e[pair], e[2 * pair], e[2 * pair + 1], self.temporaries[0])
                place = (ATOM * n * self.tile_q + ATOM * q) * self.e_bytes
                count = QUAD * self.e_bytes // WORD
                k.ds_write(self.e_write, e[0:count], offset=place, note=f"E[{q}][{n}]")

    def _accumulate(self) -> None:
        k, plan = self.k, self.plan
        k.comment("O = O·s")
        for t in range(plan.d // ATOM):
            for q in range(self.nq):
                scale(k, self._output(t, q), [self.factors[q * QUAD + r] for r in range(QUAD)], self.pool)
        k.comment("O += E V")
        steps = self.tile_kv // self.keys
        items = [(step, block) for step in range(steps) for block in range(len(self.blocks))]
        ahead = 1 if self.narrow else FRAGMENTS  # fragments of V that the pool holds
        self._read_weights(0)
        for item in range(ahead - 1):
            self._read_values(items, item)
        for number, (step, block) in enumerate(items):
            if block == 0 and step + 1 < steps:
                self._read_weights(step + 1)
            self._read_values(items, number + ahead - 1)
            if self.narrow:
                self._interleave(block)
            column, wide = self.blocks[block]
            for w in range(wide):
                for q in range(self.nq):
                    self._multiply(number, step, column // ATOM + w, w, q)

    def _multiply(self, number: int, step: int, t: int, w: int, q: int) -> None:
        k, o, size = self.k, self._output(t, q), self.value_row.registers("A")
        for part in range(0, self.weights_of, size):
            v = self.columns[2 * w + part : 2 * w + part + size] if self.narrow else self._quad(number)[w]
            e = self._weights(step, q)[part : part + size]
            k.emit(self.value_row.mnemonic, o, e, v, o, note=f"O[{q}] += E[{q}] V, keys from {self.keys * step}")

    def _weights(self, step: int, q: int) -> Reg:
        return self.rows_of_e.group(step % 2 * self.nq + q, self.weights_of)

    def _read_values(self, items: list[tuple[int, int]], number: int) -> None:
        if number >= len(items):
            return
        step, block = items[number]
        column, wide = self.blocks[block]
        for s in range(self.keys // GROUPS):
            place = self.tile.offset + ((self.keys * step + s) * self.plan.d + column) * self.e_bytes
            address, offset = self._at(self.v_read[wide], place)
            row = self._quad(s, max(1, wide // 2)) if self.narrow else self._quad(number, wide)
            self.k.ds_read(row, address, offset=offset, nbytes=wide * self.e_bytes)

    def _interleave(self, block: int) -> None:
        """Interleaves a lane's four rows of V, of 2-byte elements, into the fragments of each column atom."""
        for w in range(self.blocks[block][1]):
            gather_column(self.k, self.columns[2 * w : 2 * w + 2], [self._quad(n) for n in range(QUAD)], w, self.pack)

    def _read_weights(self, step: int) -> None:
        k = self.k
        for q in range(self.nq):
            held = self._weights(step, q)
            for s in range(self.keys // GROUPS):
                place = ((self.keys * step + s) * self.tile_q + ATOM * q) * self.e_bytes
                note = f"E[{q}], keys from {self.keys * step}, {s}"
                if s % 2 == 0 or not self.narrow:
                    k.ds_read(held[s // self.weights_of], self.e_read, offset=place, nbytes=self.e_bytes, note=note)
                else:  # a load to the high half clears the low one, with SRAM-ECC
                    k.ds_read_u16_d16_hi(self.temporaries[s // 2], self.e_read, offset=place, note=note)
            for pair in range(held.count if self.narrow else 0):
                k.v_or_b32(held[pair], held[pair], self.temporaries[pair])

    def _end(self) -> None:
        k, a = self.k, self.block.arguments
        self._inverses()
        buffer, row = self._result(), k.s.alloc("row")
        first, address = self.temporaries[0], self.temporaries[1]
        k.set(first, of(self.block.group) * QUAD * a["R_row"])
        for q in range(self.nq):
            for r in range(QUAD):
                k.s_mul_i32(row, a["R_row"], ATOM * q + r)
                for column, wide in self.blocks:
                    k.set(address, of(self.block.lane_row) * (wide * WORD) + first)
                    for w in range(0, wide, QUAD):
                        values = self._quad(w // QUAD, min(wide, QUAD))
                        columns = [self._output(column // ATOM + w + n, q)[r] for n in range(values.count)]
                        read_scaled(k, values, columns, [self.factors[q * QUAD + r]] * values.count)
                        k.buffer_store(values, address, buffer, row, offset=(column + w) * WORD)


class VectorValues(PaperEmitter):
    """MFMA+FMA: a lane has columns lane, lane + 64, .. of every query's O."""

    kind = "attention_mfma_fma"

    def value_addresses(self) -> None:
        self.e_write, self.column = self.k.v.alloc("E write address"), self.k.v.alloc("4·lane")

    def _start(self) -> None:
        k, plan = self.k, self.plan
        self.chunks = chunks(plan.d)
        self.corrections = k.region("corrections", self.tile_q * WORD)
        self.o = k.array("O", self.tile_q * self.chunks)
        k.move(self.o, 0)
        free = [self._quad(n) for n in range(self.chunks, FRAGMENTS)]
        self.rows_of_e = free or [k.array("E, 4 keys", QUAD)]
        place = of(self.block.group) * (QUAD * self.tile_kv) + self.block.lane_row
        k.set(self.e_write, place * WORD + self.weights.offset, note="[query 4g][key i]")
        k.set(self.column, of(k.work_item) * WORD)

    def _output(self, row: int, chunk: int) -> Reg:
        return self.o[row * self.chunks + chunk]

    def _store_weights(self) -> None:
        k = self.k
        k.comment("E to LDS by rows")
        for q in range(self.nq):
            for n in range(self.nk):
                for r in range(QUAD):
                    place = ((ATOM * q + r) * self.tile_kv + ATOM * n) * WORD
                    k.ds_write_b32(self.e_write, self._score(self.e, q, n)[r], offset=place)

    def _scale_output(self) -> None:
        """Multiplies O by the factors, which pass through LDS because only the lanes of a query's row have them."""
        k, address = self.k, self.temporaries[0]
        k.set(address, of(self.block.group) * (QUAD * WORD) + self.corrections.offset)
        for q in range(self.nq):
            k.ds_write_b128(address, self.factors.group(q, QUAD), offset=ATOM * q * WORD)
        k.v_mov_b32(address, self.corrections.offset)
        for n in range(self.tile_q // QUAD):
            k.ds_read_b128(self._quad(n), address, offset=n * QUAD * WORD)
            for r in range(QUAD):
                for chunk in range(self.chunks):
                    o = self._output(QUAD * n + r, chunk)
                    k.v_mul_f32(o, self._quad(n)[r], o)

    def _accumulate(self) -> None:
        self.k.comment("O = O·s")
        self._scale_output()
        for first in range(0, self.chunks, FRAGMENTS):
            self._accumulate_columns(range(first, min(first + FRAGMENTS, self.chunks)))

    def _accumulate_columns(self, columns: range) -> None:
        """Emits O += E V for as many of a lane's columns as the fragments hold, four keys at a time."""
        k, plan = self.k, self.plan
        k.comment(f"O += E V, four keys at a time, columns from {WAVEFRONT * columns[0]}")
        of_e, of_v = self.temporaries[0], self.temporaries[1]
        k.v_mov_b32(of_e, self.weights.offset)
        k.v_lshrrev_b32(of_v, log2(WORD // self.e_bytes), self.column)
        with k.loop("values", self.tile_kv, QUAD):
            for chunk in columns:
                for key in range(QUAD):
                    place = self.tile.offset + (key * plan.d + WAVEFRONT * chunk) * self.e_bytes
                    note = f"V, key {key}, column lane + {WAVEFRONT * chunk}"
                    k.ds_read(self._quad(chunk)[key], of_v, offset=place, nbytes=self.e_bytes, note=note)
            if self.e_bytes < WORD:
                for n in range(len(columns) * QUAD):
                    widen(k, plan.problem.dtype, self.pool[n])
            for row in range(self.tile_q):
                e = self.rows_of_e[row % len(self.rows_of_e)]
                k.ds_read_b128(e, of_e, offset=row * self.tile_kv * WORD, note=f"E of query {row}, to all lanes")
                for key in range(QUAD):
                    for chunk in columns:
                        k.v_fmac_f32(self._output(row, chunk), e[key], self._quad(chunk)[key])
            k.v_add_u32(of_e, QUAD * WORD, of_e)
            k.v_add_u32(of_v, QUAD * plan.d * self.e_bytes, of_v)

    def _end(self) -> None:
        k, plan, a = self.k, self.plan, self.block.arguments
        self._inverses()
        self._scale_output()
        buffer, row = self._result(), k.s.alloc("row")
        address = self.temporaries[1]
        for chunk in range(self.chunks):
            clip(k, address, self.column, plan.d - WAVEFRONT * chunk, k.work_item, note="columns past the last: outside")
            for query in range(self.tile_q):
                k.s_mul_i32(row, a["R_row"], query)
                k.buffer_store(self._output(query, chunk), address, buffer, row, offset=WAVEFRONT * chunk * WORD)
