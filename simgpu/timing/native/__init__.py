"""Loops of the model of time that run as machine code (`simgpu.machine.runtime`).

    state.py    records of a compute unit: its instructions, waves, units and queues
    units.py    how long an instruction occupies each unit
    waves.py    waves from issue to issue, and why they wait
    streams.py  what a wave's stream says: its steps, accesses and lines
    numbers.py  different values, numbered
    runs.py     runs of requests to L2, and their order
    lives.py    lines of workgroups that do as another one does
    replay.py   requests, sent through the caches
"""
