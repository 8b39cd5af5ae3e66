"""A kernel under construction, up to its code object.

    registers.py     operands, and files that hand out registers
    formula.py       integer arithmetic on registers, written as formulas
    instruction.py   an instruction: its text and its spec in the instruction set
    waits.py         s_waitcnt and s_nop by rule
    interleave.py    instruction streams merged, so that matrix instructions hide the others
    metadata.py      directives, descriptor and metadata
    toolchain.py     text to code object by clang and lld
    emitted.py       EmittedKernel: text, resources, launch
    kernel.py        KernelBuilder, which builds a kernel from these parts
"""
