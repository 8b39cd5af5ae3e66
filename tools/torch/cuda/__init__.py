"""What programs ask of `torch.cuda`, answered for the simulated devices in use.

    devices.py     which of them is current, and what chooses it
    answers.py     the functions by their names in `torch`
    streams.py     streams, events and what chooses them
    graphs.py      CUDA graphs: captured operators and launches, replayed
    memory.py      how much memory tensors take
    autocast.py    which type an operator computes in under `torch.autocast("cuda")`
    generators.py  random numbers
    blas.py        hipBLASLt, as Triton calls it
    traced.py      where the tensors of PyTorch's tracers lie
    amdsmi.py      ROCm's package of that name
"""
