"""Uninitialised registers and memory, after valgrind's memcheck: every bit has a shadow bit.

    shadow_layout.py  where shadows lie
    initial_state.py  what is defined when a wave begins
    flags.py          tests in front of an instruction: is anything undefined?
    first_written.py  arithmetic that writes its results for the first time, without its shadow
    fast_path.py      loads and stores that move nothing undefined
    whole_wave.py     loads from LDS and stores to it by all lanes
    rules.py          how undefined bits travel through one LLVM operation
    pointers.py       what a handler's pointers point to
    instrument.py     a handler turned into its shadow
    origins.py        which load brought undefined bits
    runtime.py        demands: places where undefined bits matter
    matrix.py         undefined elements that count in a product
    check.py          the check: hooks
    findings.py       what its events mean
"""
