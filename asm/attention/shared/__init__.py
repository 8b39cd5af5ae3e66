"""Attention whose waves share K and V through LDS.

    wave.py      staging, fragments, products
    emitter.py   the kernel as a whole
"""
