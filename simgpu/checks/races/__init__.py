"""Races on LDS and device memory, after ThreadSanitizer's shadow cells.

    cells.py        three accesses of each dword, and the rule by which two race
    storage.py      where the cells live
    order.py        what orders accesses besides barriers
    expected.py     loads whose value is nothing but what a compare-and-swap expects
    pending.py      such loads, until the swap
    lds_bitmaps.py  bytes of LDS that each wave touched since the last barrier
    accesses.py     what an access, a barrier and a wave's end do to them
    check.py        the check: hooks and findings
    carried.py      LDS operations still in flight behind a barrier
    lds_dma.py      LDS that a load to LDS may still write
"""
