"""Measured speeds of a board, from public sources; `targets` has its peaks.

    sustained.py  bandwidths
    pipelines.py  latencies and queue depths of a compute unit, L2 and memory
    clocks.py     the engine clock under load
"""
