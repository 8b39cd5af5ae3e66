"""Instructions that access memory, from address to registers and back.

    smem.py            scalar memory
    vmem.py            flat, global, scratch and buffer accesses: chooses how to emit each (`WAYS`)
    flat.py            emits flat and global accesses
    buffers.py         emits buffer accesses: addresses and range rules of their resources
    buffer_formats.py  typed buffer accesses: elements by data and number format
    scratch.py         private memory, interleaved by dword over the lanes
    private_rows.py    rows of private memory, the usual case of scratch.py
    by_bytes.py        accesses that cross dwords of swizzled memory
    lds.py             LDS
    lane_copy.py       64 lanes' bytes between memory and registers, in order
    table.py           allocations as handlers search them, and bitmaps of the bytes touched
    any_lanes.py       device memory for any lanes and addresses: allocations, bounds, bitmaps
    whole_wave/        fast paths for all 64 lanes within one allocation, tried first
    atomics.py         atomics on device memory
    lds_atomics.py     atomics on LDS
    lds_dma.py         loads straight to LDS
"""
