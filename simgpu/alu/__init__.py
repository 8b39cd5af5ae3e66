"""Instructions on registers.

    salu.py               scalar instructions, SCC and EXEC
    valu_sources.py       sources of vector instructions: registers, constants, modifiers
    valu.py               vector instructions: DPP, SDWA and masks around a body
    dpp.py                which lane a DPP source reads
    register_indexing.py  registers chosen at run time by M0
    hwreg.py              s_getreg, s_setreg
    control.py            branches, calls, barriers, waits
"""
