"""A code object's resources compared with the plan's."""

from __future__ import annotations

from typing import Any

from simgpu.hardware.code_object import CodeObject
from simgpu.tools.tables.kernel_use import KernelUse, kernel_use


def assert_takes(kernel: Any, planned: Any, sgpr_granule: int) -> KernelUse:
    """Asserts that an emitted kernel's registers and LDS are the planned `Resources`; returns its use."""
    parsed = CodeObject.parse(kernel.assemble())
    use = kernel_use(parsed, parsed.kernels[kernel.name])
    assert (use.lds_bytes, use.acc_vgprs) == (planned.lds_bytes, planned.acc_vgprs)
    assert -(-use.arch_vgprs // 4) == -(-planned.arch_vgprs // 4)  # accum_offset counts in fours
    assert -(-use.sgprs // sgpr_granule) == -(-planned.sgprs // sgpr_granule)
    return use
