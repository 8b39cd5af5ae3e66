"""AITER's kernels with real arguments. Each is launched, compared with float64, in plain, checked and late mode.

    case.py       a launch with its arrays, and the error of its results
    mla.py        decode steps of multi-head latent attention
    attention.py  forward attention
    moe.py        layers of experts
    gemm.py       products of fp4 matrices with a scale for each 32 elements
    rows.py       the objects, with the extents of their launches
    __main__.py   the command
"""
