"""Matrix instruction that a plan's atom names."""

from __future__ import annotations

from typing import Any

from simgpu.hardware import mfma
from simgpu.hardware.descriptor import MFMAAtom
from simgpu.hardware.matrix_table import FORMATS

LOWEST_BYTES = "[0,0,0]"  # op_sel_hi: a scale is its register's lowest byte


def matrix_instruction(atom: MFMAAtom, target: str, dtype: str) -> tuple[str, dict[str, Any]]:
    """Returns mnemonic and modifiers: CBSZ and BLGP if they name the operands' formats (default 0), and the scales' bytes."""
    row = mfma.find(atom.mnemonic, target)
    codes = {"cbsz": FORMATS.index(dtype), "blgp": FORMATS.index(atom.dtype_b)} if row.flexible else {}
    named: dict[str, Any] = {name: code for name, code in codes.items() if code}
    return row.mnemonic, {"op_sel_hi": LOWEST_BYTES, **named} if row.scaled else named
