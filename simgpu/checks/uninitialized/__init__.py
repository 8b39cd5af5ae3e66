"""Uninitialised registers and memory, after valgrind's memcheck: every bit has a shadow bit.

    shadow_layout.py  places of shadows
    initial_state.py  registers that are defined when a wave begins
    flags.py          tests before an instruction for undefined operands
    first_written.py  arithmetic that writes its results for the first time, without its shadow
    smearing.py       floating-point arithmetic, whose results are wholly undefined or not at all
    fast_path.py      loads and stores that move only defined bits
    whole_wave.py     loads from LDS and stores to it by all lanes
    rules.py          propagation of undefined bits through one LLVM operation
    pointers.py       targets of a handler's pointers
    instrument.py     turns a handler into its shadow
    origins.py        loads that brought undefined bits
    runtime.py        demands: reports of undefined bits where they matter
    matrix.py         undefined elements that count in a product
    check.py          the check's hooks
    findings.py       findings made of its events
"""
