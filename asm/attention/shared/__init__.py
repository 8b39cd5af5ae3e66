"""Attention whose waves share K and V through LDS.

    wave.py      staging, fragments, products
    softmax.py   a softmax that detects from row sums that m must be raised
    emitter.py   the kernel as a whole
"""
