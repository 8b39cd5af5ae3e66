"""Matrix instructions: one spec for each mnemonic of `simgpu.hardware.mfma`, and the AccVGPR moves."""

from __future__ import annotations

from functools import cache

from simgpu.hardware import mfma
from simgpu.hardware.architectures import GFX950, TARGETS
from simgpu.hardware.isa.encodings import mai, vop3p
from simgpu.hardware.isa.kinds import ControlKind, Flag
from simgpu.hardware.isa.spec import REGISTRY, Param, Spec
from simgpu.hardware.isa.types import Type, u32

LOAD_SCALE = 44  # v_mfma_ld_scale_b32, the first half of a scaled matrix instruction
# CBSZ and BLGP of the f8f6f4 instructions: registers of A and B by format (fp6 and bf6 take 6 of
# 8, fp4 takes 4; a reserved number prints as 8).
FORMAT_REGISTERS = {2: 6, 3: 6, 4: 4}


@mai(88, flags=(Flag.ACC_SOURCE,))
def v_accvgpr_read_b32(a: u32) -> u32:
    """Copies an AccVGPR to a VGPR."""
    return a


@mai(89, flags=(Flag.ACC,))
def v_accvgpr_write_b32(a: u32) -> u32:
    """Copies a VGPR, an inline constant or, from gfx90a on, a scalar register to an AccVGPR."""
    return a


@vop3p(LOAD_SCALE, targets=GFX950, control=ControlKind.LD_SCALE)
def v_mfma_ld_scale_b32(a: u32, b: u32) -> None:
    """Scales of the matrix instruction that follows, with which it is decoded as one instruction."""


@cache
def registers(count: int) -> Type:
    """Returns the type of an operand of `count` 32-bit registers."""
    return Type(f"u{32 * count}", 32 * count, "unsigned")


def _specs() -> dict[str, Spec]:
    """Returns the specs by mnemonic, each with its opcodes on all targets that have it."""
    opcodes: dict[str, dict[str, int]] = {}
    rows: dict[str, mfma.MatrixInstruction] = {}
    for target in TARGETS:
        for row in mfma.instructions(target):
            rows[row.mnemonic] = row
            opcodes.setdefault(row.mnemonic, {})[target] = row.opcode
    return {name: _spec(row, opcodes[name]) for name, row in rows.items()}


def _spec(row: mfma.MatrixInstruction, opcodes: dict[str, int]) -> Spec:
    third = "IDX" if row.sparse else "C"
    names = {"a": "A", "b": "B", "c": third}
    if row.scaled:
        names |= {"scale_a": "SCALE_A", "scale_b": "SCALE_B"}
    flags = {
        Flag.SPARSE: row.sparse,
        Flag.SCALED: row.scaled,
        Flag.F8F6F4: row.flexible,
        Flag.F64: row.cd_type == "f64",
    }
    return Spec(
        mnemonic=row.mnemonic,
        encoding="mai",
        opcodes=opcodes,
        params=tuple(Param(name, registers(row.registers(operand))) for name, operand in names.items()),
        results=(registers(row.registers("D")),),
        kind="matrix",
        flags=frozenset(flag for flag, holds in flags.items() if holds),
    )


for _spec_of_row in _specs().values():
    REGISTRY.add(_spec_of_row)
