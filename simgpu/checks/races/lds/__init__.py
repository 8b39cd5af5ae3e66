"""Races on LDS: bitmaps of the bytes that each wave of a workgroup read and wrote since the last barrier.

The bitmaps say for each byte if any wave wrote it, and for each wave if it wrote, read or atomically updated it. So an access
sees if it clashes with another wave's, and the next barrier clears everything. A log of each wave's accesses since the barrier
identifies the other side. Most reads are only logged; they are marked in a bitmap when a write is about to follow, which is
rare between two barriers.

    shadow.py   the bitmaps and the logs, and the entry of an access in them
    clashes.py  tests for clashes with an access, and their reports
    order.py    order by atomics on LDS
    rows.py     accesses to many consecutive bytes, the quick way
    carried.py  operations still in flight after a barrier
    look.py     effects of an access and a barrier
"""
