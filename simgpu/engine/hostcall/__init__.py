"""Calls from a kernel to the host.

    packets.py  the buffer of packets, as ROCm's device library fills it
    printf.py   C's printf on words from a kernel
    output.py   the printed output of a launch's kernels, in one order
    heap.py     memory for malloc and new in kernels
"""
