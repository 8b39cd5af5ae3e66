"""Elements that a matrix instruction reads from each lane and register, as tables and formulas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.mfma import MatrixInstruction
from simgpu.matrix.one_mfma import element_type, places

# Colours of the matrix's rows or columns, repeating: neighbours differ, on dark and light grounds.
COLOURS = ("red", "green", "yellow", "blue", "magenta", "cyan", "bright_red", "bright_blue")
TABLE_REGISTERS = 8  # registers in one table

Place = tuple[int, int, int]  # (register, lane, low bit)
Element = tuple[int, int, int]  # (row, column, block)


@dataclass(frozen=True)
class Fragment:
    """An operand under modifiers: the elements that are read from each place.

    An element of a sparse A is one kept value: its column counts kept ones, k/2.
    """

    row: MatrixInstruction
    operand: str
    modifiers: Mapping[str, int]  # as `MatrixInstruction.map` takes them
    elements: Mapping[Place, tuple[Element, ...]] = field(repr=False)  # by place, in order of block

    @classmethod
    def of(cls, row: MatrixInstruction, operand: str, modifiers: Mapping[str, int]) -> Fragment:
        """Reads the layout from the instruction. Raises TargetError for an unknown operand or modifier."""
        applied = {name: value for name, value in modifiers.items() if value}
        owners = row.map(operand, **applied) if applied and not row.flexible else row.map(operand)
        if operand in ("A", "IDX", "SCALE_A", "SCALE_B") and (row.sparse or row.scaled):
            owners = places(row, operand, abid=modifiers["abid"] if operand == "IDX" and not modifiers["cbsz"] else 0)
        found: dict[Place, list[Element]] = {}
        for block, i, j in np.ndindex(owners.shape[:3]):
            register, lane, low = (int(v) for v in owners[block, i, j])
            found.setdefault((register, lane, low), []).append((i, j, block))
        return cls(row, operand, applied, {place: tuple(found[place]) for place in sorted(found)})

    @property
    def registers(self) -> int:
        return self.row.registers(self.operand)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) of one block."""
        last = [element for elements in self.elements.values() for element in elements]
        return max(i for i, _, _ in last) + 1, max(j for _, j, _ in last) + 1

    def owner(self, element: Element) -> Place | None:
        """Returns the place that is read for an element; None if the operand has no such element."""
        return next((place for place, held in self.elements.items() if element in held), None)

    def at(self, register: int, lane: int) -> list[tuple[int, tuple[Element, ...]]]:
        """Returns (low bit, elements) of one register of a lane."""
        return [(low, held) for (r, l, low), held in self.elements.items() if (r, l) == (register, lane)]

    def documents(self) -> list[dict[str, int | str]]:
        """Returns one record per element: operand, register, lane, bit, row, column, block."""
        return [
            {"operand": self.operand, "register": r, "lane": l, "bit": low, "row": i, "column": j, "block": block}
            for (r, l, low), held in self.elements.items()
            for i, j, block in held
        ]

    def table(
        self, lanes: Iterable[int] = range(WAVEFRONT), registers: Iterable[int] | None = None
    ) -> list[Table | Text]:
        """Returns tables of lane by register, eight registers in each; the colour distinguishes rows (of B: columns)."""
        by_cell: dict[tuple[int, int], list[tuple[Element, ...]]] = {}
        for (r, lane, _), held in self.elements.items():
            by_cell.setdefault((r, lane), []).append(held)
        shown = list(registers if registers is not None else sorted({r for r, _ in by_cell}))
        chunks = [shown[at : at + TABLE_REGISTERS] for at in range(0, len(shown), TABLE_REGISTERS)]
        tables = [self._chunk(by_cell, list(lanes), chunk) for chunk in chunks]
        return [Text(f"\n{self.title()}", "bold"), *tables]

    def _chunk(
        self, cells: Mapping[tuple[int, int], list[tuple[Element, ...]]], lanes: list[int], registers: list[int]
    ) -> Table:
        made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        made.add_column("lane", justify="right")
        for register in registers:
            pair = self.row.width(self.operand) == 64
            made.add_column(f"v[{register}:{register + 1}]" if pair else f"v{register}", no_wrap=False)
        for lane in lanes:
            made.add_row(str(lane), *(self._cell(cells.get((register, lane), [])) for register in registers))
        return made

    def _cell(self, held: list[tuple[Element, ...]]) -> Text:
        """Formats the elements of one register, lowest bits first; `·`: nothing is read from it."""
        if not held:
            return Text("·", "dim")
        text = Text()
        outer = 1 if self.operand in ("B", "SCALE_B") else 0
        for elements in held:
            index = elements[0][outer]
            text.append(" " if text else "").append(_words(self.row, elements), COLOURS[index % len(COLOURS)])
        return text

    def title(self) -> str:
        names = {"A": "A[i,k]", "B": "B[k,j]", "IDX": "indices [i,k/4]", "SCALE_A": "scales of A [i,k/32]",
                 "SCALE_B": "scales of B [k/32,j]"}  # fmt: skip
        name = "A, kept values [i,k/2]" if self.operand == "A" and self.row.sparse else names.get(
            self.operand, f"{self.operand}[i,j]"
        )
        block = ".block" if self.row.blocks > 1 else ""
        doubt = self.row.doubt(self.operand)
        kind = element_type(self.row, self.operand)
        return f"{name}{block} ({kind}){f'   UNVERIFIED: {doubt}' if doubt else ''}"


def _words(row: MatrixInstruction, elements: tuple[Element, ...]) -> str:
    """Formats `i,j`, with blocks as `.b`, or as a range if a broadcast reads one place for several."""
    i, j, _ = elements[0]
    if row.blocks == 1:
        return f"{i},{j}"
    return f"{i},{j}.{ranges(sorted({block for _, _, block in elements}))}"


def ranges(numbers: list[int]) -> str:
    """Formats ascending integers, runs joined: `0-3+8`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return "+".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def formula(row: MatrixInstruction, operand: str) -> str:
    """Returns the ownership without modifiers in closed form (hardware.mfma.layout)."""
    if operand in "CD":
        return _output_formula(row, operand)
    form = row._formats()._input(operand)
    groups = WAVEFRONT // (form["size"] * form["blocks"])
    each = form["k"] // groups
    outer = "j" if operand in ("B", "SCALE_B") else "i"
    stride = row._stride(operand)  # k that share one place
    k = f"(k//{stride})" if stride > 1 else "k"
    run = form["run"] if form["run"] and form["run"] < each else 0
    group = f"{k}//{run}%{groups}" if run else f"{k}//{each}"
    slot = f"{k}//{run * groups}*{run} + {k}%{run}" if run else f"{k}%{each}"
    lane = [f"{form['size'] * form['blocks']}*({group})"] if groups > 1 else []
    lane += [f"{form['size']}*block"] if form["blocks"] > 1 else []
    lane.append(outer)
    bits = form["bits"]
    place = f"bits from {bits}*({slot})" if each > 1 else "bits from 0"
    return f"{operand}: lane = {' + '.join(lane)}; {place} of its registers, {bits} wide"


def _output_formula(row: MatrixInstruction, operand: str) -> str:
    if row.cd_type == "f64":
        groups = WAVEFRONT // (row.n * row.blocks)
        block = f"{row.n}*block + " if row.blocks > 1 else ""
        return (
            f"{operand}: lane = {row.n * row.blocks}*(i%{groups}) + {block}j; registers 2*(i//{groups}) and the next"
        )
    groups = WAVEFRONT // row.n
    at = f"({row.m}*block + i)" if row.blocks > 1 else "i"
    if row.m * row.blocks <= 4 * groups:
        return f"{operand}: lane = {row.n}*({at}//4) + j; register = i%4"
    return f"{operand}: lane = {row.n}*({at}//4%{groups}) + j; register = {at}//{4 * groups}*4 + i%4"


def describe_instruction(row: MatrixInstruction) -> list[str]:
    """Returns three lines: shape and types; opcode, passes and registers; modifiers and arithmetic."""
    blocks = f", {row.blocks} blocks" if row.blocks > 1 else ""
    kinds = f"{row.a_type} x {row.b_type} -> {row.cd_type}" if not row.flexible else "any of fp8 bf8 fp6 bf6 fp4 -> f32"
    if row.flexible and row.a_type != "f8f6f4":
        kinds = f"{row.a_type} x {row.b_type} -> {row.cd_type}"
    return [
        f"{row.mnemonic} on {row.target}: D ({row.m},{row.n}) = A ({row.m},{row.k}) B ({row.k},{row.n}) + C{blocks}; {kinds}",
        f"opcode {row.opcode}, {row.passes} passes ({4 * row.passes} clocks), "
        f"registers A {row.registers('A')}, B {row.registers('B')}, C and D {row.registers('D')}"
        + ("; D is C, A holds two of four k" if row.sparse else ""),
        f"modifiers: {', '.join(sorted(row.modifiers)) or 'none'}; arithmetic: {row.fidelity()}"
        + (f"; also written {', '.join(row.aliases)}" if row.aliases else ""),
    ]


def instruction_document(row: MatrixInstruction) -> dict[str, Any]:
    """Returns a JSON document."""
    names = (
        "mnemonic", "target", "opcode", "m", "n", "k", "blocks", "a_type", "b_type", "cd_type", "passes", "sparse", "scaled",
    )  # fmt: skip
    return {
        **{name: getattr(row, name) for name in names},
        "modifiers": sorted(row.modifiers),
        "aliases": list(row.aliases),
        "registers": {name: row.registers(name) for name in ("A", "B", "D")},
        "fidelity": row.fidelity(),
    }
