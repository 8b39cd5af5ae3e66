"""VOP3-only instructions; importing this module registers all of them."""

from __future__ import annotations

from simgpu.hardware.isa.instructions import vop3_cvt, vop3_float, vop3_half, vop3_int, vop3_scale, vop3_wide

MODULES = (vop3_int, vop3_half, vop3_float, vop3_wide, vop3_cvt, vop3_scale)
