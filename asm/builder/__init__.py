"""A kernel under construction, and what becomes of it.

    registers.py     operands, and files that hand out registers
    instruction.py   an instruction: its text, and which of the set it is
    waits.py         s_waitcnt and s_nop by rule
    interleave.py    instruction streams as one, and what hides behind matrix instructions
    metadata.py      directives, descriptor and metadata
    toolchain.py     text to code object by clang and lld
    emitted.py       EmittedKernel: text, resources, launch
    kernel.py        KernelBuilder, which makes all of it
    liveness.py      which registers are still read
"""
