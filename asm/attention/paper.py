"""Two fused kernels of the paper (section "MFMA Kernel"): one wave a workgroup, S = Q K^T by matrix instructions, E through LDS.

    mfma    E^T in LDS at [key·tQ + query], O += E V by matrix instructions. In step ks, lane i of lane group g reads its
            A element at [(ks·4 + g)·tQ + i] (erratum E17)
    fma     E in LDS by rows, O += E V by v_fmac_f32; a lane has some columns of every query

S has queries in registers: D register r of lane group g is query 4g + r, and column i is its key. So a row's maximum m and sum
delta are reductions over 16 lanes (DPP), and m and delta together need tQ/2 registers (E14). K, then V use the same LDS tile
(E16). Algorithm 1 is as printed, except for the finite floor (E30) and exponentials to base 2. One wave's LDS operations keep
their order, so there is no barrier.

In f16 and bf16, LDS tiles have that type. The matrix kernel also rounds E to it (f16: after multiplication by GAINS). It reads a
lane's four keys of E one by one, because of the layout [key·tQ + query], and those of V row by row.
"""

from __future__ import annotations

import math

from simgpu.asm.attention.fused import FusedEmitter
from simgpu.asm.attention.shape import matrix_instructions, widest
from simgpu.asm.attention.softmax import MINUS_INFINITY, inverse
from simgpu.asm.builder.formula import of
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.lanes import lanes_reduce
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.attention.paper.registers import FRAGMENTS, GROUPS, QUAD, is_far, key_vector, weight_bytes
from simgpu.operators.attention.problem import ATOM, GAINS
from simgpu.operators.attention.registers import column_blocks
from simgpu.operators.attention.tree import BlockAttentionNode, FusedAttention
from simgpu.operators.resources import DS_REACH
from simgpu.operators.tree import FINITE_FLOOR


class PaperEmitter(FusedEmitter):
    """Base of both kernels' emitters. A subclass defines the layout of E and the update of O."""

    def __init__(self, root: FusedAttention) -> None:
        super().__init__(root)
        plan, self.values = root.plan, root.values
        self.tile_q, self.tile_kv = root.loop("queries").tile, next(root.children()).loop("keys").tile
        self.e_bytes, self.rows = plan.problem.element.bytes, matrix_instructions(plan)
        self.vec = key_vector(plan.d, self.e_bytes)
        self.span = GROUPS * self.vec  # columns of Q and K in one fragment of all lanes
        self.piece = self.vec * self.e_bytes // WORD  # registers of that fragment
        self.row = widest(self.rows, self.span)
        self.nq, self.nk = self.tile_q // ATOM, self.tile_kv // ATOM
        self.blocks = column_blocks(plan.d, self.e_bytes)

    def _prologue(self) -> None:
        self._registers()
        self._addresses()

    # -- registers and addresses -------------------------------------------------------------

    def _registers(self) -> None:
        k, plan = self.k, self.plan
        self.tile = k.region("K or V tile", self.tile_kv * plan.d * self.e_bytes)
        self.weights = k.region("E", self.tile_kv * self.tile_q * weight_bytes(plan.problem.dtype, self.values))
        self.far: dict[Reg, Reg] = {}
        self.staging = self.tile_address("tile address")
        self.value_addresses()
        self.in_place = k.target != "gfx908"
        scores = self.nq * self.nk * QUAD
        self.queries = k.array("Q fragments", self.tile_q * plan.d * self.e_bytes // (WAVEFRONT * WORD))
        self.e = k.array("S and E" if self.in_place else "E", scores)
        self.scores = self.e if self.in_place else k.array("S", scores)
        self.m, self.delta, self.factors = (k.array(name, self.nq * QUAD) for name in ("m", "delta", "corrections"))
        self.pool, self.temporaries = k.array("fragments", FRAGMENTS * QUAD), k.array("temporaries", QUAD)
        self.raised = math.log2(GAINS.get(plan.problem.dtype, 1)) if self.values == "mfma" else 0.0  # largest exponent of E
        self.zero_c: Reg | int = 0
        if not self.in_place:
            self.zero_c = k.array("zero", QUAD)
            k.move(self.zero_c, 0)
        k.move(self.m, FINITE_FLOOR, note="m: the finite floor")
        k.move(self.delta, 0)

    def _addresses(self) -> None:
        k, plan, a = self.k, self.plan, self.block.arguments
        buffer, self.memory = k.s.alloc("Q buffer", 4), k.s.alloc("K or V buffer", 4)
        offset, column = self.temporaries[1], of(self.block.group) * self.vec
        k.set(self.staging, (column + of(self.block.lane_row) * plan.d) * self.e_bytes, note="row i, columns vec·g.. of the tile")
        self._reach(self.staging)
        self.block.buffer(buffer, "Q", plan.d * self.e_bytes)
        row = k.s.alloc("row")
        k.set(offset, of(self.block.lane_row) * a["Q_row"] + column * self.e_bytes)
        for q in range(self.nq):
            k.s_mul_i32(row, a["Q_row"], ATOM * q)
            for span in range(plan.d // self.span):
                self._load(self._query(q, span), offset, buffer, row, span, f"Q[{q}][{span}]")
        k.s.free(row, buffer)
        self.atom_row = k.s.alloc("atom's first row")

    def value_addresses(self) -> None:
        """Allocates the address registers that the second product needs."""
        raise NotImplementedError

    def tile_address(self, name: str) -> Reg:
        """Allocates a register for an address in the tile, and a second one if offsets exceed the reach of a DS instruction."""
        address = self.k.v.alloc(name)
        if is_far(self.tile_kv, self.plan.d, self.e_bytes):
            self.far[address] = self.k.v.alloc(f"{name}, 64 KB on")
        return address

    def _reach(self, address: Reg) -> None:
        if address in self.far:
            self.k.v_add_u32(self.far[address], DS_REACH, address)

    def _at(self, address: Reg, place: int) -> tuple[Reg, int]:
        """Returns register and offset of a byte of the tile, from a lane's address."""
        return (address, place) if place < DS_REACH else (self.far[address], place - DS_REACH)

    def _load(self, target: Reg, offset: Reg, buffer: Reg, row: Reg, span: int, note: str) -> None:
        self.k.buffer_load(target, offset, buffer, row, offset=span * self.span * self.e_bytes, note=note)

    def _query(self, q: int, span: int) -> Reg:
        return self.queries.group(q * (self.plan.d // self.span) + span, self.piece)

    def _score(self, registers: Reg, q: int, key: int) -> Reg:
        return registers.group(q * self.nk + key, QUAD)

    def _quad(self, number: int, count: int = QUAD) -> Reg:
        first = number % FRAGMENTS * QUAD
        return self.pool[first : first + count]

    # -- main loop ---------------------------------------------------------------------------

    def visit_block(self, block: BlockAttentionNode) -> None:
        k = self.k
        self._start()
        with k.jump_over(k.s_cmp_eq_u32(self.block.steps_left, 0), "no_keys"), k.loop("keys", self.block.steps_left):
            self._stage("K")
            self._products()
            self._mask()
            self._softmax()
            self._store_weights()
            self._stage("V")
            self._accumulate()
            k.s_add_u32(self.block.first_key, self.block.first_key, self.tile_kv)

    def _start(self) -> None:
        """Emits O = 0."""
        raise NotImplementedError

    def _stage(self, name: str) -> None:
        """Moves the step's K or V to the LDS tile, 16 rows by 16 columns a load. Rows past the view are 0."""
        k, plan = self.k, self.plan
        k.comment(f"{name}:({self.tile_kv},{plan.d}) to LDS")
        self.block.buffer(self.memory, name, plan.d * self.e_bytes)
        offset = self.temporaries[0]
        row = (of(self.block.lane_row) + self.block.first_key) * self.block.arguments[f"{name}_row"]
        k.set(offset, row + of(self.block.group) * (self.vec * self.e_bytes))
        pieces = [(n, span) for n in range(self.nk) for span in range(plan.d // self.span)]
        for first in range(0, len(pieces), FRAGMENTS):
            batch = list(enumerate(pieces[first : first + FRAGMENTS]))
            for number, (n, span) in batch:
                if span == 0:
                    k.s_mul_i32(self.atom_row, self.block.arguments[f"{name}_row"], ATOM * n)
                self._load(self._quad(number, self.piece), offset, self.memory, self.atom_row, span, f"{name}[{n}][{span}]")
            for number, (n, span) in batch:
                address, place = self._at(self.staging, self._place(n, span))
                k.ds_write(address, self._quad(number, self.piece), offset=place)

    def _place(self, n: int, span: int) -> int:
        return self.tile.offset + (ATOM * n * self.plan.d + span * self.span) * self.e_bytes

    def _products(self) -> None:
        """Emits S = Q K^T. Fragments of K are read from LDS a few ahead of their use."""
        k = self.k
        pieces = [(n, span) for span in range(self.plan.d // self.span) for n in range(self.nk)]
        size = self.row.registers("A")

        def read(number: int) -> None:
            if number < len(pieces):
                address, place = self._at(self.staging, self._place(*pieces[number]))
                k.ds_read(self._quad(number, self.piece), address, offset=place, note=f"K{list(pieces[number])}")

        k.comment("S = Q K^T")
        for number in range(FRAGMENTS - 1):
            read(number)
        for number, (n, span) in enumerate(pieces):
            read(number + FRAGMENTS - 1)
            for step in range(self.span // self.row.k):
                part = slice(step * size, (step + 1) * size)
                for q in range(self.nq):
                    d = self._score(self.scores, q, n)
                    c = d if span or step else self.zero_c
                    k.emit(self.row.mnemonic, d, self._query(q, span)[part], self._quad(number)[part], c,
                           note=f"S[{q}][{n}] += Q[{q}] K[{n}], span {span}")  # fmt: skip

    def _mask(self) -> None:
        """Moves scores to E's registers. If an edge cuts the step, sets scores that a query does not see to -inf, out of line."""
        k, back = self.k, self.k.new_label("unmasked")
        if not self.in_place:
            k.move(self.e, self.scores)
        with k.out_of_line("masked", back) as masked:
            self._mask_scores()
        with k.temporary(of(self.block.first_key) + self.tile_kv) as limit:
            k.s_cmp_gt_i32(limit, self.block.full_high)
        k.s_cbranch_scc1(masked)
        if self.plan.problem.window is not None:
            k.branch(k.s_cmp_lt_i32(self.block.first_key, self.block.full_low), masked)
        k.label(back)

    def _mask_scores(self) -> None:
        k, p = self.k, self.plan.problem
        position, bound, key = self.temporaries[0], self.temporaries[1], self.temporaries[2]
        minus_infinity = self.temporaries[3]
        k.v_mov_b32(minus_infinity, MINUS_INFINITY)
        for q in range(self.nq):
            for r in range(QUAD):
                place = of(self.block.group) * QUAD + (of(self.block.position) + (ATOM * q + r))
                k.set(position, place, note=f"place of query {ATOM * q} + 4g + {r} among the keys")
                self._bound_keys(position, bound, p.causal, p.window is not None)
                for n in range(self.nk):
                    e = self._score(self.e, q, n)[r]
                    k.set(key, of(self.block.first_key) + ATOM * n + self.block.lane_row)
                    k.v_cndmask_b32(e, minus_infinity, e, k.v_cmp_ge_i32("vcc", bound, key))
                    if p.window is not None:
                        k.v_add_u32(key, self.block.arguments["window"], key)
                        k.v_cndmask_b32(e, minus_infinity, e, k.v_cmp_gt_i32("vcc", key, position))

    def _bound_keys(self, position: Reg, bound: Reg, causal: bool, windowed: bool) -> None:
        """Emits bound = the last key that a query at `position` sees."""
        k = self.k
        k.v_mov_b32(bound, self.block.high)
        if windowed:
            k.v_add3_u32(bound, self.block.arguments["window"], position, -1)
            k.v_min_i32(bound, self.block.high, bound)
        if causal:
            k.v_min_i32(bound, bound, position)

    def _softmax(self) -> None:
        """Emits Algorithm 1, lines 4 to 7: m, s, E, delta of every row."""
        k, c, largest, old = self.k, self.block.arguments["scale"], self.temporaries[0], self.temporaries[1]
        k.comment("m, s, E, delta: a row is a register of 16 lanes")
        for q in range(self.nq):
            for r in range(QUAD):
                row = q * QUAD + r
                e = [self._score(self.e, q, n)[r] for n in range(self.nk)]
                k.v_max_f32(largest, e[0], e[-1])
                for register in e[1:-1]:
                    k.v_max_f32(largest, largest, register)
                lanes_reduce(k, "v_max_f32", largest, largest, ATOM, "m")
                k.v_mul_f32(largest, c, largest)
                k.v_mov_b32(old, self.m[row])
                k.v_max_f32(self.m[row], old, largest, note=f"m of query {ATOM * q} + 4g + {r}")
                k.v_exp_f32(self.factors[row], k.v_sub_f32(old, old, self.m[row]))
                k.v_sub_f32(largest, self.raised or 0, self.m[row])
                for register in e:
                    k.v_exp_f32(register, k.v_fma_f32(register, register, c, largest))
                k.v_add_f32(largest, e[0], e[1]) if len(e) > 1 else k.v_mov_b32(largest, e[0])
                for register in e[2:]:
                    k.v_add_f32(largest, largest, register)
                lanes_reduce(k, "v_add_f32", largest, largest, ATOM, "delta")
                k.v_mul_f32(self.delta[row], self.delta[row], self.factors[row])
                k.v_add_f32(self.delta[row], self.delta[row], largest)

    def _store_weights(self) -> None:
        """Writes E to LDS."""
        raise NotImplementedError

    def _accumulate(self) -> None:
        """Emits O = O·s + E V."""
        raise NotImplementedError

    def _inverses(self) -> None:
        """Emits factors = 1/delta, 0 for a query that saw no key."""
        for row in range(self.nq * QUAD):
            inverse(self.k, self.factors[row], self.delta[row])

    def _result(self) -> Reg:
        buffer = self.k.s.alloc("R buffer", 4)
        self.block.buffer(buffer, "R", self.plan.d * WORD)
        return buffer
