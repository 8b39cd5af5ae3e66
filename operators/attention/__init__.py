"""Attention, fused and unfused.

    problem.py           sizes, heads, masks
    registers.py         registers and LDS of the register-chained kernel
    paper_registers.py   registers and LDS of the paper's two kernels
    plan.py              the tiles: both policies
    tree.py              FusedAttention and the nodes below it
    unfused.py           UnfusedAttention: GEMM, softmax, GEMM
    execute.py           both trees with numpy, at any level
    traffic.py           what they move
    reference.py         float64 results and error bounds
    typical_error.py     how far a faithful kernel usually is from float64
"""

from simgpu.operators.attention import execute, traffic  # noqa: F401  (registration)
