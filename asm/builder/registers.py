"""Registers as LLVM writes them, and files that hand out named ranges of them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from simgpu.hardware.errors import ResourceError
from simgpu.hardware.isa.instruction import EXEC, FLAT_SCRATCH, M0, VCC, XNACK_MASK, Reg

# A register, a number, or a word of LLVM's syntax: vcc, exec, m0, off, a label.
Operand = Reg | int | float | str

INLINE_INTEGERS = range(-16, 65)  # ISA guides, "Scalar operands": encodings 128..208
INLINE_FLOATS = (0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0)  # 240..247
_SPECIAL = {FLAT_SCRATCH: "flat_scratch", XNACK_MASK: "xnack_mask", VCC: "vcc", EXEC: "exec"}


def register_text(reg: Reg) -> str:
    """`v0`, `v[0:3]`, `vcc`, `m0`: LLVM's spelling."""
    if reg.file == "s" and reg.index == M0:
        return "m0"
    if reg.file == "s" and reg.index & ~1 in _SPECIAL:
        name = _SPECIAL[reg.index & ~1]
        return name if reg.count == 2 else f"{name}_{'hi' if reg.index & 1 else 'lo'}"
    if reg.count == 1:
        return f"{reg.file}{reg.index}"
    return f"{reg.file}[{reg.index}:{reg.index + reg.count - 1}]"


def operand_text(operand: Operand) -> str:
    """An operand in LLVM's syntax; a float that is no inline constant becomes its bits."""
    if isinstance(operand, Reg):
        return register_text(operand)
    if isinstance(operand, float):
        if operand in INLINE_FLOATS:
            return f"{operand}" if operand else "0"
        return hex(struct.unpack("<I", struct.pack("<f", operand))[0])
    if isinstance(operand, int):
        return str(operand) if operand in INLINE_INTEGERS else hex(operand & 0xFFFFFFFF)
    return operand


@dataclass
class RegisterFile:
    """One file of `limit` registers; `file[0:3]` is v[0:3], inclusive as in LLVM's text.

    even: tuples must start at an even register (VGPRs from gfx90a on).
    """

    letter: str
    limit: int
    even: bool = False
    _used: list[bool] = field(init=False)
    names: list[tuple[Reg, str]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._used = [False] * self.limit

    def __getitem__(self, part: int | slice) -> Reg:
        if isinstance(part, int):
            return Reg(self.letter, part)
        return Reg(self.letter, part.start, part.stop - part.start + 1)

    def _alignment(self, count: int) -> int:
        if self.letter == "s":
            return 1 if count == 1 else 2 if count == 2 else 4
        return 2 if self.even and count > 1 else 1

    def alloc(self, name: str, count: int = 1) -> Reg:
        """The lowest free range of `count` registers; ResourceError if there is none."""
        align = self._alignment(count)
        for start in range(0, self.limit - count + 1, align):
            if not any(self._used[start : start + count]):
                return self._take(start, count, name)
        free = self._used.count(False)
        raise ResourceError(
            f"no {count} consecutive registers left for {name} in file {self.letter}: "
            f"{free} of {self.limit} are free; shrink the tile"
        )

    def reserve(self, start: int, count: int, name: str) -> Reg:
        """A fixed range, as the ABI places it; ResourceError if it is taken."""
        if any(self._used[start : start + count]):
            raise ResourceError(f"{self.letter}{start}.. for {name} is in use already")
        return self._take(start, count, name)

    def _take(self, start: int, count: int, name: str) -> Reg:
        self._used[start : start + count] = [True] * count
        reg = Reg(self.letter, start, count)
        self.names.append((reg, name))
        return reg

    def free(self, *regs: Reg, listed: bool = False) -> None:
        """Gives ranges back; ResourceError for a register that is free already.

        listed: whether their names stay in the kernel's legend (arrays do, temporaries do not).
        """
        if not listed:
            self.names = [(reg, name) for reg, name in self.names if reg not in regs]
        for reg in regs:
            for index in range(reg.index, reg.index + reg.count):
                if not self._used[index]:
                    raise ResourceError(f"{self.letter}{index} is freed twice")
                self._used[index] = False
