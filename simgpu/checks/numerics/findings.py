"""Makes findings of the handlers' notes: one for each instruction and kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simgpu.checks.numerics import division, formats
from simgpu.checks.numerics.conversions import range_of
from simgpu.checks.numerics.stored_types import writes_memory
from simgpu.checks.numerics.table import ENTRIES, NumericKind, NumericNote, lost_notes, merge_notes
from simgpu.checks.numerics.vector import float_parameters, unpack_types
from simgpu.checks.numerics.wanted import NumericsOptions
from simgpu.engine import faults
from simgpu.engine.finding import Finding, lanes_of, moment
from simgpu.engine.positions import Location, finding_at, location_of
from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.hardware.isa.types import Type
from simgpu.hardware.mfma import MatrixInstruction
from simgpu.matrix.instruction import row_of

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker

KIND = {
    NumericKind.NAN: "nan", NumericKind.INFINITY: "infinity", NumericKind.OVERFLOW: "overflow",
    NumericKind.SATURATION: "saturation",
    NumericKind.NAN_TO_INTEGER: "saturation", NumericKind.DENORMAL: "denormal",
    NumericKind.CANCELLATION: "cancellation", NumericKind.NAN_CODE: "format",
}  # fmt: skip
# Kinds that are errors if they may reach memory, and notes otherwise.
SERIOUS = (NumericKind.NAN, NumericKind.INFINITY, NumericKind.OVERFLOW)


def findings(launch: Dispatch, workers: list[Worker], wanted: NumericsOptions) -> list[Finding]:
    """Returns all findings of a launch."""
    seen = merge_notes(workers)
    if any(one.kind in SERIOUS for one in seen):
        steps = division.steps(launch.program)
        seen = [one for one in seen if one.kind not in SERIOUS or one.record not in steps]
    reached = ReachedMemory(launch, [one for one in seen if one.kind in (NumericKind.STORED_NAN, NumericKind.STORED_INFINITY)])
    found = []
    for one in seen:
        serious, said = reached.of(one.kind) if one.kind in SERIOUS else (one.kind is NumericKind.NAN_CODE, "")
        if one.kind in KIND and (serious or wanted.discarded or one.kind not in SERIOUS):
            found.append(_finding(launch, one, serious, said))
    found += formats.findings(launch)
    if missing := lost_notes(workers):
        full = f"{missing} more notes of other instructions were not kept: {ENTRIES} a thread are"
        found.append(finding_at(launch, launch.entry, "resource", full, severity="note"))
    return found


class ReachedMemory:
    """Tells if NaN or infinities of a launch reached memory. seen: notes of stored ones."""

    def __init__(self, launch: Dispatch, seen: list[NumericNote]) -> None:
        self.launch = launch
        self.seen = sorted(seen, key=lambda one: (one.rank, one.record))
        types = launch.checks["numerics"]  # of the code lowered before the launch ran
        program = launch.program
        reached = program.executable(launch.entry)
        self.unknown = [at for at in reached if writes_memory(program.instructions[at]) and types.get(at) is None]

    def of(self, kind: NumericKind) -> tuple[bool, str]:
        """Returns True if results of a kind may have reached memory, and the text about it. An infinity may have become a NaN."""
        kinds = (NumericKind.STORED_NAN,) if kind is NumericKind.NAN else (NumericKind.STORED_NAN, NumericKind.STORED_INFINITY)
        found = [one for one in self.seen if one.kind in kinds]
        if found:
            said = []
            for wanted, name in ((NumericKind.STORED_NAN, "NaN"), (NumericKind.STORED_INFINITY, "infinite")):
                count = sum(one.values for one in found if one.kind is wanted)
                said += [f"{count:,} {name}"] if count else []
            first = location_of(self.launch, found[0].record)
            total = sum(one.values for one in found)
            element = faults.element(self.launch, found[0].bits[1])
            how_many = f"{' and '.join(said)} element{'s' if total > 1 else ''} reached memory"
            return True, f"{how_many}, the first by {_place(first)}{element and f', into {element[2:-1]}'}"
        if self.unknown:
            where = location_of(self.launch, min(self.unknown))
            return True, f"unknown whether any reached memory: the code does not tell the type that {_place(where)} stores"
        return False, "none reached memory"


def _place(where: Location) -> str:
    return f"`{where.text}` at {where.name}" + (f" ({where.source})" if where.source else "")


def _finding(launch: Dispatch, one: NumericNote, serious: bool, reached: str) -> Finding:
    inst = launch.instruction(one.record)
    assert inst is not None
    what, place = _description(inst, one)
    parts = [what, f"{one.values:,} such results" if one.values > 1 else "", reached]
    return finding_at(
        launch, one.record, KIND[one.kind], "; ".join(part for part in parts if part),
        severity="error" if serious else "note",
        wave=one.wave, workgroup=one.workgroup, lanes=lanes_of(one.lanes), count=one.times, place=place,
        when=moment(one.workgroup, one.wave, one.retired) if one.retired >= 0 else "",
    )  # fmt: skip


def _description(inst: Instruction, one: NumericNote) -> tuple[str, str]:
    """Returns a description of the first lane's values, and the register of a matrix instruction's result ("" for others)."""
    if one.kind is NumericKind.NAN_CODE:
        return formats.nan_code(inst, "AB"[one.extra], one.bits[0]), ""
    if inst.spec.kind == "matrix":
        return _of_matrix(inst, one)
    types, has_result = unpack_types(one.extra)
    values = [format_number(type_, bits) for type_, bits in zip(types, one.bits, strict=False)]
    operands, result = (values[:-1], values[-1]) if has_result else (values, "")
    given = f"{inst.mnemonic}({', '.join(operands)})"
    lane = lanes_of(one.lanes)[0]
    if one.kind is NumericKind.NAN_TO_INTEGER:
        return f"{given} is 0 in lane {lane}: a NaN became an integer", ""
    if one.kind in (NumericKind.SATURATION, NumericKind.OVERFLOW) and not has_result:
        held = range_of(inst.spec, inst.target, float_parameters(inst.spec)[0])
        assert held is not None
        holds = f"{held.small or 'the result'} holds {held.least:.10g} to {held.most:.10g}"
        ends = "it became the nearest of them" if one.kind is NumericKind.SATURATION else "it became the code for an overflow"
        return f"{given} does not fit in lane {lane}: {holds}, {ends}", ""
    if one.kind is NumericKind.SATURATION:
        return f"{given} does not fit f16 in lane {lane}: by MODE's FP16_OVFL it became the largest number", ""
    if one.kind is NumericKind.DENORMAL:
        return f"{inst.mnemonic}: MODE made the denormal {operands[0]} 0 in lane {lane}", ""
    if one.kind is NumericKind.CANCELLATION:
        return f"{given} = {result} in lane {lane}: that many bits of the last term cancelled", ""
    new = {
        NumericKind.NAN: "of operands that are not NaN", NumericKind.INFINITY: "of finite operands",
        NumericKind.OVERFLOW: "too large for the result's type",
    }  # fmt: skip
    return f"{given} = {result} in lane {lane}, {new[one.kind]}", ""


def _of_matrix(inst: Instruction, one: NumericNote) -> tuple[str, str]:
    """Returns a description of an element of D by row and column, with its C, and the element's register."""
    row = row_of(inst)
    register, lane = one.extra, lanes_of(one.lanes)[0]
    wide = row.cd_type == "f64"
    old, new = (number(bits, 64 if wide else 32) for bits in one.bits[:2])
    d = inst.args["vdst"]
    assert isinstance(d, Reg)
    place = f"{d.file}{d.index + register * (2 if wide else 1)}"
    element = _element(row, register, lane)
    why = "of no NaN" if one.kind is NumericKind.NAN else "of finite A, B and C"
    return f"{element} = {new} in {place}, lane {lane}, {why}: C was {old} there", place


def _element(row: MatrixInstruction, register: int, lane: int) -> str:
    """Returns the name D[i,j] of the element in a register of C's width and a lane, with the block if there are several."""
    owners = row.map("D")
    scale = 2 if row.cd_type == "f64" else 1
    at = np.argwhere((owners[..., 0] == register * scale) & (owners[..., 1] == lane))
    block, i, j = (int(number) for number in at[0])
    return f"D[{i},{j}]" + (f" of block {block}" if row.blocks > 1 else "")


def format_number(type_: Type, bits: int) -> str:
    """Returns a float with these bits as text."""
    if type_.name == "bf16":
        return number(bits << 16, 32)
    return number(bits, type_.bits)


def number(bits: int, width: int) -> str:
    """Returns an IEEE float of 16, 32 or 64 bits as text, with the fewest digits that identify it."""
    whole, kind = {16: (np.uint16, np.float16), 32: (np.uint32, np.float32), 64: (np.uint64, np.float64)}[width]
    value = np.array([bits & (1 << width) - 1], whole).view(kind)[0]
    plain = value == 0 or not np.isfinite(value) or 1e-4 <= abs(float(value)) < 1e6
    return np.format_float_positional(value, trim="-") if plain else np.format_float_scientific(value, trim="-")
