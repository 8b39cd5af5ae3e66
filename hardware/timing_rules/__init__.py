"""What software owes the hardware between two instructions, as data.

    effects.py    what an instruction does to registers and counters
    waits.py      what s_waitcnt's counters count, in which order it completes
    hazards.py    wait states: producer, consumer, count by target
    lds_banks.py  bank conflicts of one LDS access
"""
