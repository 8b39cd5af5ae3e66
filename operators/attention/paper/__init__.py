"""The paper's attention: tiles as published, and what its two kernels take.

    registers.py  registers and LDS of the kernels; tiles that fit
    plan.py       tiles by the published formulas
"""
