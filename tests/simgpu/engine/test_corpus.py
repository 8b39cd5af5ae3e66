"""Kernels of real compilers (../shared/corpus): run unchanged, compared within tolerance."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import simgpu
from simgpu.hardware import mfma
from tests.support.exhaustive import one_in
from tests.support.places import CORPUS

MANIFEST = CORPUS / "manifest.json"
CASES = json.loads(MANIFEST.read_text())["cases"] if MANIFEST.exists() else []

NAMES = {case["name"] for case in CASES}

DTYPES: dict[str, Any] = {
    "f64": np.float64, "f32": np.float32, "fp64": np.float64, "fp32": np.float32,
    "fp16": np.float16, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "fp8e4nv": ml_dtypes.float8_e4m3fn, "fp8e5": ml_dtypes.float8_e5m2,
    "fp8e4b8": ml_dtypes.float8_e4m3fnuz, "fp8e5b16": ml_dtypes.float8_e5m2fnuz,
    "e5m2": ml_dtypes.float8_e5m2, "e4m3": ml_dtypes.float8_e4m3fn,
    "i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16,
    "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64, "i1": np.int8,
}  # fmt: skip

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not CASES, reason="../shared/corpus is not here"),
]


def scalar(arg: dict[str, Any]) -> Any:
    """Makes a by-value argument as a numpy scalar of its type."""
    dtype = np.dtype(DTYPES[arg["dtype"]])
    value = np.array(arg["value"]).astype(dtype)
    return value.tobytes()[: arg["size"]]


def run_case(case: dict[str, Any], check: bool = False) -> tuple[simgpu.Run, dict[str, tuple[Any, Any, Any]]]:
    """Returns the run, and by output argument: the result, the wanted result and the argument's row."""
    arrays = np.load(CORPUS / case["arrays"])
    gpu = simgpu.Device(case["target"], check=check)
    kernel = gpu.load(CORPUS / case["hsaco"])[case["entry"]]
    args: list[Any] = []
    outputs = {}
    for arg in case["args"]:
        kind = arg["kind"]
        if kind == "hidden-value":
            continue
        if kind == "hidden-pointer":
            args.append(0)
        elif kind.startswith("pointer"):
            shape, dtype = tuple(arg["shape"]), np.dtype(DTYPES[arg["dtype"]])
            given = arrays.get(f"in.{arg['name']}")
            buffer = gpu.alloc(int(np.prod(shape)) * dtype.itemsize) if given is None else gpu.upload(given)
            args.append(buffer)
            if kind != "pointer-in":
                outputs[arg["name"]] = (buffer, shape, dtype, arg)
        else:
            args.append(scalar(arg))
    run = kernel.launch(
        global_size=case["grid_size_workitems"],
        block=case["workgroup_size"],
        args=args,
        dynamic_lds=case["dynamic_lds_bytes"],
    )
    return run, {
        name: (buffer.download(dtype, shape), arrays[f"out.{name}"], arg)
        for name, (buffer, shape, dtype, arg) in outputs.items()
    }


# elements whose reference is not the hardware's result, by kernel and output
EXCEPT: dict[tuple[str, str], tuple[tuple[Any, ...], str]] = {
    ("i64math", "o"): ((9, 131), "INT_MIN / -1, undefined in C: the division sequence gives INT_MIN"),
    ("mfma_wide", "d"): (
        (slice(1280, None),),
        "the reference reads the operands of the bf16 instructions as f16; see test_mfma_wide_bf16",
    ),
}


def check(name: str, got: np.ndarray, want: np.ndarray, arg: dict[str, Any]) -> None:
    atol, rtol = arg["atol"], arg["rtol"]
    if atol == 0 and rtol == 0:
        rounded = np.asarray(want).astype(got.dtype)
        same = got == rounded
        if got.dtype.kind not in "iub":
            same |= np.isnan(got.astype(np.float64)) & np.isnan(rounded.astype(np.float64))
        assert same.all(), f"{name}: {np.count_nonzero(~same)} of {same.size} differ"
        return
    tolerance = np.full(want.shape, rtol, np.float64)
    for row, value in enumerate(arg.get("row_rtol") or []):
        tolerance[row] = max(rtol, value)
    actual, wanted = got.astype(np.float64), np.asarray(want, np.float64)
    with np.errstate(invalid="ignore"):
        near = np.abs(actual - wanted) <= atol + tolerance * np.abs(wanted)
    near |= actual == wanted
    near |= np.isnan(actual) & np.isnan(wanted)
    assert near.all(), f"{name}: {np.count_nonzero(~near)} of {near.size} are outside the tolerance"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_corpus_kernel(case: dict[str, Any]) -> None:
    compare(case, *run_case(case))


@pytest.mark.parametrize("case", one_in(3, CASES), ids=lambda case: case["name"])
def test_corpus_kernel_checked(case: dict[str, Any]) -> None:
    """Compilers wait enough: nothing is found, except their errors that docs/reference/findings.md lists."""
    run, outputs = run_case(case, check=True)
    assert run.findings == []
    compare(case, run, outputs)


def compare(case: dict[str, Any], run: simgpu.Run, outputs: dict[str, tuple[Any, Any, Any]]) -> None:
    assert run.instructions > 0
    assert outputs
    for name, (got, want, arg) in outputs.items():
        if (case["entry"], name) in EXCEPT:
            where, _ = EXCEPT[case["entry"], name]
            got, want = got.copy(), np.array(want)
            want[where] = got[where]
        check(name, got, want, arg)


@pytest.mark.skipif("cl_mfma_wide.gfx950" not in NAMES, reason="the kernel is not in the corpus")
def test_mfma_wide_bf16() -> None:
    """mfma_wide's half that the corpus' reference reads as f16, against bf16 products."""
    case = next(c for c in CASES if c["name"] == "cl_mfma_wide.gfx950")
    _, outputs = run_case(case)
    got = outputs["d"][0]
    arrays = np.load(CORPUS / case["arrays"])
    row = mfma.find("v_mfma_f32_16x16x32_bf16", "gfx950")
    a, b = (arrays[f"in.{name}"].view(np.uint16).reshape(-1, 64, 8)[2] for name in "ab")
    c = arrays["in.c"][1280 : 1280 + 256].reshape(64, 4).view(np.uint32)

    def fragment(operand: str, rows: np.ndarray) -> np.ndarray:
        owners = row.map(operand)
        per = 2 if operand in "AB" else 1
        return rows[owners[..., 1], owners[..., 0] * per + owners[..., 2] // 16]

    want = mfma.multiply(row, fragment("A", a), fragment("B", b), fragment("C", c))
    np.testing.assert_array_equal(fragment("D", got[1280 : 1280 + 256].reshape(64, 4).view(np.uint32)), want)
