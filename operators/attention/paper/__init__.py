"""Attention of the paper: tiles as published, and the resources of its two kernels.

    registers.py  registers and LDS of the kernels; tiles that fit
    plan.py       tiles by the published formulas
"""
