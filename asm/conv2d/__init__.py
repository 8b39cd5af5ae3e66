"""Kernels of a convolution.

    place.py       the kernels' arguments; tile coordinates of workgroup and waves; offsets of pixels in the image or outside
    staging.py     input halo and filter taps to LDS and fragments
    emitter.py     the main loop, and the kernel as a whole
    store.py       accumulators through the epilogue to Y
    own_taps.py    outputs that met an infinity or NaN, if the filter has added zeros
    reduce.py      the second kernel, which adds partial sums and applies the epilogue
    pack.py        the kernel that packs a filter
    naive.py       the kernel without tiles that the paper compares with
"""

from simgpu.asm.conv2d import emitter  # noqa: F401  (registration)
