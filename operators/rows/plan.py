"""Tiles of an operator on rows, in closed form.

A chunk is v consecutive elements of a row: what one load of a lane brings. v is 16 bytes of X's type, or the largest power of two
that is no longer than the row. A row has k = ceil(n/v) chunks. The last one ends with the row; if v does not divide n, it overlaps
the one before, and its first v*k - n elements count for nothing in sums. So all loads and stores are wide, whatever the row's
length, and none passes its end.

* k <= 32: l lanes share a row, l = k rounded up to a power of two; a load of a wave brings 64/l rows. A wave has r = 1, 2 or 4
  such loads in flight: the most for which all wave slots of the GPU have rows.
* Without reductions along whole rows, a row is cut freely: w = 1 wave with up to 4 loads, or blocks of 4 waves with 4 loads each.
* Else a row stays in registers and is read once: g = ceil(k/(64*w)) loads a lane. w is the least of 1, 4 and 8 waves for which its
  elements and operands fit at four waves per SIMD, with at least two loads if w > 1, or else at two. w = 4 if there are fewer than
  4*CUs rows of more than two loads. If there are vectors, 2 or 4 rows are in flight, as long as four waves fit a SIMD and all
  blocks have rows: the vectors are loaded once for them.
* Longer rows are streamed by 8 waves, in steps of 4 loads, once for each pass of reductions and once for the results.
* Few long rows: s blocks share a row, and stream their parts of it. A kernel for each pass of reductions leaves what it reduces in
  memory, and one more computes the results. s is floor(r*CUs/rows), r = 1 to 4, or 1, by the time of all kernels (`cost`).

If v does not divide n, the last chunk must not be the first one of a wave, because it overlaps the one before: a wave has one
load's lanes of chunks more, or as many more as needed.
"""

from __future__ import annotations

from dataclasses import replace

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import POLICIES, one_of
from simgpu.operators.levels import Level, Nest
from simgpu.operators.resources import (
    BUFFER_BYTES,
    Constraint,
    LdsArray,
    RegisterRange,
    ResourcePlan,
    bandwidth_row,
    limit_rows,
    mark_binding,
    occupancy_row,
    require_narrow,
    rounding_sgprs,
    scalar_ranges,
)
from simgpu.operators.rows.cost import row_seconds
from simgpu.operators.rows.problem import RowOperator
from simgpu.operators.rows.tiles import GRANULE, IN_FLIGHT, LOAD_BYTES, MOST_SPAN, ROW_WAVES, WAVES, RowPlan, whole_rows
from simgpu.operators.split import TOLERANCE

LOADS = 4  # loads of a lane in flight, of rows that are cut or streamed
STREAM_WAVES = 8
MOST_ALONE = 2  # loads of a row that one wave keeps, if all rows are fewer than WAVES a CU
BUSY_WAVES = 4  # waves of a SIMD with which some load while others compute
SHORT_LANES = 32  # most lanes of rows that share a load
_ADDRESSES = 7  # VGPRs: lane, column, offset, and what reductions need: scratch, elements left out, neutral element
_ROUNDS = 4  # most rounds of blocks that are tried for few rows


def rows_plan(problem: RowOperator, descriptor: HardwareDescriptor, policy: str = "corrected", chunk: int = 0) -> RowPlan:
    """Returns the closed-form plan of an operator on rows. chunk: elements of a load of a lane; 0: by the formula.

    Policy "published" streams every row that is reduced, as the paper's online softmax does.

    >>> from simgpu import hardware
    >>> from simgpu.operators import RmsNorm, rows_plan
    >>> rows_plan(RmsNorm(8, 1 << 20), hardware.target("mi300x")).resident
    False
    """
    p, d = problem, descriptor
    one_of("policy", policy, POLICIES)
    require_narrow(p.dtype_y, d)
    for name, kind in (("ldx", p.element), ("ldy", p.element_y)):
        limit = BUFFER_BYTES // kind.bytes
        if getattr(p, name) >= limit:
            raise LaunchError(f"{name} = {getattr(p, name)}: a row must stay below 2^31 bytes, so {name} < {limit}")
    lanes = d.wavefront_size
    v = chunk or chunk_elements(p, lanes)
    k = -(-p.columns // v)
    empty = ResourcePlan((), (), (), 0, 0)
    plan = RowPlan(p, d, policy, v, lanes, 1, k, -(-k // lanes), 1, True, empty, ())
    spanned = lanes * IN_FLIGHT[-1] * max(p.ldx * p.element.bytes, p.ldy * p.element_y.bytes)  # type: ignore[operator]
    if k <= SHORT_LANES and spanned < MOST_SPAN and not (policy == "published" and whole_rows(p)):
        short = 1 << (k - 1).bit_length()
        plan = replace(plan, lanes_row=short)
        return _with_resources(replace(plan, in_flight=_in_flight(plan), part=short, loads=1))
    if not whole_rows(p):
        cuts = -(-k // (LOADS * lanes))
        if cuts == 1:
            return _with_resources(plan)
        each = _part(plan, -(-k // (WAVES * -(-cuts // WAVES))))
        return _with_resources(replace(plan, waves_row=WAVES, part=each, loads=-(-each // lanes)))
    if policy == "corrected":
        few = p.rows < WAVES * d.num_cus and k > MOST_ALONE * lanes
        fitting = [kept for w in ROW_WAVES[few:] if (kept := with_waves(plan, w)).feasible]
        if fitting:
            busy = (one for one in fitting if one.resources.waves_per_simd >= BUSY_WAVES and (one.waves_row == 1 or one.loads > 1))
            return _several_rows(_shared_plan(next(busy, fitting[0])))
        return _shared_plan(with_waves(plan, 0))
    return with_waves(plan, 0)


def _shared_plan(plan: RowPlan) -> RowPlan:
    """Returns the plan in which several blocks share a row, if that is faster for few rows, or else the plan itself.

    Of times within TOLERANCE of the least, that of the fewest parts counts: each part is a block in each kernel. r blocks a CU
    are tried only if they keep more CUs busy than fewer do.
    """
    p, d = plan.problem, plan.descriptor
    streamed = with_waves(plan, 0)
    most = plan.chunks // (streamed.waves_row * d.wavefront_size)  # a load of each lane
    shared, fullest = [], 0.0
    for rounds in range(1, _ROUNDS + 1):
        parts = min(rounds * d.num_cus // p.rows, most)
        full = parts * p.rows / rounds  # busy CUs of the mean round
        if parts > 1 and full > TOLERANCE * fullest:
            shared.append(with_parts(streamed, parts))
            fullest = full
    seconds = [(row_seconds(one)["total"], one) for one in (plan, *shared) if one is plan or (one.split and one.feasible)]
    least = min(each for each, _ in seconds)
    return next(one for each, one in seconds if each <= TOLERANCE * least)


def _several_rows(plan: RowPlan) -> RowPlan:
    """Returns the plan with several rows of a wave in flight, if vectors are then loaded once for them, or one round is enough.

    For vectors, their number is the largest of IN_FLIGHT with which BUSY_WAVES waves fit a SIMD and all blocks that a CU holds
    have rows. If blocks still take two rounds, it is the least with which they take one: each round waits for memory anew.
    """
    if plan.split:
        return plan
    rows = plan.problem.rows
    found = [one for count in IN_FLIGHT[1:] if (one := with_loads(plan, count)).feasible and _spans_rows(one)]
    for one in reversed(found if plan.problem.vectors else []):
        if one.resources.waves_per_simd >= BUSY_WAVES and rows >= _rows_at_once(one):
            plan = one
            break
    if not 1 < rows / _rows_at_once(plan) <= 2:
        return plan
    return next((one for one in found if one.in_flight > plan.in_flight and rows <= _rows_at_once(one)), plan)


def _rows_at_once(plan: RowPlan) -> int:
    """Returns the rows of all blocks that the CUs hold at a time."""
    return plan.tile_rows * plan.resources.blocks_per_cu * plan.descriptor.num_cus


def _spans_rows(plan: RowPlan) -> bool:
    """True if a buffer can span a wave's rows."""
    p, rows = plan.problem, plan.rows_wave
    return rows * max(p.ldx * p.element.bytes, p.ldy * p.element_y.bytes) < MOST_SPAN  # type: ignore[operator]


def with_nest(plan: RowPlan, nest: Nest) -> RowPlan:
    """Returns the plan with other rows for a block, other parts of rows or other chunks, as near as a kernel can be."""
    (rows, _), (_, part), (_, load) = nest[Level.DEVICE], nest[Level.BLOCK], nest[Level.WARP]
    lanes, whole = plan.descriptor.wavefront_size, rows_plan(plan.problem, plan.descriptor, plan.policy)
    widest = load.tile // plan.lanes_row
    chunk = next((v for v in (8, 4, 2, 1) if v <= min(widest, whole.chunk)), 1)
    if chunk != plan.chunk and _groups_fit(plan.problem, chunk, lanes):
        return rows_plan(plan.problem, plan.descriptor, plan.policy, chunk)
    of_wave = plan.rows_load * (WAVES if plan.waves_row == 1 else 1)
    in_flight = max((count for count in IN_FLIGHT if count * of_wave <= rows.tile), default=1)
    if not plan.resident or not _spans_rows(replace(plan, in_flight=in_flight)):
        in_flight = 1
    each = max(1, part.tile // plan.chunk)
    if whole_rows(plan.problem) and not plan.split and each * plan.waves_row < plan.chunks:
        each = plan.part  # a block needs whole rows
    if not _fits_overlap(plan, each) or plan.lanes_row < lanes:
        each = plan.part
    loads = -(-each // lanes) if plan.resident else plan.loads
    return _with_resources(replace(plan, part=each, loads=loads, in_flight=in_flight))


def with_waves(plan: RowPlan, waves: int) -> RowPlan:
    """Returns the plan of rows that `waves` waves keep, whether it fits or not. waves: 0 for rows that are streamed.

    >>> from simgpu import hardware
    >>> from simgpu.operators import RmsNorm, rows_plan
    >>> with_waves(rows_plan(RmsNorm(4096, 4096), hardware.target("mi300x")), 8).loads
    2
    """
    d, k = plan.descriptor, plan.chunks
    w = waves or max(1, min(STREAM_WAVES, d.max_workgroup_size // d.wavefront_size))
    each = _part(plan, -(-k // w)) if w > 1 else k
    loads = -(-each // d.wavefront_size) if waves else LOADS
    return _with_resources(replace(plan, waves_row=w, part=each, loads=loads, in_flight=1, resident=waves > 0))


def with_parts(plan: RowPlan, parts: int) -> RowPlan:
    """Returns the plan of streamed rows with `parts` blocks, or somewhat fewer, for each.

    >>> from simgpu import hardware
    >>> from simgpu.operators import RmsNorm, rows_plan
    >>> with_parts(rows_plan(RmsNorm(1, 1 << 20), hardware.target("mi300x")), 16).parts
    16
    """
    return _with_resources(replace(plan, part=_part(plan, -(-plan.chunks // (parts * plan.waves_row)))))


def with_loads(plan: RowPlan, in_flight: int) -> RowPlan:
    """Returns the plan with another number of a wave's loads of short rows, or of rows, in flight.

    >>> from simgpu import hardware
    >>> from simgpu.operators import RmsNorm, rows_plan
    >>> with_loads(rows_plan(RmsNorm(4096, 16), hardware.target("mi300x")), 4).rows_wave
    64
    """
    return _with_resources(replace(plan, in_flight=in_flight))


def chunk_elements(p: RowOperator, lanes: int) -> int:
    """Returns the elements of a load of a lane, a power of two. LaunchError for groups of more chunks than `lanes`."""
    most = min(LOAD_BYTES // p.element.bytes, p.columns, p.span)
    v = 1 << (most.bit_length() - 1)
    if not _groups_fit(p, v, lanes):
        raise LaunchError(f"group = {p.group}: a wave loads {v * lanes} elements of {p.dtype}; give a group of at most as many")
    return v


def _groups_fit(p: RowOperator, chunk: int, lanes: int) -> bool:
    return p.groups == 1 or p.span <= chunk * lanes


def _part(plan: RowPlan, least: int) -> int:
    """Returns the chunks of a wave's part: at least `least`, whole cache lines and groups, and allowed by `_fits_overlap`."""
    p = plan.problem
    step = max(GRANULE, p.span // plan.chunk) if p.groups > 1 else GRANULE
    part = -(-least // step) * step
    while not _fits_overlap(plan, part):
        part += step
    return part


def _fits_overlap(plan: RowPlan, part: int) -> bool:
    """True if the last chunk of a row, if it overlaps the one before, is not the first of a wave, and groups are whole."""
    p = plan.problem
    whole = p.groups == 1 or part % max(1, p.span // plan.chunk) == 0 or part >= plan.chunks
    return whole and not (plan.overlap and (plan.chunks - 1) % part == 0)


def _in_flight(plan: RowPlan) -> int:
    """Returns the loads of short rows that a wave has in flight: the largest of IN_FLIGHT that leaves no wave without rows."""
    d = plan.descriptor
    most = plan.problem.rows // (d.max_waves_per_simd * d.simds_per_cu * plan.rows_load * d.num_cus)
    return max((count for count in IN_FLIGHT if count <= most), default=1)


def _with_resources(plan: RowPlan) -> RowPlan:
    """Returns the plan with its registers, LDS and constraints."""
    p, d = plan.problem, plan.descriptor
    program = plan.program
    v, held = plan.chunk, plan.loads * plan.in_flight
    grouped = p.groups > 1
    beside = len(program.vectors) * plan.loads + len(program.tables) * held
    raw = max(1, v * p.element.bytes // 4)
    unpacked = v * len((*program.vectors, *program.tables)) if p.element.bytes < 4 else 0
    of_rows = 3 + bool(program.row_results) if plan.rows_load > 1 else 0
    registers = (
        RegisterRange("elements", "arch", v * held * len(program.matrices)),
        *((RegisterRange("operands", "arch", raw * beside + unpacked),) if beside else ()),
        RegisterRange("values of rows", "arch", program.row_values * (held if grouped else plan.in_flight)),
        RegisterRange("addresses", "arch", _ADDRESSES + of_rows + (plan.in_flight + 3) * bool(program.tables)),
        RegisterRange("temporaries", "arch", program.operations + len(program.results) + 2),
    )
    reduced = len(program.reductions) * plan.in_flight if plan.waves_row > 1 and whole_rows(p) else 0
    lds = (LdsArray("values of waves", 4 * plan.waves * reduced),) if reduced else ()
    buffers = len(program.matrices) + len(program.vectors) + len(program.tables) + len(program.results) + len(program.row_results)
    scalars = scalar_ranges(
        arguments=2 * (len(p.read) + len(p.written) + plan.split) + 3, coordinates=4, buffers=4 * (buffers + plan.split),
        before_buffers=3,
        tables=1 if program.tables else 0, rounding=rounding_sgprs(p.dtype_y, d.arch), temporaries=2,
    )  # fmt: skip
    resources = ResourcePlan.of(d, plan.waves, registers, lds, scalars)
    plan = replace(plan, resources=resources)
    at_once = max(1, min(2, d.max_waves_per_simd) * d.simds_per_cu // plan.waves)
    rows = (
        *limit_rows(d, resources.arch_vgprs, 0, resources.sgprs, resources.lds_bytes, plan.waves, at_once, {}),
        occupancy_row(d, plan.blocks),
        bandwidth_row(d, p.flops, p.bytes_once, f"rows are read {plan.reads} time(s)"),
        *_lanes_row(plan),
        *_parts_row(plan),
    )
    return replace(plan, constraints=mark_binding(rows, "HBM bandwidth" if plan.blocks >= d.num_cus else "occupancy"))


def _parts_row(plan: RowPlan) -> tuple[Constraint, ...]:
    """Returns a soft row with the blocks that share a row; nothing if one has it whole."""
    if not plan.split:
        return ()
    passes = len(plan.program.passes)
    note = f"{passes + 1} kernels: {passes} of reductions, then the results"
    most = -(-plan.chunks // (GRANULE * plan.waves_row))
    return (Constraint("blocks that share a row", Level.DEVICE, most, plan.parts, "blocks", note, hard=False),)


def _lanes_row(plan: RowPlan) -> tuple[Constraint, ...]:
    """Returns a soft row with the lanes that have no chunk; nothing if all have."""
    slots = plan.waves_row * plan.parts * -(-plan.part // plan.lanes_row) * plan.lanes_row
    if slots == plan.chunks:
        return ()
    over = f", the last {plan.overlap} elements longer than the row" if plan.overlap else ""
    note = f"{plan.chunks} chunks of {plan.chunk} elements{over}, of lanes' slots"
    return (Constraint("lanes with a chunk", Level.WARP, slots, plan.chunks, "lanes", note, hard=False),)
