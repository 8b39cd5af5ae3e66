"""HIP programs, unmodified, on simulated GPUs.

    launcher.py    starts a program, and a server for each of its processes that calls HIP
    server.py      the server of one process: answers its library, runs its kernels, reports faults
    gpus.py        the devices of a process: memory, modules, launches
    memory.py      device memory in the program's arena
    protocol.py    the messages between library and server
    properties.py  the properties of a board that a program sees
    library.py     the C library that programs load, built and kept
    record.py      figures by kernel, findings
    sites.py       source lines of calls in a running program
    names.py       kernels' names in C++
    program.py     a program's file, before it runs
    options.py     the options of `simgpu hip`
"""
