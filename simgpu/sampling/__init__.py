"""Kernels timed by the model: a few of a launch's workgroups run, and `simgpu.timing` says how long all would take.

    workgroups.py  a launch of chosen workgroups, one at a time, each wave as far as is asked
    kinds.py       which of them stand for all
    samples.py     `time_launch`: a launch's samples, and the model's answer
"""
