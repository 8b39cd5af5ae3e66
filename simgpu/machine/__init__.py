"""What every handler is made of: a wave's state, and LLVM as a compiler of functions on it.

    layout.py      where things lie in a wave's state and in an instruction's record
    mode.py        the MODE register: which of its bits change arithmetic
    operands.py    where an instruction's operands live
    host_memory.py  zeroed, aligned memory of the host
    shield.py      what must not be broken off, run to its end
    compiling/     LLVM IR to object files: many together, in several processes
    jit.py         LLVM IR to callable addresses, object code kept on disk
    values.py      IR values with operators
    intrinsics.py  LLVM's intrinsic functions
    runtime/       functions in Python that handlers call by name
    trace_buffer.py  buffers that handlers append to: a run's traces
    wave_frame.py  a function of wave and record: memory of both, rows, loops
    sources.py     the values of source operands
    accesses.py    what hooks are told of: accesses to memory, sums of matrix instructions
    frame.py       one handler: its ways out, and the hooks that look on
    lane_ops.py    the operations of instruction bodies, on LLVM IR
    rounding.py    arithmetic under a rounding mode other than to nearest even
    hooks.py       has the hooks of a frame look at an access
"""
