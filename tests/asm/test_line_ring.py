"""Ring of cache lines: every byte has a place, is loaded once, overwrites only read bytes, and has no bank conflicts."""

from __future__ import annotations

import numpy as np
import pytest

from simgpu.asm.gemm.lines import NO_LINE, Pace
from simgpu.asm.parts.line_ring import PAIR, STEP
from simgpu.hardware.timing_rules import lds_banks
from simgpu.operators.gemm.layout import LineRing, TileLayout
from simgpu.operators.gemm.limits import CACHE_LINE, LINE_ROWS, LINE_STEPS, LINES
from simgpu.operators.resources import WIDEST

RINGS = [
    LineRing(TileLayout(name, rows, STEP, rows // 2, 16, 4, 4, 256, True, name == "B", 1, 6, beside=True))
    for rows in (64, 128, 192, 256)
    for name in "AB"
]


def describe(ring):
    return f"{ring.layout.name}-{ring.layout.rows}"


def ring_accesses(layout):
    """Yields accesses as `accesses` of tests/operators/test_gemm_layout.py, for all places in a ring."""
    ring, lane = LineRing(layout), np.arange(64)
    for t in range(layout.rows // layout.atom):
        for at in range(0, PAIR, STEP):
            for eight in range(0, STEP // 4, 8):
                yield "read", 8, ring.byte(t * layout.atom + lane % 16, at + STEP // 4 * (lane // 16) + eight)
    for first in range(0, layout.threads, 64):
        slot, piece = ring.place(first + lane)
        for line in range(9):
            for unit in range(ring.units):
                yield "write", WIDEST, ring.byte(slot + LINE_ROWS * unit, CACHE_LINE * line + piece)


@pytest.mark.parametrize("ring", RINGS, ids=describe)
def test_rows_have_three_steps_each(ring):
    slot, at = np.indices((ring.layout.rows, 3 * STEP))
    for begin in range(0, 2 * PAIR, 32):
        places = ring.byte(slot, begin + at)
        assert np.bincount(places.ravel()).max() == 1 and places.max() < ring.bytes


@pytest.mark.parametrize("ring", RINGS, ids=describe)
def test_work_items_load_each_piece_once_to_the_slot_of_its_row(ring):
    layout, seen = ring.layout, np.zeros((ring.layout.rows, CACHE_LINE // WIDEST), int)
    slot, byte = ring.place(np.arange(layout.threads))
    for unit in range(ring.units):
        row = layout.row_of(slot // layout.atom, slot % layout.atom) + ring.row_step(unit)
        np.add.at(seen, (row, byte // WIDEST), 1)
        assert (layout.slot_of(row) == slot + LINE_ROWS * unit).all()
    assert (seen == 1).all()


@pytest.mark.parametrize("ring", RINGS, ids=describe)
def test_no_bank_conflicts(ring):
    assert sum(lds_banks.conflicts("gfx950", *access) for access in ring_accesses(ring.layout)) == 0


def test_lines_overwrite_what_the_step_before_the_last_has_read():
    """A line is written among the matrix instructions of the step before its first reader, at most one line a step."""
    steps = [CACHE_LINE * line // STEP - 1 for line in range(12)]
    assert [(step + 1) % LINE_STEPS for step in steps] == [phase for phase in range(LINE_STEPS) if phase != NO_LINE] * 4
    for line, step in enumerate(steps):
        assert (CACHE_LINE * (line + 1) - 1 - 3 * STEP) // STEP <= step - 1


@pytest.mark.parametrize("pace", [Pace(64, 20, 58, 63, 2, 16, 24), Pace(4, 0, 0, 63, 2, 4, 12), Pace(32, 9, 27, 63, 2, 12, 18)])
def test_loads_come_behind_the_write_that_frees_their_registers(pace):
    placed = [(unit, phase * pace.count + place) for phase, loads in enumerate(pace.loads) for unit, place in loads]
    units = [unit for unit, _ in placed]
    assert units == list(range(units[0], units[0] + LINES * pace.units)) and units[0] <= pace.held
    for unit, place in placed:
        line, number = divmod(unit - pace.held, pace.units)
        assert place >= (line // LINES * LINE_STEPS + line % LINES) * pace.count + pace.write(pace.scales + number)
