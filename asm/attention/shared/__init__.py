"""Attention whose waves share K and V through LDS.

    wave.py      staging, fragments, products
    softmax.py   the softmax, whose row sums show when a maximum moves
    emitter.py   the kernel as a whole
"""
