"""Debugger: reruns one workgroup any number of times, stops it anywhere, goes back, and finds where a value came from.

    native/         code that runs in handlers: counts instructions, tests for stops, records accesses
    place.py        places in a run, `wg(7,0,0) w0 #52311`: parsed and printed
    snapshot.py     registers of a wave at an instruction; `trace` takes them from a whole launch
    armed.py        puts points, which may stop a wave, at the records of a program
    replay.py       runs one workgroup from its beginning, stop after stop
    code.py         the kernel's code: addresses, labels, lines, instructions that write a register
    named.py        arrays by name: elements to addresses and back
    breakpoints.py  breakpoints and watchpoints, and their points
    moment.py       contents of the stopped workgroup: registers, LDS, memory, arrays by name
    focus.py        device memory at a workgroup's beginning
    findings.py     findings of checked mode in the workgroup, each with its place
    marks.py        registers that hold elements of the source's variables, in kernels compiled with marks
    debugger.py     the debugger: breakpoints, watchpoints, steps forward and backward
    objects.py      parts of variables, and the registers and memory that hold them
    dynamic_lds.py  arrays of dynamic LDS, by the declarations in a source
    locals.py       variables of HIP and OpenCL sources, by debug information
    assign.py       changes registers, variables and memory of the stopped workgroup
    variables.py    values of the source's variables at a moment, in kernels with marks
    flow/           finds the origin of a value, backward through the run
"""
