"""Operands of matrix instructions for a page: the lane, register and bits that each element is read from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.mfma import MatrixInstruction
from simgpu.matrix.one_mfma import element_type
from simgpu.tools.matrix.fragments import Fragment, describe_instruction, formula
from simgpu.tools.page.notations import Linear

if TYPE_CHECKING:
    from simgpu.hardware.mfma.chain import Chain

NOWHERE = -1  # of an element that no place holds
NOT_STORED = ("IDX", "SCALE_A", "SCALE_B")  # operands that no notation of tiles describes


def operands_of(row: MatrixInstruction) -> list[str]:
    """Returns the operands that a page draws."""
    return ["A", "B"] + ["IDX"] * row.sparse + ["SCALE_A", "SCALE_B"] * row.scaled + ["D"]


def instruction(row: MatrixInstruction, modifiers: Mapping[str, int], names: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the document of an instruction under modifiers. names: of its operands (default: all)."""
    applied = {} if row.flexible else {name: value for name, value in modifiers.items() if value}
    title = row.mnemonic + "".join(f" {name}:{value}" for name, value in applied.items())
    if row.flexible and row.a_type != "f8f6f4":
        title += f" ({row.a_type} x {row.b_type})"
    under = {"cbsz": 0, "abid": 0, "blgp": 0} | applied
    made = {name: _operand(Fragment.of(row, name, under)) for name in names or operands_of(row)}
    return {
        "key": title, "mnemonic": row.mnemonic, "target": row.target, "lines": describe_instruction(row),
        "m": row.m, "n": row.n, "k": row.k,
        "blocks": row.blocks, "operands": made,
    }  # fmt: skip


def _operand(fragment: Fragment) -> dict[str, Any]:
    """Returns an operand's document. places: for each element (block, row, column), register * 2048 + lane * 32 + low bit; -1
    if none."""
    row, name = fragment.row, fragment.operand
    (rows, columns), blocks = fragment.shape, row.blocks
    places = np.full((blocks, rows, columns), NOWHERE, np.int64)
    for (register, lane, low), held in fragment.elements.items():
        for i, j, block in held:
            places[block, i, j] = register << 11 | lane << 5 | low
    width = row.width(name) // (2 if name == "A" and row.sparse else 1)
    linear = None if fragment.modifiers or name in NOT_STORED else _linear(places, width, fragment.registers)
    return {
        "type": element_type(row, name), "bits": width, "registers": fragment.registers, "rows": rows, "columns": columns,
        "title": fragment.title(), "formula": formula(row, name), "doubt": row.doubt(name), "places": places.reshape(-1).tolist(),
        "triton": linear.triton() if linear else "", "cute": linear.cute() if linear else "",
    }  # fmt: skip


def _linear(places: np.ndarray, width: int, registers: int) -> Linear | None:
    """Returns the linear layout of `places` (blocks, rows, columns); None if it is not linear or a place holds no element."""
    count = 32 * registers // width
    blocks, rows, columns = places.shape
    elements = np.full((count, WAVEFRONT, 3), NOWHERE, np.int64)
    for element in np.ndindex(places.shape):
        place = int(places[element])
        elements[(32 * (place >> 11) + (place & 31)) // width, place >> 5 & 63] = element
    if (elements < 0).any():
        return None
    return Linear.of(elements if blocks > 1 else elements[..., 1:], (blocks, rows, columns) if blocks > 1 else (rows, columns))


def chain_document(link: Chain) -> dict[str, Any]:
    """Describes D of one instruction as an operand of another: where D holds each element of the operand, or why it does not."""
    document: dict[str, Any] = {
        "operand": link.operand, "free": link.free, "moves": [str(move) for move in link.moves], "reason": link.reason,
        "formula": link.formula() if link.free else "", "steps": link.steps, "tiles": link.tiles, "conversion": link.conversion(),
    }  # fmt: skip
    if link.free:
        ks, blocks = range(link.second.k), range(link.second.blocks)
        document["rows"] = [[[link.row(step, k, block) for k in ks] for block in blocks] for step in range(link.steps)]
    return document
