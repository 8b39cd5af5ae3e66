"""From a code object to executed workgroups.

    device.py          Device, Buffer, Module, Kernel
    allocations.py     device memory: allocations in a 64-bit address space
    program.py         instructions to records, each with its handler
    lowering/          an instruction's handler, and behind which ones other waves have their turns
    launch.py          one launch: its memory, its workers, what comes back
    workers/           the host threads that execute workgroups
    result.py          Run: counts, counters, fidelity
    faults.py          from a stopped wave to an error in words
    hostcall/          calls from a kernel to the host
    check.py           Check: hooks at compile time and around a launch, and what becomes of a check's own errors
    checked.py         a launch with checks
    events.py          how handlers report
    finding.py         Finding: what is wrong, where, and what would be right
    workgroup.py       the workgroup that a wave belongs to, for runtime functions
"""
