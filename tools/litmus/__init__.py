"""Litmus tests of the memory model: small programs of a few threads, and which of their results are allowed.

    form.py      a test: threads of loads, stores, atomics and fences, and its written form
    herd.py      tests in the form of herdtools, for PTX and Vulkan
    axioms.py    the results that the source's model allows, by LLVM's memory model with scopes
    compiled.py  the memory instructions that clang makes of each thread
    memory.py    caches, and the effects of memory instructions on them, by `hardware.memory_model`
    explore.py   all schedules of compiled threads, and their results
    weak.py      a test as a kernel in weak mode, and the results of a range of seeds
    mutants.py   compiled threads with an instruction or a bit removed
    suite.py     message passing, store buffering, load buffering, IRIW, coherence: right ones, and each weakened
"""
