"""Samples launches: runs a few workgroups of a launch, from which `simgpu.timing` predicts the time of all.

    workgroups.py  runs single workgroups of a launch, each wave up to a limit
    kinds.py       chooses workgroups that represent all
    values.py      whether a trace may depend on arithmetic that was left out
    samples.py     `time_launch`: samples a launch and predicts its time
"""
