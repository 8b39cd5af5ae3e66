"""PyTorch's operators where the pretended GPU differs from the CPU.

    registered.py    an operator's kernel there, libraries' too, and the GPU that it runs on
    accumulation.py  operators on 16-bit types that a GPU computes in f32
    products.py      products of 16-bit matrices, as the matrix units sum them
    on_gpus.py       operators that only GPUs have
    attention.py     operators of attention
    choices.py       choices of GPUs among equal elements
"""
