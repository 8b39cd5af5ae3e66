"""A folder of compilers' kernels: `manifest.json` with a case per code object, and their input arrays."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.tools.shared.errors import UsageError

if TYPE_CHECKING:
    from simgpu import Device, Kernel, Run


@dataclass(frozen=True)
class CaseArgument:
    """An explicit argument: a buffer that holds `data`, or, if that is None, a value. If `out`, the buffer is a result."""

    data: np.ndarray | None
    out: bool
    value: bytes = b""


@dataclass(frozen=True)
class CorpusCase:
    """A kernel with its arguments and launch extents."""

    name: str
    target: str
    entry: str
    code: bytes
    arguments: tuple[CaseArgument, ...]
    global_size: tuple[int, ...]
    block: tuple[int, ...]
    dynamic_lds: int

    def launch(self, gpu: Device, kernel: Kernel, **options: Any) -> tuple[Run, list[np.ndarray]]:
        """Launches the case; returns the run and the bytes of each result. options: further ones of `Kernel.launch`."""
        buffers = [None if a.data is None else gpu.upload(a.data) for a in self.arguments]
        given = [
            a.value if buffer is None else buffer for a, buffer in zip(self.arguments, buffers, strict=True)
        ]
        try:
            run = kernel.launch(
                global_size=self.global_size, block=self.block, args=given, dynamic_lds=self.dynamic_lds, **options
            )
            results = [
                buffer.download(np.uint8)
                for a, buffer in zip(self.arguments, buffers, strict=True)
                if a.out and buffer is not None
            ]
            return run, results
        finally:
            for buffer in buffers:
                if buffer is not None:
                    gpu.free(buffer)


def cases(folder: str, only: Iterable[str] = ()) -> list[CorpusCase]:
    """Reads the cases whose names contain any of `only` (default: all). Raises UsageError for a folder without a manifest."""
    root, wanted = Path(folder), list(only)
    manifest = root / "manifest.json"
    if not manifest.is_file():
        raise UsageError(f"{root}: no manifest.json in this folder: name a folder of kernels that has one")
    listed = json.loads(manifest.read_text())["cases"]
    return [_case(root, entry) for entry in listed if not wanted or any(part in entry["name"] for part in wanted)]


def _case(root: Path, entry: dict[str, Any]) -> CorpusCase:
    arrays = np.load(root / entry["arrays"])
    arguments = tuple(_argument(a, arrays) for a in entry["args"] if a["kind"] != "hidden-value")
    return CorpusCase(
        entry["name"], entry["target"], entry["entry"], (root / entry["hsaco"]).read_bytes(), arguments,
        tuple(entry["grid_size_workitems"]), tuple(entry["workgroup_size"]), entry["dynamic_lds_bytes"],
    )  # fmt: skip


def _argument(entry: dict[str, Any], arrays: Any) -> CaseArgument:
    kind = entry["kind"]
    if kind == "hidden-pointer":
        return CaseArgument(None, False, bytes(8))
    if kind.startswith("pointer"):
        given = arrays.get(f"in.{entry['name']}")
        if given is None:
            given = np.zeros(int(np.prod(entry["shape"])) * _bytes_of(entry["dtype"]), np.uint8)
        return CaseArgument(given, kind != "pointer-in")
    size = entry["size"]
    if entry["dtype"].startswith("f"):
        return CaseArgument(None, False, struct.pack({2: "<e", 4: "<f", 8: "<d"}[size], entry["value"]))
    return CaseArgument(None, False, (int(entry["value"]) & (1 << 8 * size) - 1).to_bytes(size, "little"))


def _bytes_of(dtype: str) -> int:
    """Bytes of an element of f32, fp16, bf16, i64, fp8e4nv, e5m2, i1 ..."""
    digits = re.search(r"\d+", dtype)
    return max(1, int(digits.group()) // 8) if digits else 1
