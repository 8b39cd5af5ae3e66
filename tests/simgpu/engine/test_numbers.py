"""In a ring of elements, integers stay integers: divisions by f32 reciprocals, constants; floats from memory become elements."""

from __future__ import annotations

import numpy as np
import pytest

from simgpu import Device
from simgpu.device import RING
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.ring.arrays import elements
from tests.support.kernels import KernelText, assemble

# Unsigned division of s4 by the lane's number plus 3, as LLVM emits it.
DIVISION = """
s_load_dwordx2 s[6:7], s[0:1], 0x0
s_load_dword s4, s[0:1], 0x8
v_and_b32 v0, 0x3ff, v0
v_add_u32 v1, 3, v0
v_sub_u32 v2, 0, v1
v_cvt_f32_u32 v3, v1
v_rcp_iflag_f32 v3, v3
v_mul_f32 v3, 0x4f7ffffe, v3
v_cvt_u32_f32 v3, v3
v_mul_lo_u32 v2, v2, v3
v_mul_hi_u32 v2, v3, v2
v_add_u32 v3, v3, v2
s_waitcnt lgkmcnt(0)
v_mul_hi_u32 v2, s4, v3
v_mul_lo_u32 v4, v2, v1
v_sub_u32 v4, s4, v4
v_add_u32 v5, 1, v2
v_cmp_ge_u32 vcc, v4, v1
v_cndmask_b32 v2, v2, v5, vcc
v_subrev_u32 v5, v1, v4
v_cndmask_b32 v4, v4, v5, vcc
v_add_u32 v5, 1, v2
v_cmp_ge_u32 vcc, v4, v1
v_cndmask_b32 v2, v2, v5, vcc
v_lshlrev_b32 v0, 2, v0
global_store_dword v0, v2, s[6:7]
"""
# The sum of a constant expression and of an element: only the sum is an element's.
CONSTANTS = """
s_load_dwordx2 s[6:7], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v0, 2, v0
v_mov_b32 v1, 4.0
v_add_f32 v1, 2.0, v1
s_waitcnt lgkmcnt(0)
global_load_dword v2, v0, s[6:7]
s_waitcnt vmcnt(0)
v_add_f32 v3, v1, v2
v_cmp_gt_f32 vcc, v3, v1
v_cndmask_b32 v3, v3, v1, vcc
global_store_dword v0, v3, s[6:7]
"""
BRANCH = "v_cmp_lt_f32 vcc, 0, v3\ns_cbranch_vccz over\nv_mov_b32 v3, 0\nover:\nglobal_store_dword v0, v3, s[6:7]\n"


def test_integers_are_divided_as_usual() -> None:
    gpu = Device("gfx942", ring=True)
    kernel = gpu.load(assemble("gfx942", KernelText("k", DIVISION, ("buffer", "i32"))))["k"]
    out = gpu.empty(64, np.uint32)
    for numerator in (0, 1, 1000, 0x7FFFFFFF):
        kernel.launch(grid=1, block=64, args=[out, numerator])
        np.testing.assert_array_equal(out.download(), numerator // np.arange(3, 67))


def test_every_kernel_of_a_code_object_begins_with_integers() -> None:
    gpu = Device("gfx942", ring=True)
    module = gpu.load(assemble("gfx942", *(KernelText(name, DIVISION, ("buffer", "i32")) for name in "ab")))
    for name in "ab":
        out = gpu.empty(64, np.uint32)
        module[name].launch(grid=1, block=64, args=[out, 1000])
        np.testing.assert_array_equal(out.download(), 1000 // np.arange(3, 67))


# v2 is loaded; v1 is a constant, and in indexed mode the instruction reads v2 for it.
INDEXED = """
s_load_dwordx2 s[6:7], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v0, 2, v0
s_mov_b32 s8, 1
v_mov_b32 v1, 0
s_waitcnt lgkmcnt(0)
global_load_dword v2, v0, s[6:7]
s_waitcnt vmcnt(0)
{}
global_store_dword v0, v3, s[6:7]
"""


@pytest.mark.parametrize(
    "lines",
    [
        "s_set_gpr_idx_on s8, 1\nv_add_f32 v3, v1, v2\ns_set_gpr_idx_off",
        "s_set_gpr_idx_on s8, 1\nv_mov_b32 v4, v1\ns_set_gpr_idx_off\nv_add_f32 v3, v4, v2",
        "s_set_gpr_idx_on s8, 8\nv_mov_b32 v0, v2\ns_set_gpr_idx_off\nv_add_f32 v3, v1, v1",
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 1\nv_add_f32 v3, v2, v2",
    ],
)
def test_elements_are_followed_through_indexed_registers_and_other_modes(lines: str) -> None:
    """AITER's i8 product reads its scales so; where the mode changes, registers do not become numbers."""
    gpu = Device("gfx942", ring=True)
    kernel = gpu.load(assemble("gfx942", KernelText("k", INDEXED.format(lines), ("buffer",))))["k"]
    given = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    data = gpu.upload(given)
    kernel.launch(grid=1, block=64, args=[data])
    np.testing.assert_array_equal(elements(data.download()), 2 * elements(given))


def test_constants_are_numbers_until_they_meet_an_element() -> None:
    gpu = Device("gfx942", ring=True)
    kernel = gpu.load(assemble("gfx942", KernelText("k", CONSTANTS, ("buffer",))))["k"]
    data = gpu.upload(np.zeros(64, np.float32))
    kernel.launch(grid=1, block=64, args=[data])
    np.testing.assert_array_equal(data.download(), np.full(64, 6, np.float32))
    (program,) = kernel.module.programs
    assert program.floats is not None
    adds = [at for at, inst in program.instructions.items() if inst.mnemonic == "v_add_f32"]
    assert [at in program.floats.numbers for at in adds] == [True, False]
    assert not program.floats.branches  # a select is no branch


def test_branches_on_elements_are_found() -> None:
    gpu = Device("gfx942", ring=True)
    kernel = gpu.load(assemble("gfx942", KernelText("k", CONSTANTS + BRANCH, ("buffer",))))["k"]
    kernel.launch(grid=1, block=64, args=[gpu.zeros(64)])
    (program,) = kernel.module.programs
    assert program.floats is not None
    assert [program.instructions[at].mnemonic for at in program.floats.branches] == ["s_cbranch_vccz"]


def test_numerics_look_at_numbers_only() -> None:
    with pytest.raises(LaunchError, match="looks at numbers, which a ring has not"):
        Device("mi300x", ring=True, check="numerics")


def test_the_environment_chooses_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Device("mi300x").ring
    monkeypatch.setenv(RING, "1")
    assert Device("mi300x").ring and not Device("mi300x", ring=False).ring
    monkeypatch.setenv(RING, "yes")
    with pytest.raises(LaunchError, match="SIMGPU_RING=yes: give 1, or 0"):
        Device("mi300x")
