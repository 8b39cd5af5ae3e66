"""Races on LDS and device memory, after ThreadSanitizer's shadow cells.

    cells.py        three accesses of each dword, and the rule by which two race
    storage.py      memory of the cells
    footprint.py    bytes that a launch touched, from its cells
    order.py        clocks of workgroups and waves, and addresses of a worker's memory
    knowledge.py    releases and observations of waves, and the knowledge that they give a wave
    releases.py     actions of a wave: release, observe, write back and invalidate
    locations.py    releases at the locations of atomics, and their observations
    overlap.py      launches of several devices that run at the same time
    ordering.py     scopes of a kernel's accesses, and memory for the tables
    expected.py     loads whose value only serves as the expected value of a compare-and-swap
    inactive.py     facts about inactive lanes, for that walk
    pending.py      such loads, until the swap
    unused.py       races without effect: the loaded value is unused
    reconvergence.py  places where all paths meet after code that depends on a value
    uses.py         queries of a launch: writers, racers, unseen waves
    lanes.py        registers of active and of other lanes, for walks over code
    lds/            bytes of LDS that each wave touched since the last barrier
    accesses.py     effect of an access and a cache operation on the cells
    barriers.py     effect of a barrier and a wave's end
    skips.py        lanes that skip a barrier that their wave passes
    scattered.py    accesses of lanes all over an allocation
    remedies.py     fixes that would have ordered two accesses
    findings.py     findings of races and barriers
    check.py        the check: its hooks
    lds_dma.py      LDS that a load to LDS may still write
"""
