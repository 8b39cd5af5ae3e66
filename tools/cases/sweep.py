"""A sweep: many command lines of a verb, each a row of a table. Finished rows are saved, so no case runs twice."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simgpu.tools.shared.errors import UsageError

FORMATS = (".json", ".csv", ".parquet")
PASS, FAIL, ERROR, LOST = "pass", "fail", "error", "lost"  # a row's status
KEPT = ".cases"  # suffix of the file of finished rows, after the table's name


@dataclass(frozen=True)
class SweepCase:
    """A command: `simgpu VERB OPERATOR --target … --dtype … OPTIONS`."""

    verb: str
    operator: str
    target: str
    dtype: str
    options: str
    version: str  # of the sources: rows of another version are not reused

    def words(self) -> list[str]:
        """Returns the words after the verb."""
        return [self.operator, "--target", self.target, "--dtype", self.dtype, *shlex.split(self.options)]

    @property
    def key(self) -> str:
        """Identifies the case among all others."""
        return json.dumps([self.verb, self.version, *self.words()])


def shapes(path: str) -> list[str]:
    """Reads a file's lines: the operator's options as on a command line; `#` begins a comment. Raises UsageError."""
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or 'no text'}") from None
    try:
        lines = [shlex.join(shlex.split(line, comments=True)) for line in text.splitlines()]
    except ValueError as error:
        raise UsageError(f"{path}: {error}: a line holds options, such as -m 1000 -n 777 -k 333") from None
    if not (found := list(dict.fromkeys(filter(None, lines)))):
        raise UsageError(f"{path}: no line with options, such as -m 1000 -n 777 -k 333")
    return found


def flatten(document: Mapping[str, Any], inside: str = "") -> dict[str, Any]:
    """Returns the document's numbers and words by their path, such as `counters.mfma_flops`; a list becomes its length."""
    row: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, Mapping):
            row |= flatten(value, f"{inside}{name}.")
        else:
            row[f"{inside}{name}"] = len(value) if isinstance(value, list) else value
    return row


class SweepRows:
    """Finished rows, in a file next to the table, one JSON document per line."""

    def __init__(self, table: str) -> None:
        self.path = Path(f"{table}{KEPT}")
        self.finished: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            for line in self.path.read_text("utf-8", errors="replace").splitlines():
                try:
                    entry = json.loads(line)
                    if "status" in entry["row"]:
                        self.finished[entry["case"]] = dict(entry["row"])
                except (ValueError, KeyError, TypeError, RecursionError):
                    continue  # the last line of a sweep that was killed while it wrote

    def add(self, key: str, row: dict[str, Any]) -> None:
        """Saves a case's row. A LOST row, whose worker died, is kept only until this process ends, so its case runs again."""
        self.finished[key] = row
        if row["status"] == LOST:
            return
        with self.path.open("a") as file:
            file.write(json.dumps({"case": key, "row": row}) + "\n")

    def of(self, cases: Iterable[SweepCase]) -> list[dict[str, Any]]:
        """Returns the finished rows of these cases, in order."""
        return [self.finished[case.key] for case in cases if case.key in self.finished]


def write_table(rows: Sequence[Mapping[str, Any]], suffix: str) -> bytes:
    """Returns the table in one of FORMATS, one row per case; a missing value stays empty. Raises UsageError without pyarrow."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if suffix == ".json":
        return json.dumps(list(rows), indent=1).encode() + b"\n"
    if suffix == ".csv":
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, columns)
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue().encode()
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UsageError("a .parquet table needs pyarrow: pip install pyarrow, or name a .csv or .json") from None
    sink = io.BytesIO()
    parquet.write_table(pyarrow.table({name: [row.get(name) for row in rows] for name in columns}), sink)
    return sink.getvalue()
