"""Published measurements as rows, and which of them may calibrate.

The tables are gzip CSV: kernel, source_url, repo_path, arch, board, shape, dtype, metric, value, unit, notes. They are outside
the project: `--data DIR`, or the environment's SIMGPU_TIMING_DATA.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import math
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from simgpu.tools.shared.errors import UsageError

if TYPE_CHECKING:
    from simgpu.timing.caches import Warm
    from simgpu.timing.history import LaunchHistory
    from simgpu.timing.predict import SampledLaunch

ENVIRONMENT = "SIMGPU_TIMING_DATA"
TENTH = 10  # one row in ten may calibrate the model
COLUMNS = ("kernel", "repo_path", "arch", "board", "shape", "dtype", "metric", "unit", "notes")


@dataclass(frozen=True)
class Measurement:
    """A row of a table of measurements."""

    kernel: str
    repo_path: str
    arch: str
    board: str
    shape: str
    dtype: str
    metric: str
    value: float
    unit: str
    notes: str

    @property
    def key(self) -> str:
        """Identifies the row among all others."""
        return "|".join((self.kernel, self.repo_path, self.arch, self.board, self.shape, self.dtype, self.metric))

    @property
    def group(self) -> str:
        """Class from the table's notes: compute, memory or latency."""
        for part in self.notes.split(";"):
            name, _, value = part.strip().partition("=")
            if name == "class":
                return value.split("/")[0].split(" ")[0]
        return "other"

    @property
    def fits(self) -> bool:
        """True if it is in the tenth that may calibrate, by a hash of its key."""
        return int.from_bytes(hashlib.sha256(self.key.encode()).digest()[:4], "big") % TENTH == 0


class RowLaunch(NamedTuple):
    """A launch that a row's time contains."""

    times: int
    sampled: SampledLaunch
    warm: Warm | LaunchHistory = True  # what earlier launches left


def read(folder: Path, pattern: str) -> list[Measurement]:
    """Reads the rows of the tables whose names match, without repeated ones. Raises UsageError for a file that is no such
    table."""
    found: dict[str, Measurement] = {}
    for path in sorted(folder.glob(pattern)):
        try:
            with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
                table = csv.DictReader(file)
                if missing := {*COLUMNS, "value"}.difference(table.fieldnames or ()):
                    raise UsageError(f"{path}: no column {', '.join(sorted(missing))}")
                for number, entry in enumerate(table, start=2):
                    row = _row(entry, f"{path}, row {number}")
                    found.setdefault(row.key, row)
        except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
            raise UsageError(f"{path}: cannot be read as a gzipped table: {error}") from None
    return list(found.values())


def _row(entry: dict[str, str], place: str) -> Measurement:
    if any(entry[name] is None for name in (*COLUMNS, "value")):
        raise UsageError(f"{place}: fewer fields than columns")
    try:
        value = float(entry["value"])
    except ValueError:
        raise UsageError(f"{place}: value {entry['value']!r} is no number") from None
    if not math.isfinite(value):
        raise UsageError(f"{place}: value {value:g} is no measurement")
    return Measurement(**{name: entry[name] for name in COLUMNS}, value=value)


def data_folder(given: str | None) -> Path:
    """Returns the folder of the tables. Raises UsageError without one."""
    named = given or os.environ.get(ENVIRONMENT)
    if not named:
        raise UsageError(f"no measurements: give --data DIR with the tables (*.csv.gz), or set {ENVIRONMENT}")
    folder = Path(named)
    if not any(folder.glob("*.csv.gz")):
        raise UsageError(f"{folder} holds no tables (*.csv.gz)")
    return folder


def numbers(text: str) -> Sequence[int]:
    """Parses the whole numbers of a shape such as 4096x4096x8192."""
    return [int(part) for part in text.split("x")]
