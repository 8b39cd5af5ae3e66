"""Prologue of attention kernels: arguments, lanes, the block's queries and the keys that they see, buffers of the arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence

from simgpu.asm.builder.formula import Formula, log2, of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD, Operand
from simgpu.asm.parts.buffers import OUTSIDE, advance_buffer, buffer_at, clip
from simgpu.asm.parts.lanes import lane_in_atom, lane_places, wave_number
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


def few(number: Formula | Reg, divisor: int) -> Formula:
    """Returns a number below 2^32 / divisor, which a division by that takes one instruction of."""
    return (of(number) if isinstance(number, Reg) else number).below((1 << 32) // divisor)


def scalar_constants(k: KernelBuilder, name: str, *values: int) -> tuple[Reg, ...]:
    """Returns SGPRs with these values."""
    return tuple(k.scalar(name, value) for value in values)


def advance_within(k: KernelBuilder, resource: Reg, nbytes: Operand) -> None:
    """Moves the beginning of a raw buffer, but not its end. What lies past the end reads 0."""
    advance_buffer(k, resource, nbytes, "rows")
    k.set(resource[2], (of(resource[2]) - nbytes).most(0, "i32"))


def load_row(
    k: KernelBuilder, targets: Sequence[Reg], offset: Reg, column: Reg, buffer: Reg, width: int, each: int, spare: Reg, name: str
) -> None:  # fmt: skip
    """Loads a lane's columns from `column` on of a row of 16-bit elements, at distances of `each`; those past the width read 0.

    targets: VGPRs of 16 bytes. offset: VGPR, bytes to `column`. spare: a VGPR.
    """
    for span, target in enumerate(targets):
        place = offset
        if (span + 1) * each > width:
            place = clip(k, spare, offset, width - span * each, column, note="columns past the width read 0")
        k.buffer_load(target, place, buffer, 0, offset=span * each * WORD // 2, note=f"{name}[{span}]")


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
        k.declare("pointer", "Q", "K", "V", *more_inputs(p), "R", *([STATISTICS if split else LSE] if split or p.lse else []))
        k.declare("i32", "lq", "lk", *(f"{array}_{unit}" for unit in ("row", "head") for array in ARRAYS), "heads", "window")
        k.declare("f32", "scale", *(("cap", "minus_twice_cap") if p.softcap is not None else ()))
        self.arguments = k.load_arguments()

    def _coordinates(self) -> None:
        """Emits lane, wave, first query and heads."""
        k, plan, turn = self.k, self.plan, self.turn
        k.work_item_x()
        self.wave_number, (self.lane_row, self.group) = wave_number(k), lane_places(k, ATOM)
        self.first_query, self.head = k.s.alloc("the block's first query"), k.s.alloc("head")
        self.shared_head = k.s.alloc("head of K and V")
        k.comment(f"workgroups in turn are of {turn} heads; a tile has {self.tile_queries} queries of {self.tile_heads}")
        k.set(self.first_query, few(k.group_x, turn) // turn)
        if plan.tile_pairs:
            self.second_query = k.scalar("first query of the second tile", of(self.first_query) * self.tile_queries)
        if plan.problem.causal:
            self._order_tiles()
        k.s_mul_i32(self.first_query, self.first_query, self.tile_queries)
        number = few(k.group_y, self.parts)
        if self.parts > 1:
            self.part = k.scalar("part of the keys", number % self.parts)
        head = (number // self.parts * turn + few(k.group_x, turn) % turn) * self.tile_heads
        k.set(self.head, head, note="first of the tile's heads")
        group = plan.problem.heads // plan.problem.kv_heads
        k.set(self.shared_head, few(self.head, group) // group)
        self.scale_v: Reg | None = None
        if plan.problem.cached:
            self._cache()

    def _order_tiles(self) -> None:
        """Emits the tile of a workgroup under a causal mask, from its number in the series of a group of heads.

        The last series begins with the tiles that see most keys, the one before it ends with them, and so on: workgroups of
        several series that run on a CU together see about as many keys as those of other CUs, and the launch ends with short ones.
        """
        k, a = self.k, self.arguments
        tiles = few(of(a["lq"]) - 1, self.tile_queries) // self.tile_queries
        last = k.scalar("those that see most keys first", tiles - self.first_query)
        if self.plan.tile_pairs:  # a pair sees as many keys as any other
            k.s_mov_b32(self.first_query, last)
        else:
            together = self.tile_heads * self.turn
            with k.temporary(few(a["heads"], together) // together * self.parts - k.group_y) as series_left:
                k.s_bitcmp1_b32(series_left, 0)
            k.s_cselect_b32(self.first_query, last, self.first_query)
        k.s.free(last)

    def _cache(self) -> None:
        """Emits what a cache changes: lk = the sequence's keys, its row of `blocks`, the head within the sequence, scales."""
        k, p, a = self.k, self.plan.problem, self.arguments
        batch = k.scalar("sequence", few(self.shared_head, p.kv_heads) // p.kv_heads)
        scratch = k.scalar("head of K and V of the sequence", of(self.shared_head) - of(batch) * p.kv_heads)
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
            advance_buffer(k, a[BLOCKS], (of(a["lk"]) + (p.page - 1)) // p.page * batch * WORD, BLOCKS)
            advance_buffer(k, a[LENGTHS], of(batch) * WORD, LENGTHS)
            k.s_load_dword(scratch, a[LENGTHS], 0, note=LENGTHS)
            k.s_min_i32(a["lk"], a["lk"], scratch)
        k.s.free(batch, scratch)

    def _extent_of_keys(self) -> None:
        """Emits [first_key, high), the keys that some query of the block sees, and [full_low, full_high), those that all see."""
        k, p, a = self.k, self.plan.problem, self.arguments
        k.comment("keys that the block's queries see; query i stands at i + lk - lq among them")
        shift = of(a["lk"]) - a["lq"]
        past = (of(self.first_query) + self.tile_queries).least(a["lq"], "i32") + shift  # the last query
        self.position = k.scalar("position of the first query", shift + self.first_query)
        first: Formula | int = 0
        full_low: Formula | int = 0
        high = full_high = of(a["lk"])
        if p.window is not None:
            first = (of(self.position) - a["window"] + 1).most(0, "i32")
            full_low = past - a["window"]
            high = high.least(past + a["window"] - 1, "i32")
            full_high = full_high.least(of(self.position) + a["window"], "i32")
        if p.causal:
            high, full_high = high.least(past, "i32"), full_high.least(of(self.position) + 1, "i32")
        names = "keys end", "all see from", "all see to", "first key"
        self.high, self.full_low, self.full_high, self.first_key = ends = [k.s.alloc(name) for name in names]
        k.assign(ends, (high, full_low, full_high, first), names)
        self._share()
        self.rows = k.scalar("the block's queries", (of(a["lq"]) - self.first_query).least(self.tile_queries))

    def _share(self) -> None:
        """Emits the number of steps in the block's keys, and the wave's first key."""
        k, plan = self.k, self.plan
        if plan.problem.page and plan.problem.window is not None:
            k.s_and_b32(self.first_key, self.first_key, -ATOM, note="a key atom lies in one page")
        keys = (of(self.high) - self.first_key).most(0, "i32") + (self.step - 1)
        self.steps_left = k.scalar("steps left", few(keys, self.step) // self.step)
        if self.parts > 1:
            self._part()
        if self.wave_keys < self.step:
            k.set(self.first_key, of(self.first_key) + of(self.wave_number) * self.wave_keys, note="the wave's own keys")
        if self.wave_queries < self.tile_queries:
            self._own_rows()
        k.s_sub_u32(self.high, self.high, 1, note="last key")

    def _own_rows(self) -> None:
        """Emits the wave's first row, and raises full_high: later queries see more keys than the block's first one."""
        k, plan = self.k, self.plan
        self.first_row = k.scalar("the wave's first row", of(self.wave_number) * (self.wave_queries * plan.row_slots))
        if plan.problem.causal or plan.problem.window is not None:
            own = of(self.first_row) // plan.row_slots + self.full_high
            k.set(self.full_high, own.least(self.arguments["lk"], "i32"))

    def _part(self) -> None:
        """Emits the steps of the block's part of the keys; all parts except the last have the same number."""
        k = self.k
        k.comment(f"one of {self.parts} parts of the keys")
        each = k.scalar("steps of a part", few(of(self.steps_left) + (self.parts - 1), self.parts) // self.parts)
        before = k.scalar("steps before the part", of(self.part) * each)
        k.set(self.steps_left, (of(self.steps_left) - before).most(0, "i32").least(each, "i32"))
        k.set(self.first_key, of(self.first_key) + of(before) * self.step)
        with k.temporary(of(self.steps_left) * self.step + self.first_key) as part_end:
            for end in (self.high, self.full_high):
                k.s_min_i32(end, end, part_end)
        k.s.free(each, before)

    def next_tile(self) -> None:
        """Emits the jump to a block's second tile, after a barrier because waves may still read LDS."""
        if not self.plan.tile_pairs:
            return
        k = self.k
        with k.jump_over(k.s_cmp_eq_u32(self.first_query, self.second_query), "no_second_tile"):
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
            k.v_cndmask_b32(target, -1, target, k.v_cmp_gt_u32("vcc", self.tile_heads, spare), note="no head: no query either")
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

    def store_of_rows(self, q: int, value: Reg, buffer: Reg, spares: Sequence[Reg], note: str) -> None:
        """Emits the store of one or two words of each query of an atom, which are contiguous. spares: three VGPRs."""
        k, (offset, row, spare), nbytes = self.k, spares, value.count * WORD
        of_head = k.scalar("head's bytes", of(self.arguments["lq"]) * nbytes)
        self.row_of(row, q)
        self.row_offset(offset, row, (nbytes, of_head), spare)
        k.buffer_store(value, offset, buffer, 0, note=note)
        k.s.free(of_head)

    def query_of(self, target: Reg, q: int) -> None:
        """Emits target = query of the tile that a lane has in query atom q."""
        k, slots = self.k, self.plan.row_slots
        self.row_of(target, q)
        if slots > 1:
            k.v_lshrrev_b32(target, log2(slots), target, note="query of the tile")

    def buffer(self, resource: Reg, name: str, columns: int, first_key: Reg | None = None) -> None:
        """Builds a raw buffer of Q, K, V or R, with rows of `columns` bytes.

        Q and R: the tile's queries of all its heads. K and V: the keys of the head, from `first_key` on.
        """
        k, a, tile = self.k, self.arguments, name in ("Q", "R")
        head, first_row, rows = (self.head, self.first_query, self.rows) if tile else (self.shared_head, first_key, a["lk"])
        of_row, of_head = a[f"{name}_row"], a[f"{name}_head"]
        k.comment(f"{name}: from the block's first row on; what lies past the view reads 0 and is not stored")
        nbytes = (of(rows) - 1) * of_row + of(of_head) * (self.tile_heads - 1 if tile else 0) + columns
        if first_key is not None:
            nbytes -= of(first_key) * of_row
        terms = [(factor, unit) for factor, unit in ((head, of_head), (first_row, of_row)) if factor is not None]
        buffer_at(k, resource, a[name], name, *terms, nbytes=nbytes)
