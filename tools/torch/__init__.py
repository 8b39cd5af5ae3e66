"""PyTorch's GPU, pretended on the host for programs and test suites.

    places.py        where a tensor lies: a mark on its storage
    accumulation.py  operators on 16-bit types that a GPU computes in f32
    products.py      products of 16-bit matrices, as the matrix units sum them
    registered.py    kernels that operators have on a GPU alone, libraries' too
    on_host.py       "cuda" and "hip" devices are the CPU
    autoload.py      SIMGPU=mi300x: a GPU for a whole process
    rocm.py          rocminfo, rocm-smi and hipconfig
    cuda/            what is asked of `torch.cuda`
    pretend.py       what is replaced in PyTorch for all of that
    script.py        a Python program run in this process
    pytest_plugin.py  `pytest --simgpu TARGET`
    results.py       what became of the tests of a run, in a file that grows with it
    suites.py        the table of suites of others, from checkouts
"""
