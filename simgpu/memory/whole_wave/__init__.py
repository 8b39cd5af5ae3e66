"""Accesses of all 64 lanes within one allocation or LDS: 16 lanes at a time, not through the staging area.

    direct.py         each lane at a common start plus 32 bits of its own
    direct_global.py  the same in device memory, with the allocation's bounds and bitmaps
    contiguous.py     consecutive lanes: one range of memory
    prefetch.py       lines that the next loads will need, into the host's caches
"""
