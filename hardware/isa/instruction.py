"""A decoded instruction: a `Spec` with its operands and modifiers filled in.

Scalar operand space, numbered as in the encodings (ISA guides, "Scalar operands"): s0..s101, flat_scratch 102,
xnack_mask 104, vcc 106, ttmp0 108, m0 124, exec 126. The same numbers index a wave's scalar file in the simulator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simgpu.hardware.isa.spec import Spec

FLAT_SCRATCH, XNACK_MASK, VCC, TTMP, M0, EXEC = 102, 104, 106, 108, 124, 126
# Sources that are not registers (encodings 235..255).
SHARED_BASE, SHARED_LIMIT, PRIVATE_BASE, PRIVATE_LIMIT, POPS_WAVE_ID = 235, 236, 237, 238, 239
VCCZ, EXECZ, SCC_SOURCE, LDS_DIRECT, LITERAL = 251, 252, 253, 254, 255


@dataclass(frozen=True)
class Reg:
    """Consecutive 32-bit registers."""

    file: str  # s, v or a
    index: int  # of the first
    count: int = 1

    def __getitem__(self, part: int | slice) -> Reg:
        """Returns the register at a position, or the registers of a slice, counted from the first.

        >>> Reg("v", 4, 4)[0]
        Reg(file='v', index=4, count=1)
        """
        if isinstance(part, slice):
            start, stop, _ = part.indices(self.count)
            return Reg(self.file, self.index + start, stop - start)
        if not 0 <= part < self.count:
            raise IndexError(part)
        return Reg(self.file, self.index + part)

    def group(self, number: int, count: int) -> Reg:
        """Returns one of the consecutive groups of `count` registers.

        >>> Reg("v", 4, 8).group(1, 4)
        Reg(file='v', index=8, count=4)
        """
        return self[number * count : (number + 1) * count]


@dataclass(frozen=True)
class Const:
    """An inline constant or a special source, by its encoding number (128..254)."""

    code: int


@dataclass(frozen=True)
class Literal:
    """A 32-bit literal that follows the instruction."""

    value: int


@dataclass(frozen=True)
class Imm:
    """An immediate field of the instruction itself (simm16, an SMEM offset)."""

    value: int


@dataclass(frozen=True)
class Off:
    """An absent address or resource operand, printed `off`."""


Operand = Reg | Const | Literal | Imm | Off


@dataclass(frozen=True)
class Modifiers:
    """Source modifiers of VOP3, SDWA and DPP; bit i of each belongs to source i."""

    neg: int = 0
    abs: int = 0
    sext: int = 0


@dataclass(frozen=True)
class Instruction:
    """A decoded instruction."""

    spec: Spec
    target: str
    form: str  # e32, e64, sdwa, dpp, or the encoding's name
    # Operands in LLVM's textual order, by field: vdst, sdst, src0 to src2, vaddr, vdata, saddr, srsrc, soffset, sbase, ...
    args: Mapping[str, Operand]
    # Modifiers that are not at their default, by LLVM's name: clamp, omod, op_sel, offset, glc, ...
    mods: Mapping[str, Any] = field(default_factory=dict)
    src_mods: Modifiers = Modifiers()
    size: int = 4  # bytes
    offset: int = 0  # bytes from the start of the code

    @property
    def mnemonic(self) -> str:
        return self.spec.mnemonic
