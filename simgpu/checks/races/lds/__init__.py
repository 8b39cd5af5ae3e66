"""Races on LDS: which bytes of a workgroup's LDS its waves read and wrote since the last barrier, as bitmaps.

For each byte: did any wave write it, and for each wave, did it write it, read it, update it atomically.
With that an access sees whether another wave's clashes with it, and the next barrier clears all of it.
A log of each wave's accesses since then tells what the other side was. Most reads are only logged, and
marked in a bitmap when somebody is about to write: between most barriers nobody is.

    shadow.py   the bitmaps and the logs, and what enters an access there
    clashes.py  what clashes with an access, and what is told of it
    order.py    order by atomics on LDS
    rows.py     accesses to many bytes in a row, the quick way
    carried.py  operations still in flight behind a barrier
    look.py     what an access and a barrier do
"""
