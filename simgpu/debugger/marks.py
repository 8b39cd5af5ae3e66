"""Marks: instructions before which a wave's registers hold elements of a variable of the source.

`simgpu.triton.variables` compiles kernels with marks. A section of the code object lists them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from simgpu.debugger.breakpoints import RegisterNames
from simgpu.debugger.code import ReplayCode
from simgpu.debugger.native.clock import ENDINGS
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.code_object.elf import ElfFile
from simgpu.hardware.errors import DecodeError

SECTION = ".simgpu.variables"  # for each mark its address (64 bits), and words that end with a zero: see `Mark`
TYPES = {
    "fp16": np.float16, "fp32": np.float32, "fp64": np.float64, "bf16": ml_dtypes.bfloat16, "int1": np.bool_,
    "fp8e4nv": ml_dtypes.float8_e4m3fn, "fp8e5": ml_dtypes.float8_e5m2, "fp8e4b8": ml_dtypes.float8_e4m3fnuz,
    "fp8e5b16": ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip  # by Triton's names; integers are numpy's


@dataclass(frozen=True)
class Mark:
    """A place where registers hold elements of a variable."""

    address: int  # virtual address of the instruction
    site: int  # number of the assignment
    name: str  # the variable
    kind: str  # Triton's type of an element
    shape: tuple[int, ...]
    line: int  # source line of the assignment
    value: RegisterNames  # registers of the element of each lane
    index: RegisterNames | None  # register of the elements' flat indices, None for a scalar

    @classmethod
    def parse(cls, address: int, text: str) -> Mark:
        """Parses the words of the section: `3 acc fp32 64x64 37 v12 v80`."""
        site, name, kind, shape, line, *registers = text.split()
        extents = () if shape == "-" else tuple(map(int, shape.split("x")))
        value, *index = map(RegisterNames.parse, registers)
        return cls(address, int(site), name, kind, extents, int(line), value, index[0] if index else None)

    @property
    def dtype(self) -> np.dtype:
        """Type of an element in numpy; addresses are uint64."""
        return np.dtype(np.uint64 if self.kind.startswith("pointer") else TYPES.get(self.kind, self.kind))


def marks(code: CodeObject) -> list[Mark]:
    """Returns the marks of a code object, none if it was compiled without. Raises DecodeError for a damaged section."""
    file = ElfFile(code.data)
    section = file.sections_named((SECTION.encode(),)).get(SECTION)
    found, at = [], 0
    held = file.content(SECTION, section) if section else b""
    try:
        while at < len(held):
            (address,) = struct.unpack_from("<Q", held, at)
            end = held.index(b"\0", at + 8)
            found.append(Mark.parse(address, held[at + 8 : end].decode("ascii")))
            at = end + 1
    except (ValueError, struct.error) as error:
        raise DecodeError(f"{SECTION} is damaged at byte {at} of {len(held)}: {error}") from None
    return found


def settled_records(code: ReplayCode, line: int) -> list[int]:
    """Returns the records of a line's first instruction after the assignment of the line before, because compilers move
    instructions up past it.

    There is one record for each copy that the compiler made of the code; none if no assignment is known, or if no instruction of
    the line follows it.
    """
    site_at = {code.record(mark.address): (mark.line, mark.site) for mark in marks(code.file)}
    before = max((site for site in site_at.values() if site[0] < line), default=None)
    found: list[int] = []
    # True after such a mark; the line's first instruction after the last one. Other marks and jumps end a copy.
    behind, first = False, -1
    for at, inst in code:
        site, control = site_at.get(at), inst.spec.control
        if site is not None and site == before:
            behind, first = True, -1
        elif first >= 0 and (site is not None or control in ENDINGS or control.startswith("cbranch")):
            found.append(first)
            behind, first = False, -1
        elif behind and first < 0 and code.line(at).endswith(f":{line}"):
            first = at
    return found + [first] * (first >= 0)
