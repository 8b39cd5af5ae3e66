"""Location expressions: the registers, constants and memory that hold a variable (DWARF 5, 2.6; LLVM, AMDGPUDwarfExtensions).

Register numbers are AMDGPU's (LLVM, AMDGPUUsage, "Register Identifier").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from simgpu.hardware.code_object.dwarf import Cursor

# First DWARF number, register file, first register, count.
REGISTERS = ((32, "s", 0, 64), (1088, "s", 64, 42), (2560, "v", 0, 512), (3072, "a", 0, 512))
# Clang describes a local of HIP as memory of address space 1: DW_OP_lit1 DW_OP_swap DW_OP_xderef. LLVM keeps these operations
# even if the value is in registers, where they have no meaning.
IN_MEMORY = bytes((0x31, 0x16, 0x18))
DW_OP_addr, DW_OP_addrx, DW_OP_fbreg, DW_OP_piece, DW_OP_stack_value = 0x03, 0xA1, 0x91, 0x93, 0x9F
DW_OP_lit0, DW_OP_constu, DW_OP_consts, DW_OP_plus_uconst = 0x30, 0x10, 0x11, 0x23
CONSTANTS = {0x08: 1, 0x09: -1, 0x0A: 2, 0x0B: -2, 0x0C: 4, 0x0D: -4, 0x0E: 8, 0x0F: -8}  # DW_OP_const1u to const8s: bytes
DW_OP_reg0, DW_OP_breg0, DW_OP_regx, DW_OP_bregx = 0x50, 0x70, 0x90, 0x92
# DW_OP_LLVM_form_aspace_address: by itself, or as an operation of DW_OP_LLVM_user.
DW_OP_LLVM_form_aspace_address, DW_OP_LLVM_user, USER_FORM_ASPACE = 0xE1, 0xE9, 0x02
SPACES = {1: "global", 3: "lds", 5: "private"}  # by the number of an address space (AMDGPUUsage, "Address Space Identifier")
ARITHMETIC = {
    0x1A: "and", 0x1B: "div", 0x1C: "minus", 0x1D: "mod", 0x1E: "mul", 0x1F: "neg", 0x20: "not", 0x21: "or", 0x22: "plus",
    0x24: "shl", 0x25: "shr", 0x26: "shra", 0x27: "xor",
}  # fmt: skip
MOST_STEPS = 64  # operations of a computed value


class StackOperation(NamedTuple):
    """An operation of a computed value, on a stack of numbers."""

    name: str  # "register", "constant", "frame" (the frame's base), or one of ARITHMETIC
    register: str = ""
    value: int = 0  # of a constant; of a register, a number that is added


class Piece(NamedTuple):
    """A part of a value. Pieces of a value are ordered from its lowest bytes up."""

    register: str  # such as v2, s4 or a3; "" for a constant, a computed value, or memory
    value: int  # of a constant
    size: int  # bytes; 0 if the piece is the whole value
    space: str = ""  # of a value in memory: "private", "lds" or "global"
    steps: tuple[StackOperation, ...] = ()  # of a computed value, or of the address in memory


def pieces_of(expression: bytes, address_at: Callable[[int], int] = int) -> tuple[Piece, ...] | None:
    """Returns the pieces of a location; None if it is empty or not supported. address_at: address at an index of .debug_addr.

    >>> pieces_of(bytes.fromhex("92821400311618"))
    (Piece(register='v2', value=0, size=0, space='', steps=()),)
    >>> pieces_of(bytes.fromhex("9108311618"))[0].space   # DW_OP_fbreg 8
    'private'
    """
    cursor, found, part = Cursor(expression), list[Piece](), _Part(address_at)
    while cursor.at < len(expression):
        if expression.startswith(IN_MEMORY, cursor.at):
            cursor.at += len(IN_MEMORY)
            continue
        op = cursor.number(1)
        if op == DW_OP_piece:
            piece = part.piece()
            if piece is None:
                return None
            found.append(piece._replace(size=cursor.uleb()))
            part = _Part(address_at)
        elif not part.take(op, cursor):
            return None
    if not part.steps:
        return tuple(found)
    last = part.piece()
    return None if last is None else (*found, last)


class _Part:
    """Operations of one piece."""

    def __init__(self, address_at: Callable[[int], int]) -> None:
        self.steps: list[StackOperation] = []
        self._space, self._is_value, self._address_at = "", False, address_at

    def take(self, op: int, cursor: Cursor) -> bool:
        """Reads an operation's operands. Returns False if it is not supported."""
        if op == DW_OP_stack_value:
            self._is_value = True
            return True
        if op in (DW_OP_LLVM_form_aspace_address, DW_OP_LLVM_user):
            if op == DW_OP_LLVM_user and cursor.uleb() != USER_FORM_ASPACE:
                return False
            last = self.steps.pop() if self.steps else StackOperation("")
            self._space = SPACES.get(last.value, "") if last.name == "constant" else ""
            return bool(self._space and self.steps)
        if op == DW_OP_plus_uconst:
            self.steps += [StackOperation("constant", value=cursor.uleb()), StackOperation("plus")]
        elif op in ARITHMETIC:
            self.steps.append(StackOperation(ARITHMETIC[op]))
        else:
            step = self._operand(op, cursor)
            if step is None:
                return False
            self.steps.append(step)
        return len(self.steps) <= MOST_STEPS

    def _operand(self, op: int, cursor: Cursor) -> StackOperation | None:
        """Returns the register or constant of an operation, None for other operations."""
        if DW_OP_lit0 <= op < DW_OP_lit0 + 32:
            return StackOperation("constant", value=op - DW_OP_lit0)
        if op in (DW_OP_constu, DW_OP_consts):
            return StackOperation("constant", value=cursor.uleb() if op == DW_OP_constu else cursor.sleb())
        if op in CONSTANTS:
            size = abs(CONSTANTS[op])
            value = cursor.number(size)
            negative = CONSTANTS[op] < 0 and value >> 8 * size - 1
            return StackOperation("constant", value=value - (1 << 8 * size) if negative else value)
        if op in (DW_OP_addr, DW_OP_addrx):
            self._space = "global"
            return StackOperation("constant", value=cursor.number(8) if op == DW_OP_addr else self._address_at(cursor.uleb()))
        if op == DW_OP_fbreg:
            self._space = "private"
            return StackOperation("frame", value=cursor.sleb())
        if DW_OP_reg0 <= op < DW_OP_reg0 + 32 or op == DW_OP_regx:
            return _register(cursor.uleb() if op == DW_OP_regx else op - DW_OP_reg0, 0)
        if DW_OP_breg0 <= op < DW_OP_breg0 + 32 or op == DW_OP_bregx:
            number = cursor.uleb() if op == DW_OP_bregx else op - DW_OP_breg0
            return _register(number, cursor.sleb())
        return None

    def piece(self) -> Piece | None:
        """Returns the piece; None if the operations leave no value, or an address in an unknown address space."""
        depth = 0
        for step in self.steps:
            depth += {"register": 1, "constant": 1, "frame": 1, "neg": 0, "not": 0}.get(step.name, -1)
            if depth < 1:
                return None
        if depth != 1:
            return None
        only = self.steps[0]
        if len(self.steps) == 1 and not self._space:
            if only.name == "constant":
                return Piece("", only.value, 0)
            if only.name == "register" and not only.value:
                return Piece(only.register, 0, 0)
        if not self._space and not self._is_value:
            return None  # memory of an unknown address space
        return Piece("", 0, 0, "" if self._is_value else self._space, tuple(self.steps))


def _register(number: int, added: int) -> StackOperation | None:
    for start, file, first, count in REGISTERS:
        if start <= number < start + count:
            return StackOperation("register", f"{file}{first + number - start}", added)
    return None
