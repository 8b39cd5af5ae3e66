"""Checked mode: finds bugs that a kernel gets away with in the simulator but not on the hardware.

    suite.py        the checks, in order; only a checked device loads it
    waits/          missing waits and wait states, and surplus ones
    uninitialized/  uses of values that nothing wrote
    numerics/       NaN, infinities, overflow and other losses; only with check="numerics"
    races/          waves that touch the same bytes, and barriers that some waves miss
    lint/           static analysis of all paths of the code, without a launch
    bounds.py       memory misuse
    declared.py     use of registers and LDS, compared with the kernel's declaration
    resources.py    registers beyond the declared ones
    performance.py  notes on slow code
    barrier_slack.py  barriers that order nothing
    path_trace/     jumps and memory accesses of a workgroup's waves, for the timing model
    writer.py       the workgroup that wrote an address
"""
