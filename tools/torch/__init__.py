"""PyTorch's GPU, pretended on the host for test suites.

    on_host.py  "cuda" and "hip" devices are the CPU
    cuda.py     what suites ask of `torch.cuda`
"""
