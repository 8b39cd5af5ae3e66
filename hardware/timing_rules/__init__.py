"""What software owes the hardware between two instructions, as data.

    register_use.py  what the hazard rules see of an instruction: classes, registers read and written
    hazards.py       wait states: producer, consumer, count by target
    clauses.py       memory instructions that XNACK may replay together
    waits.py         what s_waitcnt's counters count, in which order it completes
    effects.py       what a decoded instruction does to registers and counters
    lds_banks.py     bank conflicts of one LDS access
    issue.py         the unit that an instruction takes, and for how long
"""
