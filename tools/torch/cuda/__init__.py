"""Functions of `torch.cuda`, answered for the simulated devices in use.

    devices.py     the current device, and the functions that choose it
    comm.py        copies to several GPUs at once
    answers.py     the functions by their names in `torch`
    streams.py     streams, events and the functions that choose them
    graphs.py      CUDA graphs: captured operators and launches, replayed
    memory.py      memory that tensors use
    estimates.py   bytes of a function's result, before the host allocates them
    autocast.py    the type that an operator computes in under `torch.autocast("cuda")`
    generators.py  random numbers
    blas.py        hipBLASLt, as Triton calls it
    traced.py      places of the tensors of PyTorch's tracers
    amdsmi.py      a substitute for ROCm's package
"""
