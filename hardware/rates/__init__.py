"""Measured speeds of a board, from public sources; `targets` has its peaks.

    sustained.py  bandwidths
    pipelines.py  clocks and depths inside a compute unit, and of the way to memory
    clocks.py     the engine clock that a board holds while it works
"""
