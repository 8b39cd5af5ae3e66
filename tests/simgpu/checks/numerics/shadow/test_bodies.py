"""Bodies of instructions on f64 compared with numpy, and operands by their modifiers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import simgpu
from simgpu.checks.numerics.shadow.origins import Origins, origins_of
from simgpu.hardware.code_object.arguments import Geometry
from tests.support.kernels import ROWS_HEAD, KernelText, assemble

# Makes shadows that differ from their numbers: a third and a seventh of the loaded numbers.
INEXACT = "v_mul_f32 v2, 0x3eaaaaab, v2\nv_mul_f32 v3, 0x3e124925, v3\n"
THIRD, SEVENTH = (float(np.array([bits], np.uint32).view(np.float32)[0]) for bits in (0x3EAAAAAB, 0x3E124925))


def told(
    lines: str, rows: np.ndarray, lane: int, target: str = "gfx90a", store: str = "global_store_dword v1, v6, s[6:7]",
    nbytes: int = 4, dtype: str = "f4", **options: int,
) -> Origins:  # fmt: skip
    """Returns the origins of a lane's stored v6 after the lines, which find a row of f32 each in v[2:5]."""
    gpu = simgpu.Device(target, threads=1)
    kernel = gpu.load(assemble(target, KernelText("k", ROWS_HEAD + lines + "\n" + store, ("buffer", "buffer"), options)))["k"]
    given, result = gpu.upload(rows.astype(np.float32)), gpu.alloc(1024)
    found = origins_of(kernel, Geometry.of(1, 64, 0, None), [given, result], result.address + nbytes * lane, np.dtype(dtype))
    assert found is not None
    return found


def inputs() -> np.ndarray:
    return np.random.default_rng(1).uniform(0.5, 4, (64, 4)).astype(np.float32)


BODIES: dict[str, Callable[[Any, Any], Any]] = {
    "v_add_f32 v6, v2, v3": lambda a, b: a + b,
    "v_sub_f32 v6, -v2, |v3|": lambda a, b: -a - b,
    "v_subrev_f32 v6, v2, v3": lambda a, b: b - a,
    "v_fma_f32 v6, v2, -v3, v2": lambda a, b: a * -b + a,
    "v_mov_b32 v6, v3\nv_fmac_f32 v6, v2, v3": lambda a, b: a * b + b,
    "v_mul_f32 v6, v2, v3 mul:2": lambda a, b: a * b,  # IEEE mode ignores omod
    "v_add_f32 v6, v2, v3 clamp": lambda a, b: np.clip(a + b, 0, 1),
    "v_exp_f32 v6, v2": lambda a, b: np.exp2(a),
    "v_log_f32 v6, v2": lambda a, b: np.log2(a),
    "v_rcp_f32 v6, v2": lambda a, b: 1 / a,
    "v_rsq_f32 v6, v2": lambda a, b: a**-0.5,
    "v_sqrt_f32 v6, v2": lambda a, b: np.sqrt(a),
    "v_sin_f32 v6, v2": lambda a, b: np.sin(2 * np.pi * a),
    "v_max_f32 v6, v2, v3": np.maximum,
    "v_med3_f32 v6, v2, v3, 1.0": lambda a, b: np.median([a, b, 1.0]),
    "v_mov_b32 v6, v2": lambda a, b: a,
    "v_cvt_f16_f32 v6, v2\nv_cvt_f32_f16 v6, v6": lambda a, b: a,
    "v_cvt_pkrtz_f16_f32 v6, v3, v2\nv_cvt_f32_f16_sdwa v6, v6 dst_sel:DWORD src0_sel:WORD_1": lambda a, b: a,
    "v_cvt_pkrtz_f16_f32 v6, v3, v2\nv_pk_add_f16 v6, v6, v6\nv_lshrrev_b32 v6, 16, v6\nv_cvt_f32_f16 v6, v6": lambda a, b: a + a,
    "v_pk_mul_f32 v[6:7], v[2:3], v[2:3] op_sel:[0,1]": lambda a, b: a * b,
    "v_cndmask_b32 v6, v2, v3, vcc": lambda a, b: a,
    "v_accvgpr_write_b32 a0, v2\ns_nop 3\nv_accvgpr_read_b32 v6, a0\nv_add_f32 v6, v6, v3": lambda a, b: a + b,
    "ds_write_b32 v1, v2\ns_waitcnt lgkmcnt(0)\nds_read_b32 v6, v1\ns_waitcnt lgkmcnt(0)\nv_add_f32 v6, v6, v3": lambda a, b: a + b,
    "ds_write2_b32 v1, v2, v3 offset1:64\ns_waitcnt lgkmcnt(0)\nds_read2_b32 v[6:7], v1 offset1:64\ns_waitcnt lgkmcnt(0)\n"
    "v_sub_f32 v6, v6, v7": lambda a, b: a - b,
    "v_cvt_f16_f32 v6, v2\nds_write_b16 v1, v6\ns_waitcnt lgkmcnt(0)\nds_read_u16 v6, v1\ns_waitcnt lgkmcnt(0)\n"
    "v_cvt_f32_f16 v6, v6": lambda a, b: a,
    "v_add_u32 v6, 0x7fff, v2\nv_and_b32 v6, 0xffff0000, v6\nv_add_f32 v6, v6, v3": lambda a, b: a + b,  # to bf16, by hand
}  # fmt: skip


@pytest.mark.parametrize("lines", BODIES)
def test_a_shadow_is_what_f64_makes_of_the_inputs(lines: str) -> None:
    """Both the stored number and its shadow are checked; numpy computes the latter in float64 from the loaded numbers."""
    rows, lane = inputs(), 37
    a, b = rows[lane, 0].astype("f8") * THIRD, rows[lane, 1].astype("f8") * SEVENTH
    found = told(INEXACT + "s_mov_b64 vcc, 0\n" + lines, rows, lane, group_segment_fixed_size=1024)
    want = float(BODIES[lines](a, b))
    assert found.shadow == pytest.approx(want, rel=1e-14)
    assert found.value == pytest.approx(want, rel=2e-2) and found.value != want
    assert sum(origin.share for origin in found.origins) == pytest.approx(1)


def test_lanes_that_others_give() -> None:
    """DPP, ds_bpermute and v_readlane carry shadows along."""
    rows = inputs()
    a = rows[:, 0].astype("f8") * THIRD
    for lines, want in (
        ("v_add_f32_dpp v6, v2, v2 row_ror:1 row_mask:0xf bank_mask:0xf", a[36] + a[37]),
        ("v_mov_b32_dpp v6, v2 quad_perm:[3,2,1,0] row_mask:0xf bank_mask:0xf", a[38]),
        ("v_xor_b32 v7, 16, v1\nds_bpermute_b32 v6, v7, v2\ns_waitcnt lgkmcnt(0)", a[37 ^ 4]),
        ("v_readlane_b32 s8, v2, 9\ns_nop 4\nv_add_f32 v6, s8, v2", a[9] + a[37]),
    ):
        found = told(INEXACT + "s_nop 1\n" + lines, rows, 37)
        assert found.shadow == pytest.approx(want, rel=1e-14), lines


@pytest.mark.parametrize("lines, kind, share", [
    ("v_mul_f32 v6, v2, v3\nv_add_f32 v6, 0x49800000, v6\nv_add_f32 v6, 0xc9800000, v6", "v_add_f32_e32 v6, 0x49800000, v6", 0.99),
    ("v_cvt_f16_f32 v6, v2\nv_cvt_f32_f16 v6, v6\nv_mul_f32 v6, v6, v3", "v_cvt_f16_f32_e32 v6, v2", 0.99),
])  # fmt: skip
def test_the_instruction_that_made_the_error_comes_first(lines: str, kind: str, share: float) -> None:
    """A large addend rounds bits away: that instruction comes first, not the subtraction that shows it; or a conversion to f16."""
    first = told(INEXACT + lines, inputs(), 12).origins[0]
    assert (first.where.text, first.times) == (kind, 1) and first.share > share and first.where.source.startswith("kernel.s:")


@pytest.mark.parametrize("lane", [4, 5])
def test_narrow_stores(lane: int) -> None:
    """Neighbouring lanes store the halves of a dword."""
    rows = inputs()
    want = rows[lane, 0].astype("f8") * THIRD
    lines, store = INEXACT + "v_cvt_f16_f32 v6, v2\nv_lshlrev_b32 v7, 1, v0", "global_store_short v7, v6, s[6:7]"
    found = told(lines, rows, lane, store=store, nbytes=2, dtype="f2")
    assert found.shadow == pytest.approx(want, rel=1e-14) and found.value == float(np.float16(want))


LOW, HIGH = "global_store_short v1, v6, s[6:7]", "global_store_short v1, v7, s[6:7] offset:2"


@pytest.mark.parametrize("store", [f"{LOW}\n{HIGH}", f"{HIGH}\n{LOW}", f"global_store_dword v1, v9, s[6:7]\n{LOW}\n{HIGH}"])
@pytest.mark.parametrize("half", [0, 1])
def test_a_stored_half_keeps_the_other_one(store: str, half: int) -> None:
    rows = inputs()
    want = rows[9, half].astype("f8") * (THIRD, SEVENTH)[half]
    lines = INEXACT + "v_cvt_f16_f32 v6, v2\nv_cvt_f16_f32 v7, v3\nv_cvt_pkrtz_f16_f32 v9, v3, v2"
    found = told(lines, rows, 18 + half, store=store, nbytes=2, dtype="f2")
    assert found.shadow == pytest.approx(want, rel=1e-14) and found.value == float(np.float16(want))


def test_halves_in_lds_become_a_dword() -> None:
    """Neighbouring lanes store a half each; both halves are loaded as one dword and added."""
    rows = inputs()
    lines = (
        "v_cvt_f16_f32 v6, v2\nv_lshlrev_b32 v7, 1, v0\nds_write_b16 v7, v6\ns_waitcnt lgkmcnt(0)\n"
        "v_and_b32 v7, -4, v7\nds_read_b32 v6, v7\ns_waitcnt lgkmcnt(0)\nv_lshrrev_b32 v7, 16, v6\n"
        "v_cvt_f32_f16 v6, v6\nv_cvt_f32_f16 v7, v7\nv_add_f32 v6, v6, v7"
    )
    found = told(INEXACT + lines, rows, 12, group_segment_fixed_size=1024)
    assert found.shadow == pytest.approx(rows[12:14, 0].astype("f8").sum() * THIRD, rel=1e-14)


def test_an_element_that_nobody_writes() -> None:
    gpu = simgpu.Device("gfx90a", threads=1)
    kernel = gpu.load(assemble("gfx90a", KernelText("k", ROWS_HEAD, ("buffer", "buffer"))))["k"]
    given, result = gpu.upload(inputs()), gpu.alloc(1024)
    assert origins_of(kernel, Geometry.of(1, 64, 0, None), [given, result], result.address, np.dtype("f4")) is None


def test_memory_is_as_after_the_launch() -> None:
    gpu = simgpu.Device("gfx90a", threads=1)
    lines = INEXACT + "v_add_f32 v6, v2, v3\nglobal_store_dword v1, v6, s[6:7]\nglobal_store_dword v8, v6, s[4:5]"
    kernel = gpu.load(assemble("gfx90a", KernelText("k", ROWS_HEAD + lines, ("buffer", "buffer"))))["k"]
    after = []
    for shadowed in (False, True):
        given, result = gpu.upload(inputs()), gpu.zeros(64)
        if shadowed:
            origins_of(kernel, Geometry.of(1, 64, 0, None), [given, result], result.address, np.dtype("f4"))
        else:
            kernel.launch(grid=1, block=64, args=[given, result])
        after.append((given.download(), result.download()))
    assert all((x == y).all() for x, y in zip(*after, strict=True))
