"""Operands as an emitter writes them, and files that hand out named ranges of registers."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from simgpu.hardware.errors import ResourceError
from simgpu.hardware.isa.code import operands
from simgpu.hardware.isa.instruction import Const, Literal, Reg

# A register, a number, or a word of LLVM's syntax: vcc, exec, m0, off, a label.
Operand = Reg | int | float | str

WORD = 4  # bytes of a register
INLINE_INTEGERS = range(-16, 65)  # ISA guides, "Scalar operands": encodings 128..208
INLINE_FLOATS = (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0)  # encodings 240..247


@functools.lru_cache(maxsize=None, typed=True)  # 1 and 1.0 are two operands
def constant(value: int | float) -> Const | Literal:
    """Returns a number as an operand: an inline constant, or a 32-bit literal."""
    if value in INLINE_FLOATS and isinstance(value, float):
        return Const(240 + INLINE_FLOATS.index(value))
    if isinstance(value, float) and value:
        return Literal(struct.unpack("<I", struct.pack("<f", value))[0])
    whole = int(value)
    if whole in INLINE_INTEGERS:
        return Const(128 + whole if whole >= 0 else 192 - whole)
    return Literal(whole & 0xFFFFFFFF)


def operand_text(operand: Operand) -> str:
    """Returns an operand in LLVM's syntax. A float that is not an inline constant becomes its f32 bits in hexadecimal."""
    if isinstance(operand, str):
        return operand
    return operands.operand_text(operand if isinstance(operand, Reg) else constant(operand))


@dataclass
class RegisterFile:
    """A register file; `file[0:3]` is v[0:3], inclusive as in LLVM's text."""

    letter: str  # v, a or s
    limit: int  # number of registers
    even: bool = False  # True if tuples must start at an even register (VGPRs from gfx90a on)
    _used: list[bool] = field(init=False)  # by register number
    names: list[tuple[Reg, str]] = field(init=False, default_factory=list)  # ranges of the kernel's legend

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
        """Returns the lowest free range of `count` registers. ResourceError if there is none."""
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
        """Reserves a fixed range, as the ABI places it. ResourceError if it is in use."""
        if any(self._used[start : start + count]):
            raise ResourceError(f"{self.letter}{start}.. for {name} is in use already")
        return self._take(start, count, name)

    def _take(self, start: int, count: int, name: str) -> Reg:
        self._used[start : start + count] = [True] * count
        reg = Reg(self.letter, start, count)
        self.names.append((reg, name))
        return reg

    def in_use(self) -> list[bool]:
        """Returns which registers are in use, by number."""
        return list(self._used)

    def free_since(self, used: list[bool], kept: Iterable[Reg]) -> None:
        """Frees the registers that an earlier `in_use` returned as free, except `kept`; names stay in the kernel's legend."""
        needed = {index for reg in kept if reg.file == self.letter for index in range(reg.index, reg.index + reg.count)}
        self._used = [now and (used[index] or index in needed) for index, now in enumerate(self._used)]

    def restore(self, used: list[bool]) -> None:
        """Makes the registers in use those that an earlier `in_use` returned; names stay in the kernel's legend."""
        self._used = list(used)

    def free(self, *regs: Reg, listed: bool = False) -> None:
        """Frees ranges. ResourceError for a register that is already free.

        listed: True if their names stay in the kernel's legend (arrays do, temporaries do not).
        """
        if not listed:
            self.names = [(reg, name) for reg, name in self.names if reg not in regs]
        for reg in regs:
            for index in range(reg.index, reg.index + reg.count):
                if not self._used[index]:
                    raise ResourceError(f"{self.letter}{index} is freed twice")
                self._used[index] = False
