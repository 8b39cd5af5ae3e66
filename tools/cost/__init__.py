"""Ranks the closed form's tiles among all others, by the closed cost (`simgpu.operators.cost`): `regret`, `tune`, `baselines`.

    names.py       operators whose tiles are judged
    candidates.py  every GEMM tile that the emitter accepts
    problems.py    the listed problems of each operator, and random ones
    space.py       every tile of a problem that a search covers
    ranking.py     the closed form compared with an exhaustive search
    emitted.py     the closed form's kernel beside others, emitted and timed by the model of time
    odd.py         kernels of odd extents beside their aligned neighbours, by the same model
    baselines.py   tiles that others use
    trials.py      trials that a search needs
    trials_svg.py  a picture of trials
"""
