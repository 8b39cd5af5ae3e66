"""What a kernel's tiles cost: one model that judges whatever chose them, apart from the closed formulas and never imported by them.

    launch.py      seconds of one kernel launch
    gemm.py        a GEMM's tiles as launches
    conv2d.py      a convolution's
    attention.py   fused attention's
    softmax.py     a softmax's
    candidates.py  every GEMM tile that the emitter takes
    problems.py    the listed problems of each operator, and drawn ones
    space.py       every tile of a problem that a search covers
    ranking.py     the closed form beside an exhaustive search
    baselines.py   tiles that others take
    trials.py      trials that a search needs
    trials_svg.py  the same as a picture
"""
