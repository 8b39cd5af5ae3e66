"""A file a verb, with `configure(parser)` and `run(options) -> status`; `VERBS` of `cli.py` is their list.

    derive.py  tiles, the constraint that binds, the slack of every other
    tree.py    the algorithm tree
    report.py  resources against limits, derived and linked
    regret.py  the closed form against an exhaustive search
    baselines.py  tiles that others use
    tune.py    trials that a search needs
    paper.py   every number of the paper
    asm.py     assembly to a code object
    emit.py    kernels as assembly or code object
    disasm.py  kernels of a code object
    run.py     an operator's kernels on random inputs, compared with float64
    exec.py    a kernel of any code object
    check.py   run or exec in checked mode
    lint.py    errors on some path through a kernel's code
    litmus.py  litmus tests of the memory model
    museum.py  public bugs, before and after
    time.py    how long run or exec would take on a real GPU, by a model
    validate_time.py  the model of time against published measurements
    sweep.py   many shapes, types and targets, into a table
    bench.py   times
    debug.py   a workgroup run forward and backward, at a prompt
    dap.py     the debugger for editors
    why.py     where an element of a result came from
    trace.py   registers at a place in a running kernel
    hip.py     a HIP program on simulated GPUs
    triton.py  a Python program with Triton kernels on one
    lds.py     LDS bank conflicts, and layouts without any
    layout.py  who owns which element of a matrix instruction
    doctor.py  what this machine has and lacks
    help.py    the documentation's pages
    probe.py   the layout test of every matrix instruction
"""
