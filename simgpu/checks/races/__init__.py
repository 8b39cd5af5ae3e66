"""Races on LDS and device memory, after ThreadSanitizer's shadow cells.

    cells.py        three accesses of each dword, and the rule by which two race
    storage.py      where the cells live
    order.py        clocks of workgroups and waves, and where a worker's memory is
    knowledge.py    what waves released and observed, and what a wave knows by it
    releases.py     what a wave releases, observes, writes back and invalidates
    ordering.py     scopes of a kernel's accesses, and memory for all of that
    expected.py     loads whose value is nothing but what a compare-and-swap expects
    pending.py      such loads, until the swap
    unused.py       races that have no effect: what was loaded is of no use
    reconvergence.py  where all ways meet again behind what depends on a value
    uses.py         what it asks of a launch: who wrote, who raced, who went unseen
    lanes.py        registers of lanes that are active and of others, for walks over code
    lds/            bytes of LDS that each wave touched since the last barrier
    accesses.py     what an access and a cache operation do to them
    barriers.py     what a barrier and a wave's end do
    scattered.py    accesses of lanes all over an allocation
    remedies.py     what would have ordered two accesses
    findings.py     what is told of races and barriers
    check.py        the check: its hooks
    lds_dma.py      LDS that a load to LDS may still write
"""
