"""The matrix instruction that a plan's atom names."""

from __future__ import annotations

from simgpu.hardware import mfma
from simgpu.hardware.descriptor import MFMAAtom
from simgpu.hardware.matrix_table import FORMATS


def matrix_instruction(atom: MFMAAtom, target: str, dtype: str) -> tuple[str, dict[str, int]]:
    """Mnemonic and modifiers: CBSZ and BLGP where they name the operands' format, 0 being the default."""
    row = mfma.find(atom.mnemonic, target)
    code = FORMATS.index(dtype) if row.flexible else 0
    return row.mnemonic, {"cbsz": code, "blgp": code} if code else {}
