"""What is said of a tree or a kernel.

    limits.py           limits of a tree, what it moves, bars, targets side by side
    kernel_use.py       what a linked kernel takes, from its code object
    resources.py        derived and taken against the limits, node by node
    read_back.py        what the plan gives and the code object takes
    listing.py          instructions with bytes, live registers and Python lines
    schedule_report.py  the main loop of an operator's kernels, as the model of time sees it
    time_tables.py      what the model of time says of a launch
"""
