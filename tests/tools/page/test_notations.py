"""Fragments in Triton's and CuTe's notation match `MatrixInstruction.map` element by element."""

from __future__ import annotations

import json
import re
from itertools import product

import numpy as np
import pytest

from simgpu.hardware.mfma import MatrixInstruction, instructions
from simgpu.matrix.one_mfma import places
from simgpu.tools.page.fragments import instruction
from simgpu.tools.page.notations import Linear
from tests.support.exhaustive import one_in

ROWS = [row.with_formats(0, 0) for target in ("gfx90a", "gfx942", "gfx950") for row in instructions(target)]


def elements_of(row: MatrixInstruction, name: str, width: int) -> dict[tuple[int, int], tuple[int, ...]]:
    """Returns (value, lane) -> element, by the table's own map."""
    found = {}
    for (block, i, j, _), _ in np.ndenumerate(owners := places(row, name)):
        register, lane, low = map(int, owners[block, i, j])
        found[(32 * register + low) // width, lane] = (block, i, j) if row.blocks > 1 else (i, j)
    return found


def triton_elements(text: str) -> dict[tuple[int, int], tuple[int, ...]]:
    """Evaluates Triton's notation independently: the XOR of the bases of the set bits."""
    bases = {name: json.loads(found) for name, found in re.findall(r"(\w+) = (\[(?:\[[^\]]*\](?:, )?)*\])", text)}
    assert bases["warp"] == bases["block"] == []
    found = {}
    for value, lane in product(range(2 ** len(bases["register"])), range(64)):
        at = [0] * len(bases["lane"][0])
        for number, list_ in ((value, bases["register"]), (lane, bases["lane"])):
            for bit, base in enumerate(list_):
                if number >> bit & 1:
                    at = [a ^ b for a, b in zip(at, base, strict=True)]
        found[value, lane] = tuple(at)
    return found


def cute_elements(text: str, rows: int, columns: int, blocks: int) -> dict[tuple[int, int], tuple[int, ...]]:
    """Evaluates CuTe's notation independently: a colexicographic walk over modes."""
    shape, stride = (json.loads(part.replace("(", "[").replace(")", "]")) for part in text.split(":"))

    def flat(mode: object) -> list[int]:
        return [x for part in mode for x in flat(part)] if isinstance(mode, list) else [int(str(mode))]

    def index(at: int, extents: list[int], strides: list[int]) -> int:
        total = 0
        for extent, step in zip(extents, strides, strict=True):
            total += at % extent * step
            at //= extent
        return total

    lanes, values = ((flat(shape[at]), flat(stride[at])) for at in (0, 1))
    found = {}
    for value, lane in product(range(int(np.prod(values[0]))), range(64)):
        at = index(lane, *lanes) + index(value, *values)
        element = (at % rows, at // rows % columns)
        found[value, lane] = (at // (rows * columns), *element) if blocks > 1 else element
    return found


@pytest.mark.parametrize("row", one_in(4, ROWS), ids=lambda row: f"{row.target}-{row.mnemonic}")
def test_both_notations_say_what_the_table_says(row: MatrixInstruction) -> None:
    document = instruction(row, {})
    written = 0
    for name, operand in document["operands"].items():
        if not operand["triton"]:
            continue
        written += 1
        want = elements_of(row, name, operand["bits"])
        assert triton_elements(operand["triton"]) == want
        assert cute_elements(operand["cute"], operand["rows"], operand["columns"], row.blocks) == want
    assert written == 3, "A, B and D"


def test_what_is_not_linear_has_no_such_notation() -> None:
    elements = np.array([[[lane % 63, 0] for lane in range(64)]])
    assert Linear.of(elements, (63, 1)) is None
    assert Linear.of(np.zeros((3, 64, 2), np.int64), (1, 1)) is None


@pytest.mark.parametrize("row", one_in(4, ROWS), ids=lambda row: f"{row.target}-{row.mnemonic}")
def test_the_documents_places_are_the_tables(row: MatrixInstruction) -> None:
    for name, operand in instruction(row, {})["operands"].items():
        owners = places(row, name).reshape(-1, 3).astype(np.int64)
        assert operand["places"] == (owners[:, 0] << 11 | owners[:, 1] << 5 | owners[:, 2]).tolist()
