"""Rules of the hardware between two instructions that software must keep, as data.

    register_use.py  an instruction as the hazard rules see it: classes, registers read and written
    hazards.py       wait states: producer, consumer, count by target
    clauses.py       memory instructions that XNACK may replay together
    waits.py         the operations that s_waitcnt's counters count, and the order in which they complete
    effects.py       the effects of a decoded instruction on registers and counters
    lds_banks.py     bank conflicts of one LDS access
    issue.py         the unit that an instruction takes, and for how long
"""
