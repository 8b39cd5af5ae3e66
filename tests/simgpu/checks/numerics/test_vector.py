"""Results of vector instructions: every kind fires where it should and nowhere else."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import simgpu
from simgpu.checks.numerics.conversions import range_of
from simgpu.checks.numerics.wanted import NumericsOptions
from simgpu.engine.finding import Finding
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa import types as t
from tests.support.kernels import ROWS_HEAD, KernelText, assemble

STORE = "\nglobal_store_dword v1, v6, s[6:7]"


def found(
    lines: str, *columns: np.ndarray, target: str = "gfx90a", how: str = "numerics", dtype: Any = np.float32, **options: int
) -> list[Finding]:
    """Returns findings of the lines, which find 64 rows of up to four columns in v2 to v5, the lane's offset in v1, memory at
    s[6:7]."""
    rows = np.zeros((64, 4), np.uint32)
    for at, column in enumerate(columns):
        raw = np.asarray(column).astype(dtype).view(f"u{np.dtype(dtype).itemsize}")
        rows[: len(raw), at] = raw
    gpu = simgpu.Device(target, check=how, threads=1)
    kernel = gpu.load(assemble(target, KernelText("k", ROWS_HEAD + lines, ("buffer", "buffer"), options)))["k"]
    run = kernel.launch(grid=1, block=64, args=[gpu.upload(rows), gpu.alloc(1024)])
    return run.findings


# -- NaN and infinities against numpy ---------------------------------------------------------------

SPECIAL = [0.0, -0.0, 1.0, -1.0, 3.0, np.inf, -np.inf, np.nan]


def triples(largest: float, count: int = 64) -> list[np.ndarray]:
    """Draws columns of special numbers, with a seed."""
    rng = np.random.default_rng(5)
    pool = np.array([*SPECIAL, largest, -largest, largest / 2])
    return [rng.choice(pool, count) for _ in range(3)]


F32: dict[str, Callable[..., Any]] = {
    "v_add_f32 v6, v2, v3": lambda a, b, c: a + b,
    "v_sub_f32 v6, v2, v3": lambda a, b, c: a - b,
    "v_subrev_f32 v6, v2, v3": lambda a, b, c: b - a,
    "v_mul_f32 v6, v2, v3": lambda a, b, c: a * b,
    "v_mul_f32 v6, -v2, |v3|": lambda a, b, c: -a * abs(b),
    "v_fma_f32 v6, v2, v3, v4": lambda a, b, c: (a.astype("f8") * b.astype("f8") + c).astype("f4"),
    "v_fma_f32 v6, v2, -v3, 1.0": lambda a, b, c: (a.astype("f8") * -b.astype("f8") + 1).astype("f4"),
    "v_rcp_f32 v6, v2": lambda a, b, c: 1 / a,
    "v_rsq_f32 v6, v2": lambda a, b, c: 1 / np.sqrt(a),
    "v_sqrt_f32 v6, v2": lambda a, b, c: np.sqrt(a),
    "v_log_f32 v6, v2": lambda a, b, c: np.log2(a),
    "v_exp_f32 v6, v2": lambda a, b, c: np.exp2(a),
    "v_max_f32 v6, v2, v3": lambda a, b, c: np.fmax(a, b),
    "v_cvt_f16_f32 v6, v2": lambda a, b, c: a.astype("f2"),
    "v_mov_b32 v6, v2": lambda a, b, c: a,
    "v_ldexp_f32 v6, v2, 1": lambda a, b, c: a * np.float32(2),
}
F16: dict[str, Callable[..., Any]] = {
    "v_add_f16 v6, v2, v3": lambda a, b, c: a + b,
    "v_mul_f16 v6, v2, v3": lambda a, b, c: a * b,
    "v_fma_f16 v6, v2, v3, v4": lambda a, b, c: (a.astype("f8") * b.astype("f8") + c).astype("f2"),
    "v_pk_mul_f16 v6, v2, v3": lambda a, b, c: a * b,
    "v_pk_add_f16 v6, v2, v3 op_sel:[0,1]": lambda a, b, c: a,  # b's high half is 0
    "v_cvt_f32_f16 v6, v2": lambda a, b, c: a,
    "v_rcp_f16 v6, v2": lambda a, b, c: 1 / a,
}


@pytest.mark.parametrize("target, dtype, table", [("gfx90a", "f4", F32), ("gfx942", "f2", F16)])
def test_what_is_new_is_what_numpy_finds_new(target: str, dtype: str, table: dict[str, Callable[..., Any]]) -> None:
    """NaN from operands that are none, infinities from finite ones: lane by lane, with modifiers, packed and converted."""
    columns = [column.astype(dtype) for column in triples(float(np.finfo(dtype).max))]
    lines = "\n".join(table)
    seen: dict[str, dict[str, tuple[int, ...]]] = {}
    for finding in found(lines, *columns, target=target, how="numerics,discarded", dtype=dtype):
        name = finding.text.replace("_e32", "").replace("_e64", "")
        seen.setdefault(name, {})["infinity" if finding.kind == "overflow" else finding.kind] = finding.lanes
        assert finding.severity == "note" and "none reached memory" in finding.message
    for line, function in table.items():
        operands = [columns[number - 2] for number in (2, 3, 4) if f"v{number}" in line.replace("v6", "")]
        with np.errstate(all="ignore"):
            result = np.asarray(function(*columns))
        nan = np.isnan(result) & ~np.any([np.isnan(operand) for operand in operands], axis=0)
        infinite = np.isinf(result) & np.all([np.isfinite(operand) for operand in operands], axis=0)
        want = {name: tuple(np.flatnonzero(lanes)) for name, lanes in (("nan", nan), ("infinity", infinite)) if lanes.any()}
        assert seen.get(line, {}) == want, line


def test_only_active_lanes_count() -> None:
    assert found("s_mov_b64 exec, 0xf0\nv_rcp_f32 v6, v2\ns_mov_b64 exec, -1", how="numerics,discarded")[0].lanes == (4, 5, 6, 7)


def test_f64() -> None:
    lines = "v_mov_b32 v3, 0x7fe00000\nv_mov_b32 v2, 0\nv_mul_f64 v[6:7], v[2:3], {}\nglobal_store_dwordx2 v8, v[6:7], s[6:7]"
    (finding,) = found(lines.format("v[2:3]"))
    assert (finding.kind, finding.severity) == ("infinity", "error") and "64 infinite elements reached memory" in finding.message
    assert found(lines.format("1.0")) == []


# -- what reaches memory -----------------------------------------------------------------------------


@pytest.mark.parametrize("target, lines, dtype, stored", [
    ("gfx90a", "v_mul_f32 v6, v2, v3" + STORE, "f4", "2 infinite"),
    ("gfx90a", "v_mul_f32 v9, v2, v3\nv_mov_b32 v6, v9" + STORE, "f4", "2 infinite"),
    ("gfx90a", "v_mul_f32 v9, v2, v3\ns_mov_b64 vcc, 0\nv_cndmask_b32 v6, v2, v9, vcc" + STORE, "f4", ""),
    ("gfx90a", "v_mul_f32 v9, v2, v3\nv_sub_f32 v6, v9, v9" + STORE, "f4", "2 NaN"),
    ("gfx90a", "v_mul_f32 v6, v2, v3\nv_med3_f32 v6, v6, 0, 1.0" + STORE, "f4", ""),
    ("gfx908", "v_mul_f32 v9, v2, v3\nv_accvgpr_write_b32 a0, v9\ns_nop 7\nv_accvgpr_read_b32 v6, a0\ns_nop 7" + STORE, "f4",
     "2 infinite"),
    ("gfx90a", "v_mul_f32 v9, v2, v3\ns_mov_b32 m0, -1\nds_write_b32 v1, v9\ns_waitcnt lgkmcnt(0)\nds_read_b32 v6, v1\n"
     "s_waitcnt lgkmcnt(0)" + STORE, "f4", "2 infinite"),
    ("gfx90a", "v_mul_f16 v6, v2, v3\nglobal_store_short v1, v6, s[6:7]", "f2", "2 infinite"),
    ("gfx90a", "v_mul_f16 v6, v2, v3\nv_pack_b32_f16 v6, v6, v6" + STORE, "f2", "4 infinite"),
    ("gfx90a", "v_mul_f32 v9, v2, v3\nglobal_store_short_d16_hi v1, v9, s[6:7]", "f4", "2 infinite"),
    ("gfx90a", "v_mul_f32 v9, v2, v3\nv_lshrrev_b32 v6, 16, v9\nglobal_store_short v1, v6, s[6:7]", "f4", "2 infinite"),
    ("gfx90a", "v_mul_f32 v9, v2, v3\ns_mov_b32 s8, 0x7060302\nv_perm_b32 v6, v9, v9, s8" + STORE, "f4", "4 infinite"),
])  # fmt: skip
def test_what_reaches_memory(target: str, lines: str, dtype: str, stored: str) -> None:
    """Stored values get the type in which the register was computed: straight, moved, through LDS, in halves, or as bf16."""
    columns = np.full(64, 2.0), np.full(64, 3.0)
    assert found(lines, *columns, target=target, dtype=dtype, group_segment_fixed_size=1024) == []
    columns[0][[3, 9]] = columns[1][[3, 9]] = np.finfo(dtype).max
    findings = found(lines, *columns, target=target, dtype=dtype, group_segment_fixed_size=1024)
    if stored:
        first = next(finding for finding in findings if finding.kind == "infinity")
        assert first.severity == "error" and f"{stored} elements reached memory" in first.message and first.lanes == (3, 9)
    else:
        assert [finding.kind for finding in findings if finding.severity == "error"] == []


def test_a_store_of_no_known_type_leaves_it_open() -> None:
    columns = np.full(64, 3e38), np.full(64, 3e38)
    (finding,) = found("v_mul_f32 v6, v2, v3\nglobal_store_dword v1, v4, s[6:7]", *columns)
    assert finding.severity == "error" and "unknown whether any reached" in finding.message
    assert "`global_store_dword v1, v4, s[6:7]`" in finding.message


def test_minus_infinity_as_a_mask_is_no_finding() -> None:
    """Attention and softmax do this on purpose: -inf as a constant, its maximum, exp2 of it."""
    lines = """v_mov_b32 v5, 0xff800000
v_cmp_gt_f32 vcc, 0.5, v2
v_cndmask_b32 v6, v2, v5, vcc
v_max_f32 v7, v6, v2
v_sub_f32 v6, v6, v7
v_exp_f32 v6, v6"""
    assert found(lines + STORE, np.arange(64) / 64, how="numerics,discarded") == []


# -- divisions ------------------------------------------------------------------------------------

DIVIDE = """v_div_scale_f32 v9, s[8:9], v3, v3, v2
v_rcp_f32 v10, v9
v_fma_f32 v11, -v9, v10, 1.0
v_fma_f32 v10, v11, v10, v10
v_div_scale_f32 v11, vcc, v2, v3, v2
v_mul_f32 v12, v11, v10
v_fma_f32 v13, -v9, v12, v11
v_fma_f32 v12, v13, v10, v12
v_fma_f32 v9, -v9, v12, v11
v_div_fmas_f32 v9, v9, v10, v12
v_div_fixup_f32 v6, v9, v3, v2""" + STORE


@pytest.mark.parametrize("a, b, kinds", [
    (1.0, 3.0, []), (1.0, np.inf, []), (0.0, np.inf, []), (1e-38, 1e38, []), (3e38, 3e38, []), (np.inf, 2.0, []),
    (1.0, 0.0, ["infinity"]), (0.0, 0.0, ["nan"]), (3e38, 1e-3, ["infinity"]), (np.inf, np.inf, ["nan"]), (np.nan, 1.0, []),
])  # fmt: skip
def test_the_steps_of_a_division_say_nothing_and_its_end_does(a: float, b: float, kinds: list[str]) -> None:
    findings = found(DIVIDE, np.full(64, a), np.full(64, b), how="numerics,discarded")
    assert [finding.kind for finding in findings] == kinds
    assert all(finding.text.startswith("v_div_fixup_f32") for finding in findings)


# -- conversions ----------------------------------------------------------------------------------


def every_half() -> np.ndarray:
    """Returns all finite f16 and bf16 numbers, as f32."""
    codes = np.arange(1 << 16).astype(np.uint16)
    values = np.concatenate([codes.view(np.float16).astype("f4"), (codes.astype(np.uint32) << 16).view(np.float32)])
    return values[np.isfinite(values)]


@functools.cache
def spec_of(mnemonic: str, target: str) -> Any:
    gpu_text = {"v_cvt_pk_fp8_f32": "v1, v2, v3", "v_cvt_pk_bf8_f32": "v1, v2, v3", "v_cvt_pk_u8_f32": "v1, v2, v3, v4"}
    code = assemble(target, KernelText("k", f"{mnemonic} {gpu_text.get(mnemonic, 'v1, v2')}"))
    gpu = simgpu.Device(target, threads=1)
    kernel = gpu.load(code)["k"]
    kernel.launch(grid=1, block=64, args=[])
    return next(inst.spec for inst in kernel.module.programs[0].instructions.values() if inst.mnemonic == mnemonic)


@pytest.mark.parametrize("mnemonic, target, dtype", [
    ("v_cvt_pk_fp8_f32", "gfx942", ml_dtypes.float8_e4m3fnuz), ("v_cvt_pk_bf8_f32", "gfx942", ml_dtypes.float8_e5m2fnuz),
    ("v_cvt_pk_fp8_f32", "gfx950", ml_dtypes.float8_e4m3fn), ("v_cvt_pk_bf8_f32", "gfx950", ml_dtypes.float8_e5m2),
])  # fmt: skip
def test_what_fits_a_small_float_is_what_ml_dtypes_keeps_finite(mnemonic: str, target: str, dtype: Any) -> None:
    values = every_half()
    held = range_of(spec_of(mnemonic, target), target, t.f32)
    assert held is not None and held.most == float(ml_dtypes.finfo(dtype).max)
    above = (values > held.high) if held.high_is_held else (values >= held.high)
    below = (values < held.low) if held.low_is_held else (values <= held.low)
    with np.errstate(all="ignore"):
        fits = np.isfinite(values.astype(dtype).astype("f4"))
    assert ((above | below) == ~fits).all()


@pytest.mark.parametrize("mnemonic, least, most", [
    ("v_cvt_i32_f32", -(2**31), 2**31 - 1), ("v_cvt_u32_f32", 0, 2**32 - 1), ("v_cvt_pk_u8_f32", 0, 255),
])  # fmt: skip
def test_what_fits_an_integer_is_what_python_truncates_into_it(mnemonic: str, least: int, most: int) -> None:
    edges = [float(edge) for edge in (least, most, least - 1, most + 1)]
    near = [np.nextafter(np.float32(edge), np.float32(way)) for edge in edges for way in (-np.inf, np.inf)]
    values = np.concatenate([every_half(), np.array([*edges, *near], "f4")])
    held = range_of(spec_of(mnemonic, "gfx90a"), "gfx90a", t.f32)
    assert held is not None
    outside = ((values > held.high) if held.high_is_held else (values >= held.high)) | (
        (values < held.low) if held.low_is_held else (values <= held.low)
    )
    assert outside.tolist() == [not least <= int(value) <= most for value in values]


@pytest.mark.parametrize("target, line, good, bad, kind, severity, said", [
    ("gfx90a", "v_cvt_f16_f32 v6, v2", 65504.0, 65520.0, "overflow", "error", "v_cvt_f16_f32(65520) = inf in lane 5"),
    ("gfx90a", "v_cvt_pkrtz_f16_f32 v6, 0, v2", 65504.0, np.inf, "", "", ""),
    ("gfx90a", "v_cvt_i32_f32 v6, v2", -2147483648.0, 2147483648.0, "saturation", "note", "holds -2147483648 to 2147483647"),
    ("gfx90a", "v_cvt_u32_f32 v6, v2", 4294967040.0, -1.0, "saturation", "note", "holds 0 to 4294967295"),
    ("gfx90a", "v_cvt_u32_f32 v6, v2", -0.75, np.nan, "saturation", "note", "a NaN became an integer"),
    ("gfx90a", "v_cvt_i32_f32 v6, v2", 1.0, -np.inf, "", "", ""),
    ("gfx90a", "v_cvt_pknorm_i16_f32 v6, v2, v2", 1.0, 7.0, "", "", ""),
    ("gfx942", "v_cvt_pk_fp8_f32 v6, v2, 0", 247.0, 248.0, "overflow", "error", "fp8_fnuz holds -240 to 240"),
    ("gfx950", "v_cvt_pk_fp8_f32 v6, v2, 0", -464.0, -465.0, "overflow", "error", "fp8 holds -448 to 448"),
    ("gfx950", "v_cvt_pk_bf8_f32 v6, 0, v2", 57344.0, 61440.0, "overflow", "error", "bf8 holds -57344 to 57344"),
    ("gfx950", "v_cvt_scalef32_pk_fp8_f32 v6, v2, 0, 2.0", 800.0, 930.0, "overflow", "error", "fp8 holds -448 to 448"),
    ("gfx950", "v_cvt_scalef32_pk_fp4_f32 v6, v2, 0, 1.0", 6.5, 8.0, "saturation", "note", "fp4 holds -6 to 6"),
])  # fmt: skip
def test_conversions(
    target: str, line: str, good: float, bad: float, kind: str, severity: str, said: str
) -> None:
    values = np.ones(64)
    values[5] = good
    assert found(line + STORE, values, target=target) == []
    values[5] = bad
    findings = found(line + STORE, values, target=target)
    assert [(finding.kind, finding.severity, finding.lanes) for finding in findings] == ([(kind, severity, (5,))] if kind else [])
    assert all(said in finding.message for finding in findings)


def test_mode_makes_overflows_saturations() -> None:
    """A quantiser requests it by FP16_OVFL."""
    values = np.full(64, 1e5)
    for line in ("v_cvt_f16_f32 v6, v2", "v_cvt_pk_fp8_f32 v6, v2, 0"):
        lines = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1\n" + line + STORE
        (finding,) = found(lines, values, target="gfx942")
        assert (finding.kind, finding.severity) == ("saturation", "note")


# -- on request -----------------------------------------------------------------------------------


def test_flushed_denormals() -> None:
    values = np.full(64, 1e-20)
    lines = "v_mul_f32 v6, v2, v2" + STORE
    (finding,) = found(lines, values, how="numerics,denormals", float_denorm_mode_32=0)
    assert finding.kind == "denormal" and finding.severity == "note" and "1e-40 0 in lane 0" in finding.message.replace("99999", "")
    assert found(lines, values, how="numerics,denormals", float_denorm_mode_32=3) == []
    assert found(lines, values * 1e10, how="numerics,denormals", float_denorm_mode_32=0) == []
    assert found(lines, values * 0, how="numerics,denormals", float_denorm_mode_32=0) == []
    assert found(lines, values, float_denorm_mode_32=0) == []


@pytest.mark.parametrize("line", ["v_sub_f32 v6, v2, v3", "v_fma_f32 v6, v2, 1.0, -v3", "v_pk_add_f32 v[6:7], v[2:3], v[4:5]"])
def test_cancellation(line: str) -> None:
    a, b = np.full(64, 1.0), np.full(64, 1.0)
    a[8], a[9], a[10] = 1 + 2.0**-20, 1 + 2.0**-12, 1.5  # a[11] cancels to 0, which loses nothing
    columns = (a, a, -b, -b) if "pk" in line else (a, b)
    (finding,) = found(line + STORE, *columns, how="numerics,cancellation=16")
    assert finding.kind == "cancellation" and finding.severity == "note" and finding.lanes == (8,)
    assert found(line + STORE, *columns) == []


def test_what_is_asked_for_is_read_strictly() -> None:
    assert NumericsOptions.of("numerics,denormals,cancellation=12") == NumericsOptions(denormals=True, cancellation=12)
    for text in ("numerics,denormal", "numerics,cancellation", "numerics,cancellation=0", "numerics,cancellation=99", "numericsx"):
        with pytest.raises(LaunchError, match="check="):
            simgpu.Device("gfx90a", check=text)


