"""A pretended GPU for PyTorch on the host, for programs and test suites.

    places.py        places of tensors: marks on their storages
    operators/       PyTorch's operators where a GPU differs from the CPU
    on_host.py       "cuda" and "hip" devices are the CPU
    environment.py   variables that give a process a GPU
    autoload.py      SIMGPU=mi300x: a GPU for a whole process
    rocm.py          ROCm's programs that name the GPU, and what MLIR looks for in ROCm
    cuda/            the functions of `torch.cuda`
    hip_memory.py    tensors in kernels that a program launches through HIP
    inductor.py      `torch.compile`
    storages.py      storages made by a program, in files and sent to other processes
    makers.py        functions that make tensors unseen by torch function modes
    dlpack.py        tensors from and to other libraries
    pretend.py       replaces PyTorch's functions
    script.py        a Python program run in this process
    pytest_plugin.py  `pytest --simgpu TARGET`
    results.py       results of a run's tests, in a file that grows with it
    suites.py        the table of other projects' test suites, from checkouts
    versions.py      the table of versions of PyTorch and Triton
    version_probe.py  what each pair of versions must do
"""
