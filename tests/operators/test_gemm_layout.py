"""Operand tiles in LDS: every layout is a bijection, staged once, and read and written without bank conflicts."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

import numpy as np
import pytest

from simgpu.asm.builder.formula import DIVIDEND_LIMIT, division_magic, division_words
from simgpu.checks.path_trace.patterns import group_clocks
from simgpu.hardware import target as board
from simgpu.hardware.errors import ResourceError, TargetError
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.hardware.timing_rules import lds_banks
from simgpu.operators.gemm.layout import TileLayout, TileLayouts
from simgpu.operators.gemm.limits import transposed_words
from simgpu.operators.gemm.loads import load_clocks
from simgpu.operators.gemm.plan import with_tiling
from simgpu.operators.gemm.tree import TiledComputation

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
TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
PROBLEMS = ((4096, 4096, 4096), (1000, 777, 333), (40, 40, 40))


def plain_layouts():
    """Yields f32 layouts in every shape, with 16- and 32-wide atoms and both ways to count rows."""
    for rows, warp, k, threads in SHAPES:
        for atom in (16, 32):
            for kw in (4, 2, 1):
                for contiguous in (True, False):
                    for interleave in (True, False):
                        if warp % atom == 0 and k % (64 // atom * kw) == 0:
                            yield TileLayout("T", rows, k, warp, atom, 64 // atom, kw, threads, contiguous, interleave)


def planned_layouts(target):
    """Yields layouts in plans of every type on a target."""
    for name in board(target).dtypes():
        for sizes in PROBLEMS:
            for trans in (False, True):
                tiles = TileLayouts.of(TiledComputation(*sizes, target, dtype=name, trans_a=trans, trans_b=trans).first())
                yield from (tiles.a, tiles.b)


def odd_layouts():
    """Yields tiles of an odd number of atoms a wave, or of pairs, with contiguous rows."""
    for rows in (96, 160, 192, 224):
        for element, operand, k in ((2, 2, 32), (2, 4, 64), (1, 2, 64), (1, 2, 128), (4, 2, 32)):
            yield TileLayout("T", rows, k, rows // 2, 16, 4, 4, 256, False, True, element, operand)


def preshuffled_layouts():
    """Yields tiles of a preshuffled matrix: one, two and four alternating atoms, LDS rows of 64 and 128 bytes, pieces of half a
    chunk.
    """
    for rows in (32, 64, 96, 128, 160, 224, 256):
        for element, operand, k in ((2, 2, 32), (2, 4, 64), (2, 4, 128), (1, 2, 64), (1, 2, 128), (4, 1, 16), (8, 2, 8)):
            yield TileLayout("B", rows, k, rows // 2, 16, 4, 4, 256, True, True, element, operand, panel=16)


def aligned_layouts():
    """Yields tiles of 4-byte elements whose loads begin with half a line, or a line, of 64 or 128 bytes."""
    steps = ((16, 64), (32, 64), (32, 128))
    for rows, (k, aligned), interleave in itertools.product((32, 64, 96, 128, 160, 256), steps, (False, True)):
        yield TileLayout("T", rows, k, rows // 2, 16, 4, 4, 256, True, interleave, aligned=aligned)


KINDS = {"plain": plain_layouts, "odd": odd_layouts, "preshuffled": preshuffled_layouts, "aligned": aligned_layouts}
KINDS |= {target: functools.partial(planned_layouts, target) for target in TARGETS}


@functools.cache
def layouts(kind):
    """Returns the layouts of a kind, each once. There are hundreds, so a test has all of one kind."""
    return list(dict.fromkeys(KINDS[kind]()))


@pytest.mark.parametrize("target", TARGETS)
def test_the_cost_has_the_loads_that_are_emitted(target):
    """Compares the closed form of a step's loads with the coalescer's clocks for each wave of the layout: aligned rows."""
    for name in board(target).dtypes():
        for (m, n), (trans_a, trans_b) in itertools.product(((1152, 1152), (2560, 2624)), ((False, True), (True, False))):
            found = TiledComputation(m, n, 1152, target, dtype=name, trans_a=trans_a, trans_b=trans_b).first()
            problem, tiles = found.plan.problem, TileLayouts.of(found)
            for layout, across in ((tiles.a, m), (tiles.b, n)):
                stride = 1152 if layout.k_contiguous else across
                closed = load_clocks(problem, found.plan.descriptor, found.plan.tiling, layout.name)
                assert closed == traced_clocks(layout, stride, pipelines(target).cache_line)


@pytest.mark.parametrize("target", TARGETS)
def test_rows_at_odd_addresses_take_the_lines_that_they_touch(target):
    """Compares operands whose k, or rows of a tile, fill whole groups of lanes. Rows of others meet banks by chance."""
    line, seen = pipelines(target).cache_line, 0
    for name, trans in itertools.product(board(target).dtypes(), (False, True)):
        found = TiledComputation(1151, 1153, 1153, target, dtype=name, trans_a=trans, trans_b=not trans).first()
        problem, tiles = found.plan.problem, TileLayouts.of(found)
        for layout, stride in ((tiles.a, 1151 if trans else 1153), (tiles.b, 1153)):
            if layout.transposes:
                continue
            seen += 1
            closed = load_clocks(problem, found.plan.descriptor, found.plan.tiling, layout.name)
            assert closed == pytest.approx(traced_clocks(layout, stride, line), rel=0.08), (name, layout)
    assert seen


@pytest.mark.parametrize("target", TARGETS)
def test_the_cost_transposes_the_registers_that_are_staged(target):
    """Includes tiles whose rows are padded to a power of two, and tiles of fewer elements than the lanes' squares have."""
    padded, small = 0, 0
    for name, side in itertools.product(board(target).dtypes(), (32, 64, 96, 160, 224)):
        tree = TiledComputation(2560, 2560, 2560, target, dtype=name, trans_a=True)
        tiling = replace(tree.plan.tiling, tile_m=side, tile_n=side, tile_k=tree.plan.warp_k)
        tree.derivation = with_tiling(tree.problem, tree.descriptor, "corrected", tiling)
        try:
            tiles = TileLayouts.of(tree.first())
        except ResourceError:  # the tile does not divide among the work-items
            continue
        for layout in (tiles.a, tiles.b):
            staged = layout.staged_words * layout.threads if layout.transposes else 0
            assert transposed_words(tree.problem, layout.name, tiling) == staged, layout
            padded += layout.transposes and layout.rows < layout.block_rows
            small += layout.transposes and layout.units < layout.threads
    assert padded and small


def traced_clocks(layout, stride, line):
    """Returns the coalescer's clocks for all loads of a tile whose rows in memory are `stride` elements apart. line: bytes."""
    width, clocks, shift = layout.vec * layout.element, 0, line.bit_length() - 1
    for unit, wave in itertools.product(range(layout.loads), range(layout.threads // 64)):
        row, k = layout.staged_element(np.arange(64 * wave, 64 * wave + 64), unit)
        for level in range(layout.depth):
            k = behind_line(layout, row, k, stride)
            starts = (row * stride + k if layout.k_contiguous else (k + level) * stride + row) * layout.element
            clocks += wave_clocks(starts, width, shift)
    return clocks


def wave_clocks(starts, width, shift):
    """Returns the coalescer's clocks for an access of a wave. width: bytes of a lane. shift: log2 of a line's bytes."""
    every = 16 if width <= 4 else 4
    return sum(group_clocks(starts, (1 << 64) - 1, first, every, width, shift) for first in range(0, 64, every))


def behind_line(layout, row, k, stride):
    """Returns the k that lanes load whose rows begin with a line at k = 0. Rows are `stride` elements apart in memory."""
    return k - row * stride % (layout.aligned // layout.element) if layout.aligned else k


def elements_are_apart(layout):
    row, k = np.indices((layout.rows, layout.k))
    places = layout.byte(row, k)
    assert (np.sort(places.ravel()) == layout.element * np.arange(layout.rows * layout.k)).all()
    back = layout.at(places)
    assert (back[0] == row).all() and (back[1] == k).all()


def elements_are_staged_once(layout):
    """Elements are staged once, unless units are fewer than work-items, or the last rows stand in for rows past the tile.

    LDS writes go where the kernel puts them.
    """
    threads = np.arange(layout.threads)
    seen = np.zeros((layout.rows, layout.k), int)
    for load in range(layout.loads):
        row, k = layout.staged_element(threads, load)
        if layout.panel:
            first, (xor, plus) = layout.byte(*layout.staged_element(threads, 0)), layout.write_step(load, 0)
            assert xor == 0 and (layout.byte(row, k) == first + plus).all()
        elif not layout.transposes and not layout.aligned:
            place = (threads + load * layout.threads) * layout.vec * layout.element
            assert (layout.byte(row, k) == place).all()
        for j in range(layout.depth):
            for e in range(layout.vec):
                r, kk = (row, k + e) if layout.k_contiguous else (row + e, k + j)
                np.add.at(seen, (r, kk), 1)
        for piece in range(layout.vec if layout.transposes else 0):
            xor, plus = layout.write_step(load, piece)
            begin = layout.staged_element(threads, 0)
            first = layout.byte(begin[0] + layout.piece(threads, 0), begin[1])
            for x in range(layout.depth):
                assert (layout.byte(row + layout.piece(threads, piece), k + x) == (first ^ xor) + plus + x * layout.element).all()
        same = layout.offset_from_first(load)
        if same is not None:
            first = layout.staged_element(threads, 0)
            assert (row - first[0] == same[0]).all() and (k - first[1] == same[1]).all()
    whole = layout.rows - (layout.vec * layout.row_lanes if layout.rows < layout.block_rows else 0)
    assert (seen[:whole] == max(1, layout.threads // layout.units)).all()
    assert (seen >= 1).all()


def atoms_partition_the_wave_rows(layout):
    t, i = np.indices((layout.atoms, layout.atom))
    rows = layout.row_of(t, i)
    assert (np.sort(rows.ravel()) == np.arange(layout.warp_rows)).all()
    assert (layout.slot_of(rows) == t * layout.atom + layout.lane_slot(i)).all()


@pytest.mark.covering(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("law", [elements_are_apart, elements_are_staged_once, atoms_partition_the_wave_rows])
def test_layouts_are_bijections_and_staged_once(kind, law):
    assert layouts(kind)
    for layout in layouts(kind):
        law(layout)


def accesses(layout):
    """Yields (kind, bytes of a lane, address of each lane) of every read and write of every wave, by the definition of the tile."""
    lane = np.arange(64)
    i, g = lane % layout.atom, lane // layout.atom
    for wave in range(0, layout.rows, layout.warp_rows):
        for k in range(0, 0 if layout.beside else layout.k, layout.span):
            if layout.lines:
                for s in range(layout.chunk):
                    for t in range(0, layout.atoms, layout.wide):
                        place = layout.byte(wave + layout.row_of(t, i), k + g * layout.chunk + s)
                        yield "read", layout.wide * layout.element, place
            else:
                for t in range(layout.atoms):
                    yield "read", 4 * layout.kw, layout.byte(wave + layout.row_of(t, i), k + g * layout.chunk)
        for k in range(0, layout.k if layout.beside else 0, layout.turn_k):
            for t in range(layout.atoms):
                for eight in range(3):
                    yield "read", 8, layout.byte(wave + layout.row_of(t, i), k + 24 * g + 8 * eight)
    for first in range(0, layout.threads, 64):
        for load in range(layout.loads):
            row, k = layout.staged_element(first + lane, load)
            k = behind_line(layout, row, k, 333) % layout.k if layout.aligned else k
            for piece in range(layout.vec if layout.transposes else 1):
                size = (layout.depth if layout.transposes else layout.vec) * layout.element
                yield "write", size, layout.byte(row + (layout.piece(first + lane, piece) if layout.transposes else 0), k)


@pytest.mark.parametrize(("target", "kind"), [
    *zip(TARGETS, TARGETS), ("gfx942", "odd"), ("gfx90a", "preshuffled"), ("gfx950", "preshuffled"), ("gfx908", "aligned"),
    ("gfx942", "aligned"),
])  # fmt: skip
def test_planned_tiles_have_no_bank_conflicts(target, kind):
    """There are none under the rules of the facts or, for targets without such rules, for consecutive lanes.

    Writes of parts of chunks by 16 lanes for one cache line take two turns, one for each half of the lanes.
    """
    for layout in layouts(kind):
        lost = {"read": 0, "write": 0}
        for what, nbytes, places in accesses(layout):
            count = lds_banks.conflicts(target, what, nbytes, places)
            lost[what] += count
            assert count <= len(lds_banks.phases(target, what, nbytes).phases), (layout, what)
        assert lost["read"] == 0 and (lost["write"] > 0) == (layout.transposes and layout.row_lanes == 16), layout


@pytest.mark.parametrize("target", TARGETS)
def test_lanes_store_columns_as_if_these_were_in_order(target):
    """Compares the coalescer's clocks of a wave's stores of C, at addresses of a line, with those of columns in order."""
    lane, shift, quads = np.arange(64), pipelines(target).cache_line.bit_length() - 1, 0
    for layout in (layout for layout in layouts(target) if layout.interleave):
        for size, first in itertools.product((2, 4), range(0, 128, 12)):
            found, ordered = (
                wave_clocks(columns * size + lane // 16 * 1028 + first, layout.wide * size, shift)
                for columns in (layout.row_of(0, lane % 16), lane % 16 * layout.wide)
            )
            assert found == ordered, (layout, size, first)
        quads += layout.quads
    assert quads


def lines_of_16_lanes(layout):
    """Returns the most 64-byte lines that 16 consecutive lanes load from rows of a kilobyte each, for all loads of dwords."""
    threads, most = np.arange(layout.threads), 0
    for load in range(layout.loads):
        row, k = layout.staged_element(threads, load)
        lines = (1024 * k + row * layout.element) // 64
        most = max(most, *(len(np.unique(some)) for some in lines.reshape(-1, 16)))
    return most


@pytest.mark.parametrize(("rows", "k", "element", "lines"), [
    (128, 64, 1, 1), (64, 64, 1, 1), (256, 64, 1, 1), (32, 64, 2, 1),
    (96, 64, 1, 2),  # 24 lanes a row: eight of each k
])  # fmt: skip
def test_lanes_of_a_dword_fill_cache_lines(rows, k, element, lines):
    layout = TileLayout("B", rows, k, rows // 2, 16, 4, 4, 256, False, True, element, 2)
    assert layout.transposes and layout.vec * element == 4 and lines_of_16_lanes(layout) == lines
    if layout.row_lanes == 16:
        assert lines_of_16_lanes(broken(layout, row_lanes=8)) == 2


def test_the_counter_counts():
    lane = np.arange(64)
    assert lds_banks.conflicts("gfx908", "read", 4, 4 * lane) == 0
    assert lds_banks.conflicts("gfx908", "read", 4, 8 * lane) == 2  # two lanes a bank, in each of two phases
    assert lds_banks.conflicts("gfx908", "read", 4, 128 * lane) == 2 * 31
    assert lds_banks.conflicts("gfx908", "read", 4, 0 * lane) == 0, "one word is broadcast"
    assert lds_banks.conflicts("gfx908", "read", 4, 128 * lane, active=lane < 3) == 2
    assert lds_banks.conflicts("gfx908", "read", 16, 16 * lane) == 0
    # Rows of 64 bytes without a swizzle: eight lanes of a b128 phase use two places.
    assert lds_banks.conflicts("gfx908", "read", 16, 64 * (lane % 16) + 16 * (lane // 16)) > 0
    assert lds_banks.conflicts("gfx950", "read", 8, 8 * lane) == 0
    assert lds_banks.conflicts("gfx942", "write", 16, 32 * lane) == 8
    with pytest.raises(TargetError, match="read of 20 bytes"):
        lds_banks.phases("gfx908", "read", 20)


def broken(layout, **changed):
    """Returns the same tile with other values for some of its properties."""
    kind = type("Broken", (TileLayout,), changed)
    return kind(**{name: getattr(layout, name) for name in layout.__dataclass_fields__})


def test_a_swizzle_is_what_keeps_rows_apart():
    """Finds conflicts in the planned f32 tile without its swizzle."""
    layout = TileLayouts.of(TiledComputation(4096, 4096, 4096).first()).a
    flat = broken(layout, swizzle=lambda self, row: 0 * row)
    assert sum(lds_banks.conflicts("gfx908", *access) for access in accesses(flat)) > 0


def test_turned_blocks_and_pairs_are_what_keeps_odd_tiles_apart():
    lines = TileLayout("B", 96, 16, 48, 16, 4, 4, 256, False, True)
    narrow = TileLayout("B", 96, 64, 48, 16, 4, 4, 256, False, True, 1, 2)
    assert lines.odd_blocks_apart and narrow.pairs
    for layout, without in ((lines, broken(lines, swap=0)), (narrow, broken(narrow, pairs=False))):
        for target, one, fine in (("gfx942", layout, True), ("gfx942", without, False), ("gfx950", layout, True)):
            assert (sum(lds_banks.conflicts(target, *access) for access in accesses(one)) == 0) == fine


def test_a_tile_that_does_not_divide_is_refused():
    with pytest.raises(ResourceError, match="24x10 tile of A does not divide among 256 work-items"):
        TileLayout("A", 24, 10, 24, 8, 8, 1, 256, True, False)
    with pytest.raises(ResourceError, match="16x64 tile of B does not divide"):
        TileLayout("B", 16, 64, 16, 16, 4, 4, 256, False, True, 1, 2)


@pytest.mark.parametrize("divisor", [1, 2, 3, 5, 6, 7, 12, 24, 48, 96, 1000])
def test_division_by_multiplication_is_exact(divisor):
    found = division_magic(divisor, 4096)
    assert found is not None
    magic, bits = found
    x = np.arange(4096, dtype=np.uint64)
    assert magic < 1 << 24 and 4095 * magic < 1 << 32
    assert (x * np.uint64(magic) >> np.uint64(bits) == x // np.uint64(divisor)).all()


@pytest.mark.parametrize("divisor", [1, 2, 3, 6, 7, 641, 65537, (1 << 30) + 1, (1 << 31) - 1])
def test_division_of_31_bits_is_exact(divisor):
    _, magic, shift = division_words(divisor)
    most = DIVIDEND_LIMIT // divisor
    x = {min(quotient * divisor + rest, DIVIDEND_LIMIT - 1) for quotient in (0, 1, most // 2, most) for rest in (0, 1, divisor - 1)}
    assert magic < 1 << 32
    assert all((2 * value * magic >> 32) >> shift == value // divisor for value in x)
