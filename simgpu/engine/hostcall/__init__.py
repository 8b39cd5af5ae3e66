"""Calls from a kernel to the host.

    packets.py  the buffer of packets, as ROCm's device library fills it
    printf.py   C's printf on what a kernel sends
    output.py   what a launch's kernels print, in one order
    heap.py     memory for malloc and new in kernels
"""
