"""Lint's analyses for gfx1250: wave32, a counter for each kind of memory operation, expert scheduling mode, split barriers.

    high_bits.py  VGPR numbers with the bits of s_set_vgpr_msb
    pending.py    operations that may be incomplete at a place
    waits.py      accesses that come too early, unpaired barrier halves
    gaps.py       distance between two instructions on one counter
    cases.py      findings with messages and certainty
"""
