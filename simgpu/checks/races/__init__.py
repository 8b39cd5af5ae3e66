"""Races on LDS and device memory, after ThreadSanitizer's shadow cells.

    cells.py        three accesses of each dword, and the rule by which two race
    storage.py      where the cells live
    order.py        what orders accesses besides barriers
    expected.py     loads whose value is nothing but what a compare-and-swap expects
    pending.py      such loads, until the swap
    unused.py       races that have no effect: what was loaded is of no use
    reconvergence.py  where all ways meet again behind what depends on a value
    uses.py         what it asks of a launch: who wrote, who raced, who went unseen
    lanes.py        registers of lanes that are active and of others, for walks over code
    lds/            bytes of LDS that each wave touched since the last barrier
    accesses.py     what an access, a barrier and a wave's end do to them
    scattered.py    accesses of lanes all over an allocation
    check.py        the check: hooks and findings
    lds_dma.py      LDS that a load to LDS may still write
"""
