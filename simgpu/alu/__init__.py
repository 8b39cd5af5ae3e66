"""Emits instructions on registers, and control instructions.

    salu.py               scalar instructions, SCC and EXEC
    valu_sources.py       sources of vector instructions: registers, constants, modifiers
    valu.py               vector instructions: modifiers, DPP, SDWA and masks around a body
    dpp.py                the lane that a DPP source reads
    register_indexing.py  registers chosen at run time by M0
    hwreg.py              s_getreg, s_setreg
    control.py            branches, calls, barriers, waits
"""
