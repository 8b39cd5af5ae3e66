"""What PyTorch's operators do on the pretended GPU and not on the CPU.

    registered.py    which kernel an operator has there, libraries' too, and on which GPU it runs
    accumulation.py  operators on 16-bit types that a GPU computes in f32
    products.py      products of 16-bit matrices, as the matrix units sum them
    on_gpus.py       operators that only GPUs have
    attention.py     those of attention
    choices.py       which of equal elements GPUs choose
"""
