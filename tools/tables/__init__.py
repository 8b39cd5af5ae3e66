"""Tables about a tree or a kernel.

    limits.py           limits of a tree, its traffic, bars, targets side by side
    kernel_use.py       a linked kernel's resources, from its code object
    resources.py        derived and actual resources against the limits, node by node
    read_back.py        planned resources compared with the code object's
    live_registers.py   registers that later instructions may still read
    listing.py          instructions with bytes, live registers and Python lines
    schedule_report.py  the main loop of an operator's kernels, by the model of time
    profile_tables.py   what to change first in a kernel, and another run beside it
    time_tables.py      the time model's figures of a launch
"""
