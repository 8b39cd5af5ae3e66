"""Instructions, by encoding; importing this package registers all of them.

    sop.py          SOP2, SOPC, SOPK: scalar arithmetic with two operands
    sop1.py         SOP1: scalar arithmetic with one operand
    sop_control.py  SOPP and related instructions: flow, messages, waits, hardware registers
    smem.py         scalar memory, caches, clocks
    vop1.py         VOP1: one operand
    vop1_cvt.py     VOP1: conversions
    vop2.py         VOP2: two operands
    vopc.py         comparisons
    vop3.py         VOP3, in the following files:
    vop3_int.py     32-bit integers
    vop3_half.py    16-bit elements
    vop3_float.py   f32
    vop3_wide.py    64-bit operands, single lanes
    vop3_cvt.py     conversions
    vop3_scale.py   gfx950's conversions with a scale
    vop3p.py        packed arithmetic, dot products
    mai.py          matrix instructions and AccVGPR moves
    ds.py           LDS, lane permutations
    flat.py         flat, global and scratch memory
    buffer.py       buffer memory, raw and typed
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
