"""AITER's shipped code objects as launches: kernel arguments and grids by its own host code.

A checkout of github.com/ROCm/aiter is read in place, by path; nothing of it is kept. Argument structures and grids:
csrc/py_itfs_cu/asm_gemm_{a16w16,a4w4,a8w8}.cu and asm_a8w8_blockscale_bpreshuffle.cu, csrc/cpp_itfs/mha_fwd.cu; tiles by the
CSV next to the code objects. Every scalar and pointer takes 16 bytes there.
"""

from __future__ import annotations

import csv
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from simgpu.hardware.errors import SimError
from simgpu.tools.validation.rows import Measurement

if TYPE_CHECKING:
    from simgpu.engine.device import Kernel
    from simgpu.timing.caches import Warm

SLOT = 16  # bytes of an argument
# Inputs of fewer bytes are in the Infinity Cache even though AITER rotates 101 copies of them: 256 MB hold them all.
WARM_BYTES = 2_500_000
BLOCK = 256
WIDTH = 128  # columns of a head in attention
BOARDS = {"256 CU": "mi355x", "80 CU": "mi308x", "304 CU": "mi300x"}


class NotJudged(SimError):
    """Raised for a row that the model cannot judge, with the reason."""


@dataclass(frozen=True)
class ShippedLaunch:
    """A launch of a shipped kernel."""

    path: Path
    kernel: str
    board: str
    grid: tuple[int, int, int]
    values: Sequence[str | int | float | None]  # arguments in order; str: a buffer's name, None: a null pointer
    buffers: Mapping[str, int] = field(default_factory=dict)  # bytes of each buffer, by name
    zeroed: int = 0  # bytes of the output that a memset clears first: blocks of a split K add to it
    threads: int = BLOCK  # of a workgroup

    @property
    def warm(self) -> Warm:
        """"last" for a product if the Infinity Cache has all the copies of its inputs that AITER's tuner takes turns on."""
        return "last" if sum(self.buffers[name] for name in ("A", "B")) < WARM_BYTES else False

    def arguments(self, kernel: Kernel, addresses: Mapping[str, int]) -> list[bytes]:
        """Returns the kernel's arguments, split at the offsets in its metadata."""
        segment = self.pack(addresses)
        return [segment[part.offset : part.offset + part.size].ljust(part.size, b"\0") for part in kernel.info.explicit_arguments]

    def pack(self, addresses: Mapping[str, int]) -> bytes:
        """Packs the kernel argument segment."""
        made = b""
        for value in self.values:
            if isinstance(value, float):
                raw = struct.pack("<f", value)
            elif isinstance(value, int):
                raw = struct.pack("<I", value & 0xFFFFFFFF)
            else:
                raw = struct.pack("<Q", addresses[value] if value else 0)
            made += raw.ljust(SLOT, b"\0")
        return made


def call_of(row: Measurement, checkout: Path) -> ShippedLaunch:
    """Returns the launch that a row measured. NotJudged says why there is none."""
    path = row.repo_path.split(";")[0].strip()
    family = path.split("/")[2]
    if family not in FAMILIES:
        raise NotJudged("routing of tokens to experts is not recorded" if "moe" in family else f"no arguments known of {family}")
    if not (checkout / path).is_file():
        raise NotJudged("not in the checkout")
    shape = re.fullmatch(r"(\d+)x(\d+)x(\d+)(?: splitK=(-?\d+))?", row.shape)
    if shape is None:
        raise NotJudged(f"shape {row.shape!r} is not understood")
    m, n, k, split = (int(part or 0) for part in shape.groups())
    board = next((name for said, name in BOARDS.items() if said in row.board), "")
    if not board:
        raise NotJudged(f"board {row.board!r} is not known")
    kernel = row.kernel.removeprefix("AITER ").strip()
    tile = tiles(checkout / path).get(kernel)
    if tile is None:
        raise NotJudged("its tile is not in the table next to the code object")
    return FAMILIES[family](checkout / path, kernel, board, m, n, k, split, tile)


@cache
def tiles(path: Path) -> dict[str, dict[str, int]]:
    """Reads tile_m, tile_n and flags by kernel name, from the tables in the folder of a code object or a table."""
    found = {}
    for table in path.parent.glob("*.csv"):
        with open(table, newline="") as file:
            for entry in csv.DictReader(file):
                figures = {key.lower().replace("_", ""): value for key, value in entry.items() if (value or "").isdigit()}
                found[entry["knl_name"]] = {key: int(value) for key, value in figures.items()}
    return found


@cache
def objects(path: Path) -> dict[str, str]:
    """Reads the code object's name by kernel name, from the same tables."""
    found: dict[str, str] = {}
    for table in path.parent.glob("*.csv"):
        with open(table, newline="") as file:
            found |= {entry["knl_name"]: entry["co_name"] for entry in csv.DictReader(file)}
    return found


def _bf16(path: Path, kernel: str, board: str, m: int, n: int, k: int, split: int, tile: Mapping[str, int]) -> ShippedLaunch:
    out = 2  # bytes: bf16
    split = max(1, split)
    values: list[str | int | float | None] = [
        "D", None, "A", "B", 1.0, 0.0, n * out, 0, n * out, 0, 2 * k, 0, 2 * k, 0, m, n, k, split, 1, None, 0,
        "semaphore" if split > 1 else None,
    ]  # fmt: skip
    grid = -(-n // tile["tilen"]), -(-m // tile["tilem"]), split
    buffers = {"D": m * n * 4, "A": 2 * m * k, "B": 2 * n * k, "semaphore": 1 << 16}
    return ShippedLaunch(path, kernel, board, grid, values, buffers)


def _fp4(path: Path, kernel: str, board: str, m: int, n: int, k: int, split: int, tile: Mapping[str, int]) -> ShippedLaunch:
    scales = -(-k // 32 // 8) * 8  # e8m0, padded
    values: list[str | int | float | None] = [
        "D", None, "A", "B", 1.0, 0.0, 0, 0, n, 0, k, 0, k, 0, m, n, k, "scaleA", "scaleB", scales, 0, scales, 0, max(0, split),
    ]  # fmt: skip
    part = -(-(k >> max(0, split)) // 256) * 256
    depth = -(-k // part) if tile.get("splitk") == 1 else 1
    grid = -(-n // tile["tilen"]), -(-m // tile["tilem"]), depth
    padded = -(-m // 256) * 256, -(-n // 256) * 256
    buffers = {
        "D": padded[0] * n * 2, "A": padded[0] * k // 2, "B": padded[1] * k // 2, "scaleA": padded[0] * scales,
        "scaleB": padded[1] * scales,
    }  # fmt: skip
    return ShippedLaunch(
        path, kernel, board, grid, values, buffers, zeroed=2 * m * n if split > 0 and tile.get("splitk") == 1 else 0
    )  # fmt: skip


def _int8(path: Path, kernel: str, board: str, m: int, n: int, k: int, split: int, tile: Mapping[str, int]) -> ShippedLaunch:
    split = max(1, split)
    values: list[str | int | float | None] = ["C", "A", "B", "sa", "sb", "bias", m, n, k, k, k, 2 * n, split]
    grid = n // tile["tilen"] * split, -(-m // tile["tilem"]), 1
    buffers = {"C": 2 * m * n, "A": m * k, "B": n * k, "sa": 4 * m, "sb": 4 * n, "bias": 4 * n}
    return ShippedLaunch(path, kernel, board, grid, values, buffers, zeroed=2 * m * n if split > 1 else 0)


def _fp8(path: Path, kernel: str, board: str, m: int, n: int, k: int, split: int, tile: Mapping[str, int]) -> ShippedLaunch:
    split = max(1, split)
    blocks = m, -(-n // 128), -(-k // 128)
    values: list[str | int | float | None] = [
        "C", "A", "B", "sa", "sb", "bias", m, n, k, k, k, 2 * n, split, *blocks,
    ]  # fmt: skip
    grid = n // tile["tilen"] * split, -(-m // tile["tilem"]), 1
    buffers = {
        "C": 2 * m * n, "A": m * k, "B": n * k, "sa": 4 * m * blocks[2], "sb": 4 * blocks[1] * blocks[2], "bias": 4 * n,
    }  # fmt: skip
    return ShippedLaunch(path, kernel, board, grid, values, buffers, zeroed=2 * m * n if split > 1 else 0)


FAMILIES: dict[str, Callable[..., ShippedLaunch]] = {"bf16gemm": _bf16, "f4gemm": _fp4, "i8gemm": _int8, "fp8gemm_blockscale": _fp8}


@dataclass(frozen=True)
class AttentionExtents:
    """Extents of forward attention in bf16, d = 128, with as many keys as queries."""

    length: int
    heads: int
    causal: bool = False
    kv_heads: int = 0  # heads of K and V; 0: as many as of Q
    batch: int = 1
    # True: a row's heads are adjacent in memory, as in torch, and the logarithm of each row's sum is stored too. False: a
    # head's rows are adjacent.
    torch_layout: bool = False

    def strides(self, heads: int) -> tuple[int, int, int]:
        """Returns bytes from a row, head and batch to the next of an operand with that many heads."""
        row, head = (2 * WIDTH * heads, 2 * WIDTH) if self.torch_layout else (2 * WIDTH, 2 * WIDTH * self.length)
        return row, head, 2 * WIDTH * self.length * heads


def attention(checkout: Path, board: str, shape: AttentionExtents) -> ShippedLaunch:
    """Returns the launch of forward attention. Raises NotJudged if the checkout has no code object for it."""
    arch = "gfx950" if board.startswith("mi35") else "gfx942"
    folder = checkout / "hsa" / arch / "fmha_v3_fwd"
    name = "fwd_hd128_bf16" + "_causal" * shape.causal + "_rtna" * (arch == "gfx942")
    path = folder / ("MI300" if arch == "gfx942" else "") / f"{name}.co"
    if not path.is_file():
        raise NotJudged(f"{path} is not in the checkout")
    return attention_of(path, board, shape)


def attention_of(path: Path, board: str, shape: AttentionExtents) -> ShippedLaunch:
    """Returns that launch of a code object, which is named after its kernel."""
    rows, threads, name, length, heads = 256, 512, path.stem, shape.length, shape.heads
    tuned = 5 - 2 * (shape.causal and (heads % 8 != 0 or length > 16384))
    kv_heads = shape.kv_heads or heads
    of_q, of_k = shape.strides(heads), shape.strides(kv_heads)
    sums = "LSE" if shape.torch_layout else None
    values: list[str | int | float | None] = [
        "O", "Q", "K", "V", sums, WIDTH**-0.5, length, of_q[0], rows * of_q[0], *of_q[1:], heads // kv_heads, *of_k, tuned,
        int(shape.torch_layout), length, WIDTH, WIDTH, heads, *of_k, *of_q, None, None, 4 * length if sums else 0, *[None] * 5,
        *[0] * 6,
    ]  # fmt: skip
    tiles = -(-length // rows)
    grid = (-(-tiles // 2) if shape.causal else tiles), heads, shape.batch
    symbol = f"_ZN5aiter{len('fmha_' + name)}fmha_{name}E"
    buffers = {**dict.fromkeys("OQ", of_q[2] * shape.batch), **dict.fromkeys("KV", of_k[2] * shape.batch)}
    if sums:
        buffers[sums] = 4 * length * heads * shape.batch
    return ShippedLaunch(path, symbol, board, grid, values, buffers, threads=threads)
