"""Finds 8-bit floats of the wrong kind: a code's values in FNUZ (gfx942) and OCP (gfx950) differ by a factor of two.

Two signs are reported. The first is an argument made from an array of the other kind, in a kernel that reads or writes 8-bit
floats. The second is a code in a matrix operand that means NaN in one kind and a common number in the other. For example, 0x80
is FNUZ's NaN and OCP's -0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from simgpu.checks.numerics.conversions import NAME, SMALL
from simgpu.engine.finding import Finding
from simgpu.engine.positions import finding_at
from simgpu.hardware.isa.instruction import Instruction
from simgpu.matrix.fma_tile import selections
from simgpu.matrix.instruction import row_of

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch

# Kinds of fp8 and bf8, by the CDNA3 and CDNA4 ISA guides.
OF_TARGET = {"gfx942": ("fp8_fnuz", "bf8_fnuz"), "gfx950": ("fp8", "bf8")}
NUMPY = {
    "fp8": np.dtype(ml_dtypes.float8_e4m3fn), "bf8": np.dtype(ml_dtypes.float8_e5m2),
    "fp8_fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz), "bf8_fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
}  # fmt: skip
OTHER = {"fp8": "fp8_fnuz", "bf8": "bf8_fnuz", "fp8_fnuz": "fp8", "bf8_fnuz": "bf8"}
NAMES = {"fp8": "OCP e4m3", "bf8": "OCP e5m2", "fp8_fnuz": "FNUZ e4m3", "bf8_fnuz": "FNUZ e5m2"}


def kinds_of(inst: Instruction) -> set[str]:
    """Returns the kinds of 8-bit floats that an instruction reads or writes, by the names of `hardware.mfma.numbers`."""
    if inst.target not in OF_TARGET:
        return set()
    if inst.spec.kind == "matrix":
        row = row_of(inst)
        if row.cd_type == "i32":
            return set()
        mods = selections(inst)
        formats = row.with_formats(mods["cbsz"], mods["blgp"])
        return {formats.a_type, formats.b_type} & set(NUMPY)
    named = NAME.fullmatch(inst.mnemonic)
    if not named:
        return set()
    words = inst.mnemonic.split("_")
    return {kind for word, kind in zip(SMALL, OF_TARGET[inst.target], strict=False) if word in words}


def findings(launch: Dispatch) -> list[Finding]:
    """Returns a finding for each argument whose array has another kind of 8-bit float than the kernel's instructions."""
    forms = []
    for argument, value in zip(launch.info.named_arguments, launch.args, strict=False):
        form = getattr(value, "form", None)
        if form is not None and form.dtype in NUMPY.values():
            forms.append((argument.name, form.dtype))
    if not forms:
        return []
    users: dict[str, int] = {}
    for index in sorted(launch.program.executable(launch.entry)):
        for kind in kinds_of(launch.program.instructions[index]):
            users.setdefault(kind, index)
    found = []
    for name, dtype in forms:
        for kind, index in users.items():
            if NUMPY[OTHER[kind]] == dtype:
                factor, zero = ("half", "NaN, not -0") if kind.endswith("fnuz") else ("twice", "-0, not NaN")
                said = (
                    f"argument {name} was made as {dtype}, which is {NAMES[OTHER[kind]]}; the instruction means {NAMES[kind]}: "
                    f"the same codes are {factor} the numbers, and 0x80 is {zero}"
                )
                found.append(finding_at(launch, index, "format", said, place=name))
    return found


def nan_code(inst: Instruction, operand: str, code: int) -> str:
    """Returns the text about a NaN code in matrix operand A or B."""
    row = row_of(inst)
    mods = selections(inst)
    formats = row.with_formats(mods["cbsz"], mods["blgp"])
    kind = formats.a_type if operand == "A" else formats.b_type
    other = np.array([code], np.uint8).view(NUMPY[OTHER[kind]]).astype(np.float32)[0]
    here = np.array([code], np.uint8).view(NUMPY[kind]).astype(np.float32)[0]
    said = f"{operand} has the code {code:#04x}, {here:g} in {NAMES[kind]}"
    return said if not np.isfinite(other) else f"{said} but {other:g} in {NAMES[OTHER[kind]]}: is this data of that kind?"
