"""Code objects: from a file's bytes to kernels, their metadata and their packed arguments.

    names.py        names from files, as text that can be printed
    bundle.py       clang offload bundles and HIP fat binaries: one code object per target
    compressed.py   compressed bundles, expanded in parts
    elf.py          the parts of an amdhsa ELF
    metadata.py     its metadata notes, an entry a kernel
    dwarf.py        debug sections, and a cursor that reads their fields
    lines.py        source lines of addresses
    entries.py      entries of .debug_info with selected attributes
    references.py   names, types and ranges that entries refer to
    inlined.py      functions that were inlined at an address
    frames.py       an instruction's lines from the innermost function out, including the user's
    demangled.py    C++ names as users write them
    mangled.py      parameters' types by a kernel's mangled name
    types.py        types of variables with their elements, members and targets
    expression.py   location expressions: registers, constants, memory
    shared.py       offsets of a kernel's variables in LDS
    locals.py       variables: the registers and memory that hold them at an address
    parameters.py   parameters' types by debug information
    debug.py        DebugInformation: lines, calls and types, read on first use
    descriptor.py   the 64-byte kernel descriptor
    kernels.py      KernelInfo: a kernel's metadata and descriptor, read on first use
    code_object.py  CodeObject: all parts together
    arguments.py    kernel arguments packed by metadata, hidden ones filled in
"""

from __future__ import annotations

from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.code_object.kernels import KernelInfo

__all__ = ["CodeObject", "KernelInfo"]
