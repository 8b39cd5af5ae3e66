"""Prologue of attention kernels: arguments, lanes, the block's queries and the keys that they see, buffers of the arrays."""

from __future__ import annotations

import math

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD, Operand
from simgpu.asm.parts.buffers import OUTSIDE, RESOURCE_WORD3, advance_buffer
from simgpu.asm.parts.integer_math import log2
from simgpu.asm.parts.lanes import lane_in_atom, wave_number
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.attention.problem import ATOM, AttentionProblem
from simgpu.operators.attention.registers import REACH, partial_columns
from simgpu.operators.attention.tiles import AttentionTiles
from simgpu.operators.attention.tree import FusedAttention

ARRAYS = ("Q", "K", "V", "R")
LOG2_E = math.log2(math.e)
SLOPES, LSE = "slopes", "LSE"
BLOCKS, LENGTHS, SCALE_K, SCALE_V = "blocks", "lengths", "scale_K", "scale_V"  # arrays of a cache
# Scratch arrays of split keys, in f32: O (split, batch·heads, lq, columns), and pairs of -m and row sum (split, batch·heads,
# lq, 2).
PARTIAL, STATISTICS = "partial_O", "statistics"


def check(root: FusedAttention) -> None:
    """Raises LaunchError if a tree cannot be emitted."""
    plan, p = root.plan, root.problem
    assert p.scale is not None
    if plan.policy == "published" and not p.scale > 0:
        raise LaunchError(f"scale = {p.scale}: the paper's kernels take maxima before scaling, so use a positive one")
    rows = grid(root)[1]
    if rows >= 1 << 16:
        raise LaunchError(
            f"{p.batch} x {p.heads} heads in {plan.split_kv} parts of the keys make {rows} rows of workgroups: stay below 65536"
        )
    widest = max(p.d, p.dv)
    for name, rows in (("lq", p.lq), ("page", p.page * p.kv_heads) if p.page else ("lk", p.lk)):
        if rows * widest * 4 >= REACH:
            raise LaunchError(f"{name} = {rows}: a head must stay within 2^31 bytes, so {name} < {REACH // (4 * widest)}")
    for name, width in (("d", p.d), ("dv", p.dv)):
        if width * p.element.bytes % WORD:
            raise LaunchError(f"{name} = {width} in {p.dtype}: a row ends within 4 bytes, so pad {name} to {width + 1}")


def operands(p: AttentionProblem) -> tuple[str, ...]:
    """Returns the names of a launch's arrays, in order."""
    return ("Q", "K", "V", *more_inputs(p), "R", *((LSE,) if p.lse else ()))


def more_inputs(p: AttentionProblem) -> tuple[str, ...]:
    """Returns the names of the arrays between V and R."""
    paged, narrow = (BLOCKS, LENGTHS) * (p.page > 0), (SCALE_K, SCALE_V) * p.narrow_kv
    return (*((SLOPES,) if p.alibi else ()), *paged, *narrow)


def scalars(root: FusedAttention) -> tuple[int | float, ...]:
    """Returns the arguments after the pointers, for contiguous arrays.

    They are: lq and lk, the ends of the tree's axes; bytes from row to row and from head to head of Q, K, V and R (or of a part's
    O, if keys are split); heads of the whole batch; window; scale · log2(e). With a soft cap, the last is replaced by 2 · scale ·
    log2(e) / cap, cap · log2(e) and -2 · cap · log2(e): with x = scale · S / cap, cap · tanh(x) = cap - 2 · cap / (1 + e^2x).
    """
    p, e = root.problem, root.problem.element.bytes
    key, value = p.d * p.element_kv.bytes, p.dv * p.element_kv.bytes
    together = p.kv_heads if p.page else 1  # heads of K and V whose rows alternate
    rows = (p.d * e, together * key, together * value, WORD * (p.dv if root.trips("keys") == 1 else partial_columns(p.dv)))
    of_head = (key, value) if p.page else (p.lk * key, p.lk * value)
    heads = (p.lq * rows[0], *of_head, p.lq * rows[3])
    assert p.scale is not None
    factors: tuple[float, ...] = (p.scale * LOG2_E,)
    if p.softcap is not None:
        factors = (2 * p.scale * LOG2_E / p.softcap, p.softcap * LOG2_E, -2 * p.softcap * LOG2_E)
    ends = (len(root.axes[axis]) for axis in ("queries", "keys"))
    return (*ends, *rows, *heads, p.batch * p.heads, p.window or 0, *factors)


def builder(plan: AttentionTiles, kind: str) -> KernelBuilder:
    """Returns the builder of a plan's kernel. kind: the beginning of its name."""
    p = plan.problem
    group = p.heads // p.kv_heads
    tile_heads = f"of{plan.tile_heads}" * (plan.tile_heads > 1)
    way = "_shared" * plan.shared
    cache = f"_page{p.page}" * (p.page > 0) + f"_kv{p.dtype_kv}" * p.narrow_kv
    extras = cache + "_cap" * (p.softcap is not None) + "_alibi" * p.alibi + "_lse" * p.lse
    masks = "_causal" * p.causal + "_window" * (p.window is not None)
    split = f"_split{plan.split_kv}" * (plan.split_kv > 1)
    shared = f"_group{group}" * (group > 1)
    width = f"d{p.d}" + f"v{p.dv}" * (p.dv != p.d)
    name = f"{kind}_{p.dtype}_{width}_q{plan.tile_Q}{tile_heads}_kv{plan.tile_KV}{way}{masks}{extras}{shared}{split}"
    return KernelBuilder(name, plan.descriptor.arch, plan.threads, plan=plan.resources)


def heads_at_once(root: FusedAttention) -> int:
    """Returns the number of groups of heads whose Q tiles alternate in the order of dispatch.

    Workgroups are assigned to XCDs in turn, so the Q tiles of a head then run on few XCDs and share K and V in their L2.
    """
    return math.gcd(root.descriptor.xcds, root.trips("batch") * root.trips("heads"))


def grid(root: FusedAttention) -> tuple[int, int, int]:
    """Returns the number of workgroups along x, y and z. A workgroup may have two Q tiles (`AttentionTiles.tile_pairs`)."""
    turn, tiles = heads_at_once(root), root.trips("queries")
    blocks = -(-tiles // 2) if root.plan.tile_pairs else tiles
    return (turn * blocks, root.trips("batch") * root.trips("heads") // turn * root.trips("keys"), 1)


def lane_places(k: KernelBuilder) -> tuple[Reg, Reg, Reg]:
    """Emits i and g, a lane's place in an atom, in VGPRs, and the number of its wave in an SGPR. Returns the three."""
    k.work_item_x()
    row, group, wave = k.v.alloc("i: lane's row in an atom"), k.v.alloc("g: lane group"), k.s.alloc("wave")
    wave_number(k, wave, group)
    lane_in_atom(k, row, group, ATOM)
    return row, group, wave


def scalar_divide(k: KernelBuilder, target: Reg, source: Reg, divisor: int) -> None:
    """Emits target = source // divisor, for source · divisor < 2^32.

    Then 2^32 // divisor + 1 is exact (Granlund and Montgomery 1994).
    """
    shift = log2(divisor)
    if shift is not None:
        k.s_lshr_b32(target, source, shift)
    else:
        k.s_mul_hi_u32(target, source, (1 << 32) // divisor + 1)


def scalar_constants(k: KernelBuilder, name: str, *values: int) -> tuple[Reg, ...]:
    """Returns SGPRs with these values."""
    registers = tuple(k.s.alloc(name) for _ in values)
    for register, value in zip(registers, values, strict=True):
        k.s_mov_b32(register, value)
    return registers


def advance_within(k: KernelBuilder, resource: Reg, nbytes: Operand) -> None:
    """Moves the beginning of a raw buffer, but not its end. What lies past the end reads 0."""
    advance_buffer(k, resource, nbytes, "rows")
    k.s_sub_u32(resource[2], resource[2], nbytes)
    k.s_max_i32(resource[2], resource[2], 0)


class AttentionFrame:
    """Emits the prologue of every fused kernel: arguments, coordinates of workgroup, wave and lane, range of keys."""

    def __init__(self, k: KernelBuilder, root: FusedAttention) -> None:
        plan: AttentionTiles = root.plan
        self.k, self.plan, self.turn, block = k, plan, heads_at_once(root), next(root.children())
        self.tile_heads, self.tile_queries, self.parts = root.loop("heads").tile, root.loop("queries").tile, root.trips("keys")
        self.step, self.wave_queries, self.wave_keys = (loop.tile for loop in block.loops)
        self._arguments()
        self._coordinates()
        if plan.tile_pairs:
            self.tile = k.new_label("tile")
            k.label(self.tile)
        self._extent_of_keys()

    def _arguments(self) -> None:
        k = self.k
        p, split = self.plan.problem, self.parts > 1
        for name in ("Q", "K", "V", *more_inputs(p), "R"):
            k.argument(name, 8, "global_buffer")
        if split or p.lse:
            k.argument(STATISTICS if split else LSE, 8, "global_buffer")
        for name in ("lq", "lk", *(f"{array} row" for array in ARRAYS), *(f"{array} head" for array in ARRAYS), "heads", "window"):
            k.argument(name.replace(" ", "_"), 4, value_type="i32")
        for name in ("scale", *(("cap", "minus_twice_cap") if p.softcap is not None else ())):
            k.argument(name, 4, value_type="f32")
        self.arguments = k.load_arguments()

    def _coordinates(self) -> None:
        """Emits lane, wave, first query and heads."""
        k = self.k
        self.lane_row, self.group, self.wave_number = lane_places(k)
        self.first_query, self.head = k.s.alloc("the block's first query"), k.s.alloc("head")
        self.shared_head = k.s.alloc("head of K and V")
        plan = self.plan
        turn = self.turn
        k.comment(f"workgroups in turn are of {turn} heads; a tile has {self.tile_queries} queries of {self.tile_heads}")
        scalar_divide(k, self.first_query, k.group_x, turn)
        if plan.tile_pairs:
            self.second_query = k.s.alloc("first query of the second tile")
            k.s_mul_i32(self.second_query, self.first_query, self.tile_queries)
        if plan.problem.causal:
            self._order_tiles()
        k.s_mul_i32(self.first_query, self.first_query, self.tile_queries)
        split = self.parts
        scalar_divide(k, self.head, k.group_y, split)
        if split > 1:
            self.part = k.s.alloc("part of the keys")
            k.s_mul_i32(self.part, self.head, split)
            k.s_sub_u32(self.part, k.group_y, self.part)
        if turn > 1:
            k.s_mul_i32(self.head, self.head, turn)
            self._remainder(self.shared_head, k.group_x, turn)
            k.s_add_u32(self.head, self.head, self.shared_head)
        if self.tile_heads > 1:
            k.s_mul_i32(self.head, self.head, self.tile_heads, note="first of the tile's heads")
        scalar_divide(k, self.shared_head, self.head, plan.problem.heads // plan.problem.kv_heads)
        self.scale_v: Reg | None = None
        if plan.problem.cached:
            self._cache()

    def _order_tiles(self) -> None:
        """Emits the tile of a workgroup under a causal mask, from its number in the series of a group of heads.

        The last series begins with the tiles that see most keys, the one before it ends with them, and so on: workgroups of
        several series that run on a CU together see about as many keys as those of other CUs, and the launch ends with short ones.
        """
        k, a = self.k, self.arguments
        last = k.s.alloc("last tile")
        k.s_sub_u32(last, a["lq"], 1)
        scalar_divide(k, last, last, self.tile_queries)
        k.s_sub_u32(last, last, self.first_query, note="those that see most keys first")
        if self.plan.tile_pairs:  # a pair sees as many keys as any other
            k.s_mov_b32(self.first_query, last)
        else:
            series = k.s.alloc("series left")
            scalar_divide(k, series, a["heads"], self.tile_heads * self.turn)
            k.s_mul_i32(series, series, self.parts)
            k.s_sub_u32(series, series, k.group_y)
            k.s_bitcmp1_b32(series, 0)
            k.s_cselect_b32(self.first_query, last, self.first_query)
            k.s.free(series)
        k.s.free(last)

    def _cache(self) -> None:
        """Emits what a cache changes: lk = the sequence's keys, its row of `blocks`, the head within the sequence, scales."""
        k, p, a = self.k, self.plan.problem, self.arguments
        batch, scratch = k.s.alloc("sequence"), k.s.alloc("scratch")
        scalar_divide(k, batch, self.shared_head, p.kv_heads)
        k.s_mul_i32(scratch, batch, p.kv_heads)
        k.s_sub_u32(scratch, self.shared_head, scratch, note="head of K and V of the sequence")
        if p.page:
            k.s_mov_b32(self.shared_head, scratch)
        if p.narrow_kv:
            self.scale_v = k.s.alloc("scale of V")
            k.s_lshl_b32(scratch, scratch, log2(WORD))
            for name, target in ((SCALE_K, a[SCALE_K][0]), (SCALE_V, self.scale_v)):
                advance_buffer(k, a[name], scratch, name)
                k.s_load_dword(target, a[name], 0, note=name)
            k.v_mov_b32(self.lane_row, a["scale"])
            k.v_mul_f32(self.lane_row, a[SCALE_K][0], self.lane_row)
            k.v_readfirstlane_b32(a["scale"], self.lane_row)
            lane_in_atom(k, self.lane_row, self.group, ATOM)
        if p.page:
            k.comment(f"the sequence's pages of {p.page} keys, and how many keys it has")
            k.s_add_u32(scratch, a["lk"], p.page - 1)
            k.s_lshr_b32(scratch, scratch, log2(p.page))
            k.s_mul_i32(scratch, scratch, batch)
            k.s_lshl_b32(scratch, scratch, log2(WORD))
            advance_buffer(k, a[BLOCKS], scratch, BLOCKS)
            k.s_lshl_b32(scratch, batch, log2(WORD))
            advance_buffer(k, a[LENGTHS], scratch, LENGTHS)
            k.s_load_dword(scratch, a[LENGTHS], 0, note=LENGTHS)
            k.s_min_i32(a["lk"], a["lk"], scratch)
        k.s.free(batch, scratch)

    def _remainder(self, target: Reg, source: Reg, divisor: int) -> None:
        """Emits target = source modulo divisor, for source · divisor < 2^32."""
        k = self.k
        if log2(divisor) is not None:
            k.s_and_b32(target, source, divisor - 1)
            return
        scalar_divide(k, target, source, divisor)
        k.s_mul_i32(target, target, divisor)
        k.s_sub_u32(target, source, target)

    def _extent_of_keys(self) -> None:
        """Emits [first_key, high), the keys that some query of the block sees, and [full_low, full_high), those that all see."""
        k, p, a = self.k, self.plan.problem, self.arguments
        names = ("position", "end of positions", "keys end", "all see from", "all see to", "first key", "steps left")
        self.position, end, self.high, self.full_low, self.full_high, self.first_key, self.steps_left = map(k.s.alloc, names)
        k.comment("keys that the block's queries see; query i stands at i + lk - lq among them")
        k.s_sub_u32(self.position, a["lk"], a["lq"])
        k.s_add_u32(end, self.first_query, self.tile_queries)
        k.s_min_i32(end, end, a["lq"])
        k.s_add_u32(end, end, self.position, note="past the last query")
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
            k.s_sub_u32(self.full_low, end, a["window"])
            k.s_add_u32(bound, end, a["window"])
            k.s_sub_u32(bound, bound, 1)
            k.s_min_i32(self.high, self.high, bound)
            k.s_add_u32(bound, self.position, a["window"])
            k.s_min_i32(self.full_high, self.full_high, bound)
        if p.causal:
            k.s_min_i32(self.high, self.high, end)
            k.s_add_u32(bound, self.position, 1)
            k.s_min_i32(self.full_high, self.full_high, bound)
        self._share(bound)
        k.s.free(bound, end)
        self.rows = k.s.alloc("the block's queries")
        k.s_sub_u32(self.rows, a["lq"], self.first_query)
        k.s_min_u32(self.rows, self.rows, self.tile_queries)

    def _share(self, bound: Reg) -> None:
        """Emits the number of steps in the block's keys, and the wave's first key."""
        k, plan = self.k, self.plan
        if plan.problem.page and plan.problem.window is not None:
            k.s_and_b32(self.first_key, self.first_key, -ATOM, note="a key atom lies in one page")
        k.s_sub_u32(self.steps_left, self.high, self.first_key)
        k.s_max_i32(self.steps_left, self.steps_left, 0)
        k.s_add_u32(self.steps_left, self.steps_left, self.step - 1)
        scalar_divide(k, self.steps_left, self.steps_left, self.step)
        if self.parts > 1:
            self._part(bound)
        if self.wave_keys < self.step:
            k.s_mul_i32(bound, self.wave_number, self.wave_keys)
            k.s_add_u32(self.first_key, self.first_key, bound, note="the wave's own keys")
        if self.wave_queries < self.tile_queries:
            self._own_rows(bound)
        k.s_sub_u32(self.high, self.high, 1, note="last key")

    def _own_rows(self, scratch: Reg) -> None:
        """Emits the wave's first row, and raises full_high: later queries see more keys than the block's first one."""
        k, plan = self.k, self.plan
        self.first_row = k.s.alloc("the wave's first row")
        k.s_mul_i32(self.first_row, self.wave_number, self.wave_queries * plan.row_slots)
        if plan.problem.causal or plan.problem.window is not None:
            k.s_lshr_b32(scratch, self.first_row, log2(plan.row_slots))
            k.s_add_u32(self.full_high, self.full_high, scratch)
            k.s_min_i32(self.full_high, self.full_high, self.arguments["lk"])

    def _part(self, scratch: Reg) -> None:
        """Emits the steps of the block's part of the keys; all parts except the last have the same number."""
        k = self.k
        k.comment(f"one of {self.parts} parts of the keys")
        each = k.s.alloc("steps of a part")
        k.s_add_u32(scratch, self.steps_left, self.parts - 1)
        scalar_divide(k, each, scratch, self.parts)
        k.s_mul_i32(scratch, self.part, each)
        k.s_sub_u32(self.steps_left, self.steps_left, scratch)
        k.s_max_i32(self.steps_left, self.steps_left, 0)
        k.s_min_i32(self.steps_left, self.steps_left, each)
        k.s_mul_i32(scratch, scratch, self.step)
        k.s_add_u32(self.first_key, self.first_key, scratch)
        k.s_mul_i32(scratch, self.steps_left, self.step)
        k.s_add_u32(scratch, self.first_key, scratch)
        for end in (self.high, self.full_high):
            k.s_min_i32(end, end, scratch)
        k.s.free(each)

    def next_tile(self) -> None:
        """Emits the jump to a block's second tile, after a barrier because waves may still read LDS."""
        if not self.plan.tile_pairs:
            return
        k = self.k
        k.s_cmp_eq_u32(self.first_query, self.second_query)
        with k.jump_over("scc1", "no_second_tile"):
            k.s_mov_b32(self.first_query, self.second_query)
            k.s_barrier()
            k.s_branch(self.tile)

    def row_offset(self, target: Reg, row: Reg, strides: tuple[Reg | int, Reg], spare: Reg) -> None:
        """Emits target = bytes from the block's first row to `row` (a VGPR) of the Q tile; OUTSIDE past the heads or queries.

        strides: bytes from a query to the next, and from a head to the next. target, spare: VGPRs, target not `row`.
        """
        k, plan = self.k, self.plan
        if self.tile_heads == 1:
            k.v_mul_lo_u32(target, row, strides[0])
            return
        k.v_lshrrev_b32(target, log2(plan.row_slots), row, note="query of the tile")
        k.v_and_b32(spare, plan.row_slots - 1, row, note="head of the tile")
        if self.tile_heads < plan.row_slots:
            k.v_cmp_gt_u32("vcc", self.tile_heads, spare)
            k.v_cndmask_b32(target, -1, target, "vcc", note="no head: no query either")
        k.v_cmp_gt_u32("vcc", self.rows, target)
        k.v_mul_lo_u32(target, target, strides[0])
        k.v_mul_lo_u32(spare, spare, strides[1])
        k.v_add_u32(target, target, spare)
        k.v_cndmask_b32(target, OUTSIDE, target, "vcc")

    def row_of(self, target: Reg, q: int) -> None:
        """Emits target = row of the tile that a lane has in query atom q of its wave."""
        self.k.v_add_u32(target, ATOM * q, self.lane_row)
        if self.wave_queries < self.tile_queries:
            self.k.v_add_u32(target, self.first_row, target)

    def query_of(self, target: Reg, q: int) -> None:
        """Emits target = query of the tile that a lane has in query atom q."""
        k, slots = self.k, self.plan.row_slots
        self.row_of(target, q)
        if slots > 1:
            k.v_lshrrev_b32(target, log2(slots), target, note="query of the tile")

    def buffer(self, resource: Reg, name: str, columns: int, first_key: Reg | None = None) -> Reg:
        """Builds a raw buffer of Q, K, V or R, with rows of `columns` bytes. Returns an SGPR with its bytes.

        Q and R: the tile's queries of all its heads. K and V: the keys of the head, from `first_key` on.
        """
        k, a, tile = self.k, self.arguments, name in ("Q", "R")
        head, first_row, rows = (self.head, self.first_query, self.rows) if tile else (self.shared_head, first_key, a["lk"])
        low, high, size = k.s.alloc("low"), k.s.alloc("high"), k.s.alloc(f"{name} bytes")
        k.comment(f"{name}: from the block's first row on; what lies past the view reads 0 and is not stored")
        base = a[name]
        for factor, unit in ((head, a[f"{name}_head"]), (first_row, a[f"{name}_row"])):
            if factor is not None:
                k.s_mul_i32(low, factor, unit)
                k.s_mul_hi_u32(high, factor, unit)
                k.s_add_u32(resource[0], base[0], low)
                k.s_addc_u32(resource[1], base[1], high)
                base = resource
        k.s_sub_u32(size, rows, 1)
        k.s_mul_i32(size, size, a[f"{name}_row"])
        if tile and self.tile_heads > 1:
            k.s_mul_i32(low, a[f"{name}_head"], self.tile_heads - 1)
            k.s_add_u32(size, size, low)
        k.s_add_u32(size, size, columns)
        if first_key is not None:
            k.s_sub_u32(size, size, low)
        k.s_mov_b32(resource[2], size)
        k.s_mov_b32(resource[3], RESOURCE_WORD3, note="raw, 32-bit data")
        k.s.free(low, high)
        return size
