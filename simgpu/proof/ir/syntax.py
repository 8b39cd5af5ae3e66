"""LLVM IR as data: types with their layout in memory, constants, instructions, functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

POINTER_BITS = {0: 64, 1: 64, 2: 32, 3: 32, 4: 64, 5: 32, 6: 32, 7: 160, 8: 128}  # by address space (LLVM AMDGPUUsage)
FLOATS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}


class Unreadable(Exception):
    """Raised for IR that the reader does not know; the message names it."""


@dataclass(frozen=True)
class IrType:
    """A type. fields: of a struct, or the one element type of a vector or an array."""

    kind: Literal["int", "float", "ptr", "vector", "array", "struct", "void", "other"]
    bits: int = 0  # of a scalar
    name: str = ""  # as IR writes a scalar
    space: int = 0  # of a pointer
    count: int = 0
    fields: tuple[IrType, ...] = ()
    packed: bool = False

    @property
    def element(self) -> IrType:
        """Type of each element of a vector or an array."""
        return self.fields[0]

    @property
    def parts(self) -> tuple[IrType, ...]:
        """Types of the elements of a vector, an array or a struct."""
        return self.fields if self.kind == "struct" else self.fields * self.count

    @property
    def leaves(self) -> int:
        """Number of scalars."""
        return 1 if self.kind in ("int", "float", "ptr") else sum(part.leaves for part in self.parts)

    @property
    def width(self) -> int:
        """Bits of a value, without padding."""
        return self.bits if self.kind in ("int", "float", "ptr") else sum(part.width for part in self.parts)

    @property
    def scalar(self) -> IrType:
        """Type of a scalar, or of a vector's elements."""
        return self.element if self.kind == "vector" else self

    @property
    def store_size(self) -> int:
        """Bytes that a load or store accesses."""
        return self.size if self.kind in ("array", "struct") else -(-self.width // 8)

    @property
    def alignment(self) -> int:
        """Alignment in bytes, by AMDGPU's data layout."""
        if self.kind == "array":
            return self.element.alignment
        if self.kind == "struct":
            return 1 if self.packed else max((each.alignment for each in self.fields), default=1)
        if self.kind == "ptr" and self.space in (7, 8):
            return 32 if self.space == 7 else 16
        smallest = 1 << max(0, (-(-self.width // 8) - 1).bit_length())
        return min(smallest, 8) if self.kind == "int" else smallest

    @property
    def size(self) -> int:
        """Bytes from one element of an array to the next."""
        if self.kind == "array":
            return self.count * self.element.size
        if self.kind == "struct":
            end = self.offset(len(self.fields))
            return end + -end % self.alignment
        bytes_ = -(-self.width // 8)
        return bytes_ + -bytes_ % self.alignment

    def offset(self, index: int) -> int:
        """Returns the bytes before an element of an array or a struct.

        >>> IrType("struct", fields=(IrType("int", 8), IrType("int", 64))).offset(1)
        8
        """
        if self.kind != "struct":
            return index * self.element.size
        at = 0
        for number_, each in enumerate(self.fields):
            at += 0 if self.packed else -at % each.alignment
            if number_ == index:
                return at
            at += each.size
        return at

    def __str__(self) -> str:
        if self.kind == "vector":
            return f"<{self.count} x {self.element}>"
        if self.kind == "array":
            return f"[{self.count} x {self.element}]"
        if self.kind == "struct":
            inner = "{ " + ", ".join(map(str, self.fields)) + " }"
            return f"<{inner}>" if self.packed else inner
        if self.kind == "ptr":
            return f"ptr addrspace({self.space})" if self.space else "ptr"
        return self.name


def integer(bits: int) -> IrType:
    """Returns the type iN.

    >>> str(integer(33)), integer(33).size
    ('i33', 8)
    """
    return IrType("int", bits, f"i{bits}")


VOID = IrType("void", name="void")
OTHER = IrType("other", name="label")
BOOL = integer(1)


@dataclass(frozen=True)
class IrLocal:
    """A value of the function."""

    type: IrType
    name: str


@dataclass(frozen=True)
class Number:
    """Bits of a scalar, or zeros of any type."""

    type: IrType
    value: int


@dataclass(frozen=True)
class Aggregate:
    """A constant vector, array or struct."""

    type: IrType
    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Undefined:
    """`undef` or `poison`."""

    type: IrType
    poison: bool


@dataclass(frozen=True)
class IrSymbol:
    """A function or a global variable."""

    type: IrType
    name: str


@dataclass(frozen=True)
class IrInstruction:
    """An instruction, or a constant expression."""

    op: str
    type: IrType  # of the result
    operands: tuple[Operand, ...] = ()
    name: str = ""  # of the result
    flags: frozenset[str] = frozenset()  # nsw, exact, volatile, samesign, nnan ...
    what: str = ""  # a predicate, a function's name, or the operation of atomicrmw
    source: IrType = VOID  # of getelementptr and alloca
    align: int = 1
    numbers: tuple[int, ...] = ()  # indices of extractvalue and insertvalue; a shuffle's mask, -1 for poison; values of a switch
    targets: tuple[str, ...] = ()  # blocks: of a branch, of a phi's operands
    limits: tuple[int, int] | None = None  # range of the result or the loaded value, from the first to before the second
    text: str = ""


Operand = IrLocal | Number | Aggregate | Undefined | IrSymbol | IrInstruction


@dataclass(frozen=True)
class IrParameter:
    """A parameter. byref: type of what a pointer into the kernel's arguments points to."""

    type: IrType
    name: str
    align: int = 1
    byref: IrType | None = None
    attributes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Block:
    """A basic block."""

    name: str
    instructions: tuple[IrInstruction, ...]


@dataclass(frozen=True)
class Function:
    """A function with its blocks; none for a declaration."""

    name: str
    convention: str
    result: IrType
    parameters: tuple[IrParameter, ...]
    attributes: str  # as text
    blocks: tuple[Block, ...]

    @property
    def title(self) -> str:
        """Name as code objects have it."""
        return self.name[1:].strip('"')

    @property
    def is_kernel(self) -> bool:
        """True for a kernel, False for a device function."""
        return self.convention == "amdgpu_kernel"


@dataclass(frozen=True)
class Global:
    """A global variable."""

    name: str
    space: int
    type: IrType
    constant: bool
    initial: Operand | None
    align: int = 0  # as the file says; 0 if it does not

    @property
    def title(self) -> str:
        """Name without the sign and quotes."""
        return self.name[1:].strip('"')

    @property
    def known(self) -> bool:
        """True if its content is the initial one."""
        return self.constant and self.initial is not None

    @property
    def lds_alignment(self) -> int:
        """Alignment of a variable in LDS, which LLVM aligns by its size (AMDGPULowerModuleLDSPass)."""
        size = self.type.size
        by_size = next((bytes_ for bytes_ in (16, 8, 4, 2) if size > bytes_ // 2), 1)
        return max(by_size, self.align, self.type.alignment)


@dataclass(frozen=True)
class IrModule:
    """A file."""

    text: str  # as LLVM prints it
    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Global] = field(default_factory=dict)

    def function(self, title: str) -> Function:
        """Returns the function of a name. Raises Unreadable."""
        for each in self.functions.values():
            if each.title == title:
                return each
        raise Unreadable(f"no function {title}")

    @property
    def defined(self) -> list[Function]:
        """Functions with blocks."""
        return [each for each in self.functions.values() if each.blocks]
