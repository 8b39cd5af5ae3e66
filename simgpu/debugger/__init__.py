"""A workgroup again, as often as one likes: stop it anywhere, go back, ask where a value came from.

    place.py        places in a run, `wg(7,0,0) w0 #52311`: parsed and printed
    snapshot.py     registers of a wave at an instruction; `trace` takes them from a whole launch
    clock.py        how many instructions each wave retired, and stops at such a number
    points.py       what a wave stops for: native tests in front of an instruction
    conditions.py   expressions on registers, compiled into those tests
    replay.py       one workgroup from its beginning, stop after stop
    code.py         the kernel's code for people: addresses, labels, lines, instructions that write a register
    named.py        arrays by name: elements to addresses and back
    breakpoints.py  breakpoints and watchpoints, and the points that stand for each
    focus.py        device memory as a workgroup finds it, and which workgroup writes a byte
    flow_trace.py   what waves execute and access, noted natively in one run
    influence.py    which bits of its sources an instruction's result depends on
    why.py          where a value came from: backward through the run
    debugger.py     the debugger: breakpoints, watchpoints, steps forward and backward
"""
