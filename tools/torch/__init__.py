"""PyTorch's GPU, pretended on the host for programs and test suites.

    places.py        where a tensor lies: a mark on its storage
    accumulation.py  operators on 16-bit types that a GPU computes in f32
    registered.py    kernels that operators have on a GPU alone, libraries' too
    on_host.py       "cuda" and "hip" devices are the CPU
    cuda.py          what is asked of `torch.cuda`
    blas.py          hipBLASLt, as Triton calls it
    rocm.py          rocminfo and rocm-smi
    pretend.py       what is replaced in PyTorch for all of that
    autoload.py      SIMGPU=mi300x: all of that for a whole process
"""
