"""A model of a compute unit, and of the GPU around it, that predicts how long a launch would take. Traces feed it as arrays.

    code.py          a kernel's instructions as columns: units, clocks, counters
    trace.py         what the waves of a workgroup executed
    caches.py        which level serves their lines
    channels.py      how many of memory's channels are busy
    state.py         a compute unit's state: records of waves and units
    units.py         its units, a few functions each
    cu.py            a compute unit, event by event
    dispatch.py      which workgroups a CU gets, where they differ
    stretches.py     stretches of code that waves run at the same time
    gpu.py           rounds over the GPU: a CU's part of L2 and memory, which all CUs share
    predict.py       a launch by its samples, at the clock that the board holds: cycles and time
    lines.py         where the time goes, by instruction
    perfetto.py      a timeline of a CU
    speedscope.py    where its clocks go, as stacks
    thread_trace.py  the same as rocprofv3's thread trace
"""
