"""How the closed form's tiles rank among all others, by the closed cost (`simgpu.operators.cost`): `regret`, `tune`, `baselines`.

    candidates.py  every GEMM tile that the emitter takes
    problems.py    the listed problems of each operator, and drawn ones
    space.py       every tile of a problem that a search covers
    ranking.py     the closed form beside an exhaustive search
    baselines.py   tiles that others take
    trials.py      trials that a search needs
    trials_svg.py  the same as a picture
"""
