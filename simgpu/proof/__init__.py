"""Two kernels equal for all inputs, or one without faults in all launches, by the solver z3: `simgpu prove`.

    terms.py           facts about terms: other lanes, masks, sums of 64 bits
    solver.py          limits of a proof; questions to the solver
    roots.py           addresses of both kernels in one form
    memory_log.py      memory as one lane sees it
    state.py           registers and path of a wave, as terms; states joined where paths meet
    entry.py           what a kernel begins with
    scalar.py          instructions of the scalar ALU
    vector.py          instructions of the vector ALU
    matrix.py          matrix instructions: sums of integers, unknown functions of floats
    buffers.py         buffer accesses, if the resource is known or not
    access.py          loads, stores, atomic operations
    execute.py         a kernel's code on terms, every path
    effects.py         formulas that hold if two kernels do the same to memory
    counterexample.py  a launch that shows a difference, confirmed by the simulator
    equal.py           the verdict on two kernels
    ir/                machine code against its LLVM IR
    safety/            one kernel in all launches: in bounds, without races
    coverage/          a tiled product in all launches: each element accessed as planned

A wave is seen from one lane whose number is a symbol, so a proof holds for each lane of each wave of each launch. Values of other
lanes are the same terms with another number. The bodies of instructions run on terms by `simgpu.hardware.isa.lane_smt`.
Only this room and that module import z3, which is an optional dependency.
"""
