"""HIP programs, unmodified, on simulated GPUs.

    launcher.py    starts a program, and a server for each of its processes that calls HIP
    server.py      the server of one process: answers its library, runs its kernels, tells what is wrong
    gpus.py        the devices of a process: memory, modules, launches
    memory.py      device memory in the program's arena
    protocol.py    the messages between library and server
    properties.py  what a program is told of a board
    library.py     the C library that programs load, built and kept
    record.py      figures by kernel, findings
    sites.py       source lines of calls in a running program
    names.py       kernels' names in C++
    program.py     a program's file, before it runs
    options.py     what was asked for
"""
