"""Plans a matrix instruction's operands and chooses the code that emits it.

f32 and f64 are chains of fused multiply-adds on all targets (`fma_tile`). Packed elements of other types are decoded first
(`fragments`) and then summed as on the target's generation (`sums`, `i8`, `cdna3`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simgpu.hardware import mfma
from simgpu.hardware.architectures import BEFORE_GFX942
from simgpu.hardware.errors import UnsupportedInstruction
from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.machine.frame import Frame
from simgpu.machine.layout import LANES, ROW
from simgpu.machine.operands import OperandPlace, Plan
from simgpu.machine.sources import load_scalar, load_vector
from simgpu.matrix.cdna3.fast import FastSum
from simgpu.matrix.cdna3.general import GeneralSum
from simgpu.matrix.cdna3.scales import Scales
from simgpu.matrix.fma_tile import emit_one, selections
from simgpu.matrix.fragments import GROUP, Spread, copy_of, copy_registers, stack, walk_of
from simgpu.matrix.i8 import integer_sum
from simgpu.matrix.lane_groups import LANE_GROUPS
from simgpu.matrix.ring import ElementSpread, element_sum, lanes_of
from simgpu.matrix.sums import Accumulator, Groups, PairwiseSum
from simgpu.memory.whole_wave.prefetch import PrefetchQueue

C_TYPE = {"f64": t.f64, "f32": t.f32, "i32": t.i32}


@dataclass
class MatrixPlaces:
    """Registers of the operands."""

    d: OperandPlace
    a: OperandPlace
    b: OperandPlace
    c: OperandPlace  # registers or a constant
    aliased: bool  # True if D overlaps A or B, or overlaps C without being C: all operands must be read first
    index: OperandPlace | None = None  # sparse indices of an smfmac
    scales: tuple[OperandPlace, OperandPlace] | None = None  # of A and B


def row_of(inst: Instruction) -> Any:
    return mfma.find(inst.mnemonic, inst.target)


def plan(inst: Instruction, plan: Plan) -> MatrixPlaces:
    row = row_of(inst)
    vdst, src0, src1, src2 = (inst.args[name] for name in ("vdst", "src0", "src1", "src2"))
    assert isinstance(vdst, Reg) and isinstance(src0, Reg) and isinstance(src1, Reg)
    if any(isinstance(operand, Reg) and operand.file == "s" for operand in (src0, src1, src2)):
        raise UnsupportedInstruction(f"{inst.mnemonic}: a matrix in scalar registers")
    d = plan.register(vdst, 32 * vdst.count)
    a = plan.register(src0, 32 * src0.count)
    b = plan.register(src1, 32 * src1.count)
    aliased = _overlap(vdst, src0) or _overlap(vdst, src1)
    index = None
    if row.sparse:
        # D is also the accumulator; src2 holds the indices.
        if not isinstance(src2, Reg):
            raise UnsupportedInstruction(f"{inst.mnemonic}: the sparse indices must be in a register")
        index = plan.register(src2, 32)
        c = d
    elif isinstance(src2, Reg):
        c = plan.register(src2, 32 * src2.count)
        aliased = aliased or (_overlap(vdst, src2) and vdst != src2)
    else:
        c = plan.source(src2, C_TYPE[row.cd_type])
    scales = None
    if row.scaled:
        x, y = (plan.source(inst.args[f"scale_src{i}"], t.u32) for i in (0, 1))
        scales = (x, y)
    plan.note("aliased" if aliased else "apart", inst.src_mods.neg)
    plan.note(*(f"{name}={value}" for name, value in sorted(inst.mods.items())))
    return MatrixPlaces(d, a, b, c, aliased, index, scales)


def _overlap(x: Reg, y: Reg) -> bool:
    if x.file != y.file:
        return False
    return x.index < y.index + y.count and y.index < x.index + x.count


def chainable(inst: Instruction) -> bool:
    """True for an f32 or f64 instruction that accumulates in place and whose D overlaps neither A nor B."""
    if inst.spec.kind != "matrix" or row_of(inst).a_type not in LANE_GROUPS:
        return False
    d, a, b = (inst.args[name] for name in ("vdst", "src0", "src1"))
    assert isinstance(d, Reg) and isinstance(a, Reg) and isinstance(b, Reg)
    return inst.args["src2"] == d and not _overlap(d, a) and not _overlap(d, b)


def emit(frame: Frame, inst: Instruction, places: MatrixPlaces) -> None:
    row = row_of(inst)
    PrefetchQueue(frame).fetch(row.m * row.n * row.k * row.blocks)
    mods = selections(inst)
    if not row.flexible and not row.sparse:
        row.map("A", cbsz=mods["cbsz"], abid=mods["abid"])  # raises TargetError for blocks that the row cannot select
    if row.a_type in LANE_GROUPS:
        _emit_float(frame, inst, places)
        return
    formats = row.with_formats(mods["cbsz"], mods["blgp"])
    walk = walk_of(row, formats, mods, GROUP)
    ring = frame.ring and row.cd_type != "i32"
    spread = ElementSpread if ring else Spread
    a = spread(frame, frame.operand(places.a.slot), places.a.bits // 32, formats.a_type)
    b = spread(frame, frame.operand(places.b.slot), places.b.bits // 32, formats.b_type)
    groups = Groups(frame, walk, _index_row(frame, places))
    exact = row.cd_type != "i32" and row.target not in BEFORE_GFX942 and not ring
    c = _accumulator(frame, groups, places, aside=exact and places.aliased)
    if isinstance(a, ElementSpread) and isinstance(b, ElementSpread):
        element_sum(groups, c, a, b, _scales(frame, inst, places, row))
    elif row.cd_type == "i32":
        integer_sum(groups, c, a, b, bool(inst.mods.get("clamp")), places.aliased)
    elif not exact:
        size = 2 if row.a_type == "bf16" and not row.mnemonic.endswith("_1k") else 4
        PairwiseSum(groups, c, a, b, size, flush=row.target == "gfx90a").emit()
    else:
        narrow = formats.a_type not in ("f16", "bf16", "xf32")
        size = 16 if narrow else 4 if row.a_type == "xf32" else 8
        scales = _scales(frame, inst, places, row)

        def general_path(first: Any = None) -> None:
            GeneralSum(groups, c, a, b, size, narrow, scales).emit(first)

        if FastSum.serves(groups, size):
            FastSum(groups, c, a, b, size, narrow, scales).emit(otherwise=general_path)
        else:
            general_path()
        if places.aliased:
            copy_registers(c.d, frame.operand(places.d.slot), places.d.bits // 32)


def _scales(frame: Frame, inst: Instruction, places: MatrixPlaces, row: Any) -> Scales | None:
    """Returns the scale bytes that op_sel and op_sel_hi select."""
    if places.scales is None:
        return None
    chosen = []
    for number, place in enumerate(places.scales):
        low = int(inst.mods.get("op_sel", 0)) >> number & 1
        high = int(inst.mods.get("op_sel_hi", 3)) >> number & 1
        raw = load_vector(frame, place)
        chosen.append((raw if raw.lanes else raw.splat(LANES)) >> 8 * (low + 2 * high) & 255)
    return Scales(frame, row, (chosen[0], chosen[1]))


def _index_row(frame: Frame, places: MatrixPlaces) -> Any:
    """Returns a copy of the sparse indices: D may be written before they are used."""
    if places.index is None:
        return None
    return copy_of(frame, frame.operand(places.index.slot), 1)


def _accumulator(frame: Frame, groups: Groups, places: MatrixPlaces, aside: bool) -> Accumulator:
    """Returns C and D. aside: True to compute D in other memory, because operands that it overlaps are read after parts of D are
    written."""
    d = stack(frame, places.d.bits // 32 * ROW) if aside else frame.operand(places.d.slot)
    if places.c.kind == "imm":
        return Accumulator(groups, None, load_scalar(frame, places.c), d)
    c = frame.operand(places.c.slot)
    if places.aliased and not aside:
        c = copy_of(frame, c, places.c.bits // 32)
    return Accumulator(groups, c, None, d)


def _emit_float(frame: Frame, inst: Instruction, places: MatrixPlaces) -> None:
    def readable(place: OperandPlace, copied: bool) -> Any:
        """Returns a pointer to the registers, or to a copy of them if D may overwrite them."""
        pointer = frame.operand(place.slot)
        return copy_of(frame, pointer, place.bits // 32) if copied else pointer

    lanes = lanes_of(frame, row_of(inst).cd_type)
    a, b = (readable(place, places.aliased and not lanes.spreads) for place in (places.a, places.b))
    c = None if places.c.kind == "imm" else readable(places.c, places.aliased)

    def initial(_: int, row: int, group: int) -> Any:
        if c is not None:
            return lanes.load(c, row, group)
        value = load_scalar(frame, places.c)
        return lanes.from_registers((value if frame.ring else value.bitcast(lanes.scalar)).splat(GROUP))

    emit_one(frame, inst, frame.operand(places.d.slot), a, b, initial)
