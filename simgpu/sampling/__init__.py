"""Samples of a launch: a few of its workgroups run, and `simgpu.timing` predicts the time of all.

    workgroups.py  chosen workgroups of a launch, one at a time, each wave up to a limit
    kinds.py       the choice of workgroups that represent all
    samples.py     `time_launch`: a launch's samples, and the model's answer
"""
