"""Machine code against the LLVM IR that it was compiled from: it does what IR says wherever IR says something.

    syntax.py      IR as data: types with their layout, constants, instructions
    tokens.py      tokens of IR's text, types, constants
    read.py        a file of IR, parsed and printed by LLVM, then read
    wrap.py        a kernel around a device function
    values.py      values: bits, and which scalars are poison
    integers.py    instructions on integers
    floats.py      instructions on floats
    intrinsics.py  LLVM's functions on scalars and vectors
    lanes.py       intrinsics that read other lanes
    elements.py    vectors, structs, bits as another type
    memory.py      loads and stores
    atomics.py     atomic operations
    buffers.py     intrinsics for buffers
    flow.py        the order of blocks
    execute.py     a kernel of IR on terms, every path
    evaluate.py    what IR leaves in memory after one launch
    refine.py      the verdict on a kernel

The terms are those of the machine's run: the same symbols for arguments, ids and memory, the same functions for floats.
"""
