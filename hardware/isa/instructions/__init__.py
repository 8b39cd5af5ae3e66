"""The instructions, a file an encoding; importing this package registers all of them.

    sop.py sop1.py sop_control.py   scalar ALU; flow, messages, waits
    smem.py                         scalar memory
    vop1.py vop1_cvt.py vop2.py vopc.py
    vop3.py                         gathers vop3_float, _half, _int, _wide, _cvt, _scale
    vop3p.py                        packed
    mai.py                          matrix
    ds.py flat.py buffer.py         LDS; flat, global, scratch; buffers
"""

from __future__ import annotations

from simgpu.hardware.isa.instructions import (  # noqa: F401  (registration)
    buffer,
    ds,
    flat,
    mai,
    smem,
    sop,
    sop1,
    sop_control,
    vop1,
    vop2,
    vop3,
    vop3p,
    vopc,
)
