"""Kernels of attention.

    frame.py          prologue of every fused kernel
    shape.py          a plan in loads, fragments and matrix instructions
    wave.py           a wave's loads and products; paged K and V
    softmax.py        the softmax between the products
    merge.py          sum of the waves' partial O; the second kernel of split keys: sum of the parts
    fused.py          base of all emitters, and what both of our forms share
    emitter.py        the register-chained kernel as a whole
    shared/           the kernel whose waves share K and V through LDS
    paper.py          the paper's kernels
    paper_values.py   their second product, by matrix or vector instructions
    sequence.py       kernels of several trees; unfused attention: GEMM, softmax, GEMM
"""

from simgpu.asm.attention import emitter, sequence  # noqa: F401  (registration)
