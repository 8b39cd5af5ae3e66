"""A sweep: many command lines of a verb, each a row of a table. What is finished is kept, so that it never runs twice."""

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
PASS, FAIL, ERROR, LOST = "pass", "fail", "error", "lost"  # what a row says of its case
KEPT = ".cases"  # the file of finished rows, behind the table's name


@dataclass(frozen=True)
class SweepCase:
    """One command: `simgpu VERB OPERATOR --target … --dtype … OPTIONS`."""

    verb: str
    operator: str
    target: str
    dtype: str
    options: str
    version: str  # of the sources: another one's rows are another's

    def words(self) -> list[str]:
        """The words behind the verb."""
        return [self.operator, "--target", self.target, "--dtype", self.dtype, *shlex.split(self.options)]

    @property
    def key(self) -> str:
        """What tells it from others."""
        return json.dumps([self.verb, self.version, *self.words()])


def shapes(path: str) -> list[str]:
    """The lines of a file: the operator's options as on a command line; `#` begins a comment. Raises UsageError."""
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


def flattened(document: Mapping[str, Any], inside: str = "") -> dict[str, Any]:
    """The document's numbers and words by their path, `counters.mfma_flops`; of lists, how many entries."""
    row: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, Mapping):
            row |= flattened(value, f"{inside}{name}.")
        else:
            row[f"{inside}{name}"] = len(value) if isinstance(value, list) else value
    return row


class SweepRows:
    """The rows that are finished, in a file beside the table, one JSON document a line."""

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

    def add(self, case: SweepCase, row: dict[str, Any]) -> None:
        """Keeps a finished row; one of a case that no worker ran is kept until this process ends."""
        self.finished[case.key] = row
        if row["status"] == LOST:
            return
        with self.path.open("a") as file:
            file.write(json.dumps({"case": case.key, "row": row}) + "\n")

    def of(self, cases: Iterable[SweepCase]) -> list[dict[str, Any]]:
        """The rows of these cases that are finished, in order."""
        return [self.finished[case.key] for case in cases if case.key in self.finished]


def written(rows: Sequence[Mapping[str, Any]], suffix: str) -> bytes:
    """The table in one of FORMATS, a row a case; what a row lacks stays empty. Raises UsageError."""
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
