"""What every handler is made of: a wave's state, and LLVM as a compiler of functions on it.

    layout.py      where things lie in a wave's state and in an instruction's record
    mode.py        the MODE register: which of its bits change arithmetic
    operands.py    where an instruction's operands live
    host_memory.py  zeroed, aligned memory of the host
    shield.py      what must not be broken off, run to its end
    compiling/     LLVM IR to object files: many together, in several processes
    jit.py         LLVM IR to callable addresses, object code kept on disk
    intrinsics.py  LLVM's intrinsic functions
    values.py      IR values with operators
    runtime/       functions in Python that handlers call by name
    frame.py       one handler: access to wave and record, and its ways out
    lane_ops.py    the operations of instruction bodies, on LLVM IR
    rounding.py    arithmetic under a rounding mode other than to nearest even
    hooks.py       what checked mode emits around an instruction's body
"""
