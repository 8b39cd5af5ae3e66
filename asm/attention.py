"""Register-chained attention: R = softmax(scale · Q K^T) V, S^T and P^T never leaving a wave's registers.

A workgroup's four waves own the same queries and a quarter each of every key step's keys. S^T = K Q^T leaves query i on lane column i,
so the softmax is lane-local (see `attention_softmax`) and P^T is the second product's operand as it lies: O^T += V^T P^T. Nothing of
K, V, S or P goes through LDS; there is no barrier in the loop. Per step, in this order, each stream hiding behind the products:

    S^T of half the queries     V's rows interleaved (2-byte types), next V loaded
    S^T of the other half       softmax of the first half
    O^T of the first half       next K loaded, softmax of the other half
    O^T of the other half       next V loaded (f32)

Edges: raw buffers that end with the view read 0 past it and store nothing there; steps that no query sees are not visited; steps that
some query sees in part are masked out of line.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from asm.attention_merge import Merge, Output
from asm.attention_shape import QUAD, Shape
from asm.attention_softmax import Masks, Softmax
from asm.attention_split import PARTIAL, STATE_BYTES, STATISTICS, emit_merge, scratch
from asm.attention_wave import PACK_HIGH, PACK_LOW, Wave, row_offsets
from asm.emit import RESOURCE_WORD3, WAVEFRONT, EmittedKernel, emits, log2, raw_buffer
from asm.interleave import interleave, stream
from asm.kernel import KernelBuilder
from hardware.errors import LaunchError
from hardware.isa.instruction import Reg
from operators.attention import AttentionProblem, AttentionTiles
from operators.attention_registers import ATOM
from operators.attention_tree import BlockAttentionNode, FusedAttention
from operators.tree import Visitor

ARRAYS = ("Q", "K", "V", "R")
LOG2_E = math.log2(math.e)
REACH = 1 << 31  # bytes of one head that 32-bit offsets may span
LEAD = 6  # matrix instructions before the first filler that waits for their predecessors' results


@emits(FusedAttention)
def emit_attention(root: FusedAttention) -> EmittedKernel:
    """The kernel of an attention tree; UnsupportedInstruction, ResourceError, LaunchError for what cannot be."""
    plan = root.plan
    check(plan)
    return ChainedEmitter(plan).visit(root)


def check(plan: AttentionTiles) -> None:
    """Raises what keeps a plan from being emitted."""
    p = plan.problem
    assert p.scale is not None
    if not p.scale > 0 or not math.isfinite(p.scale):
        raise LaunchError(f"scale = {p.scale}: kernels take the maximum of the scores before scaling, so use a positive scale")
    blocks = p.batch * p.heads * plan.split_kv
    if blocks >= 1 << 16:
        raise LaunchError(f"{p.batch} x {p.heads} heads in {plan.split_kv} parts of the keys make {blocks} rows of workgroups: stay below 65536")
    for name, rows in (("lq", p.lq), ("lk", p.lk)):
        if rows * p.d * 4 >= REACH:
            raise LaunchError(f"{name} = {rows}: a head must stay within 2^31 bytes, so {name} < {REACH // (4 * p.d)}")


def scalars(p: AttentionProblem) -> tuple[int | float, ...]:
    """The arguments behind the pointers for contiguous arrays: lq, lk; bytes of rows and heads of Q, K, V, R; heads of the whole
    batch; window; scale · log2(e)."""
    e = p.element.bytes
    rows = (p.d * e, p.d * e, p.d * e, p.d * 4)
    heads = (p.lq * rows[0], p.lk * rows[1], p.lk * rows[2], p.lq * rows[3])
    assert p.scale is not None
    return (p.lq, p.lk, *rows, *heads, p.batch * p.heads, p.window or 0, p.scale * LOG2_E)


class ChainedEmitter(Visitor):
    """Visits the attention tree level by level, each emitting its part of the kernel."""

    def __init__(self, plan: AttentionTiles) -> None:
        self.plan, self.shape = plan, Shape.of(plan)
        p = plan.problem
        self.group_size = p.heads // p.kv_heads
        masks = "_causal" * p.causal + "_window" * (p.window is not None)
        split = f"_split{plan.split_kv}" * (plan.split_kv > 1)
        shared = f"_group{self.group_size}" * (self.group_size > 1)
        name = f"attention_{p.dtype}_d{p.d}_q{plan.tile_Q}_kv{plan.tile_KV}{masks}{shared}{split}"
        self.k = KernelBuilder(name, plan.descriptor.arch, plan.threads)

    def visit_device(self, root: FusedAttention) -> EmittedKernel:
        plan, p, k = self.plan, self.plan.problem, self.k
        k.comment(f"FusedAttention: one workgroup per {plan.tile_Q} queries of a head")
        self._arguments()
        self._coordinates()
        self._extent_of_keys()
        self._registers()
        self._buffers()
        block = next(root.children())
        assert isinstance(block, BlockAttentionNode)
        self.visit(block)
        self._end()
        text, used = k.finish()
        grid = (-(-p.lq // plan.tile_Q), p.batch * p.heads * plan.split_kv, 1)
        outputs, following = (("R",), ()) if plan.split_kv == 1 else ((PARTIAL, STATISTICS), (emit_merge(plan),))
        return EmittedKernel(
            text, k.name, k.target, plan, (plan.threads, 1, 1), grid, used, scalars(p), ("Q", "K", "V", *outputs), ARRAYS,
            scratch(plan) if following else (), following, tuple(k.scheduled),
        )  # fmt: skip

    # -- prologue ----------------------------------------------------------------------------

    def _arguments(self) -> None:
        k = self.k
        for name in (*ARRAYS, *((STATISTICS,) if self.plan.split_kv > 1 else ())):
            k.argument(name, 8, "global_buffer")
        for name in ("lq", "lk", *(f"{array} row" for array in ARRAYS), *(f"{array} head" for array in ARRAYS), "heads", "window"):
            k.argument(name.replace(" ", "_"), 4, value_type="i32")
        k.argument("scale", 4, value_type="f32")
        self.arguments = k.load_arguments()

    def _coordinates(self) -> None:
        """Lane, wave, first query and heads."""
        k = self.k
        if k.target != "gfx908":
            k.v_and_b32(k.work_item, 0x3FF, k.work_item, note="x of the packed work-item id")
        self.lane_row, self.group = k.v.alloc("i: lane's row in an atom"), k.v.alloc("g: lane group")
        self.other_half = k.v.alloc("4·(lane ^ 32)")
        self.wave_number = k.s.alloc("wave")
        k.v_lshrrev_b32(self.group, log2(WAVEFRONT), k.work_item)
        k.v_readfirstlane_b32(self.wave_number, self.group)
        k.v_and_b32(self.lane_row, ATOM - 1, k.work_item, note="i")
        k.v_and_b32(self.group, WAVEFRONT - 1, k.work_item)
        k.v_lshlrev_b32(self.other_half, 2, self.group)
        k.v_xor_b32(self.other_half, 4 * 32, self.other_half)
        k.v_lshrrev_b32(self.group, log2(ATOM), self.group, note="g")
        self.first_query, self.head = k.s.alloc("the block's first query"), k.s.alloc("head")
        self.shared_head = k.s.alloc("head of K and V")
        k.s_mul_i32(self.first_query, k.group_x, self.plan.tile_Q)
        split = self.plan.split_kv
        self._divide(self.head, k.group_y, split)
        if split > 1:
            self.part = k.s.alloc("part of the keys")
            k.s_mul_i32(self.part, self.head, split)
            k.s_sub_u32(self.part, k.group_y, self.part)
        self._divide(self.shared_head, self.head, self.group_size)

    def _divide(self, target: Reg, source: Reg, divisor: int) -> None:
        """target = source // divisor, for source < 2^16 (Granlund and Montgomery: 2^32 // divisor + 1 is exact there)."""
        shift = log2(divisor)
        if shift is not None:
            self.k.s_lshr_b32(target, source, shift)
        else:
            self.k.s_mul_hi_u32(target, source, (1 << 32) // divisor + 1)

    def _extent_of_keys(self) -> None:
        """[first, high) of the keys that some query of the block sees, and [full_low, full_high) that all of them see."""
        k, p, a = self.k, self.plan.problem, self.arguments
        names = ("position", "last position", "keys end", "all see from", "all see to", "first key", "steps left")
        self.position, last, self.high, self.full_low, self.full_high, self.first_key, self.steps_left = map(k.s.alloc, names)
        k.comment("keys that the block's queries see; query i stands at i + lk - lq among them")
        k.s_sub_u32(self.position, a["lk"], a["lq"])
        k.s_add_u32(last, self.first_query, self.plan.tile_Q)
        k.s_min_i32(last, last, a["lq"])
        k.s_sub_u32(last, last, 1)
        k.s_add_u32(last, last, self.position)
        k.s_add_u32(self.position, self.position, self.first_query, note="of the first query")
        k.s_mov_b32(self.high, a["lk"])
        k.s_mov_b32(self.full_high, a["lk"])
        k.s_mov_b32(self.full_low, 0)
        k.s_mov_b32(self.first_key, 0)
        bound = k.s.alloc("bound")
        if p.window is not None:
            k.s_sub_u32(bound, self.position, a["window"])
            k.s_add_u32(bound, bound, 1)
            k.s_max_i32(self.first_key, bound, 0)
            k.s_sub_u32(self.full_low, last, a["window"])
            k.s_add_u32(self.full_low, self.full_low, 1)
            k.s_add_u32(bound, last, a["window"])
            k.s_min_i32(self.high, self.high, bound)
            k.s_add_u32(bound, self.position, a["window"])
            k.s_min_i32(self.full_high, self.full_high, bound)
        if p.causal:
            k.s_add_u32(bound, last, 1)
            k.s_min_i32(self.high, self.high, bound)
            k.s_add_u32(bound, self.position, 1)
            k.s_min_i32(self.full_high, self.full_high, bound)
        self._share(bound)
        k.s.free(bound, last)

    def _share(self, bound: Reg) -> None:
        """Steps of the block's keys; the wave's first key."""
        k, plan = self.k, self.plan
        k.s_sub_u32(self.steps_left, self.high, self.first_key)
        k.s_max_i32(self.steps_left, self.steps_left, 0)
        k.s_add_u32(self.steps_left, self.steps_left, plan.tile_KV - 1)
        k.s_lshr_b32(self.steps_left, self.steps_left, log2(plan.tile_KV), note="steps")
        if plan.split_kv > 1:
            self._part(bound)
        k.s_mul_i32(bound, self.wave_number, plan.tile_KV // plan.waves_kv)
        k.s_add_u32(self.first_key, self.first_key, bound, note="the wave's own keys")
        k.s_sub_u32(self.high, self.high, 1, note="last key")

    def _part(self, scratch: Reg) -> None:
        """The part's own of the block's steps, each part but the last with as many."""
        k, plan = self.k, self.plan
        k.comment(f"one of {plan.split_kv} parts of the keys")
        each = k.s.alloc("steps of a part")
        k.s_add_u32(scratch, self.steps_left, plan.split_kv - 1)
        self._divide(each, scratch, plan.split_kv)
        k.s_mul_i32(scratch, self.part, each)
        k.s_sub_u32(self.steps_left, self.steps_left, scratch)
        k.s_max_i32(self.steps_left, self.steps_left, 0)
        k.s_min_i32(self.steps_left, self.steps_left, each)
        k.s_mul_i32(scratch, scratch, plan.tile_KV)
        k.s_add_u32(self.first_key, self.first_key, scratch)
        k.s_mul_i32(scratch, self.steps_left, plan.tile_KV)
        k.s_add_u32(scratch, self.first_key, scratch)
        for end in (self.high, self.full_high):
            k.s_min_i32(end, end, scratch)
        k.s.free(each)

    # -- registers and buffers ---------------------------------------------------------------

    def _registers(self) -> None:
        k, p, a = self.k, self.plan.problem, self.arguments
        self.wave = Wave(k, self.shape, self.plan.resources)
        self.masked = k.s.alloc("some score is masked")
        masks = Masks(p.causal, p.window is not None, self.masked, self.first_key, self.high, self.position, a["window"])
        self.softmax = Softmax(self.wave, masks, a["scale"], self.lane_row, self.group, self.other_half)
        partial, statistics = (k.region(array.name, array.nbytes) for array in self.plan.resources.lds)
        self.merge = Merge(self.softmax, self.wave_number, k.work_item, partial, statistics)

    def _buffer(self, resource: Reg, name: str, head: Reg, first_row: Reg | None, rows: Reg, e: int) -> Reg:
        """Raw buffer of a head's rows from `first_row` on, `rows` of them; an SGPR with its bytes."""
        k, a = self.k, self.arguments
        low, high, size = k.s.alloc("low"), k.s.alloc("high"), k.s.alloc(f"{name} bytes")
        k.comment(f"{name}: from the block's first row on; what lies past the view reads 0 and is not stored")
        k.s_mov_b32(resource[0], a[name][0])
        k.s_mov_b32(resource[1], a[name][1])
        for factor, unit in ((head, a[f"{name}_head"]), (first_row, a[f"{name}_row"])):
            if factor is not None:
                k.s_mul_i32(low, factor, unit)
                k.s_mul_hi_u32(high, factor, unit)
                k.s_add_u32(resource[0], resource[0], low)
                k.s_addc_u32(resource[1], resource[1], high)
        k.s_sub_u32(size, rows, 1)
        k.s_mul_i32(size, size, a[f"{name}_row"])
        k.s_add_u32(size, size, self.shape.d * e)
        k.s_mov_b32(resource[2], size)
        k.s_mov_b32(resource[3], RESOURCE_WORD3, note="raw, 32-bit data")
        k.s.free(low, high)
        return size

    def _buffers(self) -> None:
        k, shape, wave, a = self.k, self.shape, self.wave, self.arguments
        self.rows = k.s.alloc("the block's queries")
        k.s_sub_u32(self.rows, a["lq"], self.first_query)
        k.s_min_u32(self.rows, self.rows, self.plan.tile_Q)
        queries = k.s.alloc("Q buffer", 4)
        k.s.free(self._buffer(queries, "Q", self.head, self.first_query, self.rows, shape.e))
        self._load_queries(queries)
        k.s.free(queries)
        self.key_bytes = self._buffer(wave.key_buffer, "K", self.shared_head, None, a["lk"], shape.e)
        self.value_bytes = self._buffer(wave.value_buffer, "V", self.shared_head, None, a["lk"], shape.e)
        self.key_step, self.value_step = k.s.alloc("K step"), k.s.alloc("V step")
        k.s_mul_i32(self.key_step, a["K_row"], self.plan.tile_KV)
        k.s_mul_i32(self.value_step, a["V_row"], self.plan.tile_KV)
        wave.key_rows = row_offsets(k, a["K_row"], [ATOM * n for n in range(shape.na)], "K")
        rows = [ATOM * n + s for n in range(shape.na) for s in range(QUAD)]
        wave.value_rows = row_offsets(k, a["V_row"], rows, "V")
        temporary = wave.ranges["temporaries"][0]
        k.comment("K: key i, columns from vec·g; V: key 4g, columns from wide·i")
        k.v_add_u32(temporary, self.first_key, self.lane_row)
        k.v_mul_lo_u32(wave.key_offset, temporary, a["K_row"])
        k.v_mul_u32_u24(temporary, shape.vec * shape.e, self.group)
        k.v_add_u32(wave.key_offset, wave.key_offset, temporary)
        for wide, offset in wave.value_offset.items():
            k.v_lshlrev_b32(temporary, 2, self.group)
            k.v_add_u32(temporary, self.first_key, temporary)
            k.v_mul_lo_u32(offset, temporary, a["V_row"])
            k.v_mul_u32_u24(temporary, wide * shape.e, self.lane_row)
            k.v_add_u32(offset, offset, temporary)
        if shape.narrow:
            for register, selector in zip(wave.pack, (PACK_LOW, PACK_HIGH), strict=True):
                k.s_mov_b32(register, selector)

    def _load_queries(self, buffer: Reg) -> None:
        k, shape, wave = self.k, self.shape, self.wave
        offset, temporary = wave.ranges["temporaries"][0], wave.ranges["temporaries"][1]
        row = k.s.alloc("row")
        k.v_mul_lo_u32(offset, self.lane_row, self.arguments["Q_row"])
        k.v_mul_u32_u24(temporary, shape.vec * shape.e, self.group)
        k.v_add_u32(offset, offset, temporary)
        for q in range(shape.nq):
            k.s_mul_i32(row, self.arguments["Q_row"], ATOM * q)
            for span in range(shape.spans):
                wave.load(wave.query(q, span), offset, buffer, row, span * 4 * shape.vec * shape.e, shape.vec * shape.e,
                          f"Q[{q}][{span}]")  # fmt: skip
        k.s.free(row)

    # -- main loop ---------------------------------------------------------------------------

    def visit_block(self, block: BlockAttentionNode) -> None:
        k, wave = self.k, self.wave
        done = k.new_label("no_keys")
        k.comment("BlockAttentionNode: the first step's loads, O = 0")
        self.softmax.start()
        for number in range(wave.ranges["O"].count):
            k.v_accvgpr_write_b32(wave.ranges["O"][number], 0)
        for number in range(wave.ranges["zero"].count if "zero" in wave.ranges else 0):
            k.v_accvgpr_write_b32(wave.ranges["zero"][number], 0)
        k.s_cmp_eq_u32(self.steps_left, 0)
        k.s_cbranch_scc1(done)
        wave.load_keys()
        self._advance_keys()
        self._load_values()
        k.comment(f"BlockAttentionNode: {self.plan.tile_KV} keys a step, {self.plan.tile_KV // self.plan.waves_kv} a wave")
        with k.loop("keys", self.steps_left):
            self._key_step()
        k.label(done)

    def _load_values(self) -> None:
        for a in range(self.shape.na):
            for s in range(QUAD):
                self.wave.load_values(a, s)
        self._advance_values()

    def _advance_keys(self) -> None:
        self.k.v_add_u32(self.wave.key_offset, self.key_step, self.wave.key_offset, note="K: next step")

    def _advance_values(self) -> None:
        for offset in self.wave.value_offset.values():
            self.k.v_add_u32(offset, self.value_step, offset, note="V: next step")

    def _key_step(self) -> None:
        """WarpAttentionNode: one key step of a wave (the first block may see no key, so no node stands for all)."""
        k, wave, shape = self.k, self.wave, self.shape
        self._step_scalars()
        first, *other = shape.halves
        narrow, wide = (self._narrow_values, lambda: None) if shape.narrow else (lambda: None, self._advance_values)
        self._overlap("S^T, first half", lambda: wave.scores(first), narrow)
        if other:
            self._overlap("S^T, other half; softmax of the first", lambda: wave.scores(other[0]), lambda: self.softmax.update(first))
        else:
            k.comment("softmax")
            self.softmax.update(first)
        self._overlap(
            "O^T, first half" + "; softmax of the other" * bool(other),
            lambda: wave.values(first, refill=not other and not shape.narrow),
            lambda: self._behind_first_values(other),
        )
        if other:
            k.comment("O^T, other half")
            wave.values(other[0], refill=not shape.narrow)
        wide()
        k.s_add_u32(self.first_key, self.first_key, self.plan.tile_KV)

    def _step_scalars(self) -> None:
        """Nothing is loaded behind the last step; whether an edge cuts this one."""
        k, wave = self.k, self.wave
        k.comment("WarpAttentionNode: the next step's loads, if there is one; is this one masked?")
        k.s_cmp_gt_i32(self.steps_left, 1)
        k.s_cselect_b32(wave.key_buffer[2], self.key_bytes, 0)
        k.s_cselect_b32(wave.value_buffer[2], self.value_bytes, 0)
        k.s_add_u32(self.masked, self.first_key, self.plan.tile_KV // self.plan.waves_kv)
        k.s_cmp_gt_i32(self.masked, self.full_high)
        k.s_cselect_b32(self.masked, 1, 0)
        if self.plan.problem.window is not None:
            k.s_cmp_lt_i32(self.first_key, self.full_low)
            k.s_cselect_b32(self.masked, 1, self.masked)

    def _behind_first_values(self, other: list[range]) -> None:
        self.wave.load_keys()
        self._advance_keys()
        for half in other:
            self.softmax.update(half)

    def _narrow_values(self) -> None:
        self.wave.interleave_rows()
        self._load_values()

    def _overlap(self, name: str, products: Callable[[], object], filler: Callable[[], object]) -> None:
        k = self.k
        k.comment(name)
        with stream(k) as main:
            products()
        with stream(k) as behind:
            filler()
        k.items += interleave(main, behind, LEAD)

    # -- epilogue ----------------------------------------------------------------------------

    def _end(self) -> None:
        k, result, states = self.k, self.k.s.alloc("R buffer", 4), None
        if self.plan.split_kv > 1:
            k.s_mul_i32(self.part, self.part, self.arguments["heads"])
            k.s_add_u32(self.head, self.head, self.part, note="the part's own O")
        k.s.free(self._buffer(result, "R", self.head, self.first_query, self.rows, 4))
        if self.plan.split_kv > 1:
            states = k.s.alloc("statistics buffer", 4)
            self._statistics(states)
        self.merge.emit(Output(result, self.arguments["R_row"], states))
        k.s_endpgm()

    def _statistics(self, resource: Reg) -> None:
        """Raw buffer of the block's (-m, row sum) pairs."""
        k, a = self.k, self.arguments
        row, offset = k.s.alloc("row", 2), k.s.alloc("offset", 2)
        k.s_mul_i32(row[0], self.head, a["lq"])
        k.s_mul_hi_u32(row[1], self.head, a["lq"])
        k.s_add_u32(row[0], row[0], self.first_query)
        k.s_addc_u32(row[1], row[1], 0)
        k.s_lshl_b64(offset, row, log2(STATE_BYTES))
        raw_buffer(k, resource, a[STATISTICS], (offset[0], offset[1]), STATISTICS)
        k.s_lshl_b32(resource[2], self.rows, log2(STATE_BYTES))
        k.s.free(row, offset)
