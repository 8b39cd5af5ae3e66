"""Runs a launch in slices: any `concurrent.futures.Executor` runs ranges of its workgroups, and their writes are merged.

    touched.py    bytes that a slice read and wrote: shows conflicts, and which bytes to copy
    part.py       one slice: some of a launch's workgroups
    blobs.py      bytes by their hash, which travel once
    worker.py     the function that an executor runs: a task, and its answer
    sliced.py     `Kernel.launch(executor=…)`: cut, submit, commit in order
    processes.py  `Processes`: an executor of processes of this machine
"""
