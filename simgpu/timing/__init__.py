"""Predicts the time of a launch by a model of a compute unit (CU) and of the GPU around it. Its input is traces as arrays.

    code.py          a kernel's instructions as columns: units, clocks, counters
    trace.py         what the waves of a workgroup executed
    caches.py        the cache level that serves each line of a trace
    footprint.py     the memory that a launch accesses, from a part of it
    lives.py         loads that the traced beginnings of workgroups do not reach
    history.py       lines that earlier launches left in the XCDs' L2s
    front.py         the order in which workgroups that run together request lines
    contention.py    atomics on one line of memory
    channels.py      the fraction of memory's channels that are busy
    native/          loops that run as machine code: the units of a compute unit, streams, caches
    cu.py            a compute unit, event by event
    moved.py         the bytes that workgroups move through each level
    dispatch.py      the workgroups that a CU gets, if workgroups differ
    stretches.py     times pieces of code that waves run at the same time
    gpu.py           rounds over the GPU: a CU's part of L2 and memory, which all CUs share
    without.py       causes of waiting switched off, instruction by instruction
    predict.py       the time of a launch by its samples, at the clock that the board holds
    band.py          the band around the time: what the model knows that it does not know
    lines.py         clocks and stalls by instruction
    perfetto.py      a timeline of the CU
    speedscope.py    a profile of the CU's clocks, as stacks
    thread_trace.py  a timeline in the format of rocprofv3's thread trace
"""
