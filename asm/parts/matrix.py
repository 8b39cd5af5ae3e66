"""Matrix instruction that a plan's atom names; accumulators multiplied on their way through VGPRs."""

from __future__ import annotations

from typing import Any

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import Operand
from simgpu.hardware import mfma
from simgpu.hardware.descriptor import MFMAAtom
from simgpu.hardware.isa.instruction import Reg
from simgpu.hardware.matrix_table import FORMATS

LOWEST_BYTES = "[0,0,0]"  # op_sel_hi: a scale is its register's lowest byte


def matrix_instruction(atom: MFMAAtom, target: str, dtype: str) -> tuple[str, dict[str, Any]]:
    """Returns mnemonic and modifiers: CBSZ and BLGP if they name the operands' formats (default 0), and the scales' bytes."""
    row = mfma.find(atom.mnemonic, target)
    codes = {"cbsz": FORMATS.index(dtype), "blgp": FORMATS.index(atom.dtype_b)} if row.flexible else {}
    named: dict[str, Any] = {name: code for name, code in codes.items() if code}
    return row.mnemonic, {"op_sel_hi": LOWEST_BYTES, **named} if row.scaled else named


def read_scaled(k: KernelBuilder, values: Reg, accumulators: list[Reg], factors: list[Operand]) -> None:
    """Emits values = accumulators · factors, one by one, in as many of the VGPRs `values` as there are accumulators."""
    for n, accumulator in enumerate(accumulators):
        k.v_accvgpr_read_b32(values[n], accumulator)
    for n, factor in enumerate(factors):
        k.v_mul_f32(values[n], factor, values[n])


def scale(k: KernelBuilder, accumulators: Reg, factors: list[Operand], values: Reg) -> None:
    """Emits accumulators *= factors, one by one. values: VGPRs on the way."""
    read_scaled(k, values, [accumulators[n] for n in range(accumulators.count)], factors)
    k.move(accumulators, values)
