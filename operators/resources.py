"""Constraints and resources of a plan: the target's limits, the tile's use, the slack."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Self

from simgpu.hardware.descriptor import NAMED_SGPRS, HardwareDescriptor
from simgpu.hardware.errors import ResourceError, TargetError
from simgpu.operators.levels import Level, Nest

WIDEST = 16  # bytes of a lane's widest access to memory or LDS
BUFFER_BYTES = 1 << 31  # limit for what one buffer spans
DS_REACH = 1 << 16  # range in bytes of an LDS instruction's own offset: 16 bits (LLVM, all four targets)
RESERVED_SGPRS = 6  # VCC, FLAT_SCRATCH, XNACK_MASK, after a kernel's own on gfx9 (LLVM AMDGPUUsage, .amdhsa_reserve_*)
WIDTH = 80  # columns of plans and trees as text
LAUNCH_SGPRS = 4  # the kernel arguments' address, workgroup ids x and y
ROUNDING = 1e-12  # relative difference of two equal figures
ALIGNMENT_SGPRS = 3  # most SGPRs lost to the alignment of buffer descriptors (four registers) and pairs


@dataclass(frozen=True)
class Constraint:
    """A limit at one level of the tree.

    >>> from simgpu.operators import Constraint
    >>> from simgpu.operators.levels import Level
    >>> row = Constraint("LDS", Level.BLOCK, limit=65536, use=16384, unit="bytes")
    >>> row.satisfied, row.slack
    (True, 49152)
    >>> print(row)
    LDS 16,384 of 65,536 bytes
    >>> Constraint("loads", Level.DEVICE, limit=0.3, use=0.1 + 0.2, unit="us").slack
    0
    """

    name: str
    level: Level
    limit: float  # largest amount allowed
    use: float  # amount used
    unit: str  # unit of limit and use
    note: str = ""  # explanation for a reader
    remedy: str = ""  # what to change, and by how much, if it is violated
    hard: bool = True  # True: decides feasibility; False: shows the distance from the best plan (occupancy, operand bandwidth)
    binding: bool = False  # True if it stopped the tile from growing

    def __str__(self) -> str:
        said = f"{self.use:,.6g} of {self.limit:,.6g} {self.unit}" if self.limit or self.use else self.note
        return f"{self.name} {said}{' (binds)' * self.binding}"

    @property
    def slack(self) -> float:
        """Limit minus use; negative if violated. 0 if they differ by rounding only, as two sums of the same times may."""
        left = self.limit - self.use
        return left if abs(left) > ROUNDING * abs(self.limit) else 0

    @property
    def satisfied(self) -> bool:
        """True if the use is within the limit."""
        return self.use <= self.limit

    @property
    def ratio(self) -> float:
        """Use divided by limit; infinite for any use of a limit of 0."""
        return self.use / self.limit if self.limit else (0.0 if not self.use else float("inf"))


@dataclass(frozen=True)
class RegisterRange:
    """A named range of 32-bit registers."""

    name: str
    file: str  # arch or acc: per lane; sgpr: per wave
    count: int


@dataclass(frozen=True)
class LdsArray:
    """A named array in LDS."""

    name: str
    nbytes: int  # bytes of all its stages


@dataclass(frozen=True)
class ResourcePlan:
    """Resources of one wave and one workgroup, in closed form. The emitter stays within them.

    >>> from simgpu import operators
    >>> resources = operators.TiledComputation(256, 256, 256, target="mi300x").plan.resources
    >>> resources.lds_bytes, resources.acc_vgprs, resources.blocks_per_cu
    (65536, 4, 1)
    """

    registers: tuple[RegisterRange, ...]  # per lane
    lds: tuple[LdsArray, ...]  # per workgroup
    scalars: tuple[RegisterRange, ...]  # per wave
    waves_per_simd: int  # resident at once, by registers, LDS and wave slots together
    blocks_per_cu: int  # resident at once

    @classmethod
    def of(
        cls, descriptor: HardwareDescriptor, waves: int, registers: tuple[RegisterRange, ...], lds: tuple[LdsArray, ...],
        scalars: tuple[RegisterRange, ...],
    ) -> Self:  # fmt: skip
        """Returns the plan for blocks of `waves` waves. If a block does not fit, waves_per_simd and blocks_per_cu are 0."""
        plan = cls(registers, lds, scalars, 0, 0)
        blocks = descriptor.blocks_per_cu(plan.arch_vgprs, plan.acc_vgprs, plan.sgprs, plan.lds_bytes, waves)
        return replace(plan, waves_per_simd=-(-blocks * waves // descriptor.simds_per_cu), blocks_per_cu=blocks)

    @property
    def arch_vgprs(self) -> int:
        """ArchVGPRs per lane."""
        return sum(r.count for r in self.registers if r.file == "arch")

    @property
    def acc_vgprs(self) -> int:
        """AccVGPRs per lane."""
        return sum(r.count for r in self.registers if r.file == "acc")

    @property
    def sgprs(self) -> int:
        """SGPRs of a wave, VCC, FLAT_SCRATCH and XNACK_MASK included."""
        return sgprs(self.scalars)

    @property
    def lds_bytes(self) -> int:
        """Bytes of LDS that a workgroup requests, before rounding to the allocation granule."""
        return sum(array.nbytes for array in self.lds)


def scalar_ranges(**counts: int) -> tuple[RegisterRange, ...]:
    """Returns SGPR ranges: the launch state, and one of `count` registers for each name. Underscores in names become blanks.

    Counts of 0 are omitted.
    """
    named = {"launch state": LAUNCH_SGPRS, **{name.replace("_", " "): count for name, count in counts.items()}}
    return tuple(RegisterRange(name, "sgpr", count) for name, count in named.items() if count)


def require_narrow(dtype: str, descriptor: HardwareDescriptor) -> None:
    """Raises TargetError unless the target can round f32 to `dtype`.

    Targets convert to the 8-bit floats for which they have matrix instructions; all convert to the other types.
    """
    if dtype in ("fp8", "bf8") and dtype not in descriptor.dtypes():
        raise TargetError(f"{descriptor.arch} has no instruction that rounds to {dtype}: use f16 or bf16, or gfx942 or gfx950")


def rounding_sgprs(dtype: str, arch: str) -> int:
    """Returns the number of SGPRs with constants for rounding f32 to a type.

    Only bf16 needs them, except on gfx950, which has an instruction for it (LLVM).
    """
    return 2 if dtype == "bf16" and arch != "gfx950" else 0


def sgprs(scalars: Iterable[RegisterRange]) -> int:
    """Returns the SGPRs of a wave with these ranges, the reserved ones included."""
    return sum(r.count for r in scalars) + RESERVED_SGPRS


def break_line(line: str, indent: str) -> list[str]:
    """Returns the line, broken at blanks if it is longer than WIDTH, but not before %; further lines begin with `indent`.

    >>> break_line("a b", "  ")
    ['a b']
    """
    kept = line.replace(" %", "\u00a0%")
    broken = textwrap.wrap(kept, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [part.replace("\u00a0", " ") for part in broken] or [line]


class Derivation:
    """Base of every operator's plan: a dataclass with these fields that defines `title`, `sizes` and `blocks`."""

    problem: Any
    descriptor: HardwareDescriptor
    policy: str  # tile policy
    constraints: tuple[Constraint, ...]

    def __str__(self) -> str:
        """Returns the paper's listing: what binds, the tiles, then a line per level with its hard limits, the tightest first."""
        bound = str(replace(self.binding, binding=False))
        said = f"bound by {bound}" if self.feasible else f"does not fit: {bound}; {self.remedy}"
        lines = [self.title, f"  {said}", f"  {', '.join(f'{name}={value}' for name, value in self.sizes.items())}"]
        for level in Level:
            rows = sorted((row for row in self.at(level) if row.hard), key=lambda row: (not row.binding, -row.ratio))
            told = [row.note for row in self.at(level) if row.name == "occupancy"]
            told += [str(replace(row, binding=False)) if row.limit else row.note for row in rows[:1]]
            told += [f"{row.name} {100 * row.ratio:.0f}%" for row in rows[1:]]
            if told:
                lines.append(f"  +-- {level}: {', '.join(told)}")
        return "\n".join(broken for line in lines for broken in break_line(line, "    "))

    @property
    def title(self) -> str:
        """Operator, sizes, type and target, for messages."""
        raise NotImplementedError

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes that the policy decided, by name."""
        raise NotImplementedError

    @property
    def blocks(self) -> int:
        """Blocks of the whole computation."""
        raise NotImplementedError

    @property
    def nest(self) -> Nest:
        """Loops of the tree, by level; empty if its nodes name their own children."""
        return {}

    @property
    def peak_tflops(self) -> float:
        """TFLOPS of the matrix units for the types that the operator multiplies, at the peak engine clock."""
        return self.descriptor.matrix_tflops(self.problem.dtype)

    @property
    def eta(self) -> float:
        """Quantised occupancy (E9): (blocks/CUs) / ceil(blocks/CUs)."""
        return quantisation_efficiency(self.blocks, self.descriptor.num_cus)

    @property
    def tiling_line(self) -> str:
        """Policy, board, binding limit and occupancy, as a line of a tree."""
        board = self.descriptor.name or self.descriptor.arch
        return f"tiling: {self.policy} for {board}, bound by {self.binding.name}, CU rounds {100 * self.eta:.1f} % full"

    @property
    def feasible(self) -> bool:
        """True if every hard constraint is satisfied."""
        return all(row.satisfied for row in self.constraints if row.hard)

    @property
    def binding(self) -> Constraint:
        """Constraint that stopped the tile from growing, or the violated one."""
        return binding(self.constraints)

    @property
    def remedy(self) -> str:
        """Text about what to change and by how much; empty if feasible."""
        return "; ".join(dict.fromkeys(row.remedy for row in self.constraints if row.hard and not row.satisfied))

    def at(self, level: Level) -> tuple[Constraint, ...]:
        """Returns the constraints of one level."""
        return tuple(row for row in self.constraints if row.level is level)

    def _repr_html_(self) -> str:
        """Returns HTML for Jupyter: the sizes, and every limit with its use; for an infeasible plan, what to change."""
        rows = "".join(
            f"<tr><td>{row.level}</td><td>{escape(row.name)}{' <b>binds</b>' if row.binding else ''}</td><td>{row.use:,.6g} of "
            f"{row.limit:,.6g} {escape(row.unit)}</td><td>{escape(row.note)}</td></tr>"
            for row in self.constraints
        )
        sizes = ", ".join(f"{name} {size:,}" for name, size in self.sizes.items())
        said = sizes if self.feasible else f"does not fit: {self.remedy}"
        return f"<p><b>{escape(self.title)}</b>: {escape(said)}</p><table>{rows}</table>"

    def check(self) -> Self:
        """Returns the plan itself. If it cannot run: ResourceError with the violated limit and what to change."""
        require_feasible(self.title, self.constraints)
        return self


def quantisation_efficiency(tiles: int, cus: int) -> float:
    """Returns eta (errata E9, E25): tiles per CU divided by the same number rounded up."""
    return tiles / cus / -(-tiles // cus)


def occupancy_row(descriptor: HardwareDescriptor, tiles: int) -> Constraint:
    """Returns the soft row of quantised occupancy for `tiles` independent tiles."""
    cus = descriptor.num_cus
    note = f"{tiles} tiles on {cus} CUs, {tiles / cus:.2f} a CU (E9, E11, E25)"
    return Constraint("occupancy", Level.DEVICE, 1.0, quantisation_efficiency(tiles, cus), "share of rounds", note, hard=False)


def bandwidth_row(descriptor: HardwareDescriptor, flops: float, nbytes: float, note: str = "") -> Constraint:
    """Returns the soft row of an operator without products: the time of its bytes at full bandwidth.

    The limit is the longer of that time and the time of the FLOPs at the vector peak (E29).
    """
    memory, vector = nbytes / (1e6 * descriptor.hbm_bandwidth_tb), flops / (1e6 * descriptor.peak_tflops_f32)
    each = f"{nbytes / 1e6:,.1f} MB, {flops / nbytes:.2f} FLOP a byte; vector units need {vector:.4g} us (E29)"
    return Constraint(
        "HBM bandwidth", Level.DEVICE, max(memory, vector), memory, "us", f"{each}; {note}" if note else each, hard=False
    )


def assumption(descriptor: HardwareDescriptor) -> str:
    """Returns the end of a note on a row that depends on unpublished figures of the GPU; empty if there are none."""
    return f"; assumed: {descriptor.assumed}" if descriptor.assumed else ""


def alignment_row(ragged: int, what: str) -> Constraint:
    """Returns the hard row that requires tiles of whole atoms.

    ragged: number of dimensions that violate it. what: tile and atom, in words.
    """
    remedy = "the LDS must hold at least one atom-aligned tile"
    return Constraint("atom alignment", Level.ATOM, 0, ragged, "dimensions", what, remedy)


def freeing_remedy(
    use: int, limit: int, what: str = "registers a lane", how: str = "use smaller tiles or a type of fewer bytes"
) -> str:
    """Returns a remedy: `how`, after the amount to free if use exceeds the limit."""
    return f"free {use - limit} {what}: {how}" if use > limit else how


def limit_rows(
    d: HardwareDescriptor, arch: int, acc: int, sgprs: int, lds: int, waves: int, blocks: int, notes: dict[str, tuple[str, str]]
) -> tuple[Constraint, ...]:
    """Returns the hard rows that every kernel has if `blocks` blocks of `waves` waves are to be resident on a CU.

    arch, acc: VGPRs per lane. sgprs: SGPRs of a wave. lds: bytes of a block. notes: (note, remedy) by row name, to replace the
    defaults.
    """
    per_simd = -(-blocks * waves // d.simds_per_cu)
    most_arch, most_acc, total = d.vgpr_budget(per_simd)
    named = min(d.sgprs_per_wave, NAMED_SGPRS) + RESERVED_SGPRS
    most_sgprs = min(named, d.sgpr_file_per_simd // per_simd // d.sgpr_granule * d.sgpr_granule)
    lds_limit, lds_use = d.lds_bytes // blocks, d.lds_allocation(lds)
    at = f"at {per_simd} wave(s) a SIMD (E3, E8)"

    def row(name: str, level: Level, limit: int, use: int, unit: str, note: str, remedy: str) -> Constraint:
        note, remedy = notes.get(name, (note, remedy))
        return Constraint(name, level, limit, use, unit, note, remedy)

    reserved, bigger = "VCC, FLAT_SCRATCH and XNACK_MASK included", "use a target with more LDS or a type of fewer bytes"
    fewer = freeing_remedy(sgprs, most_sgprs, "scalar registers a wave", "use fewer options, or a target with more of them")
    slots, items = f"use a target with {per_simd} waves a SIMD or more SIMDs", waves * d.wavefront_size
    rows = [
        row("LDS", Level.BLOCK, lds_limit, lds_use, "bytes", f"granule {d.lds_granule}, {blocks} block(s) a CU",
            freeing_remedy(lds_use, lds_limit, "bytes", bigger)),
        row("ArchVGPR", Level.WARP, most_arch, arch, "registers", at, freeing_remedy(arch, most_arch)),
        row("AccVGPR", Level.WARP, most_acc, acc, "registers", at, freeing_remedy(acc, most_acc)),
        row("SGPR", Level.WARP, most_sgprs, sgprs, "registers", reserved, fewer),
        row("waves per SIMD", Level.BLOCK, d.max_waves_per_simd, per_simd, "waves", "planned", slots),
        row("workgroup size", Level.BLOCK, d.max_workgroup_size, items, "work-items", f"{waves} waves",
            f"use a target with {items} work-items a workgroup"),
    ]  # fmt: skip
    if d.unified_vgprs:
        both = -(-arch // 4) * 4 + acc
        rows.insert(
            3, row("VGPR file", Level.WARP, total, both, "registers", f"one file, {at}", freeing_remedy(both, total))
        )
    return tuple(rows)


def mark_binding(constraints: Iterable[Constraint], name: str | None = None) -> tuple[Constraint, ...]:
    """Returns the constraints with one of them marked as binding.

    If a hard constraint is violated, it is the one with the largest ratio. Otherwise it is the constraint called `name`, or
    without a name the hard constraint with the largest ratio.
    """
    rows = tuple(constraints)
    hard = [row for row in rows if row.hard]
    worst = max(hard, key=lambda row: row.ratio)
    if worst.satisfied and name is not None:
        worst = next(row for row in rows if row.name == name)
    return tuple(row if row.binding == (row is worst) else replace(row, binding=row is worst) for row in rows)


def binding(constraints: Iterable[Constraint]) -> Constraint:
    """Returns the constraint that `mark_binding` marked."""
    return next(row for row in constraints if row.binding)


def require_feasible(what: str, constraints: Iterable[Constraint]) -> None:
    """Raises ResourceError, in one line, for the binding constraint if it is violated."""
    row = binding(constraints)
    if row.hard and not row.satisfied:
        raise ResourceError(f"{what}: {row.name} needs {row.use:g} {row.unit}, the limit is {row.limit:g}; {row.remedy}")
