"""Races on LDS: bitmaps of the bytes that each wave of a workgroup read and wrote since the last barrier.

The bitmaps say for each byte if any wave wrote it, and for each wave if it wrote, read or atomically updated it. They show if an
access clashes with another wave's. A log of each wave's accesses identifies the other side. The next barrier clears everything.
Most reads are only logged. They are marked in a bitmap when a write to the same range follows, which is rare between two
barriers.

    shadow.py   the bitmaps and the logs, and the entry of an access in them
    clashes.py  tests for clashes with an access, and their reports
    order.py    order by atomics on LDS
    rows.py     accesses to many consecutive bytes, the quick way
    carried.py  operations still in flight after a barrier
    look.py     effects of an access and a barrier
"""
