"""What is launched.

    workload.py          operands as they lie in memory, and the float64 result
    operators.py         the table of operators: options, tree, workload of each
    operator_options.py  OP and its options, the same for every verb
    execute.py           one launch of a computation, on a GPU beside the simulator
    shadow.py            where the error of the worst element came from
    timing.py            many launches, and the figures that follow
    opencl.py            OpenCL C kernels, compiled
    opencl.h             what they find without including anything
    sources.py           the code object that a file names, assembled if need be
    file_kernel.py       a kernel of a code object, its arguments and extents
    subject.py           launches that FILE or OP names, ready on a simulated GPU
    script.py            one launch of a Triton script, likewise
    results.py           buffers after a launch, beside what they should hold
    capture.py           a dispatch that was recorded on a GPU
    sweep.py             many of them as the rows of a table, which goes on where it was stopped
    cluster.py           where they run: processes, Dask
    attention_rows.py    long attention against float64, by blocks of rows
"""
