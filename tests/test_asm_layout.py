"""Operand tiles in LDS: every layout is a bijection, staged once, and read without bank conflicts."""

from __future__ import annotations

import numpy as np
import pytest

from asm.emit import division_magic
from asm.layout import BANK_WORDS, TileLayout
from hardware.errors import ResourceError

# (tile rows, warp rows, tile k, threads): the tiles of both policies, and some of neither.
SHAPES = (
    (128, 64, 16, 256),
    (64, 32, 32, 256),
    (32, 16, 16, 256),
    (32, 16, 32, 256),
    (128, 32, 32, 1024),
    (256, 128, 16, 256),
    (192, 48, 48, 1024),
    (96, 48, 16, 128),
)


def layouts():
    for rows, warp, k, threads in SHAPES:
        for atom in (16, 32):
            for kw in (4, 2, 1):
                for contiguous in (True, False):
                    for interleave in (True, False):
                        if warp % atom == 0 and k % (64 // atom * kw) == 0:
                            yield TileLayout(
                                "T", rows, k, warp, atom, 64 // atom, kw, threads, contiguous, interleave
                            )


LAYOUTS = list(layouts())


def name(layout):
    kind = "k" if layout.k_contiguous else "rows"
    return f"{layout.rows}x{layout.k}-w{layout.warp_rows}-a{layout.atom}-kw{layout.kw}-{kind}-{layout.wide}"


# Lanes that can conflict, by bytes a lane (LDS facts: ds_read_b128; assumed for the others).
QUADS = ((0, 20), (4, 16), (8, 28), (12, 24))
PHASES = {
    16: [[b + h + i for b in pair for i in range(4)] for h in (0, 32) for pair in QUADS],
    8: [list(range(start, start + 16)) for start in range(0, 64, 16)],
    4: [list(range(start, start + 32)) for start in range(0, 64, 32)],
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=name)
def test_element_to_word_is_a_bijection(layout):
    row, k = np.indices((layout.rows, layout.k))
    words = layout.word(row, k)
    assert sorted(words.ravel()) == list(range(layout.rows * layout.k))
    back = layout.element(words)
    assert (back[0] == row).all() and (back[1] == k).all()


@pytest.mark.parametrize("layout", LAYOUTS, ids=name)
def test_work_items_stage_every_element_once_and_consecutively(layout):
    threads = np.arange(layout.threads)
    seen = np.zeros((layout.rows, layout.k), int)
    for load in range(layout.loads):
        row, k = layout.staged(threads, load)
        word = layout.word(row, k)
        assert (word == (threads + load * layout.threads) * layout.vec).all()
        for e in range(layout.vec):
            r, kk = (row, k + e) if layout.k_contiguous else (row + e, k)
            assert (layout.word(r, kk) == word + e).all()
            np.add.at(seen, (r, kk), 1)
        same = layout.offset_from_first(load)
        if same is not None:
            first = layout.staged(threads, 0)
            assert (row - first[0] == same[0]).all() and (k - first[1] == same[1]).all()
    assert (seen == 1).all()


@pytest.mark.parametrize("layout", LAYOUTS, ids=name)
def test_atoms_partition_the_wave_rows(layout):
    t, i = np.indices((layout.atoms, layout.atom))
    rows = layout.row_of(t, i)
    assert sorted(rows.ravel()) == list(range(layout.warp_rows))
    assert (layout.slot_of(rows) == t * layout.atom + i).all()


def reads(layout):
    """First word per lane of every fragment read of every wave, by the definition of the tile."""
    lane = np.arange(64)
    i, g = lane % layout.atom, lane // layout.atom
    width = layout.kw if layout.k_contiguous else layout.wide
    for wave in range(0, layout.rows, layout.warp_rows):
        for span in range(layout.spans):
            k = span * layout.span + g * layout.kw
            if layout.k_contiguous:
                for t in range(layout.atoms):
                    yield layout.word(wave + layout.row_of(t, i), k), width
                continue
            for s in range(layout.kw):
                for t in range(0, layout.atoms, layout.wide):
                    yield layout.word(wave + layout.row_of(t, i), k + s), width


@pytest.mark.parametrize("layout", LAYOUTS, ids=name)
def test_reads_have_no_bank_conflicts(layout):
    if not layout.k_contiguous and layout.wide == 1 and layout.groups == 4 and layout.atoms > 1:
        pytest.skip("an odd number of atoms beside each other, rows contiguous: a documented conflict")
    if not layout.k_contiguous and layout.rows % BANK_WORDS:
        pytest.skip("rows that do not fill lines")
    for first, width in reads(layout):
        assert (first % width == 0).all()
        for phase in PHASES[4 * width]:
            words = (first[phase][:, None] + np.arange(width)).ravel()
            banks = words % BANK_WORDS
            assert len(np.unique(banks)) == len(np.unique(words)), (phase, sorted(banks))


def test_a_tile_that_does_not_divide_is_refused():
    with pytest.raises(ResourceError, match="24x10 tile of A does not divide among 256 work-items"):
        TileLayout("A", 24, 10, 24, 8, 8, 1, 256, True, False)


@pytest.mark.parametrize("divisor", [1, 2, 3, 5, 6, 7, 12, 24, 48, 96, 1000])
def test_division_by_multiplication_is_exact(divisor):
    magic, bits = division_magic(divisor, 4096)
    x = np.arange(4096, dtype=np.uint64)
    assert magic < 1 << 24 and 4095 * magic < 1 << 32
    assert (x * np.uint64(magic) >> np.uint64(bits) == x // np.uint64(divisor)).all()
