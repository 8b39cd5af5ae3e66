"""Litmus tests of the memory model: small programs of a few threads, and which of their results are allowed.

    form.py      a test: threads of loads, stores, atomics and fences, and how it is written
    axioms.py    the results that the source's model allows, by LLVM's memory model with scopes
    compiled.py  the memory instructions that clang makes of each thread
    memory.py    caches, and what a memory instruction does to them, by `hardware.memory_model`
    explore.py   all schedules of compiled threads, and what they end with
    mutants.py   compiled threads with an instruction or a bit less
    suite.py     message passing, store buffering, load buffering, IRIW, coherence: right ones, and each weakened
"""
