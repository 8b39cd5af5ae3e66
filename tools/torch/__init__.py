"""PyTorch's GPU, pretended on the host for programs and test suites.

    places.py      where a tensor lies: a mark on its storage
    on_host.py     "cuda" and "hip" devices are the CPU
    registered.py  kernels that libraries register for the GPU
    cuda.py        what is asked of `torch.cuda`
    autoload.py    SIMGPU=mi300x: all of that for a whole process
    pretend.py     what is replaced in PyTorch for all of that
"""
