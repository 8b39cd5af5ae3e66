"""Runs unmodified HIP programs on simulated GPUs.

    launcher.py    starts a program, and a server for each of its processes that calls HIP
    server.py      the server of one process: answers its library, runs its kernels, reports faults
    gpus.py        the devices of a process: memory, modules, launches
    memory.py      device memory in the program's arena
    protocol.py    the messages between library and server
    properties.py  a board's properties, as hipGetDeviceProperties returns them
    library.py     builds and caches the C library that programs load
    order.py       what orders the work of streams, and accesses that nothing orders
    record.py      the record of a run: figures by kernel, findings
    sites.py       source lines of calls in a running program
    names.py       symbols of kernels that C++ expressions name
    program.py     checks a program's file before it runs
    options.py     the options of `simgpu hip`
"""
