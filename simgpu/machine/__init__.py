"""The parts of every handler: a wave's state, and LLVM as a compiler of functions on it.

    layout.py      offsets in a wave's state and in an instruction's record
    mode.py        the MODE register: which of its bits change arithmetic
    operands.py    where an instruction's operands are
    host_memory.py  zeroed, aligned memory of the host
    shield.py      runs functions that an exception must not interrupt
    compiling/     LLVM IR to object files: many together, in several processes
    jit.py         LLVM IR to callable addresses, object code kept on disk
    values.py      IR values with operators
    intrinsics.py  LLVM's intrinsic functions
    runtime/       functions in Python that handlers call by name
    trace_buffer.py  buffers that handlers append to: a run's traces
    wave_frame.py  a function of wave and record: memory of both, rows, loops
    sources.py     the values of source operands
    accesses.py    the accesses and sums that hooks are called with
    frame.py       one handler: its ways out, and the hooks that look on
    lane_ops.py    the operations of instruction bodies, on LLVM IR
    rounding.py    arithmetic under a rounding mode other than to nearest even
    hooks.py       calls the hooks of a frame for an access
"""
