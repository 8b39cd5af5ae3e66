"""What ends in words, and what checked mode finds.

    power.py            faulty results that must FAIL, faithful ones that must PASS
    fuzz.py             damaged code objects and random instructions, thrown at the simulator
    fuzz_cases.py       how they are made and launched
    fuzz_files.py       captures, pages, lists, programs and messages, damaged
    fuzz_host_calls.py  calls of the host, damaged and drawn
    hostile.py          files made to cost more than they weigh
    corpus.py           a folder of compilers' kernels
    flips.py            what `why` names against flipped bits, backward against forward
    ir.py               random LLVM IR on the host and on simulated GPUs, compared
    ir_programs.py      its programs, as text for either machine
    ir_statements.py    operations, accesses, branches and loops
    ir_operands.py      a function's text, and values for operands
    ir_values.py        types, constants and names of operations
    ir_runs.py          how they are compiled and run
    ir_reduce.py        a smaller program that still differs
    modes.py            random kernels plain, checked, replayed, in slices: the same bytes
    mutants.py          kernels with one wait, nop, barrier or address less right
    mutate.py           mutants run checked, and tallied
"""
