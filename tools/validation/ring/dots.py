"""Products of Triton's python/test/unit/language/test_core.py, `test_dot`, in all rows that it has for CDNA GPUs.

Its kernel multiplies one tile; its rows choose sizes, transposes, types, precisions, what follows the product, and the compiler's
options. Rows that differ in these options only are one group.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import triton.language as tl

from simgpu.hardware import target as find_target
from simgpu.hardware.isa.ring.arrays import elements
from simgpu.tools.validation.ring.groups import Group
from simgpu.tools.validation.ring.launches import TritonLaunch
from simgpu.tools.validation.ring.reference import as_type, product, reference
from simgpu.tools.validation.ring.sources import kernels_of

DTYPES: dict[str, Any] = {
    "int8": np.int8, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32,
    "float8e5": ml_dtypes.float8_e5m2, "float8e4nv": ml_dtypes.float8_e4m3fn, "float8e5b16": ml_dtypes.float8_e5m2fnuz,
    "float8e4b8": ml_dtypes.float8_e4m3fnuz,
}  # fmt: skip
EXTRA_WARPS = (1, 2, 8)  # beside a row's own


class Row(NamedTuple):
    """A row of test_dot's parameters."""

    m: int
    n: int
    k: int
    warps: int
    col_a: bool
    col_b: bool
    epilogue: str
    precision: str
    in_dtype: str
    out_dtype: str
    kpack: int
    nonk: int | None

    @property
    def title(self) -> str:
        order = "nt"[self.col_a] + "nt"[self.col_b]
        return f"{self.m}x{self.n}x{self.k} {order} {self.in_dtype} to {self.out_dtype} {self.precision} {self.epilogue.lower()}"


def groups(path: Path, target: str, scratch: Path, seed: int) -> Iterator[Group]:
    """Yields groups of rows."""
    gathered: dict[str, list[Row]] = {}
    cases = _cases(path)
    module = kernels_of(path, scratch, "test_dot", cases, _predicates(target))
    for row in _rows(module, cases):
        gathered.setdefault(row.title, []).append(row)
    for title, rows in gathered.items():
        yield _group(title, rows, module.kernel, target, seed)


def _cases(path: Path) -> list[str]:
    """Returns the names of the functions that list rows: the decorators of test_dot call them."""
    functions = {node.name: node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)}
    decorators = functions["test_dot"].decorator_list
    called = [node.func.id for each in decorators for node in ast.walk(each)
              if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]  # fmt: skip
    return [name for name in dict.fromkeys(called) if name in functions]


def _predicates(target: str) -> dict[str, Any]:
    """Returns what the listing functions ask of the GPU."""
    arch = find_target(target).arch
    false = dict.fromkeys(("is_cuda", "is_interpreter", "is_xpu", "is_hip_gfx1250", "is_hip_rdna4"), lambda: False)
    true = dict.fromkeys(("is_hip", "is_hip_cdna"), lambda: True)
    chip = {"is_hip_cdna2": "gfx90a", "is_hip_cdna3": "gfx942", "is_hip_cdna4": "gfx950"}
    return {**false, **true, **{name: lambda this=this: arch == this for name, this in chip.items()}, "mma_nonk_sizes": [16, 32]}


def _rows(module: Any, cases: list[str]) -> Iterator[Row]:
    for name in cases:
        for case in getattr(module, name)():
            row = Row(*case)
            if row.in_dtype in DTYPES and row.precision in ("ieee", "tf32", "bf16x3", "bf16x6"):
                yield row


def _group(title: str, rows: list[Row], kernel: Any, target: str, seed: int) -> Group:
    row = rows[0]
    rng, kind = np.random.default_rng(seed), np.dtype(DTYPES[row.in_dtype])
    x, y, w = (_draw(rng, shape, kind, column) for shape, column in (
        ((row.m, row.k), row.col_a), ((row.k, row.n), row.col_b), ((row.n, row.n), False)))  # fmt: skip
    out = np.dtype(np.int32) if kind.kind == "i" else kind if kind.itemsize > 1 else np.dtype(np.float32)
    z = _draw(rng, (row.m, row.n), out, row.epilogue == "trans")
    options = [(each.warps, each.kpack, each.nonk) for each in rows]
    options += [(warps, row.kpack, row.nonk) for warps in EXTRA_WARPS if warps not in [each.warps for each in rows]]
    variants = []
    for warps, kpack, nonk in dict.fromkeys(options):
        launch = TritonLaunch(kernel, (1, 1), _arguments(x, y, w, z), _constants(row, warps, kpack, nonk))
        variants.append(launch.variant(f"num_warps={warps} kpack={kpack} matrix_instr_nonkdim={nonk}", target))
    want = _reference(row, x, y, w, z)
    return Group(title, variants, want if want is None else reference({"x": x, "y": y, "w": w, "z": z}, {"z": want}))


def _draw(rng: np.random.Generator, shape: tuple[int, int], kind: np.dtype, column: bool) -> np.ndarray:
    shape = shape[::-1] if column else shape
    drawn = rng.integers(-9, 9, shape) if kind.kind == "i" else rng.standard_normal(shape)
    return drawn.astype(kind).T if column else drawn.astype(kind)


def _arguments(x: np.ndarray, y: np.ndarray, w: np.ndarray, z: np.ndarray) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, array in (("x", x), ("y", y), ("w", w), ("z", z)):
        row, column = (stride // array.itemsize for stride in array.strides)
        found |= {name: array, f"{name}_row": row, f"{name}_column": column}
    return found


def _constants(row: Row, warps: int, kpack: int, nonk: int | None) -> dict[str, Any]:
    """Returns the constants that test_dot passes for a row."""
    kinds = {"int8": tl.int8, "float16": tl.float16 if row.epilogue != "softmax" else tl.float32}
    flags = {
        "ADD_MATRIX": "add-matrix", "ADD_ROWS": "add-rows", "ADD_COLS": "add-cols", "DO_SOFTMAX": "softmax",
        "CHAIN_DOT": "chain-dot",
    }  # fmt: skip
    more = {} if nonk is None else {"matrix_instr_nonkdim": nonk}
    return {
        "BLOCK_M": row.m, "BLOCK_N": row.n, "BLOCK_K": row.k, **{name: row.epilogue == value for name, value in flags.items()},
        "INPUT_PRECISION": row.precision, "COL_A": row.col_a, "COL_B": row.col_b, "out_dtype": kinds.get(row.out_dtype, tl.float32),
        "num_warps": warps, "kpack": kpack, **more,
    }  # fmt: skip


def _reference(row: Row, x: np.ndarray, y: np.ndarray, w: np.ndarray, z: np.ndarray) -> np.ndarray | None:
    """Returns Z after the kernel. None after a softmax, or a rounding to 8 bits: configurations are compared with each other."""
    summed = product(x, y)
    if row.epilogue == "softmax" or (row.epilogue == "chain-dot" and w.dtype.kind != "i" and w.itemsize == 1):
        return None
    if row.epilogue == "chain-dot":
        summed = product(as_type(summed, w.dtype), w)
    added = z.view(np.uint32) if z.dtype.kind in "iu" else elements(np.ascontiguousarray(z))
    if row.epilogue == "add-matrix":
        summed = summed + added
    if row.epilogue == "add-rows":
        summed = summed + added[:, :1]
    if row.epilogue == "add-cols":
        summed = summed + added[:1]
    return as_type(summed.view(np.int32), z.dtype) if z.dtype.kind in "iu" else as_type(summed, z.dtype)
