"""Chains of matrix instructions over all pairs: claims compared with the maps and with integer products."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

import simgpu.hardware.isa  # noqa: F401  (fills the registry)
from simgpu.hardware.errors import TargetError
from simgpu.hardware.isa.spec import REGISTRY
from simgpu.hardware.mfma import MatrixInstruction, find, instructions
from simgpu.hardware.mfma.chain import Chain, chain, conversion, exchange, lane_blocks, wanted_of_lanes

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")


def layouts(target: str) -> list[MatrixInstruction]:
    """Returns one instruction of each layout: types of a width are alike."""
    forms = {True: [(0, 0), (4, 4)], False: [(0, 0)]}
    rows = [row.with_formats(*f) for row in instructions(target) for f in forms[row.flexible]]
    kinds = {(r.m, r.n, r.k, r.blocks, r.width("B"), r.cd_type == "f64", r.sparse): r for r in rows}
    return list(kinds.values())


PAIRS = [
    (first, second, operand)
    for target in TARGETS
    for first, second in itertools.product(layouts(target), repeat=2)
    for operand in "AB"
]


@functools.cache
def held(first: MatrixInstruction) -> np.ndarray:
    """Returns (i, j, block) of D by element register and lane: (elements, 64, 3)."""
    wide = 2 if first.cd_type == "f64" else 1
    rows = range(0, first.registers("D"), wide)
    return np.array([[first.element("D", r, lane) for lane in range(64)] for r in rows])


@functools.cache
def wanted(second: MatrixInstruction, operand: str) -> np.ndarray:
    """Returns (outer, k, block) of the operand by element and lane: (elements, 64, 3)."""
    bits = second.width(operand)
    count = second.shape(operand)[0] * second.shape(operand)[1] * second.blocks // 64
    found = np.array([
        [second.element(operand, e * bits // 32, lane, e * bits % 32) for lane in range(64)] for e in range(count)
    ])  # fmt: skip
    return found if operand == "A" else found[..., [1, 0, 2]]


def rows_by_k(link: Chain) -> np.ndarray:
    """Returns the row of D at (step, block of second, k), from the maps only. Fails if lanes disagree.

    It is for block 0 of the blocks of D that follow in registers.
    """
    d, x = held(link.first), wanted(link.second, link.operand)
    d = d[: link.rows]
    found = np.full((link.steps, link.second.blocks, link.second.k), -1)
    for step, element in np.ndindex(link.steps, len(x)):
        tile, register = divmod(step * len(x) + element, len(d))
        rows = link.first.m * tile + d[register, :, 0]
        where = found[step, x[element, :, 2], x[element, :, 1]]
        assert ((where == -1) | (where == rows)).all()
        found[step, x[element, :, 2], x[element, :, 1]] = rows
        assert (found[step, x[element, :, 2], x[element, :, 1]] == rows).all(), "lanes of one k disagree"
    return found


def is_free_by_the_maps(first: MatrixInstruction, second: MatrixInstruction, operand: str) -> bool:
    """Returns what `chain` must find, without bits: True if every output of second is a whole sum over one column."""
    link = Chain(first, second, operand)
    d, x = held(first)[: link.rows], wanted(second, operand)
    try:
        found = rows_by_k(link)
    except AssertionError:
        return False
    column = d[0, :, 1] + first.n * d[0, :, 2]
    where = x[0, :, 0] + 64 * x[0, :, 2]  # lanes of one outer index and block hold one column
    if any(len(set(column[where == each])) > 1 for each in set(where)):
        return False
    if lane_blocks(first) > 1:  # blocks of D are separate matrices: one outer index set, one block
        for block in range(second.blocks):
            if len(set(d[0, x[0, :, 2] == block, 2])) > 1:
                return False
    columns = [frozenset(column[x[0, :, 2] == block]) for block in range(second.blocks)]
    for each in set(columns):  # the blocks of these columns have every row between them, or each has
        blocks = [block for block in range(second.blocks) if columns[block] == each]
        rows = [sorted(found[:, block].ravel()) for block in blocks]
        every = list(range(first.m * link.tiles))
        together = sorted(row for part in rows for row in part) == every and lane_blocks(second) == 1
        if not together and any(part != every for part in rows):
            return False
    return True


@pytest.mark.parametrize("target", TARGETS)
def test_every_pair_is_free_exactly_where_the_maps_say_and_the_closed_form_is_the_map(target):
    free = 0
    cache: dict[tuple, bool] = {}
    done = set()
    for first, second, operand in (p for p in PAIRS if p[0].target == target):
        link = chain(first, second, operand)
        if link.reason:
            assert second.sparse and operand == "A"
            continue
        x = second.width(operand), second.k, second.blocks, second.n, second.flexible
        key = (first.m, first.n, first.blocks, first.cd_type == "f64", *x, operand)
        if key not in cache:
            cache[key] = is_free_by_the_maps(first, second, operand)
        assert link.free == cache[key], (first.mnemonic, second.mnemonic, operand, link)
        if not link.free or key in done:
            continue
        done.add(key)
        free += 1
        found = rows_by_k(link)
        blocks = range(second.blocks)
        closed = [[[link.row(s, k, b) for k in range(second.k)] for b in blocks] for s in range(link.steps)]
        assert (found == closed).all(), (first.mnemonic, second.mnemonic)
        rows = found[:, list(link.parts[0])]
        assert sorted(rows.ravel()) == list(range(first.m * link.tiles))
        assert link.natural == (list(rows.ravel()) == sorted(rows.ravel()))
    assert free > 20


PRODUCTS = [
    ("v_mfma_f32_16x16x4f32", "v_mfma_f32_16x16x4f32", "gfx908"),
    ("v_mfma_f32_32x32x2f32", "v_mfma_f32_32x32x2f32", "gfx90a"),
    ("v_mfma_f32_32x32x8f16", "v_mfma_f32_32x32x8f16", "gfx908"),
    ("v_mfma_f32_16x16x16_f16", "v_mfma_f32_16x16x32_fp8_fp8", "gfx942"),
    ("v_mfma_f32_16x16x4_f32", "v_mfma_f32_16x16x1_4b_f32", "gfx942"),
    ("v_mfma_f64_16x16x4_f64", "v_mfma_f64_16x16x4_f64", "gfx942"),
    ("v_mfma_f32_4x4x4_16b_f16", "v_mfma_f32_4x4x4_16b_f16", "gfx942"),
    ("v_mfma_f32_16x16x32_f16", "v_mfma_f32_16x16x128_f8f6f4", "gfx950"),
    ("v_mfma_f32_32x32x16_f16", "v_mfma_f32_32x32x16_f16", "gfx950"),
]


@pytest.mark.parametrize("operand", "AB")
@pytest.mark.parametrize("names", PRODUCTS, ids=lambda names: f"{names[2]}-{names[0]}-{names[1]}")
def test_chained_products_are_exact(names, operand):
    """Small integers, fragments only: D's registers become the operand, and `row` loads the other operand."""
    first, second = find(names[0], names[2]), find(names[1], names[2]).with_formats()
    link = chain(first, second, operand)
    assert link.free
    rng = np.random.default_rng(7)
    height = first.m * link.tiles
    d = rng.integers(-3, 4, (first.blocks, height, first.n))
    elements = held(first)
    lanes = np.zeros((link.tiles * link.rows, 64), int)
    for (register, lane), tile in itertools.product(np.ndindex(link.rows, 64), range(link.tiles)):
        i, j, block = elements[register, lane]
        lanes[tile * link.rows + register, lane] = d[block, tile * first.m + i, j]
    other = rng.integers(-3, 4, (height, second.m))  # Aᵀ for B's chain, B for A's
    x = wanted(second, operand)
    out = np.zeros((second.blocks, x[..., 0].max() + 1, other.shape[1]), int)
    for step in range(link.steps):
        for element, lane in np.ndindex(x.shape[:2]):
            outer, k, block = x[element, lane]
            out[block, outer] += lanes[step * len(x) + element, lane] * other[link.row(step, k, block)]
    if link.row_blocks:
        assert (out[list(link.parts[0])].sum(0) == d[0].T @ other).all()
    elif first.blocks == second.blocks:
        assert (out == d.transpose(0, 2, 1) @ other).all()
    else:
        assert (out == d[0].T @ other).all()


def test_the_table_of_the_f32_atoms():
    """Known kernels: 16x16x4 f32 strides by 4, f16 16x16x16 is in order, f8 uses two tiles."""
    link = chain(find("v_mfma_f32_16x16x4f32", "gfx908"), find("v_mfma_f32_16x16x4f32", "gfx908"))
    assert [[link.row(s, k) for k in range(4)] for s in range(4)] == [[s + 4 * g for g in range(4)] for s in range(4)]
    assert link.formula() == "g = lane//16, r = s: row = 4g + r" and not link.natural
    half = find("v_mfma_f32_16x16x16f16", "gfx90a")
    assert chain(half, half).natural and chain(half, half, "A").natural
    wide = find("v_mfma_f32_16x16x32_f16", "gfx950")
    assert chain(wide, wide).tiles == 2
    assert chain(wide, wide).formula() == "g = lane//16, r = e; tile, r = divmod(r, 4): row = 16·tile + 4g + r"
    big = find("v_mfma_f32_32x32x2f32", "gfx908")
    assert chain(big, big).formula() == "g = lane//32, r = s: row = 8·(r//4) + 4g + r%4"


def test_what_has_to_move():
    wide, narrow = find("v_mfma_f32_32x32x8f16", "gfx90a"), find("v_mfma_f32_16x16x16f16", "gfx90a")
    (move,) = chain(wide, narrow).moves
    assert (move.bit, move.held, move.wanted) == (4, "column", "k") and "ds_swizzle_b32" in move.instruction
    (back,) = chain(narrow, wide).moves
    assert (back.bit, back.held, back.wanted) == (4, "row", "outer")
    on950 = [find(n, "gfx950") for n in ("v_mfma_f32_32x32x16_f16", "v_mfma_f32_16x16x32_f16")]
    assert chain(*on950).moves[0].instruction == "v_permlane16_swap_b32"


@pytest.mark.parametrize("target", TARGETS)
def test_the_moves_suffice(target):
    """Exchanging each named lane bit with a register bit that holds the wanted value makes the lanes fit."""
    seen = set()
    for first, second, operand in (p for p in PAIRS if p[0].target == target):
        link = chain(first, second, operand)
        key = (first.m, first.n, first.blocks, first.cd_type == "f64", second.n, second.blocks, operand)
        if not link.moves or key in seen:
            continue
        seen.add(key)
        lanes = [(f"{kind}{bit}", kind) for bit, kind in enumerate(_kinds(first))]
        registers = ["row"] * 6 + ["column"] * 6  # enough rows and tiles to the right
        after = [kind for _, kind in lanes]
        for move in link.moves:
            kind = "row" if move.wanted == "k" else "column"
            assert after[move.bit] == move.held
            registers[registers.index(kind)], after[move.bit] = after[move.bit], kind
        fits = {("column", "outer"), ("row", "k"), ("D block", "block"), ("column", "block")}
        if lane_blocks(second) == 1:
            fits.add(("row", "block"))
        assert all(pair in fits for pair in zip(after, wanted_of_lanes(second, operand), strict=True))


def _kinds(first: MatrixInstruction) -> list[str]:
    """Returns the meaning of each lane bit of D, from the map."""
    d = held(first)[0]
    return ["column" if d[1 << b][1] else "D block" if d[1 << b][2] else "row" for b in range(6)]


@pytest.mark.parametrize("target", TARGETS)
def test_named_instructions_exist(target):
    known = {spec.mnemonic for spec in REGISTRY.specs if target in spec.opcodes}
    texts = [exchange(bit, target) for bit in range(6)]
    kinds = {kind for row in instructions(target) for kind in (row._formats().a_type, row._formats().b_type)}
    texts += [conversion(s, kind, target) for s in ("f32", "i32") for kind in kinds]
    for word in {w.strip(",") for text in texts for w in text.split()}:
        if word.startswith(("v_", "ds_")):
            assert word.removesuffix("_dpp") in known, word


def test_errors_and_smfmac():
    dense, sparse = find("v_mfma_f32_16x16x16_f16", "gfx942"), find("v_smfmac_f32_16x16x32_f16", "gfx942")
    assert "prune" in chain(dense, sparse, "A").reason
    assert chain(dense, sparse, "B").free and chain(sparse, dense, "A").free
    with pytest.raises(TargetError, match="not 'C'"):
        chain(dense, dense, "C")
    with pytest.raises(TargetError, match="gfx90a"):
        chain(dense, find("v_mfma_f32_16x16x16f16", "gfx90a"))
