"""Tiles of an online softmax in closed form (paper, section Online Softmax; E29, E30).

w waves process a row at a time, two waves per SIMD. A block has four rows of one wave each, or one row of w waves. A lane holds
v elements of a row, e bytes each in memory. R is the number of ArchVGPRs at two waves per SIMD less the fixed ones.

* n <= 64*R*w: the row stays in registers and is read once (8 bytes moved per f32 element). w is the least of 1, 4, 8 that holds
  it. A load of a lane is a chunk of c elements, the least power of two of at least n/64, at most 16/e. A wave's part of the row is
  k = ceil(n / (c*w)) chunks, rounded up to a multiple of 8 if w > 1. v = c*ceil(k/64).
  Few rows: w = 4 if there are fewer than 4*CUs rows of at least one step.
  Short rows: n <= 32*u, and more rows than waves. u is the largest power of two that divides n, at most 16/e. A row is held by l
  lanes, l = n/u rounded up to a power of two. A load of a wave brings 64/l rows, and v = u. Not with masks, bands or f64.
  Several loads: a wave has r = 1, 2 or 4 loads in flight, the most for which a CU's loads stay within the bytes that it can have
  in flight, and every wave has rows. Not with masks, bands or f64.
  Packed: f16 and bf16 rows stay as loaded, two elements per register, w = 8, n <= 2*64*(R-8)*w, if f32 does not
  fit or leaves fewer than two blocks per CU. Not with masks or bands.
* Longer rows are streamed twice in steps of 64 lanes x 4 loads of 16 bytes: statistics, then values (12 bytes moved per f32
  element). v = 4*16/e.
* Few long rows: s blocks share a row, split-N. A second kernel merges their statistics with ⊕ and writes Y. s is 1 or
  floor(r*CUs/tiles), r = 1 to 4, whichever takes the least time. Rows that could stay in registers are also split if that is
  faster. One CU, which draws h bytes a second from memory, reads a row in n*e/h. s CUs read it twice in 2*n*e/(s*h), with each
  step at least as long as a load, and one more launch. HBM may limit both.

In f64 an element needs two registers, and F64_INSTRUCTIONS instructions. Waves that share a row merge their states (m, delta)
with ⊕ through LDS.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import e as euler
from math import log2 as logarithm

import numpy as np

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.hardware.rates.sustained import SOFTMAX_INSTRUCTIONS, STORE_BYTES, sustained_rates
from simgpu.operators.arguments import POLICIES, one_of
from simgpu.operators.levels import Level, Nest, TileLoop
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
    rounding_sgprs,
    scalar_ranges,
)
from simgpu.operators.rows.tiles import GRANULE, IN_FLIGHT, LOAD_BYTES, MOST_SPAN, ROW_WAVES, WAVES, RowDerivation
from simgpu.operators.softmax.problem import SoftmaxProblem

_LANES = 64  # of a wave
_LOADS = 4  # loads of LOAD_BYTES that a lane has in flight
# Registers that do not depend on the row: lane's byte offset and the load's own. A mask's bytes are loaded eight at a
# time. For a logarithm, exponentials need registers of their own.
_ADDRESS_VGPRS = 2
_SHORT_VGPRS = 2  # for rows that lanes of a wave share: byte offset in Y, columns left of the row
_TEMPORARY_VGPRS = 4
_MASK_VGPRS = 8
PACKING = 2  # elements of a register that holds a row of 16-bit elements as loaded
UNPACKED = 8  # registers that such a row's elements are unpacked into, or that exponentials are apart: those of a load
# Instructions for an element of such a row: two exponentials, a maximum, a sum, a factor, a scale twice, and conversions.
PACKED_INSTRUCTIONS = {"f16": 14, "bf16": 17}
_ROUNDS = 4  # most rounds of blocks that are tried for a split: from four on, eta >= 4/5
EXP_SGPRS = 32  # constants of the exponential in f64, which a kernel keeps (asm.parts.activation_f64.OF_EXP)
# For an element: 23 of the exponential, two that keep its NaN, difference, scale, maximum, sum, factor, and addresses.
F64_INSTRUCTIONS = 31


@dataclass(frozen=True)
class SoftmaxPlan(RowDerivation):
    """Tiles, resources and constraints of a softmax.

    >>> from simgpu.operators import Softmax, SoftmaxProblem
    >>> plan = Softmax(SoftmaxProblem(rows=4096, n=1000), "mi300x").plan
    >>> plan.resident, plan.reads, plan.tile_rows
    (True, 1, 4)
    """

    problem: SoftmaxProblem
    descriptor: HardwareDescriptor
    policy: str  # tile policy
    waves_row: int  # waves of a row
    lanes_row: int  # lanes that share a row: a wave's, or fewer if rows are short
    in_flight: int  # rows, or loads of several short rows, that a wave has in flight
    tile_n: int  # elements of a step
    resident: bool  # True if the row stays in registers and is read once
    packing: int  # elements in a register: 1, or PACKING
    split_n: int  # blocks that share a row
    resources: ResourcePlan
    constraints: tuple[Constraint, ...]

    @property
    def title(self) -> str:
        """Sizes, type and target, for messages."""
        return (
            f"softmax {self.problem.rows}x{self.problem.n} {self.problem.dtype} on {self.descriptor.name or self.descriptor.arch}"
        )

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes that the policy decided, by name."""
        names = ("tile_rows", "waves_row", "tile_n", "split_n", "packing", "reads")
        return {name: getattr(self, name) for name in names}

    @property
    def chunk(self) -> int:
        """Elements of a load of a lane."""
        p = self.problem
        if self.lanes_row < self.descriptor.wavefront_size:
            return short_elements(p)
        return chunk_elements(p) if self.resident else min(LOAD_BYTES // p.element.bytes, 1 << (p.n.bit_length() - 1))

    @property
    def loads(self) -> int:
        """Loads of a lane that are in registers at a time, of a row."""
        return self.lane_elements // self.chunk

    @property
    def lane_elements(self) -> int:
        """Elements of a row that a lane holds at a time: `packing` an ArchVGPR; in f64, one in two."""
        held = next(r.count for r in self.resources.registers if r.name == "row")
        return held * self.packing // self.problem.element.registers // self.in_flight

    @property
    def running(self) -> bool:
        """True if lanes keep running m and delta to the row's end, after which exp is computed again from X."""
        return not self.resident or self.packing > 1

    @property
    def reads(self) -> int:
        """Number of times that X is read."""
        return 1 if self.resident else 2

    @property
    def wave_columns(self) -> int:
        """Columns of a wave, of a row at a time: its part if waves share the row, else those that it has room for."""
        if self.waves_row > 1:
            return _wave_part(self.problem, self.waves_row) * self.chunk
        return self.lanes_row * self.lane_elements

    @property
    def nest(self) -> Nest:
        """Loops of the tree. A block has a row, or some for each wave; a wave has all columns of a row, or a part or a step."""
        lanes = self.descriptor.wavefront_size
        return {
            Level.DEVICE: (TileLoop("rows", self.tile_rows, True), TileLoop("n", self.steps_per_block * self.tile_n, True)),
            Level.BLOCK: (TileLoop("rows", self.rows_load, True), TileLoop("n", self.wave_columns, self.waves_row > 1)),
            Level.WARP: (TileLoop("rows", 1), TileLoop("n", lanes)),
        }

    def with_nest(self, nest: Nest) -> SoftmaxPlan:
        """Returns the plan with other rows for a block, another step of streamed rows or another part of a split row."""
        p, d = self.problem, self.descriptor
        (rows, part), (_, step) = nest[Level.DEVICE], nest[Level.BLOCK]
        tile_n, in_flight, split = self.tile_n, self.in_flight, 1
        if not self.resident:
            load = d.wavefront_size * LOAD_BYTES // p.element.bytes
            tile_n = max(load, step.tile // load * load)
            states = tile_n * p.element.registers // 2  # of parts, in a step's registers
            split = min(-(-p.n // max(part.tile, tile_n)), states)
        elif self.waves_row == 1 and not _has_row_per_wave(p) and (self.lane_elements == 1 or self.lane_elements % 2 == 0):
            # several registers of a load begin at an even one
            fitting = (count for count in IN_FLIGHT if count * WAVES * self.rows_load <= rows.tile)
            in_flight = max(fitting, default=1)
        waves = self.waves_row if self.resident else 0
        resources = softmax_resources(p, d, waves, in_flight, self.packing, self.lanes_row, tile_n)
        plan = replace(self, tile_n=tile_n, in_flight=in_flight, split_n=split, resources=resources)
        return replace(plan, constraints=_constraints(plan))

    @property
    def steps(self) -> int:
        """Steps of a whole row."""
        return -(-self.problem.n // self.tile_n)

    @property
    def steps_per_block(self) -> int:
        """Steps of a block's part of a row."""
        return -(-self.steps // self.split_n)

    @property
    def blocks(self) -> int:
        """Blocks of the first pass."""
        return -(-self.problem.rows // self.tile_rows) * self.split_n


def plan_softmax(problem: SoftmaxProblem, descriptor: HardwareDescriptor, policy: str = "corrected") -> SoftmaxPlan:
    """Returns the closed-form plan of a softmax.

    Policy "published" streams every row in two reads and never splits (the paper states no more).

    >>> from simgpu import hardware, operators
    >>> plan = operators.plan_softmax(operators.SoftmaxProblem(rows=8, n=1 << 20), hardware.target("mi300x"))
    >>> plan.resident, plan.split_n > 1
    (False, True)
    """
    p, d = problem, descriptor
    one_of("policy", policy, POLICIES)
    if p.n * p.element.bytes >= BUFFER_BYTES:
        raise LaunchError(f"n = {p.n}: a row must stay below 2^31 bytes, so n < {BUFFER_BYTES // p.element.bytes}")
    waves_row, packing = keeping(p, d) if policy == "corrected" else (0, 1)
    split = _split(p, d) if policy == "corrected" else 1
    kept, shared = kept_and_shared(p, d, split, packing)
    if waves_row > 1 and shared < kept:
        waves_row, packing = 0, 1
    resident = waves_row > 0
    split = 1 if resident else split
    lanes_row = _lanes_row(p, d) if waves_row == 1 else d.wavefront_size
    in_flight = _in_flight(p, d, lanes_row) if waves_row == 1 else 1
    resources = softmax_resources(p, d, waves_row, in_flight, packing, lanes_row)
    plan = SoftmaxPlan(
        p, d, policy, max(1, waves_row), lanes_row, in_flight, step_elements(p, d), resident, packing, split, resources, ()
    )
    return replace(plan, constraints=_constraints(plan))


def keeping(p: SoftmaxProblem, d: HardwareDescriptor) -> tuple[int, int]:
    """Returns (waves that would keep a row in registers, elements per register); 0 waves if none of ROW_WAVES can."""
    waves = next((w for w in ROW_WAVES if _row_registers(p, d, w, 1) <= _room(p, d, w)), 0)
    if waves == 1 and p.rows < WAVES * d.num_cus and p.n >= step_elements(p, d):
        waves = ROW_WAVES[1]
    return (ROW_WAVES[-1], PACKING) if _packs(p, d, waves) else (waves, 1)


def _room(p: SoftmaxProblem, d: HardwareDescriptor, waves_row: int) -> int:
    """Returns the ArchVGPRs in which a wave can keep its part of a row; 0 if a CU does not hold the block."""
    waves = max(WAVES, waves_row)
    per_simd = -(-_blocks_at_once(d, waves) * waves // d.simds_per_cu)
    if per_simd > d.max_waves_per_simd or waves * d.wavefront_size > d.max_workgroup_size:
        return 0
    return max(0, d.vgpr_budget(per_simd)[0] - _fixed_vgprs(p))


def chunk_elements(p: SoftmaxProblem) -> int:
    """Returns the elements of a lane's load of a row that waves keep: as many as a wave's lanes need, at most LOAD_BYTES.

    >>> from simgpu.operators import SoftmaxProblem
    >>> [chunk_elements(SoftmaxProblem(rows=1, n=n)) for n in (3, 65, 1000)]
    [1, 2, 4]
    """
    needed = 1 << (-(-p.n // _LANES) - 1).bit_length()
    return min(LOAD_BYTES // p.element.bytes, needed)


def _wave_part(p: SoftmaxProblem, waves: int) -> int:
    """Returns the chunks of each wave of those that share a row: whole cache lines."""
    each = -(-p.n // (chunk_elements(p) * waves))
    return -(-each // GRANULE) * GRANULE if waves > 1 else each


def _row_registers(p: SoftmaxProblem, d: HardwareDescriptor, waves: int, packing: int) -> int:
    """Returns the ArchVGPRs in which a lane keeps its elements of a row of `waves` waves. packing: elements per register."""
    loads = -(-_wave_part(p, waves) // d.wavefront_size)
    return loads * chunk_elements(p) * p.element.registers // packing


def _blocks_at_once(d: HardwareDescriptor, waves: int) -> int:
    """Returns the blocks of a CU for which registers are planned: two waves per SIMD if it has so many, at least one block."""
    return max(1, min(2, d.max_waves_per_simd) * d.simds_per_cu // waves)


def _packs(p: SoftmaxProblem, d: HardwareDescriptor, waves_row: int) -> bool:
    """True if a row is kept as loaded, two elements per register.

    waves_row: waves that would keep the row as f32, 0 if none can.
    """
    if p.element.bytes != 2 or p.element_y != p.element or _has_row_per_wave(p):
        return False
    fits = _row_registers(p, d, ROW_WAVES[-1], PACKING) <= _room(p, d, ROW_WAVES[-1]) - UNPACKED
    return fits and (waves_row == 0 or softmax_resources(p, d, waves_row).blocks_per_cu < 2)


def score_factor(p: SoftmaxProblem) -> float:
    """Returns the factor of a score's distance from the maximum in the kernel: base e in f64, else base 2, in f32.

    Scores are sign * X, so it is |scale|; of zeros, 1.
    """
    size = abs(p.scale) or 1.0
    return size if p.dtype == "f64" else float(np.float32(size * logarithm(euler)))


def _lanes_row(p: SoftmaxProblem, d: HardwareDescriptor) -> int:
    """Returns the lanes that hold a row of one wave.

    If there are more rows than the GPU has wave slots, it is the least power of two with which one load per lane brings the row;
    else the wave's 64.
    """
    lanes = 1 << (p.n // short_elements(p) - 1).bit_length()
    assert p.ldx and p.ldy
    spanned = d.wavefront_size * max(p.ldx * p.element.bytes, p.ldy * p.element_y.bytes)  # by one buffer, at most
    several = p.rows > _waves_of_cu(d) * d.num_cus and spanned < MOST_SPAN and not _has_row_per_wave(p)
    return min(lanes, d.wavefront_size) if several else d.wavefront_size


def _waves_of_cu(d: HardwareDescriptor) -> int:
    return d.max_waves_per_simd * d.simds_per_cu


def short_elements(p: SoftmaxProblem) -> int:
    """Returns the elements of a short row in a lane: the largest power of two that divides n, at most one load's."""
    return min(LOAD_BYTES // p.element.bytes, p.n & -p.n)


def _has_row_per_wave(p: SoftmaxProblem) -> bool:
    """True if a wave must process one row at a time, however short: with a mask, a band or f64."""
    return p.mask or p.band is not None or p.dtype == "f64"


def _in_flight(p: SoftmaxProblem, d: HardwareDescriptor, lanes_row: int) -> int:
    """Returns the rows, or loads of several short rows, that a wave has in flight, one of IN_FLIGHT.

    It is the largest that leaves no wave without rows and keeps a CU's loads within the bytes that it can have in flight.
    """
    waves, rows = _waves_of_cu(d), d.wavefront_size // lanes_row
    assert p.ldx and p.ldy
    spanned = IN_FLIGHT[-1] * rows * max(p.ldx * p.element.bytes, p.ldy * p.element_y.bytes)  # by one buffer, at most
    if _has_row_per_wave(p) or spanned >= MOST_SPAN:
        return 1
    flight, most = waves * rows * p.n * p.element.bytes, p.rows // (waves * rows * d.num_cus)
    fits = (count for count in IN_FLIGHT if count <= most and count * flight <= pipelines(d.arch).in_flight)
    return max(fits, default=1)


def _split(p: SoftmaxProblem, d: HardwareDescriptor) -> int:
    """Returns the blocks that share a streamed row: 1 or a number that fills 1 to _ROUNDS rounds, whichever is fastest."""
    tiles, steps = -(-p.rows // WAVES), -(-p.n // step_elements(p, d))
    full = {max(1, min(rounds * d.num_cus // tiles, steps)) for rounds in range(1, _ROUNDS + 1)}
    answers = {-(-steps // -(-steps // split)) for split in (1, *full)}
    return min(answers, key=lambda split: (kept_and_shared(p, d, split)[1], split))


def kept_and_shared(p: SoftmaxProblem, d: HardwareDescriptor, split: int, packing: int = 1) -> tuple[float, float]:
    """Returns estimated seconds of (rows kept in registers, rows streamed twice by `split` blocks each, a second launch included).

    Each is the larger of the CUs' time, which read, compute and store one block at a time, and HBM's. A streamed step takes at
    least one memory latency. packing: elements per register of a row that is kept.
    """
    rates, nbytes = sustained_rates(d), p.rows * p.n * p.element.bytes
    issue, issue_kept = (instructions(p, each) / rates.valu_lanes / rates.clock for each in (1, packing))
    draw = p.element.bytes / rates.memory_of_cu
    row, store = p.n * max(draw, issue), p.n * p.element_y.bytes / STORE_BYTES / rates.clock
    rounds = -(-(-(-p.rows // WAVES) * split) // d.num_cus)
    together, steps = min(p.rows, WAVES), -(-p.n // (step_elements(p, d) * split))
    read = max(together * row / split, steps * rates.memory_latency)
    streamed = rounds * (2 * read + together * store / split)
    kept = max(-(-p.rows // d.num_cus) * (p.n * max(draw, issue_kept) + store), nbytes / rates.hbm)
    return kept, max(streamed, 2 * nbytes / rates.hbm) + (rates.launch if split > 1 else 0.0)


def instructions(p: SoftmaxProblem, packing: int) -> int:
    """Returns the vector instructions per element. packing: elements per register."""
    if packing > 1:
        return PACKED_INSTRUCTIONS[p.element.name]
    return F64_INSTRUCTIONS if p.dtype == "f64" else SOFTMAX_INSTRUCTIONS


def step_elements(p: SoftmaxProblem, d: HardwareDescriptor) -> int:
    """Returns the elements in a step of a streamed row.

    A load less if a row's last chunk would be the only one of a step: it ends with the row, so it overlaps the step before, which
    may belong to another block. In place, that block stores what this one loads.
    """
    chunk = LOAD_BYTES // p.element.bytes
    load = d.wavefront_size * chunk
    return load * (_LOADS - (0 < p.n % (load * _LOADS) < chunk))


def _fixed_vgprs(p: SoftmaxProblem) -> int:
    words = p.element.registers
    return _ADDRESS_VGPRS + words * (_TEMPORARY_VGPRS + 2) + _MASK_VGPRS * p.mask + UNPACKED * p.log


def softmax_resources(
    p: SoftmaxProblem, d: HardwareDescriptor, waves_row: int, in_flight: int = 1, packing: int = 1, lanes_row: int | None = None,
    step: int = 0,
) -> ResourcePlan:  # fmt: skip
    """Returns the registers of a wave and the LDS of a block.

    waves_row: waves that keep a row; 0 for a streamed row. in_flight, lanes_row: as in SoftmaxPlan; lanes_row None: all lanes of
    a wave. packing: elements per register. step: elements of a streamed row's step; 0: `step_elements`.
    """
    words, short = p.element.registers, lanes_row not in (None, d.wavefront_size)
    fixed, waves = _fixed_vgprs(p), max(WAVES, waves_row)
    if short:
        row = words * short_elements(p)
    else:
        row = _row_registers(p, d, waves_row, packing) if waves_row else words * (step or step_elements(p, d)) // d.wavefront_size
    registers = (
        RegisterRange("row", "arch", in_flight * row),
        RegisterRange("m, delta", "arch", 2 * words * in_flight),
        RegisterRange("addresses", "arch", _ADDRESS_VGPRS + (_SHORT_VGPRS if short else 0)),
        RegisterRange("temporaries", "arch", fixed - 2 * words - _ADDRESS_VGPRS - UNPACKED * p.log),
        *((RegisterRange("unpacked", "arch", UNPACKED),) if packing > 1 or p.log else ()),
    )
    lds = (LdsArray("statistics", 8 * words * waves),) if waves_row > 1 else ()
    return ResourcePlan.of(d, waves, registers, lds, _scalars(p, d, waves_row > 0))


def _scalars(p: SoftmaxProblem, d: HardwareDescriptor, resident: bool) -> tuple[RegisterRange, ...]:
    """Returns the SGPRs of a wave, enough for every kernel of the plan. Those of streamed rows may have states in memory."""
    double, split = p.dtype == "f64", not resident
    return scalar_ranges(
        arguments=2 * (2 + p.mask + split) + 3 + (2 if double else 1) + (3 if p.band else 0) + (p.log and not double),
        coordinates=4,
        buffers=4 * (2 + p.mask + split),
        before_buffers=3,  # buffers begin at multiples of 4
        rounding=rounding_sgprs(p.dtype_y or p.dtype, d.arch),
        temporaries=2,
        band=2 if p.band else 0,
        constants=4 + EXP_SGPRS if double else 0,
    )


def _constraints(plan: SoftmaxPlan) -> tuple[Constraint, ...]:
    p, d, r = plan.problem, plan.descriptor, plan.resources
    split = plan.split_n if plan.split_n > 1 else _split(p, d)
    kept, shared = kept_and_shared(p, d, split, keeping(p, d)[1])
    shares = plan.split_n > 1
    rows = (
        *limit_rows(d, r.arch_vgprs, 0, r.sgprs, r.lds_bytes, plan.waves, _blocks_at_once(d, plan.waves), {}),
        occupancy_row(d, plan.blocks),
        *(() if split == 1 or plan.policy == "published" else (Constraint(
            "split of rows",
            Level.DEVICE,
            1e6 * (kept if shares else shared),
            1e6 * (shared if shares else kept),
            "us",
            f"{p.n * p.element.bytes / 1e3:,.1f} KB by "
            + (f"{split} blocks, twice; the limit is one CU" if shares else f"one CU; the limit is {split} blocks, twice"),
            hard=False,
        ),)),
        *_lanes_of_row(plan),
        bandwidth_row(d, p.flops, p.bytes_once),
    )
    return mark_binding(rows, "HBM bandwidth" if plan.blocks >= d.num_cus else "occupancy")


def _lanes_of_row(plan: SoftmaxPlan) -> tuple[Constraint, ...]:
    """Returns a soft row with the number of lanes that share a short row; nothing if a row has all lanes of a wave."""
    d, rows = plan.descriptor, plan.rows_load
    if rows == 1:
        return ()
    note = f"{plan.lane_elements} elements a lane: {rows} rows a load, {plan.in_flight} load(s) in flight"
    return (Constraint("lanes of a row", Level.WARP, d.wavefront_size, plan.lanes_row, "lanes", note, hard=False),)
