"""Executes workgroups of a code object.

From the ground up; a file imports only those above it (`ORDER` in tests/test_imports.py).

    allocations.py     device memory: allocations in a 64-bit address space
    hostcall/          calls from a kernel to the host
    workers/           the host threads that execute workgroups
    workgroup.py       the workgroup that a wave belongs to, for runtime functions
    lowering/          handlers of instructions, and turns of other waves after some of them
    finding.py         Finding: an error, its place, and its remedy
    suppressions.py    known findings, read from a file
    failures.py        a check's own errors
    numbers.py         instructions that compute on numbers although floats are elements of a ring
    demand.py          matrix instructions whose results reach only stored data
    program.py         instructions to records, each with its handler
    accounts.py        counters that executed instructions add to
    node.py            Node: GPUs whose launches may run at the same time
    footprint.py       Footprint: bytes that a launch or a copy touches
    dispatch.py        Dispatch: one launch as checks, errors and findings see it
    positions.py       places in a launch: instructions, arguments' elements, findings
    result.py          Run: counts, counters, fidelity
    faults.py          turns a stopped wave into an error message
    check.py           Check: hooks at compile time and around a launch
    events.py          reports of handlers
    checked.py         preparation of checks for a launch, and their findings
    device.py          Device, Buffer, Module, Kernel
    uploads.py         arrays as arguments: uploaded, and copied back
    setup.py           LaunchSetup: a dispatch's memory and workers
    launch.py          Launch: execution and results
    series.py          launches that differ only in their arguments
"""
