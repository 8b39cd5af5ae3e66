"""How fast a board is, as measured in public; `targets` has its peaks.

    sustained.py  bandwidths
    pipelines.py  clocks and depths inside a compute unit, and of the way to memory
    clocks.py     the engine clock that a board holds while it works
"""
