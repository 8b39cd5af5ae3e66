"""Registers as a matrix: `v[0:3] is D of v_mfma_… at rows r0, cols c0`, next to a reference."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.text import Text

from simgpu.debugger.snapshot import Snapshot
from simgpu.hardware.isa.instruction import Reg
from simgpu.hardware.mfma import MatrixInstruction, find
from simgpu.matrix.one_mfma import DTYPES, element_type, from_registers, stored_shape
from simgpu.tools.matrix.difference import explanation, wrong_elements
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.sheet import Sheet

_REGISTER = re.compile(r"([sva])(?:(\d+)|\[(\d+):(\d+)\])")
_DECLARATION = re.compile(
    r"(?P<reg>\S+)\s+is\s+(?P<operand>\w+)\s+of\s+(?P<name>[\w:]+)"
    r"(?:\s+at\s+rows?\s+(?P<row>\d+)\s*,?\s*col(?:umn)?s?\s+(?P<column>\d+))?(?:\s+block\s+(?P<block>\d+))?\s*",
    re.IGNORECASE,
)
EXAMPLE = "`v[0:3] is D of v_mfma_f32_16x16x4f32 at rows 0, cols 16`"


def register(text: str) -> Reg:
    """Returns the registers that v4, a[0:3] or s[8:9] names; UsageError for anything else or past the file."""
    match = _REGISTER.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{text!r} is no register: give v4, v[4:7], a[0:3] or s[8:9]")
    file, one, first, last = match.groups()
    start, stop = (int(one), int(one)) if one else (int(first), int(last))
    limit = 128 if file == "s" else 256
    if not start <= stop < limit:
        raise UsageError(f"{text!r}: registers of {file} are 0 to {limit - 1}, the first before the last")
    return Reg(file, start, stop - start + 1)


@dataclass(frozen=True)
class Declaration:
    """Registers that hold an operand of an instruction, whose [0][0] is element (row0, column0) of a matrix."""

    text: str
    reg: Reg
    row: MatrixInstruction
    operand: str
    row0: int
    column0: int
    block: int

    @classmethod
    def parse(cls, text: str, target: str) -> Declaration:
        """Parses a declaration. Raises UsageError, and TargetError for an unknown instruction or operand."""
        match = _DECLARATION.fullmatch(text.strip())
        if not match:
            raise UsageError(f"{text!r} declares no tile: write it as {EXAMPLE}")
        reg, operand = register(match["reg"]), match["operand"].upper()
        row = find(match["name"], target)._formats()
        wanted = row.registers(operand)
        if reg.file == "s" or reg.count != wanted:
            raise UsageError(f"{text!r}: {operand} of {row.mnemonic} takes {wanted} vector registers, not {match['reg']}")
        block = int(match["block"] or 0)
        if block >= row.blocks:
            raise UsageError(f"{text!r}: {row.mnemonic} has blocks 0 to {row.blocks - 1}")
        return cls(text, reg, row, operand, int(match["row"] or 0), int(match["column"] or 0), block)

    @property
    def shape(self) -> tuple[int, int]:
        return stored_shape(self.row, self.operand)

    def tile(self, snapshot: Snapshot) -> np.ndarray:
        """Returns the elements that the registers hold, in the type of the operand."""
        raw = from_registers(self.row, self.operand, snapshot.registers(self.reg))[self.block]
        kind = element_type(self.row, self.operand)
        return raw.view(DTYPES[kind]) if kind in DTYPES else raw


@dataclass(frozen=True)
class TileComparison:
    """A tile and the expected part of a reference; NaN past the reference's end."""

    declaration: Declaration
    tile: np.ndarray
    reference: np.ndarray | None
    tolerance: float

    @classmethod
    def of(
        cls, declaration: Declaration, snapshot: Snapshot, reference: np.ndarray | None, tolerance: float
    ) -> TileComparison:
        tile = declaration.tile(snapshot).astype(np.float64)
        if reference is None:
            return cls(declaration, tile, None, tolerance)
        part = np.full(tile.shape, np.nan)
        whole = reference[declaration.row0 :, declaration.column0 :][: tile.shape[0], : tile.shape[1]]
        part[: whole.shape[0], : whole.shape[1]] = whole
        return cls(declaration, tile, part, tolerance)

    @property
    def wrong(self) -> np.ndarray:
        """Marks elements that differ by more than the tolerance times the reference's largest."""
        if self.reference is None:
            return np.zeros(self.tile.shape, bool)
        inside = ~np.isnan(self.reference)
        return inside & wrong_elements(self.tile, self.reference, self.tolerance)

    def document(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {
            "declaration": self.declaration.text,
            "rows": [self.declaration.row0, self.declaration.row0 + self.tile.shape[0]],
            "columns": [self.declaration.column0, self.declaration.column0 + self.tile.shape[1]],
            "tile": self.tile.tolist(),
            "reference": None if self.reference is None else self.reference.tolist(),
            "wrong": np.argwhere(self.wrong).tolist(),
        }

    def parts(self) -> list[Sheet | Text]:
        """Returns the tile, the reference, and a line that says whether they agree."""
        wrong = self.wrong
        shown: list[Sheet | Text] = [Text(f"\n{self.declaration.text}", "bold"), self._grid(self.tile, wrong)]
        if self.reference is None:
            return shown
        shown += [Text("reference", "bold"), self._grid(self.reference, wrong)]
        count = int(wrong.sum())
        if not count:
            return [*shown, Text("Every element agrees.", "green")]
        return [*shown, Text(f"{count} of {wrong.size} elements differ (marked with *).{self._explanation()}", "bold red")]

    def _explanation(self) -> str:
        """Names the mistake that accounts for all differences, in the part that the reference covers."""
        assert self.reference is not None
        inside = ~np.isnan(self.reference)
        rows, columns = inside.any(1), inside.any(0)
        return explanation(self.tile[rows][:, columns], self.reference[rows][:, columns], self.tolerance)

    def _grid(self, values: np.ndarray, wrong: np.ndarray) -> Sheet:
        columns = ["", *(str(self.declaration.column0 + column) for column in range(values.shape[1]))]
        rows = []
        for number, (line, marks) in enumerate(zip(values, wrong, strict=True)):
            cells = [Text("·" if np.isnan(v) and not mark else f"{v:.4g}{'*' * bool(mark)}", "bold red" if mark else "")
                     for v, mark in zip(line, marks, strict=True)]  # fmt: skip
            rows.append((Text(str(self.declaration.row0 + number), "dim"), *cells))
        return Sheet("", columns, rows, left=1)
