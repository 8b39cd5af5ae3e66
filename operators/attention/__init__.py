"""Attention, fused and unfused.

    problem.py           sizes, heads, masks
    cache.py             a cache's pages and scales resolved into plain K and V
    registers.py         registers and LDS of the register-chained kernel
    shared_registers.py  registers and LDS of the kernel whose waves share K and V through LDS
    reductions.py        rows, resources and clocks by unit of a tile, a step and a block
    cost.py              tiles as launches: their time
    paper/               policy "published": its tiles, registers and LDS of the paper's two kernels
    tiles.py             a plan: sizes, blocks, resources
    plan.py              the tiles of both policies
    tree.py              FusedAttention and the nodes below it
    sequence.py          the derivation and the root of several kernels in sequence
    unfused.py           UnfusedAttention: GEMM, softmax, GEMM
    execute.py           both trees with numpy, at any level
    traffic.py           bytes that they move
    reference.py         float64 results and error bounds
    typical_error.py     usual distance of a faithful kernel from float64
"""

from simgpu.operators.attention import execute, traffic  # noqa: F401  (registration)
