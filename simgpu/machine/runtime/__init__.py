"""Translates Python functions to machine code.

Handlers call some by name, such as the scheduler's loop and functions of checks. Python calls others: the model of time.

    functions.py  `runtime`, `native`, `part` and `cold_part`, the decorators; a function's object file
    source.py     a function's syntax tree, and the values of its names
    translate.py  the tree to LLVM IR, statement by statement
    expressions.py  the values of expressions
    places.py     numbers, structures and arrays in memory, as translated functions see them
    memory.py     operations that such functions are made of: load, store, fill, copy

They are written in a subset of Python: 64-bit integers that wrap, bools, float64, structures and arrays at host addresses, tuples
and NamedTuples of these, if, while, for, return. Names from outside a function are constants. A function is translated once for
each combination of argument types.
"""

from simgpu.machine.runtime.functions import cold_part, native, part, runtime
from simgpu.machine.runtime.memory import (  # fmt: skip
    address_of,
    clear,
    copy,
    draw,
    fill,
    load8,
    load32,
    load64,
    octets,
    records,
    shift_in_zeros,
    store8,
    store32,
    store64,
    structure,
    words,
)
from simgpu.machine.runtime.places import builtin

__all__ = (
    "address_of",
    "builtin",
    "clear",
    "cold_part",
    "copy",
    "draw",
    "fill",
    "load8",
    "load32",
    "load64",
    "native",
    "octets",
    "part",
    "records",
    "runtime",
    "shift_in_zeros",
    "store8",
    "store32",
    "store64",
    "structure",
    "words",
)  # fmt: skip
