"""Launches, from the command line's words to the results.

    workload.py          operands as stored in memory, and the float64 result
    operators/           the table of operators: options, tree, workload of each; a user's own
    operator_options.py  OP and its options, the same for every verb
    kept_kernels.py      emitted kernels in the user's cache
    execute.py           one launch of a computation, on a GPU or in the simulator
    shadow.py            where the error of the worst element came from
    timing.py            many launches, and figures from their times
    opencl.py            OpenCL C kernels, compiled
    opencl.h             OpenCL C's built-in types and functions, included in every source
    ir.py                LLVM IR, compiled
    sources.py           the code object that a file names, assembled if need be
    host_parts.py        kernels of whole HIP programs
    strict_device.py     a simulated GPU for tests: findings raise
    file_kernel.py       a kernel of a code object, its arguments and extents
    coverage.py          an operator's plan as a claim about its kernel's accesses
    coverage_launch.py   launches that show what such a proof found
    refinement.py        a proof about LLVM IR and its machine code: functions, compiled and judged
    safety.py            a proof about all launches: options, assumptions, verdict
    same.py              what two launches wrote in a ring of elements, compared
    subject.py           launches that FILE or OP names, ready on a simulated GPU
    script.py            one launch of a Triton script, ready on a simulated GPU
    results.py           buffers after a launch, compared with the arrays that they should hold
    capture.py           a dispatch that was recorded on a GPU
    sweep.py             many launches as the rows of a table; a sweep continues where it was stopped
    cluster.py           places where launches run: processes, Dask
    attention_rows.py    long attention against float64, by blocks of rows
"""
