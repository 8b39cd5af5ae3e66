"""A launch in slices: any `concurrent.futures.Executor` runs ranges of its workgroups, and their writes are merged.

    touched.py    the bytes that a slice read and wrote: where slices meet, and what goes into memory
    part.py       some of a launch's workgroups
    blobs.py      bytes by their hash, which travel once
    worker.py     the function that an executor runs: a task, and its answer
    sliced.py     `Kernel.launch(executor=…)`: cut, submit, commit in order
    processes.py  `Processes`: an executor of processes of this machine
"""
