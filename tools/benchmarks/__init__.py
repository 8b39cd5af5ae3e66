"""Benchmarks of simgpu itself, one file each; `simgpu bench` runs them from a checkout. The wheel leaves them out.

    table.py            the table that `simgpu bench` prints
    goals.py            the goals of speed, one row each
    closed_cost.py      the closed cost against the time model, on random GEMMs
    clock_fit.py        the clock of MI355X, from published runs
    gemm.py             a GEMM against numpy's
    aiter_gemm.py       AITER's bf16 GEMM of gfx950 against numpy's
    llm_gemm.py         60 products of language models, modelled
    attention.py        fused attention against numpy's
    engine.py           wave-instructions per second, by kind of work
    mfma.py             dense products, by matrix instruction
    corpus.py           compilers' kernels
    launch.py           the cost of an empty launch
    slices.py           the cost of cutting a launch
    scaling.py          speed by host threads, and a forecast for more cores
    start.py            from import to the first result
    first_launch.py     new handlers, by number
    commands.py         commands as users call them
    debugger.py         a step of the debugger
    common_instructions.py  the commonest instructions of kernels, which are compiled ahead
    memory.py           peak memory beyond the buffers
    timing.py           the model of a compute unit: wave-instructions per second
    rates.py            nanoseconds per instruction, by class
    host_instructions.py  host instructions per instruction, beside the fewest
    turn_about.py       best times of compared functions
    blas.py             numpy's BLAS and its threads
    host.py             machine and versions
"""
