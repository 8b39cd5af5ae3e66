"""Others' kernels in a ring of elements: at every tile size, split of K and configuration the same bits.

    groups.py     variants of a kernel, compared with a reference or with each other
    sources.py    the Triton kernels in a Python file
    launches.py   a Triton kernel's launch in the ring
    reference.py  matrix products in the ring, by numpy
    tutorials.py  kernels of Triton's tutorials
    dots.py       the products of Triton's test_core.py
    products.py   AITER's matrix products
    rocblas.py    rocBLAS's matrix products
    rocblas.c     the program that calls rocBLAS
    __main__.py   the command
"""
