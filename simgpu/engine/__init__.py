"""From a code object to executed workgroups.

From the ground up; a file imports those above it only (`ORDER` in tests/test_imports.py).

    allocations.py     device memory: allocations in a 64-bit address space
    hostcall/          calls from a kernel to the host
    workers/           the host threads that execute workgroups
    workgroup.py       the workgroup that a wave belongs to, for runtime functions
    lowering/          an instruction's handler, and after which ones other waves have their turns
    finding.py         Finding: what is wrong, where, and what would be right
    failures.py        a check's own errors
    program.py         instructions to records, each with its handler
    accounts.py        what executions of instructions count as
    dispatch.py        Dispatch: one launch as checks, errors and findings see it
    positions.py       where something is in a launch: instructions, arguments' elements, findings
    result.py          Run: counts, counters, fidelity
    faults.py          from a stopped wave to an error in words
    check.py           Check: hooks at compile time and around a launch
    events.py          how handlers report
    checked.py         what checks need of a launch, and what they find
    device.py          Device, Buffer, Module, Kernel
    launch.py          Launch: a dispatch's memory and workers, how they run, what comes back
"""
