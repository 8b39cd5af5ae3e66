"""Runs functions of a shared object on the host, lane after lane.

This file is the whole program of a process: a function that x86's clang compiled wrongly can end it.

    python ir_host.py LIBRARY IMAGE JSON

IMAGE is a file with the buffers, which the functions change. JSON has the 64-bit scalar argument, the count of lanes, the names
of the functions of each program in their order, and the places of its four buffers in IMAGE: in, out, atom and LDS.
"""

import ctypes
import json
import mmap
import sys


def main(library: str, image: str, job: str) -> None:
    functions = ctypes.CDLL(library)
    scalar, lanes, programs = json.loads(job)
    with open(image, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        first = ctypes.c_char.from_buffer(memory)
        base = ctypes.addressof(first)
        for names, places in programs:
            given, out, atom, lds = (ctypes.c_void_p(base + place) for place in places)
            for name in names:
                for lane in range(lanes):
                    functions[name](given, out, atom, ctypes.c_int64(scalar), ctypes.c_int32(lane), lds)
        del first  # a map whose memory is in use cannot be closed


if __name__ == "__main__":
    main(*sys.argv[1:])
