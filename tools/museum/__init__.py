"""Public bugs of GPU kernels, each as a small kernel before and after its repair.

    exhibit.py    Exhibit: a kernel as a diff, its launch, what it shows
    waits.py      results used before they are there
    barriers.py   order between waves and workgroups
    numbers.py    the wrong format, the wrong comparison
    addresses.py  past the end; all in the same bank
"""

from __future__ import annotations

from simgpu.tools.museum.addresses import ADDRESSES
from simgpu.tools.museum.barriers import BARRIERS
from simgpu.tools.museum.numbers import NUMBERS
from simgpu.tools.museum.waits import WAITS

EXHIBITS = {**WAITS, **BARRIERS, **NUMBERS, **ADDRESSES}
