"""PyTorch's GPU, pretended on the host for programs and test suites.

    places.py        where a tensor lies: a mark on its storage
    operators/       what PyTorch's operators do on a GPU and not on the CPU
    on_host.py       "cuda" and "hip" devices are the CPU
    environment.py   variables that give a process a GPU
    autoload.py      SIMGPU=mi300x: a GPU for a whole process
    rocm.py          rocminfo, rocm-smi and hipconfig
    cuda/            what is asked of `torch.cuda`
    inductor.py      `torch.compile`
    pretend.py       what is replaced in PyTorch for all of that
    script.py        a Python program run in this process
    pytest_plugin.py  `pytest --simgpu TARGET`
    results.py       what became of the tests of a run, in a file that grows with it
    suites.py        the table of suites of others, from checkouts
"""
