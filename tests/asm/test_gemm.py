"""GEMM kernels: text, assembly, and results on the simulated GPU."""

from __future__ import annotations

import functools
import itertools
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simgpu
from simgpu import asm
from simgpu.asm.gemm.operands import check
from simgpu.asm.gemm.turn import Turn
from simgpu.hardware import target as board
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.errors import LaunchError, ResourceError, TargetError
from simgpu.operators.gemm.layout import TileLayouts
from simgpu.operators.gemm.order import group_rows, tile_at
from simgpu.operators.gemm.plan import with_tiling
from simgpu.operators.gemm.problem import GemmProblem
from simgpu.operators.gemm.tree import TiledComputation
from simgpu.tools.tables.listing import listing_lines
from tests.support.devices import device
from tests.support.exhaustive import examples, left_out
from tests.support.gemm_case import GUARD, TARGETS, TRANSPOSES, TYPES, gemm

CASES = [(target, name) for target in TARGETS for name in TYPES if name in board(target).dtypes()]
# Corner cases of every kind: below a tile, whole tiles, odd strides that are not aligned, more than one tile.
SHAPES = (((5, 3, 7), (0, 0, 0), GUARD), ((64, 64, 128), (0, 0, 0), 0), ((70, 37, 53), (1, 3, 2), GUARD))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("trans", TRANSPOSES)
@pytest.mark.parametrize(("target", "name"), CASES)
def test_every_type_validates_on_every_target(target, name, trans, shape):
    sizes, pads, guard = shape
    gemm(*sizes, target, name, trans, pads=pads, guard=guard).check()


@settings(max_examples=examples(15), suppress_health_check=list(HealthCheck))
@given(
    sizes=st.tuples(*[st.integers(1, 150) | st.integers(1, 20) | st.sampled_from((16, 64, 128))] * 3),
    case=st.sampled_from(CASES),
    trans=st.sampled_from(TRANSPOSES),
    scales=st.sampled_from(((1, 0), (1, 1), (-3, 2), (2, 0), (0, 5))),
    pads=st.tuples(*[st.integers(0, 5)] * 3),
    batch=st.sampled_from((1, 1, 1, 3)),
    bias=st.booleans(),
    activation=st.sampled_from(("none", "relu")),
)
def test_any_shape_validates(sizes, case, trans, scales, pads, batch, bias, activation):
    gemm(*sizes, *case, trans, *scales, pads, batch, bias, activation).check()


@pytest.mark.parametrize("name", ["f32", "f16"])
@pytest.mark.parametrize("trans", TRANSPOSES)
@pytest.mark.parametrize("cus", [304, 1])
def test_the_published_tiles_validate(name, trans, cus):
    """Takes the paper's tiles on one CU; on 304 CUs, the smaller ones that its occupancy rule gives."""
    descriptor = replace(board("gfx942"), num_cus=cus)
    result = gemm(150, 130, 70, "gfx942", name, trans, pads=(1, 2, 3), policy="published", descriptor=descriptor)
    assert result.kernel.plan.tile_m == result.kernel.plan.tile_n == (128 if cus == 1 else 64)
    result.check()


@pytest.mark.parametrize("activation", ["gelu", "silu", "relu"])
@pytest.mark.parametrize("k", [16, 3000])
def test_activations(activation, k):
    """Activations in the kernel itself, and in the one that adds the parts of a split K."""
    result = gemm(40, 50, k, "gfx942", "f16", alpha=0.25, beta=2.0, bias=True, activation=activation)
    assert (result.kernel.plan.split_k > 1) == (k > 16) == bool(result.kernel.following)
    result.check()


@pytest.mark.parametrize("activation", ["gelu", "silu"])
@pytest.mark.parametrize(("target", "k"), [("gfx90a", 16), ("gfx942", 3000), ("gfx950", 16)])
def test_activations_of_f64(target, k, activation):
    """They are always in a second kernel; batched, with strides. Checked mode finds nothing."""
    checked = (target, activation) == ("gfx950", "gelu")
    result = gemm(40, 50, k, target, "f64", (False, True), 1.5, 2.0, (1, 2, 3), 2, True, activation, check=checked)
    assert [step.name.startswith("gemm_reduce") for step in result.kernel.steps] == [False, True]
    result.check()
    assert not [str(finding) for run in result.runs for finding in run.findings]


@pytest.mark.parametrize("activation", ["gelu", "silu"])
def test_activations_of_f64_are_those_of_the_value(activation):
    """x times 1 for x of every size is off by a few roundings of x. NaN and infinities match the reference."""
    values = np.concatenate([np.linspace(-45, 45, 2000), *([s * 10.0**p for p in range(-300, 300, 7)] for s in (-1, 1))])
    values = np.concatenate([values, [-750, -745.2, -709.9, -709.5, 710, 0.0, -0.0, np.nan, np.inf, -np.inf]])

    def edit(a, b, c):
        a[:, 0], b[...] = values, 1

    with np.errstate(all="ignore"):
        result = gemm(len(values), 1, 1, "gfx90a", "f64", activation=activation, edit=edit)
    got, want = result.got.ravel(), result.want.ravel()
    finite = np.isfinite(want)
    assert (np.isnan(got) == np.isnan(want)).all() and (got[np.isinf(want)] == want[np.isinf(want)]).all()
    assert (np.abs(got[finite] - want[finite]) <= 5 * 2.0**-53 * np.abs(values[finite])).all()
    small = finite & (np.abs(want) < 1e-10) & (np.abs(values) > 1e-290) & (np.abs(values) < 30)
    np.testing.assert_allclose(got[small], want[small], rtol=1e-12, err_msg="small results are good in themselves too")


@pytest.mark.parametrize(("target", "name"), [("gfx908", "f32"), ("gfx90a", "f64"), ("gfx942", "i8"), ("gfx950", "bf16")])
def test_split_k_adds_its_parts(target, name):
    result = gemm(33, 50, 3000, target, name, pads=(1, 2, 3), alpha=3, beta=2, batch=2, bias=True)
    assert result.kernel.plan.split_k > 2 and len(result.runs) == 2
    result.check()


@pytest.mark.parametrize("parts", [2, 7, 8, 9, 17])
@pytest.mark.parametrize(("target", "name"), [("gfx908", "f32"), left_out("gfx90a", "f64"), left_out("gfx942", "i8")])
def test_parts_that_do_not_fill_the_last_load_of_them(target, name, parts):
    tile, sizes = (32, 32, 64 if name == "i8" else 16), (20, 31, (64 if name == "i8" else 16) * parts)
    result = gemm(*sizes, target, name, tiling=_tiled(target, name, (False, False), tile, sizes, parts), check=True)
    result.check()
    assert result.kernel.following[0].name.endswith(f"_{parts}_parts")
    assert not [str(finding) for run in result.runs for finding in run.findings]


STAGED_APART = [  # (target, type, transposes, tile, sizes): units of a work-item end a row in different lanes
    left_out("gfx942", "f16", (False, True), (64, 64, 128), (70, 70, 227)),
    ("gfx942", "f32", (True, False), (96, 64, 32), (141, 70, 95)),
    left_out("gfx90a", "f64", (True, False), (96, 64, 16), (141, 70, 95)),
    ("gfx950", "bf16", (False, False), (64, 96, 128), (70, 97, 353)), ("gfx908", "i8", (False, True), (64, 64, 256), (33, 47, 461)),
]  # fmt: skip


@pytest.mark.covering(1)
@pytest.mark.parametrize("split", [1, 2])
@pytest.mark.parametrize(("target", "name", "trans", "tile", "sizes"), STAGED_APART)
def test_ends_of_rows_in_any_unit_of_a_work_item(target, name, trans, tile, sizes, split):
    """Ends rows in another unit than the first chunk's, or in other lanes of it. Operands end with their allocations."""
    result = gemm(*sizes, target, name, trans, tiling=_tiled(target, name, trans, tile, sizes, split), guard=0, check=True)
    result.check()
    assert not [str(finding) for run in result.runs for finding in run.findings]


def _tiled(target, name, trans, tile, sizes, split):
    tree = TiledComputation(*sizes, target, dtype=name, trans_a=trans[0], trans_b=trans[1])
    return replace(tree.plan.tiling, tile_m=tile[0], tile_n=tile[1], tile_k=tile[2], split_k=split, blocks=1, limited_by=None)


@settings(max_examples=examples(20), suppress_health_check=list(HealthCheck))
@given(
    case=st.sampled_from(CASES),
    trans=st.sampled_from(TRANSPOSES),
    tile=st.tuples(st.sampled_from((64, 96, 128)), st.sampled_from((64, 96, 128)), st.sampled_from((16, 32, 64, 128))),
    over=st.tuples(st.integers(1, 70), st.integers(1, 70), st.integers(1, 127)),
    tiles=st.tuples(*[st.integers(0, 1)] * 2, st.integers(0, 3)),
    split=st.sampled_from((1, 1, 2)),
    pads=st.tuples(*[st.sampled_from((0, 0, 1, 3))] * 3),
    beta=st.sampled_from((0, 2)),
)
def test_any_tile_multiplies_integers_exactly(case, trans, tile, over, tiles, split, pads, beta):
    """Small integers are exact in every type, so a wrong, missing or repeated element of a row's end shows."""
    sizes = tuple(count * side + min(more, side) for count, side, more in zip(tiles, tile, over, strict=True))

    def edit(*operands):
        for number, operand in enumerate(operands):
            operand[...] = np.random.default_rng(number).integers(-2, 3, operand.shape).astype(operand.dtype)

    try:
        tiling = _tiled(*case, trans, tile, sizes, split)
        result = gemm(*sizes, *case, trans, beta=beta, pads=pads, tiling=tiling, guard=0, check=True, edit=edit)
    except (LaunchError, ResourceError):
        return  # no such tile of this type
    assert (result.got == result.want).all() and result.untouched
    assert not [str(finding) for run in result.runs for finding in run.findings]


@pytest.mark.parametrize(("sides", "in_turns"), [((96, 160), True), ((32, 32), True), ((128, 160), True), ((224, 256), False)])
def test_a_turn_leaves_lds_the_time_to_bring_its_fragments(sides, in_turns):
    """Small waves alternate two atoms through all steps, so that a fragment has half a turn, not half a step, to be read again.

    If a wave has two accumulators, an instruction on another one is always between two instructions on one.
    """
    tree = TiledComputation(4096, 4096, 64, "gfx942", dtype="bf16", trans_b=True)
    tiling = replace(tree.plan.tiling, tile_m=sides[0], tile_n=sides[1])
    tree.derivation = plan = with_tiling(tree.problem, tree.descriptor, "corrected", tiling)
    operands = TileLayouts.of(tree.first())
    turn, steps = Turn(plan, operands), operands.a.steps
    atoms = plan.warp_m // 16 * (plan.warp_n // 16)
    assert sorted(turn.order) == sorted((step, mt, nt) for step in range(steps) for mt, nt in turn.atoms)
    assert ([step for step, *_ in turn.order] == sorted(step for step, *_ in turn.order)) is not (in_turns and atoms > 2)
    if atoms > 1:
        assert all(before[1:] != after[1:] for before, after in itertools.pairwise(turn.order))


def test_split_k_is_deterministic():
    first, second = (gemm(33, 50, 2000).got for _ in range(2))
    assert (first == second).all()


@pytest.mark.parametrize(("target", "name", "sizes", "trans"), [
    left_out("gfx908", "f32", (2050, 1930, 37), (False, False)),
    left_out("gfx942", "f16", (1030, 2060, 70), (False, True)),
    ("gfx942", "f16", (1030, 1546, 70), (False, True)),
    left_out("gfx950", "fp8", (1030, 2060, 70), (True, False)),
    left_out("gfx90a", "f64", (1030, 2060, 70), (True, True)),
])  # fmt: skip
def test_large_tiles_with_edges(target, name, sizes, trans):
    """Shapes whose plan has 128x128 and 128x64 tiles with two stages."""
    result = gemm(*sizes, target, name, trans, beta=1.0, pads=(1, 2, 3))
    assert result.kernel.plan.tile_m * result.kernel.plan.tile_n >= 64 * 64
    result.check()


@pytest.mark.parametrize(("target", "name", "trans", "tile"), [
    left_out("gfx950", "bf16", (False, True), (256, 256, 64)),
    left_out("gfx950", "fp8", (True, True), (256, 224, 128)),
    ("gfx950", "fp8", (True, True), (64, 224, 128)),
    left_out("gfx942", "f16", (False, False), (224, 256, 32)),
    ("gfx908", "f32", (False, True), (192, 64, 32)),
    ("gfx90a", "f64", (True, False), (96, 96, 16)),
])  # fmt: skip
def test_many_k_tiles_of_large_tiles(target, name, trans, tile):
    """Runs the loop over tiles inside the view, then that over the tile that the edge of k cuts. Checked mode finds nothing."""
    m, n, k = tile[0] + 14, tile[1] + 4, 4 * tile[2] + 12
    tree = TiledComputation(m, n, k, target, dtype=name, trans_a=trans[0], trans_b=trans[1])
    tiling = replace(tree.plan.tiling, tile_m=tile[0], tile_n=tile[1], tile_k=tile[2], split_k=1, blocks=1, limited_by=None)
    result = gemm(m, n, k, target, name, trans, tiling=tiling, guard=0, check=target == "gfx950")
    assert result.kernel.plan.tiling == tiling and result.kernel.plan.feasible
    result.check()
    assert not [str(finding) for run in result.runs for finding in run.findings]


@pytest.mark.parametrize(("target", "name", "trans", "tile", "rows_of_a_load"), [
    ("gfx942", "bf16", (True, False), (96, 256, 32), (4, 8)),
    left_out("gfx950", "f16", (True, False), (192, 128, 64), (4, 8)),
    ("gfx90a", "i8", (True, True), (96, 64, 64), (4, 0)), ("gfx942", "xf32", (True, False), (96, 64, 32), (1, 2)),
])  # fmt: skip
@pytest.mark.parametrize("cut", [0, 3])
def test_wide_loads_of_contiguous_rows(target, name, trans, tile, rows_of_a_load, cut):
    """Rows end at multiples of 8, or inside a load. Operands end with their allocations. Checked mode finds nothing."""
    m, n, k = tile[0] + 16 - cut, tile[1] + 8 - cut, 3 * tile[2] + 12 - cut
    tree = TiledComputation(m, n, k, target, dtype=name, trans_a=trans[0], trans_b=trans[1])
    tiling = replace(tree.plan.tiling, tile_m=tile[0], tile_n=tile[1], tile_k=tile[2], split_k=1, blocks=1, limited_by=None)
    result = gemm(m, n, k, target, name, trans, tiling=tiling, guard=0, check=True)
    operands = result.layouts
    assert tuple(0 if one.k_contiguous else one.vec for one in (operands.a, operands.b)) == rows_of_a_load
    result.check()
    assert not [str(finding) for run in result.runs for finding in run.findings]


@pytest.mark.parametrize(("target", "name", "trans", "spans"), [
    ("gfx950", "f16", (False, True), 16), left_out("gfx942", "f32", (False, False), 8),
    left_out("gfx942", "fp8", (True, True), 4),
    ("gfx90a", "bf16", (True, False), 4),
])  # fmt: skip
def test_few_rows_by_deep_steps_of_k(target, name, trans, spans):
    """Every span of a step of many spans is multiplied once. Checked mode finds nothing."""
    tree = TiledComputation(5, 70, 64, target, dtype=name, trans_a=trans[0], trans_b=trans[1])
    tile_k = spans * tree.plan.warp_k
    tiling = replace(tree.plan.tiling, tile_m=32, tile_n=32, tile_k=tile_k, split_k=1, blocks=1, limited_by=None)
    result = gemm(5, 70, 3 * tile_k, target, name, trans, tiling=tiling, guard=0, check=True)
    assert result.kernel.plan.tiling == tiling and result.kernel.plan.feasible
    result.check()
    assert not [str(finding) for run in result.runs for finding in run.findings]


@pytest.mark.parametrize(("target", "name", "trans", "tile", "split"), [
    ("gfx942", "f32", (False, False), (32, 32, 32, 32), (2, 2, 2)),  # two spans at once of contiguous rows
    ("gfx90a", "f16", (True, True), (64, 48, 16, 16), (1, 1, 2)),  # eight rows of half a chunk
    ("gfx950", "fp8", (True, False), (32, 192, 512, 256), (2, 4, 1)),  # B's tile passes the reach of an LDS instruction
    ("gfx942", "f16", (True, False), (32, 32, 96, 32), (2, 2, 2)),  # three spans, transposed
    ("gfx908", "bf16", (False, False), (48, 128, 16, 16), (1, 4, 2)),  # odd elements a work-item
])  # fmt: skip
def test_tiles_that_no_formula_chooses_are_right_or_refused(target, name, trans, tile, split):
    tree = TiledComputation(100, 90, 200, target, dtype=name, trans_a=trans[0], trans_b=trans[1])
    sizes = dict(zip(("tile_m", "tile_n", "tile_k", "warp_k", "waves_m", "waves_n", "stages"), tile + split))
    tiling = replace(tree.plan.tiling, **sizes, split_k=1, blocks=1, limited_by=None)
    try:
        result = gemm(100, 90, 200, target, name, trans, tiling=tiling, guard=0, check=True)
    except ResourceError as error:
        assert re.match(f"a {tile[1]}x{tile[2]} tile of B|a {tile[0]}x{tile[2]} tile of A", str(error))
        return
    result.check()
    assert not [str(finding) for run in result.runs for finding in run.findings]


def special(a, b, c):
    a[3, 4], a[7, 2], b[5, 6] = np.nan, -np.inf, np.inf


@pytest.mark.parametrize(("target", "name", "size"), [
    ("gfx908", "f32", 96),  # lines that odd blocks read with their own address
    left_out("gfx950", "f64", 96),
    ("gfx908", "i8", 32),  # bytes transposed to an odd number of atoms
    left_out("gfx942", "bf8", 96),
])  # fmt: skip
def test_odd_tiles_run_without_bank_conflicts(target, name, size):
    """Conflicts are counted for every LDS access of the launch."""
    one = replace(board(target), num_cus=1)
    result = gemm(size, size, 70, target, name, (True, False), descriptor=one, check="performance")
    result.check()
    a, b = result.layouts.a, result.layouts.b
    assert b.rows == size and (b.odd_blocks_apart or b.pairs) and not a.k_contiguous
    counters = [run.counters for run in result.runs]
    assert sum(c["lds_read_bytes"] for c in counters) > 0 == sum(c["lds_bank_conflicts"] for c in counters)


@pytest.mark.parametrize(("target", "name"), [("gfx908", "f32"), ("gfx942", "f16"), ("gfx90a", "bf16"), ("gfx950", "f64")])
@pytest.mark.parametrize("k", [16, 600])
def test_nan_and_infinities_are_the_references(target, name, k):
    result = gemm(40, 50, k, target, name, edit=special, activation="relu" if k == 16 else "none")
    assert np.isnan(result.want).any() and np.isinf(result.want).any()
    result.check()


def poisoned(a, b, c):
    a[...], b[...] = np.nan, np.inf


@pytest.mark.parametrize("k", [16, 600])
@pytest.mark.parametrize("beta", [0.0, 2.0])
def test_alpha_0_reads_neither_a_nor_b(k, beta):
    result = gemm(40, 50, k, alpha=0.0, beta=beta, edit=poisoned)
    result.check()


def test_flops_and_bytes_of_a_run():
    """A run of whole tiles has exactly the tiles' products, writes C once, and reads only the operands."""
    (run,) = gemm(64, 64, 16).runs
    counters = run.counters
    assert counters["mfma_flops"] == 2 * 64 * 64 * 16
    assert counters["unique_write_bytes"] == counters["global_write_bytes"] == 64 * 64 * 4
    assert counters["unique_read_bytes"] == 2 * 64 * 16 * 4


def test_the_bytes_are_what_runs():
    """Replacing a v_mul_f32 of the epilogue by v_add_f32 changes the result."""
    kernel = asm.emit(TiledComputation(33, 34, 16, alpha=2.0))
    code = kernel.assemble()
    parsed = CodeObject.parse(code)
    (info,) = parsed.kernels.values()
    body = parsed.read(info.entry, info.code_size)
    listing = simgpu.disassemble(body, "gfx908")
    _, clipped, *_ = (o for o, text in listing if text == "s_endpgm")  # ends of the code without beta
    offset = next(o for o, text in reversed(listing) if text.startswith("v_mul_f32_e32") and o < clipped)
    place = code.index(body) + offset
    word = int.from_bytes(code[place : place + 4], "little")
    assert word >> 25 & 0x3F == 5  # VOP2 v_mul_f32; 1 is v_add_f32
    changed = word & ~(0x3F << 25) | 1 << 25
    broken = code[:place] + changed.to_bytes(4, "little") + code[place + 4 :]
    a, b = np.ones((33, 16), np.float32), np.ones((16, 34), np.float32)
    results = []
    for bytes_ in (code, broken):
        gpu = device("gfx908")
        buffers = gpu.upload(a), gpu.upload(b), gpu.alloc(33 * 34 * 4)
        gpu.load(bytes_)[kernel.name].launch(grid=kernel.grid, block=kernel.block, args=kernel.arguments(*buffers))
        results.append(buffers[2].download(np.float32, (33, 34)))
    assert (results[0] == 32).all() and (results[1] != 32).any()


# -- the order of tiles --------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["mi100", "mi300x", "mi300a"])
@pytest.mark.parametrize("sizes", [(4096, 4096, 4096, 1), (1000, 777, 3000, 1), (300, 5000, 40, 3), (60, 60, 9000, 2)])
def test_the_order_is_a_bijection(target, sizes):
    *mnk, batch = sizes
    plan = TiledComputation(*mnk, target=target, batch=batch).plan
    gx, gy = plan.grid
    seen = {tile_at(plan, workgroup) for workgroup in range(plan.blocks)}
    assert len(seen) == plan.blocks
    assert {tile[:2] for tile in seen} == {(row, column) for row in range(gy) for column in range(gx)}
    assert max(tile[3] for tile in seen) == plan.split_k - 1 and max(tile[2] for tile in seen) == batch - 1


@pytest.mark.parametrize("target", ["mi100", "mi300x"])
def test_the_order_shares_tiles_in_each_l2(target):
    """Workgroups in flight on one XCD read far fewer distinct tiles of A and B than they would row by row."""
    plan = TiledComputation(32768, 32768, 8192, target=target).plan
    d, (gx, _) = plan.descriptor, plan.grid
    together = d.num_cus * plan.resources.blocks_per_cu
    ours = [tile_at(plan, workgroup)[:2] for workgroup in range(0, together, d.xcds)]
    plain = [divmod(workgroup, gx) for workgroup in range(0, together, d.xcds)]
    panels = [len({r for r, _ in tiles}) + len({c for _, c in tiles}) for tiles in (ours, plain)]
    assert panels[0] <= 2.2 * len(ours) ** 0.5 < panels[1] and group_rows(plan) > 1


# -- the text ------------------------------------------------------------------------------------


@pytest.mark.covering(1)
@pytest.mark.parametrize("policy", ["corrected", "published"])
@pytest.mark.parametrize("trans", TRANSPOSES)
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_assemble_and_state_their_resources(target, trans, policy):
    kernel = asm.emit(TiledComputation(4096, 4096, 64, target, policy, trans_a=trans[0], trans_b=trans[1]))
    code = CodeObject.parse(kernel.assemble())
    read, used = code.kernels[kernel.name], kernel.resources
    assert code.target == kernel.target == target
    assert read.group_segment_size == used.lds == kernel.plan.resources.lds_bytes
    assert read.agpr_count == used.agprs == kernel.plan.resources.acc_vgprs
    assert policy == "published" or used.vgprs <= kernel.plan.resources.arch_vgprs
    limits = {c.name: c.limit for c in kernel.plan.constraints}
    assert used.vgprs <= limits["ArchVGPR"] and used.vgprs + used.agprs <= limits.get("VGPR file", 512)
    assert used.sgprs <= kernel.plan.resources.sgprs
    names = [a.name for a in read.arguments]
    assert names[:3] == list("ABC") and {"m", "n", "k", "lda", "ldb", "ldc", "alpha", "beta", "batch_a"} < set(names)
    assert len(kernel.arguments(1, 2, 3)) == len(read.arguments)


def square(size):
    """Returns an f32 GEMM on gfx908 with tiles of 128x128x16."""
    tree = TiledComputation(size, size, size)
    given = tree.problem, tree.descriptor, "corrected", replace(tree.plan.tiling, tile_m=128, tile_n=128, tile_k=16, blocks=2)
    tree.derivation = with_tiling(*given)
    return tree


def test_the_main_loop_is_few_wide_instructions():
    """A k tile of 128x128x16 on gfx908 has 64 matrix instructions, 4 wide loads, 8 b128 reads, 1 barrier."""
    kernel = asm.emit(square(4096))
    body = re.split(r"whole_tile_0:\n", kernel.text)[1].split("whole_tiles_end_0:")[0]
    names = [line.split()[0] for line in body.splitlines() if not line.strip().startswith((";", "."))]
    count = {name: names.count(name) for name in set(names)}
    assert count["v_mfma_f32_16x16x4f32"] == 64
    assert count["buffer_load_dwordx4"] == count["ds_write_b128"] == 4
    assert count["ds_read_b128"] == 8 and count["s_barrier"] == 1
    assert not any(name.startswith(("buffer_load_dword ", "ds_read_b32")) for name in count)
    assert "s_nop" not in count
    assert len(names) < 64 + 50


def test_text_says_tree_node_coordinates_and_arrays():
    text = asm.emit(TiledComputation(256, 256, 256)).text
    nodes = ("TiledComputation", "BlockGemmNode", "WarpGemmNode", "C[0][0] += A[0] B[0]")
    for word in (*nodes, "tile (I, J)", "A staging", "accumulators", "LDS 0..", "gemm/emitter.py:"):
        assert word in text, word


def test_one_object_serves_every_shape_of_a_tile():
    texts = {asm.emit(TiledComputation(m, n, k, alpha=al, beta=be, batch=batch)).text
             for m, n, k, al, be, batch in ((33, 40, 15, 1, 0, 1), (50, 64, 14, 2, 1, 2), (64, 33, 9, 0, 3, 1))}  # fmt: skip
    assert len(texts) == 1


@pytest.mark.parametrize(("target", "name", "trans"), [
    ("gfx908", "f32", (True, False)), ("gfx942", "f16", (False, False)), ("gfx950", "i8", (False, True)),
    ("gfx90a", "bf16", (True, True)),
])  # fmt: skip
@pytest.mark.parametrize("code", [0.4, 1, 1.3, 2, 2.3, 3, 5, 5.2])  # K steps
def test_code_of_another_k_has_its_blocks_elsewhere(target, name, trans, code):
    """k decides which code is in line: first tiles and later ones that are whole, cut or missing."""
    planned = TiledComputation.of(GemmProblem(64, 64, 64, name, *trans), board(target)).plan.tiling
    span = 2 * planned.warp_k
    tiling = replace(planned, tile_m=64, tile_n=64, tile_k=span, blocks=1, split_k=1)
    for steps in (0.5, 1, 1.4, 2, 3.1, 4):
        result = gemm(65, 63, int(steps * span), target, name, trans, tiling=tiling, check=True, code_of_k=int(code * span))
        result.check()
        assert not [finding for run in result.runs for finding in run.findings]


def test_one_launch_of_several_is_refused():
    kernel = asm.emit(TiledComputation(40, 50, 3000))
    with pytest.raises(LaunchError, match=r"first of 2 kernels .* asm.launch"):
        kernel.arguments(1, 2, 3)
    with pytest.raises(LaunchError, match="takes 3 buffers"):
        asm.emit(TiledComputation(40, 50, 16)).arguments(1, 2)


@functools.cache
def objdump():
    found = sorted(range(10, 40), reverse=True)
    return next((path for n in found if (path := shutil.which(f"llvm-objdump-{n}"))), None)


# Two ways to lie for each target, as older versions do not know the newer targets.
@pytest.mark.parametrize(("target", "trans"), [
    pytest.param(target, trans, marks=pytest.mark.exhaustive if (i + j) % 2 else ())
    for i, target in enumerate(TARGETS) for j, trans in enumerate(TRANSPOSES)
])  # fmt: skip
def test_our_disassembly_is_llvms(target, trans, tmp_path):
    if objdump() is None:
        pytest.skip("no llvm-objdump-N on PATH")
    name = {(False, True): "i8", (True, False): "f16"}.get(trans, "f32")
    kernel = asm.emit(TiledComputation(300, 200, 100, target, dtype=name, trans_a=trans[0], trans_b=trans[1]))
    code = kernel.assemble()
    (tmp_path / "k.co").write_bytes(code)
    command = [objdump(), "-d", "--no-show-raw-insn", f"--mcpu={target}", str(tmp_path / "k.co")]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode:
        pytest.skip(f"{objdump()} does not know {target}")
    theirs = re.findall(r"^\t(.+?)\s*// [0-9A-F]+:", answer.stdout, re.M)
    parsed = CodeObject.parse(code)
    read = parsed.kernels[kernel.name]
    ours = [text for _, text in simgpu.disassemble(parsed.read(read.entry, read.code_size), target)]
    assert ours == [" ".join(text.split()) for text in theirs[: len(ours)]] and ours


# -- the resource plan ---------------------------------------------------------------------------


@pytest.mark.covering(1)
@pytest.mark.parametrize(("sizes", "trans"), [((1000, 777, 333), (False, False)), ((40, 40, 40), (True, True))])
@pytest.mark.parametrize(("target", "name"), CASES)
def test_the_code_object_asks_for_what_the_plan_grants(target, name, sizes, trans):
    """LDS is equal; registers are equal after rounding to the granule; instructions use no more than that."""
    d = board(target)
    kernel = asm.emit(TiledComputation(*sizes, target, dtype=name, trans_a=trans[0], trans_b=trans[1]))
    plan, code = kernel.plan.resources, CodeObject.parse(kernel.assemble())
    read = code.kernels[kernel.name]
    whole = -(-plan.arch_vgprs // 4) * 4 + plan.acc_vgprs if d.unified_vgprs else max(plan.arch_vgprs, plan.acc_vgprs)
    assert read.group_segment_size == plan.lds_bytes
    assert read.agpr_count == plan.acc_vgprs and read.sgpr_count == plan.sgprs
    granule = d.vgpr_granule
    assert -(-read.vgpr_count // granule) * granule == -(-whole // granule) * granule == read.descriptor.vgprs
    highest = {"v": 0, "a": 0, "s": 0}
    for item in kernel.items:
        for reg in item.registers() if hasattr(item, "registers") else ():
            if reg.index < 102:
                highest[reg.file] = max(highest[reg.file], reg.index + reg.count)
    assert highest["v"] <= plan.arch_vgprs and highest["a"] == plan.acc_vgprs and highest["s"] <= plan.sgprs - 6


def test_a_kernel_that_wants_more_than_the_plan_grants_fails():
    tree = square(4096)
    plan = tree.plan

    def emit_planned(other):
        tree.derivation = other
        asm.emit(tree)

    less = tuple(replace(r, count=r.count - 4) if r.name == "A staging" else r for r in plan.resources.registers)
    with pytest.raises(ResourceError, match="A staging takes 8 registers, the plan gives it 4"):
        emit_planned(replace(plan, resources=replace(plan.resources, registers=less)))
    few = tuple(replace(r, count=1) if r.name in ("addresses", "temporaries") else r for r in plan.resources.registers)
    with pytest.raises(ResourceError, match="consecutive registers left"):
        emit_planned(replace(plan, resources=replace(plan.resources, registers=few)))
    short = tuple(replace(a, nbytes=a.nbytes - 512) for a in plan.resources.lds)
    with pytest.raises(ResourceError, match="of LDS; the plan grants 31744"):
        emit_planned(replace(plan, resources=replace(plan.resources, lds=short)))


# -- the listing ---------------------------------------------------------------------------------


def test_a_listing_has_bytes_lines_and_live_registers():
    kernel = asm.emit(TiledComputation(40, 40, 3000, "gfx90a"))
    code = CodeObject.parse(kernel.assemble())
    for step in kernel.steps:
        lines = [line for line in listing_lines(step, code) if line.offset >= 0]
        info = code.kernels[step.name]
        raw = code.read(info.entry, info.code_size)
        assert bytes.fromhex("".join(line.raw for line in lines)) == raw
        assert all(line.where for line in lines if not line.text.startswith(("s_waitcnt", "s_nop")))
        assert not next(line for line in lines if line.text == "s_endpgm").live
    matrix = next(line for line in listing_lines(kernel, code) if "v_mfma" in line.text)
    assert " a0-" in matrix.live and matrix.where.startswith("gemm/emitter.py:") and "C[0][0] += A[0] B[0]" in matrix.note
    assert matrix.raw in matrix.render() and matrix.live in matrix.render()


# -- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "limit"), [("lda", 1 << 24), ("ldb", 1 << 25), ("ldc", 1 << 24)])
def test_strides_past_32_bit_offsets_are_refused(name, limit):
    plan = TiledComputation(10, 10, 10, **{name: limit}).plan
    with pytest.raises(LaunchError, match=rf"{name} = {limit}: .* {name} < {limit}"):
        check(plan)
    check(TiledComputation(10, 10, 10, **{name: limit - 1}).plan)


def test_what_has_no_kernel_is_refused():
    with pytest.raises(TargetError, match="no emitter for a BlockGemmNode: there are emitters for"):
        asm.EmitVisitor().visit(TiledComputation(10, 10, 10).first())
    with pytest.raises(LaunchError, match=r"alpha = 0.5: an i8 product takes an integer"):
        asm.emit(TiledComputation(10, 10, 10, dtype="i8", alpha=0.5))
    with pytest.raises(LaunchError, match="gelu is a fraction of an integer and C is i32"):
        asm.emit(TiledComputation(10, 10, 10, target="mi210", dtype="i8", activation="gelu"))
