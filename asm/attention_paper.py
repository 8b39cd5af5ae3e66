"""The paper's two fused kernels (section "MFMA Kernel"): one wave a workgroup, S = Q K^T by matrix instructions, E through LDS.

    mfma    E^T in LDS at [key·tQ + query], O += E V by matrix instructions, whose A fragment is [(ks·4 + g)·tQ + i] (erratum E17)
    fma     E in LDS by rows, O += E V by v_fmac_f32, a lane's columns for every query

S has queries on registers: D register r of lane group g is query 4g + r, column i its key, so a row's maximum and sum go over 16 lanes
(DPP), and m and delta take tQ/2 registers (E14). K, then V pass through the same LDS tile (E16). Algorithm 1 as printed, but for the finite
floor (E30) and base 2. One wave's LDS operations keep their order: there is no barrier. f32.
"""

from __future__ import annotations

from asm.attention_frame import ARRAYS, AttentionFrame, scalars
from asm.attention_softmax import MINUS_INFINITY
from asm.emit import EmittedKernel, clip
from hardware import mfma
from hardware.errors import ResourceError, UnsupportedInstruction
from hardware.isa.instruction import Reg
from operators.attention import AttentionTiles
from operators.attention_registers import ATOM, column_blocks
from operators.attention_tree import BlockAttentionNode, FusedAttention
from operators.tree import FINITE_FLOOR

QUAD, WORD = 4, 4
SPAN = 16  # columns of Q and K that one 16-byte fragment a lane feeds: four matrix instructions
QUADS = 4  # of the pool: fragments on their way from LDS
LANES = 64
DS_REACH = 1 << 16  # bytes; ds offset has 16 bits (LLVM, all four targets)


class PaperEmitter(AttentionFrame):
    """What both kernels share; a subclass knows where E lies and how O grows."""

    kind = ""

    def __init__(self, plan: AttentionTiles) -> None:
        super().__init__(plan, f"attention_mfma_{self.kind}")
        p = plan.problem
        if p.dtype != "f32":
            raise UnsupportedInstruction(f"the paper's attention kernels are emitted for f32, not for {p.dtype}: use policy corrected")
        rows = [row for row in plan.descriptor.atoms if row.dtype_in == "f32" and row.m == ATOM]
        self.mnemonic = mfma.find(rows[0].mnemonic, plan.descriptor.arch).mnemonic
        self.nq, self.nk = plan.tile_Q // ATOM, plan.tile_KV // ATOM
        self.blocks = column_blocks(plan.d, WORD)

    def visit_device(self, root: FusedAttention) -> EmittedKernel:
        plan, k = self.plan, self.k
        k.comment(f"FusedAttention, MFMA+{self.kind.upper()}: one wave per {plan.tile_Q} queries of a head")
        self._begin()
        self._registers()
        self._addresses()
        block = next(root.children())
        assert isinstance(block, BlockAttentionNode)
        self.visit(block)
        self._end()
        text, used = k.finish()
        return EmittedKernel(
            text, k.name, k.target, plan, (plan.threads, 1, 1), self._grid, used, scalars(plan.problem), ARRAYS, ARRAYS,
            items=tuple(k.scheduled),
        )  # fmt: skip

    # -- registers and addresses -------------------------------------------------------------

    def _registers(self) -> None:
        k, plan = self.k, self.plan
        self.tile = k.region("K or V tile", plan.tile_KV * plan.d * WORD)
        self.weights = k.region("E", plan.tile_KV * plan.tile_Q * WORD)
        if k.lds_bytes > DS_REACH:
            raise ResourceError(f"{k.name}: the tile and E take {k.lds_bytes} bytes of LDS, a DS offset reaches {DS_REACH}: use policy corrected")
        self.queries = k.v.alloc("Q fragments", plan.tile_Q * plan.d // LANES)
        scores = self.nq * self.nk * QUAD
        self.in_place = k.target != "gfx908"
        self.e = k.v.alloc("S and E" if self.in_place else "E", scores)
        self.scores = self.e if self.in_place else k.a.alloc("S", scores)
        self.m, self.delta = k.v.alloc("m", self.nq * QUAD), k.v.alloc("delta", self.nq * QUAD)
        self.factors = k.v.alloc("s: corrections", self.nq * QUAD)
        self.pool = k.v.alloc("fragments", QUADS * QUAD)
        self.temporaries = k.v.alloc("temporaries", QUAD)
        self.zero_c: Reg | int = 0 if self.in_place else k.a.alloc("zero", QUAD)
        for n in range(0 if self.in_place else QUAD):
            k.v_accvgpr_write_b32(self.zero_c[n], 0)
        for register in (self.m[n] for n in range(self.m.count)):
            k.v_mov_b32(register, FINITE_FLOOR, note="m: the finite floor")
        for register in (self.delta[n] for n in range(self.delta.count)):
            k.v_mov_b32(register, 0)

    def _addresses(self) -> None:
        k, plan, a = self.k, self.plan, self.arguments
        buffer, self.memory = k.s.alloc("Q buffer", 4), k.s.alloc("K or V buffer", 4)
        offset, self.staging = k.v.alloc("offset"), k.v.alloc("tile address")
        k.v_lshlrev_b32(self.staging, 2, self.group)
        k.v_mul_u32_u24(offset, plan.d, self.lane_row)
        k.v_add_lshl_u32(self.staging, self.staging, offset, 2, note="row i, columns 4g.. of the tile")
        k.s.free(self._buffer(buffer, "Q", self.head, self.first_query, self.rows, WORD))
        row = k.s.alloc("row")
        k.v_mul_lo_u32(offset, self.lane_row, a["Q_row"])
        k.v_lshlrev_b32(self.temporaries[0], 4, self.group)
        k.v_add_u32(offset, offset, self.temporaries[0])
        for q in range(self.nq):
            k.s_mul_i32(row, a["Q_row"], ATOM * q)
            for span in range(plan.d // SPAN):
                k.buffer_load_dwordx4(self._query(q, span), offset, buffer, row, offen=True, offset=span * SPAN * WORD, note=f"Q[{q}][{span}]")
        k.s.free(row, buffer)
        k.v.free(offset)
        self.atom_row = k.s.alloc("atom's first row")

    def _query(self, q: int, span: int) -> Reg:
        first = (q * (self.plan.d // SPAN) + span) * QUAD
        return self.queries[first : first + QUAD]

    def _score(self, registers: Reg, q: int, key: int) -> Reg:
        first = (q * self.nk + key) * QUAD
        return registers[first : first + QUAD]

    def _quad(self, number: int, count: int = QUAD) -> Reg:
        first = number % QUADS * QUAD
        return self.pool[first : first + count]

    # -- main loop ---------------------------------------------------------------------------

    def visit_block(self, block: BlockAttentionNode) -> None:
        k, done = self.k, self.k.new_label("no_keys")
        self._start()
        k.s_cmp_eq_u32(self.steps_left, 0)
        k.s_cbranch_scc1(done)
        with k.loop("keys", self.steps_left):
            self._stage("K")
            self._products()
            self._mask()
            self._softmax()
            self._store_weights()
            self._stage("V")
            self._accumulate()
            k.s_add_u32(self.first_key, self.first_key, self.plan.tile_KV)
        k.label(done)

    def _start(self) -> None:
        """O = 0."""
        raise NotImplementedError

    def _stage(self, name: str) -> None:
        """The step's K or V to the LDS tile, 16 rows by 16 columns a load; rows past the view are 0."""
        k, plan = self.k, self.plan
        k.comment(f"{name}:({plan.tile_KV},{plan.d}) to LDS")
        k.s.free(self._buffer(self.memory, name, self.shared_head, None, self.arguments["lk"], WORD))
        offset, part = self.temporaries[0], self.temporaries[1]
        k.v_add_u32(offset, self.first_key, self.lane_row)
        k.v_mul_lo_u32(offset, offset, self.arguments[f"{name}_row"])
        k.v_lshlrev_b32(part, 4, self.group)
        k.v_add_u32(offset, offset, part)
        pieces = [(n, span) for n in range(self.nk) for span in range(plan.d // SPAN)]
        for first in range(0, len(pieces), QUADS):
            batch = list(enumerate(pieces[first : first + QUADS]))
            for number, (n, span) in batch:
                if span == 0:
                    k.s_mul_i32(self.atom_row, self.arguments[f"{name}_row"], ATOM * n)
                k.buffer_load_dwordx4(self._quad(number), offset, self.memory, self.atom_row, offen=True,
                                      offset=span * SPAN * WORD, note=f"{name}[{n}][{span}]")  # fmt: skip
            for number, (n, span) in batch:
                k.ds_write_b128(self.staging, self._quad(number), offset=self._piece(n, span))

    def _piece(self, n: int, span: int) -> int:
        return self.tile.offset + (ATOM * n * self.plan.d + span * SPAN) * WORD

    def _products(self) -> None:
        """S = Q K^T; fragments of K come from LDS some ahead of their use."""
        k = self.k
        pieces = [(n, span) for span in range(self.plan.d // SPAN) for n in range(self.nk)]

        def read(number: int) -> None:
            if number < len(pieces):
                k.ds_read_b128(self._quad(number), self.staging, offset=self._piece(*pieces[number]), note=f"K{list(pieces[number])}")

        k.comment("S = Q K^T")
        for number in range(QUADS - 1):
            read(number)
        for number, (n, span) in enumerate(pieces):
            read(number + QUADS - 1)
            for step in range(QUAD):
                for q in range(self.nq):
                    d = self._score(self.scores, q, n)
                    k.emit(self.mnemonic, d, self._query(q, span)[step], self._quad(number)[step], d if span or step else self.zero_c,
                           note=f"S[{q}][{n}] += Q[{q}] K[{n}], span {span}")  # fmt: skip

    def _mask(self) -> None:
        """Scores to E's registers; where an edge cuts the step, what a query does not see to -inf, out of line."""
        k, back = self.k, self.k.new_label("unmasked")
        for n in range(0 if self.in_place else self.e.count):
            k.v_accvgpr_read_b32(self.e[n], self.scores[n])
        limit = k.s.alloc("limit")
        k.s_add_u32(limit, self.first_key, self.plan.tile_KV)
        with k.out_of_line("masked", back) as masked:
            self._masked()
        k.s_cmp_gt_i32(limit, self.full_high)
        k.s_cbranch_scc1(masked)
        if self.plan.problem.window is not None:
            k.s_cmp_lt_i32(self.first_key, self.full_low)
            k.s_cbranch_scc1(masked)
        k.label(back)
        k.s.free(limit)

    def _masked(self) -> None:
        k, p = self.k, self.plan.problem
        position, bound, key = self.temporaries[0], self.temporaries[1], self.temporaries[2]
        minus_infinity, offset = self.temporaries[3], k.s.alloc("offset")
        k.v_mov_b32(minus_infinity, MINUS_INFINITY)
        for q in range(self.nq):
            for r in range(QUAD):
                k.s_add_u32(offset, self.position, ATOM * q + r)
                k.v_lshlrev_b32(position, 2, self.group)
                k.v_add_u32(position, offset, position, note=f"place of query {ATOM * q} + 4g + {r} among the keys")
                self._bound_keys(position, bound, p.causal, p.window is not None)
                for n in range(self.nk):
                    e = self._score(self.e, q, n)[r]
                    k.s_add_u32(offset, self.first_key, ATOM * n)
                    k.v_add_u32(key, offset, self.lane_row)
                    k.v_cmp_ge_i32("vcc", bound, key)
                    k.v_cndmask_b32(e, minus_infinity, e, "vcc")
                    if p.window is not None:
                        k.v_add_u32(key, self.arguments["window"], key)
                        k.v_cmp_gt_i32("vcc", key, position)
                        k.v_cndmask_b32(e, minus_infinity, e, "vcc")
        k.s.free(offset)

    def _bound_keys(self, position: Reg, bound: Reg, causal: bool, windowed: bool) -> None:
        """bound = the last key that a query at `position` sees."""
        k = self.k
        k.v_mov_b32(bound, self.high)
        if windowed:
            k.v_add_u32(bound, self.arguments["window"], position)
            k.v_add_u32(bound, -1, bound)
            k.v_min_i32(bound, self.high, bound)
        if causal:
            k.v_min_i32(bound, bound, position)

    def _softmax(self) -> None:
        """Algorithm 1, lines 4 to 7: m, s, E, delta of every row."""
        k, c, largest, old = self.k, self.arguments["scale"], self.temporaries[0], self.temporaries[1]
        k.comment("m, s, E, delta: a row is a register of 16 lanes")
        for q in range(self.nq):
            for r in range(QUAD):
                row = q * QUAD + r
                e = [self._score(self.e, q, n)[r] for n in range(self.nk)]
                k.v_max_f32(largest, e[0], e[-1])
                for register in e[1:-1]:
                    k.v_max_f32(largest, largest, register)
                self._over_row("v_max_f32", largest)
                k.v_mul_f32(largest, c, largest)
                k.v_mov_b32(old, self.m[row])
                k.v_max_f32(self.m[row], old, largest, note=f"m of query {ATOM * q} + 4g + {r}")
                k.v_sub_f32(old, old, self.m[row])
                k.v_exp_f32(self.factors[row], old)
                k.v_sub_f32(largest, 0, self.m[row])
                for register in e:
                    k.v_fma_f32(register, register, c, largest)
                    k.v_exp_f32(register, register)
                k.v_add_f32(largest, e[0], e[1]) if len(e) > 1 else k.v_mov_b32(largest, e[0])
                for register in e[2:]:
                    k.v_add_f32(largest, largest, register)
                self._over_row("v_add_f32", largest)
                k.v_mul_f32(self.delta[row], self.delta[row], self.factors[row])
                k.v_add_f32(self.delta[row], self.delta[row], largest)

    def _over_row(self, operation: str, value: Reg) -> None:
        """Joins a value over 16 lanes."""
        for step in (8, 4, 2, 1):
            self.k.emit(f"{operation}_dpp", value, value, value, row_ror=step, row_mask="0xf", bank_mask="0xf")

    def _store_weights(self) -> None:
        """E to LDS."""
        raise NotImplementedError

    def _accumulate(self) -> None:
        """O = O·s + E V."""
        raise NotImplementedError

    def _end(self) -> None:
        """O / delta to memory."""
        raise NotImplementedError

    def _inverses(self) -> None:
        """factors = 1/delta, 0 for a query that saw no key."""
        k, zero = self.k, self.temporaries[0]
        k.v_mov_b32(zero, 0)
        for row in range(self.nq * QUAD):
            k.v_cmp_eq_f32("vcc", 0, self.delta[row])
            k.v_rcp_f32(self.factors[row], self.delta[row])
            k.v_cndmask_b32(self.factors[row], self.factors[row], zero, "vcc")

    def _result(self) -> Reg:
        buffer = self.k.s.alloc("R buffer", 4)
        self.k.s.free(self._buffer(buffer, "R", self.head, self.first_query, self.rows, WORD))
        return buffer


class MatrixValues(PaperEmitter):
    """MFMA+MFMA."""

    kind = "mfma"

    def _start(self) -> None:
        k, plan = self.k, self.plan
        self.o = k.a.alloc("O", plan.tile_Q * plan.d // LANES)
        for n in range(self.o.count):
            k.v_accvgpr_write_b32(self.o[n], 0)
        self.rows_of_e = k.v.alloc("E fragments", 2 * self.nq)
        self.e_write, self.e_read = k.v.alloc("E write address"), k.v.alloc("E read address")
        k.v_mul_u32_u24(self.e_write, plan.tile_Q, self.lane_row)
        k.v_lshlrev_b32(self.e_read, 2, self.group)
        k.v_add_lshl_u32(self.e_write, self.e_write, self.e_read, 2, note="[key i][query 4g]")
        k.v_mul_u32_u24(self.e_read, plan.tile_Q, self.group)
        k.v_add_lshl_u32(self.e_read, self.e_read, self.lane_row, 2, note="[key g][query i]")
        self.v_read = {wide: k.v.alloc(f"V address, {wide} atoms") for _, wide in self.blocks}
        for wide, address in self.v_read.items():
            k.v_mul_u32_u24(address, plan.d, self.group)
            k.v_mul_u32_u24(self.temporaries[0], wide, self.lane_row)
            k.v_add_lshl_u32(address, address, self.temporaries[0], 2, note="[key g][column wide·i]")

    def _output(self, t: int, q: int) -> Reg:
        first = (t * self.nq + q) * QUAD
        return self.o[first : first + QUAD]

    def _store_weights(self) -> None:
        k, plan = self.k, self.plan
        k.comment("E^T to LDS at [key·tQ + query]")
        for q in range(self.nq):
            for n in range(self.nk):
                place = self.weights.offset + (ATOM * n * plan.tile_Q + ATOM * q) * WORD
                k.ds_write_b128(self.e_write, self._score(self.e, q, n), offset=place, note=f"E[{q}][{n}]")

    def _accumulate(self) -> None:
        k, plan = self.k, self.plan
        k.comment("O = O·s")
        moving = self.pool
        for t in range(plan.d // ATOM):
            for q in range(self.nq):
                o = self._output(t, q)
                for r in range(QUAD):
                    k.v_accvgpr_read_b32(moving[r], o[r])
                for r in range(QUAD):
                    k.v_mul_f32(moving[r], self.factors[q * QUAD + r], moving[r])
                for r in range(QUAD):
                    k.v_accvgpr_write_b32(o[r], moving[r])
        k.comment("O += E V")
        steps = plan.tile_KV // QUAD
        items = [(step, block) for step in range(steps) for block in range(len(self.blocks))]
        self._read_weights(0)
        for item in range(QUADS - 1):
            self._read_values(items, item)
        for number, (step, block) in enumerate(items):
            if block == 0 and step + 1 < steps:
                self._read_weights(step + 1)
            self._read_values(items, number + QUADS - 1)
            column, wide = self.blocks[block]
            for w in range(wide):
                for q in range(self.nq):
                    o, e = self._output(column // ATOM + w, q), self.rows_of_e[step % 2 * self.nq + q]
                    k.emit(self.mnemonic, o, e, self._quad(number)[w], o, note=f"O[{q}] += E[{q}] V, keys {QUAD * step} + g")

    def _read_values(self, items: list[tuple[int, int]], number: int) -> None:
        if number < len(items):
            step, block = items[number]
            column, wide = self.blocks[block]
            place = self.tile.offset + (QUAD * step * self.plan.d + column) * WORD
            self.k.emit(f"ds_read_b{32 * wide}", self._quad(number, wide), self.v_read[wide], offset=place)

    def _read_weights(self, step: int) -> None:
        for q in range(self.nq):
            place = self.weights.offset + (QUAD * step * self.plan.tile_Q + ATOM * q) * WORD
            target = self.rows_of_e[step % 2 * self.nq + q]
            self.k.ds_read_b32(target, self.e_read, offset=place, note=f"E[{q}], keys {QUAD * step} + g")

    def _end(self) -> None:
        k, a = self.k, self.arguments
        self._inverses()
        buffer, row = self._result(), k.s.alloc("row")
        first, address = self.temporaries[0], self.temporaries[1]
        k.v_lshlrev_b32(first, 2, self.group)
        k.v_mul_lo_u32(first, first, a["R_row"])
        for q in range(self.nq):
            for r in range(QUAD):
                k.s_mul_i32(row, a["R_row"], ATOM * q + r)
                for number, (column, wide) in enumerate(self.blocks):
                    values = self._quad(number, wide)
                    for w in range(wide):
                        k.v_accvgpr_read_b32(values[w], self._output(column // ATOM + w, q)[r])
                        k.v_mul_f32(values[w], self.factors[q * QUAD + r], values[w])
                    k.v_mul_u32_u24(address, wide * WORD, self.lane_row)
                    k.v_add_u32(address, first, address)
                    suffix = f"x{wide}" if wide > 1 else ""
                    k.emit(f"buffer_store_dword{suffix}", values, address, buffer, row, offen=True, offset=column * WORD)
        k.s_endpgm()


class VectorValues(PaperEmitter):
    """MFMA+FMA: a lane has columns lane, lane + 64, .. of every query's O."""

    kind = "fma"

    def _start(self) -> None:
        k, plan = self.k, self.plan
        self.chunks = -(-plan.d // LANES)
        self.corrections = k.region("corrections", plan.tile_Q * WORD)
        self.o = k.v.alloc("O", plan.tile_Q * self.chunks)
        for n in range(self.o.count):
            k.v_mov_b32(self.o[n], 0)
        free = [self._quad(n) for n in range(self.chunks, QUADS)]
        self.rows_of_e = free or [k.v.alloc("E, 4 keys", QUAD)]
        self.e_write, self.column = k.v.alloc("E write address"), k.v.alloc("4·lane")
        k.v_mul_u32_u24(self.e_write, QUAD * plan.tile_KV, self.group)
        k.v_add_lshl_u32(self.e_write, self.e_write, self.lane_row, 2, note="[query 4g][key i]")
        k.v_lshlrev_b32(self.column, 2, k.work_item)

    def _output(self, row: int, chunk: int) -> Reg:
        return self.o[row * self.chunks + chunk]

    def _store_weights(self) -> None:
        k, plan = self.k, self.plan
        k.comment("E to LDS by rows")
        for q in range(self.nq):
            for n in range(self.nk):
                for r in range(QUAD):
                    place = self.weights.offset + ((ATOM * q + r) * plan.tile_KV + ATOM * n) * WORD
                    k.ds_write_b32(self.e_write, self._score(self.e, q, n)[r], offset=place)

    def _scale_output(self) -> None:
        """O times the factors, which the lanes of a row have and all lanes need."""
        k, address = self.k, self.temporaries[0]
        k.v_lshlrev_b32(address, 4, self.group)
        for q in range(self.nq):
            factors = self.factors[q * QUAD : (q + 1) * QUAD]
            k.ds_write_b128(address, factors, offset=self.corrections.offset + ATOM * q * WORD)
        k.v_mov_b32(address, 0)
        for n in range(self.plan.tile_Q // QUAD):
            k.ds_read_b128(self._quad(n), address, offset=self.corrections.offset + n * QUAD * WORD)
            for r in range(QUAD):
                for chunk in range(self.chunks):
                    o = self._output(QUAD * n + r, chunk)
                    k.v_mul_f32(o, self._quad(n)[r], o)

    def _accumulate(self) -> None:
        k, plan = self.k, self.plan
        k.comment("O = O·s")
        self._scale_output()
        k.comment("O += E V, four keys at a time")
        keys, of_e, of_v = k.s.alloc("keys left"), self.temporaries[0], self.temporaries[1]
        k.s_mov_b32(keys, plan.tile_KV)
        k.v_mov_b32(of_e, 0)
        k.v_mov_b32(of_v, self.column)
        with k.loop("values", keys, QUAD):
            for chunk in range(self.chunks):
                for key in range(QUAD):
                    place = self.tile.offset + (key * plan.d + LANES * chunk) * WORD
                    k.ds_read_b32(self._quad(chunk)[key], of_v, offset=place, note=f"V, key {key}, column lane + {LANES * chunk}")
            for row in range(plan.tile_Q):
                e = self.rows_of_e[row % len(self.rows_of_e)]
                k.ds_read_b128(e, of_e, offset=self.weights.offset + row * plan.tile_KV * WORD, note=f"E of query {row}, to all lanes")
                for key in range(QUAD):
                    for chunk in range(self.chunks):
                        k.v_fmac_f32(self._output(row, chunk), e[key], self._quad(chunk)[key])
            k.v_add_u32(of_e, QUAD * WORD, of_e)
            k.v_add_u32(of_v, QUAD * plan.d * WORD, of_v)
        k.s.free(keys)

    def _end(self) -> None:
        k, plan, a = self.k, self.plan, self.arguments
        self._inverses()
        self._scale_output()
        buffer, row, limit = self._result(), k.s.alloc("row"), k.s.alloc("columns left")
        address = self.temporaries[1]
        for chunk in range(self.chunks):
            k.s_mov_b32(limit, plan.d - LANES * chunk)
            clip(k, address, self.column, limit, k.work_item, note="columns past the last: outside")
            for query in range(plan.tile_Q):
                k.s_mul_i32(row, a["R_row"], query)
                k.buffer_store_dword(self._output(query, chunk), address, buffer, row, offen=True, offset=LANES * chunk * WORD)
        k.s_endpgm()
