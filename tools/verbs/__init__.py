"""Verbs, a file each, with `configure(parser)` and `run(options) -> status`; `VERBS` in `cli.py` lists them.

    derive.py  tiles, the binding constraint, the slack of all others
    tree.py    the algorithm tree
    report.py  resources against limits, derived and linked
    regret.py  closed-form tiles against an exhaustive search
    baselines.py  tiles that others use
    tune.py    the number of trials that a tile search needs
    paper.py   every number of the paper
    asm.py     assembly to a code object
    emit.py    kernels as assembly or code object
    disasm.py  kernels of a code object
    run.py     an operator's kernels on random inputs, compared with float64
    exec.py    a kernel of any code object
    same.py    two kernels compared exactly
    check.py   run or exec in checked mode
    lint.py    errors on some path through a kernel's code
    prove.py   machine code: right by its IR, equal to another, or inputs that show otherwise
    litmus.py  litmus tests of the memory model
    museum.py  public bugs, before and after
    time.py    modelled time of a run or exec on a real GPU
    profile.py  what to change first in a kernel
    validate_time.py  the time model against published measurements
    sweep.py   many shapes, types and targets, into a table
    bench.py   host time of an operator or a code object
    debug.py   a workgroup run forward and backward, at a prompt
    dap.py     the debugger for editors
    why.py     where an element of a result came from
    trace.py   registers at a place in a running kernel
    judge.py   a generated kernel against a reference
    hip.py     a HIP program on simulated GPUs
    triton.py  a Python program with Triton kernels on a simulated GPU
    lds.py     LDS bank conflicts, and layouts without any
    layout.py  lane and register of each element of a matrix instruction
    doctor.py  dependencies that this machine has or lacks
    warm.py    handlers of common instructions, compiled before kernels need them
    help.py    the documentation's pages
    probe.py   the layout test of every matrix instruction
"""
