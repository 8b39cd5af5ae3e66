"""Sums of matrix instructions: their new special numbers, by element of D; NaN codes; data of the other 8-bit kind."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import simgpu
from simgpu import asm, operators
from simgpu.engine.finding import Finding
from simgpu.hardware import mfma
from simgpu.operators.gemm.plan import without_split
from tests.support.kernels import ROWS_HEAD, KernelText, assemble


def found(lines: str, rows: np.ndarray, target: str, how: str = "numerics") -> list[Finding]:
    """Returns findings of the lines, which find a row of u32 (64, 4) for each lane in v[2:5] and store v[16:19] in the end."""
    zeros = "".join(f"v_mov_b32 v{16 + number}, 0\n" for number in range(4))
    store = "s_nop 15\ns_nop 15\nglobal_store_dwordx4 v8, v[16:19], s[6:7]"
    gpu = simgpu.Device(target, check=how, threads=1)
    kernel = gpu.load(assemble(target, KernelText("k", ROWS_HEAD + zeros + lines + "\n" + store, ("buffer", "buffer"))))["k"]
    return kernel.launch(grid=1, block=64, args=[gpu.upload(rows), gpu.alloc(1024)]).findings


def placed(mnemonic: str, target: str, kind: Any, a: dict[tuple[int, int], float], b: dict[tuple[int, int], float]) -> np.ndarray:
    """Returns rows with A in v[2:3] and B in v[4:5]: ones except for the given elements."""
    row = mfma.find(mnemonic, target)
    rows = np.zeros((64, 4), np.uint32)
    size = np.dtype(kind).itemsize
    raw = rows.view(f"u{size}").reshape(64, -1, max(1, 4 // size))
    for operand, first, given in (("A", 0, a), ("B", 2, b)):
        extents = row.shape(operand)
        for at in np.ndindex(extents):
            for block in range(row.blocks):
                register, lane, low = row.owner(operand, *at, block)
                place = lane, (first + register) * 4 // max(4, size), low // (8 * size)
                raw[place] = np.array([given.get(at, 1.0)], kind).view(f"u{size}")[0]
    return rows


# Products of f16 numbers are far from f32's end.
CASES = [
    ("v_mfma_f32_16x16x4f32", "gfx90a", np.float32, "v_mfma_f32_16x16x4f32 v[16:19], v2, v4, v[16:19]"),
    ("v_mfma_f32_16x16x8bf16", "gfx90a", ml_dtypes.bfloat16, "v_mfma_f32_16x16x8bf16 v[16:19], v2, v4, v[16:19]"),
    ("v_mfma_f32_16x16x16_bf16", "gfx942", ml_dtypes.bfloat16, "v_mfma_f32_16x16x16_bf16 v[16:19], v[2:3], v[4:5], v[16:19]"),
    ("v_mfma_f32_16x16x16_f16", "gfx942", np.float16, "v_mfma_f32_16x16x16_f16 v[16:19], v[2:3], v[4:5], v[16:19]"),
]
NAMES = [case[0] for case in CASES]


@pytest.mark.parametrize("mnemonic, target, kind, text", CASES[:3], ids=NAMES[:3])
def test_an_overflow_is_told_by_element(mnemonic: str, target: str, kind: Any, text: str) -> None:
    """A[5,1]·B[1,7] is too large for f32: new in the first of two instructions, already there in the second."""
    assert found(text, placed(mnemonic, target, kind, {(5, 1): 1e18}, {(1, 7): 1e18}), target) == []
    (finding,) = found(f"{text}\ns_nop 15\n{text}", placed(mnemonic, target, kind, {(5, 1): 1e20}, {(1, 7): 1e20}), target)
    assert (finding.kind, finding.severity, finding.text, finding.count) == ("infinity", "error", text, 1)
    assert "D[5,7] = inf" in finding.message and "1 infinite element reached memory" in finding.message
    register, lane, _ = mfma.find(mnemonic, target).owner("D", 5, 7)
    assert finding.lanes == (lane,) and finding.place == f"v{16 + register}"


@pytest.mark.parametrize("mnemonic, target, kind, text", CASES, ids=NAMES)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_was_there_before_is_not_new(mnemonic: str, target: str, kind: Any, text: str, value: float) -> None:
    """Special numbers in A, in B or in C: their sums are no findings."""
    for a, b in (({(5, 1): value}, {}), ({}, {(1, 7): value})):
        assert found(text, placed(mnemonic, target, kind, a, b), target, "numerics,discarded") == []
    c = f"v_mov_b32 v17, {np.array([value], np.float32).view(np.uint32)[0]:#x}\ns_nop 7\n"
    assert found(c + text, placed(mnemonic, target, kind, {}, {}), target, "numerics,discarded") == []


def test_f64() -> None:
    text = "v_mfma_f64_4x4x4f64 v[16:17], v[2:3], v[4:5], v[16:17]"
    rows = np.zeros((64, 4), np.uint32)
    rows.view(np.float64)[:] = 1.0
    lines = "v_mov_b32 v18, 0\nv_mov_b32 v19, 0\n" + text
    assert found(lines, rows, "gfx90a") == []
    rows.view(np.float64)[:] = 1e200
    first = found(lines, rows, "gfx90a")[0]
    assert first.kind == "infinity" and "D[0,0]" in first.message and "of finite A, B and C" in first.message


@pytest.mark.parametrize("i", [0, 3, 6])
@pytest.mark.parametrize("j", [0, 7, 10])
def test_f64_by_element(i: int, j: int) -> None:
    """Two instructions run as one: a finding names the first by D's element; an infinity in A is A's."""
    line = "v_mfma_f64_16x16x4f64 v[16:23], v[2:3], v[4:5], v[16:23]"
    text = "".join(f"v_mov_b32 v{number}, 0\n" for number in range(20, 24)) + line + "\n" + line.replace("v[2:3]", "v[4:5]")
    rows = placed("v_mfma_f64_16x16x4f64", "gfx90a", np.float64, {(i, 1): 1e200}, {(1, j): 1e200})
    (finding,) = [one for one in found(text, rows, "gfx90a") if f"D[{i},{j}] = inf" in one.message]
    assert (finding.kind, finding.text) == ("infinity", line)
    register, lane, _ = mfma.find("v_mfma_f64_16x16x4f64", "gfx90a").owner("D", i, j)
    assert finding.lanes == (lane,) and finding.place == f"v{16 + register}"
    rows = placed("v_mfma_f64_16x16x4f64", "gfx90a", np.float64, {(i, 1): np.inf}, {})
    assert found(text, rows, "gfx90a", "numerics,discarded") == []


@pytest.mark.parametrize("m, n, k", [(70, 50, 40), (33, 65, 300)])
def test_tiles_of_a_gemm_name_the_instruction_and_change_nothing(m: int, n: int, k: int) -> None:
    """Several instructions run as one (`matrix.tiles`), even with the check; an overflow in a step is that instruction's."""
    tree = operators.TiledComputation(m, n, k, target="mi100")
    tree.derivation = without_split(tree.derivation)
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    results = []
    for check in (False, "numerics"):
        gpu = simgpu.Device("mi100", check=check, threads=1)
        buffers = gpu.upload(a), gpu.upload(b), gpu.zeros((m, n))
        runs = asm.launch(asm.emit(tree), gpu, *buffers)
        results.append(buffers[2].download())
        assert [finding for run in runs for finding in run.findings] == []
    assert (results[0].view(np.uint32) == results[1].view(np.uint32)).all()
    a[20, 9], b[9, 11] = 1e20, 1e20
    gpu = simgpu.Device("mi100", check="numerics", threads=1)
    buffers = gpu.upload(a), gpu.upload(b), gpu.zeros((m, n))
    findings = [finding for run in asm.launch(asm.emit(tree), gpu, *buffers) for finding in run.findings]
    assert np.argwhere(~np.isfinite(buffers[2].download())).tolist() == [[20, 11]]
    (finding,) = findings
    assert finding.kind == "infinity" and finding.text.startswith("v_mfma_f32")
    assert "1 infinite element reached memory" in finding.message
    assert finding.emitter.startswith("gemm/emitter.py")


# -- 8-bit floats ---------------------------------------------------------------------------------

TEXT = "v_mfma_f32_16x16x32_fp8_fp8 v[16:19], v[2:3], v[4:5], v[16:19]"
FP8 = {
    "gfx942": (TEXT, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e4m3fn),
    "gfx950": (TEXT, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz),
}


@pytest.mark.parametrize("target, value, said", [
    ("gfx942", -0.0, "A has the code 0x80, nan in FNUZ e4m3 but -0 in OCP e4m3"),
    ("gfx950", 240.0, "A has the code 0x7f, nan in OCP e4m3 but 240 in FNUZ e4m3"),
])  # fmt: skip
def test_codes_of_the_other_kind(target: str, value: float, said: str) -> None:
    text, own, other = FP8[target]
    values = np.linspace(0.5, 2, 64 * 16).reshape(64, 16)
    assert found(text, values.astype(own).view(np.uint32), target) == []
    values[3, 4] = value
    (finding,) = found(text, values.astype(other).view(np.uint32), target)
    assert finding.kind == "format" and finding.severity == "error" and finding.text == text and said in finding.message


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_arguments_of_the_other_kind(target: str) -> None:
    """A finding names the array of the buffer, though no number is special: all come out double, or half."""
    text, own, other = FP8[target]
    store = "s_nop 15\ns_nop 15\nglobal_store_dwordx4 v8, v[16:19], s[6:7]"
    zeros = "".join(f"v_mov_b32 v{16 + number}, 0\n" for number in range(4))
    code = assemble(target, KernelText("k", ROWS_HEAD + zeros + text + "\n" + store, ("buffer", "buffer")))
    values = np.ones((64, 16))
    for dtype, count in ((own, 0), (other, 1), (np.uint8, 0)):
        gpu = simgpu.Device(target, check="numerics", threads=1)
        run = gpu.load(code)["k"].launch(grid=1, block=64, args=[gpu.upload(values.astype(dtype)), gpu.alloc(1024)])
        assert len(run.findings) == count
        for finding in run.findings:
            assert (finding.kind, finding.severity, finding.place, finding.text) == ("format", "error", "a0", text)
            assert ("half the numbers" if target == "gfx942" else "twice the numbers") in finding.message
