"""Tests of robustness: bad input ends in an error message, and checked mode finds bugs.

    power.py            faulty results that must FAIL, faithful ones that must PASS
    fuzz.py             damaged code objects and random instructions, thrown at the simulator
    fuzz_cases.py       makes and launches them
    fuzz_files.py       captures, pages, lists, programs and messages, damaged
    fuzz_host_calls.py  calls of the host, damaged and random
    drawn_commands.py   random commands on operators: right, or refused in a line
    hostile.py          small files that are made to cost much time or memory
    corpus.py           a folder of compilers' kernels
    flips.py            `why` compared with flipped bits, backward with forward
    ir.py               random LLVM IR on the host and on simulated GPUs, compared
    ir_programs.py      its programs, as text for either machine
    ir_statements.py    operations, accesses, branches and loops
    ir_operands.py      a function's text, and values for operands
    ir_values.py        types, constants and names of operations
    ir_runs.py          compiles and runs them
    ir_host.py          runs what x86's clang made of them, in a process of its own
    ir_reduce.py        a smaller program that still differs
    ir_proofs.py        small programs, proved equal at two levels of optimization, or to their IR
    ir_files.py         functions of a folder, such as LLVM's tests, with the targets of their RUN lines
    ir_functions.py     small functions of IR over operations and widths, their machine code proved
    ir_faults.py        faults of LLVM that they found, or that are reported, each with its shortest program
    ir_bisect.py        the pass from which on LLVM compiles a program wrong
    ir_exam.py          public reports of wrong code: which LLVM 22.1.8 still has
    modes.py            random kernels plain, checked, replayed, in slices: the same bytes
    mutants.py          kernels with one weaker wait, nop or barrier, or one wrong address
    mutate.py           mutants run checked, and tallied
    lines.py            lines of this project, each altered, and the tests of its room
"""
