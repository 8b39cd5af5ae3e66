"""Rules about pairs of instructions that software must keep, and issue costs, as data.

    register_use.py  an instruction as the hazard rules see it: classes, registers read and written
    hazards.py       wait states: producer, consumer, count by target
    clauses.py       memory instructions that XNACK may replay together
    waits.py         operations counted by s_waitcnt's counters, and the order in which they complete
    effect.py        Effect: what an instruction does to registers, counters and LDS
    gfx12.py         effects of GFX12's instructions
    effects.py       effects of a decoded instruction on registers and counters
    lds_banks.py     bank conflicts of one LDS access
    issue.py         the unit that an instruction uses, and for how many clocks
"""
