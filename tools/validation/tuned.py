"""AITER's tables of tuned products, from the git history of a checkout: measured times of one or several kernels for a shape.

A table has the fastest kernel of a shape at the time of its commit. Later commits measured shapes again, so the history has
several kernels for some. Rows of other libraries (CK, Triton, hipBLASLt) have no code object in AITER and are left out. The
tables' harness is aiter/utility/base_tuner.py; `splits_tried` returns the splits that it tries.
"""

from __future__ import annotations

import csv
import io
import math
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from simgpu.tools.shared.errors import UsageError
from simgpu.tools.validation.aiter import BOARDS, FAMILIES, tiles

TABLES = "aiter/configs"
ARCHS = {"mi355x": "gfx950", "mi308x": "gfx942", "mi300x": "gfx942"}
MOST_SPLITS = {"bf16gemm": 16, "fp8gemm_blockscale": 8, "i8gemm": 8}  # AITER's tuners; no row of f4gemm splits K
LEAST_DEPTH = 128  # multiple of k to which the tuners of f8 and i8 round a part
SEMAPHORES = 16 * 64  # most tiles of bf16 whose k is split [AITER, aiter/ops/gemm_op_a16w16.py]
IDLE_SPLITS = 4  # most parts of bf16's k if its tiles fill the board


@dataclass(frozen=True)
class TunedShape:
    """A product in the tables."""

    family: str  # of AITER's code objects
    board: str
    m: int
    n: int
    k: int

    @property
    def key(self) -> str:
        """Identifies the shape among all others."""
        return f"{self.family} {self.board} {self.m}x{self.n}x{self.k}"


@dataclass(frozen=True)
class TunedRow:
    """A measured kernel of a shape."""

    kernel: str
    split: int  # as the table has it: parts of k, or their logarithm for f4gemm
    us: float
    commit: str  # the first one with this row
    date: int  # the commit's, seconds since 1970
    bias: bool  # True if the product adds a bias


@dataclass
class TunedTimes:
    """Measurements of a shape, one of each kernel and split: the newest."""

    rows: dict[tuple[str, int], TunedRow] = field(default_factory=dict)

    def add(self, row: TunedRow) -> None:
        """Keeps a row if it is the newest of its kernel and split."""
        kept = self.rows.get((row.kernel, row.split))
        if kept is None or row.date > kept.date:
            self.rows[row.kernel, row.split] = row

    @property
    def winner(self) -> TunedRow:
        """Kernel that the newest commit measured as the fastest."""
        return max(self.rows.values(), key=lambda row: (row.date, -row.us))


def tuned_times(checkout: Path) -> dict[TunedShape, TunedTimes]:
    """Returns the measurements of all shapes in the tables' history. Raises UsageError if git cannot read it."""
    families, found = _families(checkout), defaultdict[TunedShape, TunedTimes](TunedTimes)
    first: dict[tuple[TunedShape, str, int, float], TunedRow] = {}
    for commit, date, blob in _versions(checkout):
        for entry in csv.DictReader(io.StringIO(_git(checkout, "cat-file", "blob", blob))):
            row = _row(entry, commit, date, families)
            if row is None:
                continue
            key = row[0], row[1].kernel, row[1].split, row[1].us
            if key not in first or first[key].date > date:
                first[key] = row[1]
    for (shape, *_), each in first.items():
        found[shape].add(each)
    return dict(found)


def _row(entry: Mapping[str, str], commit: str, date: int, families: Mapping[str, str]) -> tuple[TunedShape, TunedRow] | None:
    """Returns a table's row, or None if it has no kernel of AITER or is not whole."""
    kernel = entry.get("kernelName") or ""
    board = BOARDS.get(f"{entry.get('cu_num')} CU", "")
    if kernel not in families or not board:
        return None
    try:
        m, n, k, split, us = *(int(entry[name]) for name in "MNK"), int(entry["splitK"]), float(entry["us"])
    except (KeyError, TypeError, ValueError):
        return None
    row = TunedRow(kernel, split, us, commit, date, entry.get("bias") == "True")
    return (TunedShape(families[kernel], board, m, n, k), row) if us > 0 else None


def _families(checkout: Path) -> dict[str, str]:
    """Returns the family of each kernel of the checkout's tables of code objects."""
    folders = [folder for arch in sorted(set(ARCHS.values())) for folder in sorted((checkout / "hsa" / arch).glob("*"))]
    return {kernel: folder.name for folder in folders if folder.name in FAMILIES for kernel in tiles(folder / "all")}


def _versions(checkout: Path) -> Iterator[tuple[str, int, str]]:
    """Yields commit, date and blob of each version of a table of tuned kernels."""
    commit, date = "", 0
    log = _git(checkout, "log", "--format=%H %ct", "--raw", "--no-abbrev", "--no-renames", "-m", "--", TABLES)
    for line in log.splitlines():
        if not line.startswith(":"):
            commit, date = (line.split()[0], int(line.split()[1])) if line else (commit, date)
            continue
        change, path = line.split("\t", 1)
        blob, name = change.split()[3], path.rsplit("/", 1)[-1]
        if name.endswith(".csv") and "_tuned_gemm" in name and set(blob) != {"0"}:
            yield commit, date, blob


@cache
def kernels_of_commit(checkout: Path, commit: str, arch: str, family: str) -> frozenset[str]:
    """Returns the kernels that a family had at a commit."""
    folder = f"hsa/{arch}/{family}/"
    names = _git(checkout, "ls-tree", "--name-only", commit, folder).split()
    found = [_git(checkout, "cat-file", "blob", f"{commit}:{name}") for name in names if name.endswith(".csv")]
    return frozenset(entry.get("knl_name") or "" for text in found for entry in csv.DictReader(io.StringIO(text)))


def splits_tried(shape: TunedShape, tile: Mapping[str, int], cus: int) -> Sequence[int]:
    """Returns the splits of K that AITER's tuner tries for a tile, as its tables have them.

    Source: csrc/gemm_a16w16/gemm_a16w16_tune.py, csrc/ck_gemm_a8w8_bpreshuffle/gemm_a8w8_bpreshuffle_tune.py.

    >>> shape = TunedShape("i8gemm", "mi308x", 16, 1280, 384)
    >>> splits_tried(shape, {"tilem": 16, "tilen": 128, "splitk": 1}, 80)
    [1, 2, 3]
    """
    if shape.family == "f4gemm":
        return [0]
    if tile.get("splitk") != 1:
        return [1]
    most = MOST_SPLITS[shape.family]
    if shape.family != "bf16gemm":
        return [parts for parts in range(1, most + 1) if _parts(shape.k, parts) == parts] or [1]
    groups = -(-shape.m // tile["tilem"]) * -(-shape.n // tile["tilen"])
    if groups > SEMAPHORES:
        return []
    most = min(most, cus // groups if groups < cus else IDLE_SPLITS)
    return [parts for parts in range(2, most + 1) if shape.k / parts >= tile.get("subk", 0)]


def _parts(k: int, parts: int) -> int:
    """Returns the number of parts of k, each rounded up to LEAST_DEPTH."""
    depth = math.ceil(math.ceil(k / parts) / LEAST_DEPTH) * LEAST_DEPTH
    return math.ceil(k / depth)


def _git(checkout: Path, *words: str) -> str:
    try:
        return subprocess.run(["git", "-C", checkout, *words], capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError, UnicodeDecodeError) as error:
        said = str(getattr(error, "stderr", "") or error).strip()
        raise UsageError(f"{checkout}: git {words[0]}: {said}; give a clone of github.com/ROCm/aiter with its history") from None
