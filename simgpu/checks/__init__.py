"""Checked mode: what a kernel gets away with here and not on the hardware.

    suite.py        the checks, in order; only a checked device loads it
    waits/          missing waits and wait states, and those that ask for too much
    uninitialized/  what nothing wrote, where it matters
    numerics/       NaN, infinities, overflow and other losses; alone, with check="numerics"
    races/          waves on the same bytes, and barriers that some miss
    lint/           what every path of the code lacks, nothing launched
    bounds.py       memory misuse
    declared.py     what code uses of registers and LDS, against what its kernel declares
    resources.py    registers beyond the declared ones
    suppressions.py  findings that are known: a file of them
    performance.py  notes on what costs time
    barrier_slack.py  barriers that order nothing
    path_trace.py   what the waves of a workgroup do, for the model of time
    writer.py       which workgroup wrote an address
"""
