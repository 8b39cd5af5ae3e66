"""Basis of all handlers: a wave's state, and LLVM as a compiler of functions on it.

    layout.py      offsets in a wave's state and in an instruction's record
    mode.py        the bits of the MODE register that change arithmetic
    operands.py    places of an instruction's operands
    host_memory.py  zeroed, aligned memory of the host
    shield.py      runs functions that an exception must not interrupt
    compiling/     LLVM IR to object files: in batches, by several processes
    host.py        asks LLVM about the machine that handlers run on
    loader.py      object files to functions in memory
    jit.py         LLVM IR to callable addresses; caches object code on disk
    values.py      IR values with operators
    intrinsics.py  LLVM's intrinsic functions
    runtime/       functions in Python that handlers call by name
    trace_buffer.py  buffers that handlers append traces to
    wave_frame.py  emits a function of wave and record: memory of both, rows, loops
    sources.py     loads source operands
    accesses.py    the accesses and sums that hooks are called with
    frame.py       emits a handler: its exits, and the hooks of checks
    byte_shuffles.py  selects bytes of rows by the host's instruction for it
    lane_ops.py    the operations of instruction bodies, on LLVM IR
    rounding.py    arithmetic under a rounding mode other than to nearest even
    hooks.py       calls the hooks of a frame for an access
"""
