"""A workgroup again, as often as one likes: stop it anywhere, go back, ask where a value came from.

    native/         what handlers do for it: count instructions, test for stops, note what they access
    place.py        places in a run, `wg(7,0,0) w0 #52311`: parsed and printed
    snapshot.py     registers of a wave at an instruction; `trace` takes them from a whole launch
    armed.py        points at the records of a program
    replay.py       one workgroup from its beginning, stop after stop
    code.py         the kernel's code for people: addresses, labels, lines, instructions that write a register
    named.py        arrays by name: elements to addresses and back
    breakpoints.py  breakpoints and watchpoints, and the points that stand for each
    moment.py       what the workgroup holds where it stands: registers, LDS, memory, arrays by name
    focus.py        device memory as a workgroup finds it
    findings.py     what checked mode finds in the workgroup, each with its place
    marks.py        where registers hold elements of the source's variables, in kernels compiled with marks
    debugger.py     the debugger: breakpoints, watchpoints, steps forward and backward
    locals.py       variables of HIP and OpenCL sources, by debug information
    variables.py    variables of the source, of kernels with marks: what they hold at a moment
    flow/           where a value came from: backward through the run
"""
