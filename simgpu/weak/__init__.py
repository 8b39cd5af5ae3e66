"""Weak mode: old copies in caches and waves in a seed's order, so that a missing fence gives wrong numbers.

    caches.py    lines of the L1 of each CU and of the L2 of each XCD: write-back, invalidate, old copies
    accesses.py  loads, stores and atomics through these caches
    late.py      loads that take effect when their wave waits for them
    mode.py      WeakMemory, which emits all that as hooks of handlers; its memory, and its chances by seed

`engine.workers.seeded_loop` schedules the waves. The instructions' effects are those of `hardware.memory_model`.
"""
