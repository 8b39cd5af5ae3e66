"""Convolution kernels on the simulated GPU against float64: shapes, types, packing, channels from taps, LDS without conflicts."""

from __future__ import annotations

import functools
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simgpu import asm, hardware
from simgpu.asm.builder import toolchain
from simgpu.asm.conv2d.naive import emit_naive
from simgpu.asm.conv2d.pack import emit_pack
from simgpu.hardware.dtypes import numpy_dtype
from simgpu.hardware.errors import LaunchError, ResourceError, TargetError, UnsupportedInstruction
from simgpu.hardware.timing_rules import lds_banks
from simgpu.operators import Conv2d, Conv2dProblem, packed_filter, reference
from tests.support.conv2d_problems import assert_right, problems
from tests.support.devices import device
from tests.support.exhaustive import examples, one_in
from tests.support.resources import assert_takes

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
GUARD = 33  # elements after Y
KINDS = [(target, dt) for target in TARGETS for dt in hardware.target(target).dtypes()]


def operands(p, target, seed=0):
    """Returns X and W in the problem's type."""
    source, kind = np.random.default_rng(seed), numpy_dtype(p.dtype, target)
    if p.dtype == "i8":
        return [source.integers(-128, 128, shape).astype(kind) for shape in p.shapes[:2]]
    return [source.standard_normal(shape).astype(kind) for shape in p.shapes[:2]]


def on_cus(target, cus=None):
    return target if cus is None else replace(hardware.target(target), num_cus=cus)


def convolve(p, target="gfx908", policy="corrected", naive=False, xw=None, corrupt=None, check=False, cus=None):
    """Runs a convolution. Returns result, reference, bound, whether memory after Y is untouched, kernel, runs.

    cus: CUs to derive tiles for, instead of the target's.
    """
    tree = Conv2d(p, on_cus(target, cus), policy)
    kernel = emit_naive(tree) if naive else asm.emit(tree)
    x, w = operands(p, target) if xw is None else xw
    filters = w if naive else packed_filter(tree.plan, w)
    filters = filters if corrupt is None else corrupt(filters)
    kind, gpu = numpy_dtype(p.dtype_c), device(target, check)
    before = np.full(int(np.prod(p.shapes[2])) + GUARD, np.nan if kind.kind == "f" else -7, kind)
    buffers = [gpu.upload(array) for array in (x, filters, before)]
    runs = asm.launch(kernel, gpu, *buffers)
    after = buffers[2].download(kind, before.shape)
    for buffer in buffers:
        gpu.free(buffer)
    untouched = (after[-GUARD:].view(np.uint32) == before[-GUARD:].view(np.uint32)).all()
    got, want = after[:-GUARD].reshape(p.shapes[2]).astype(float), reference.conv2d(p, x, w)
    bound = reference.conv2d_error_bound(p, x, w, target)
    return SimpleNamespace(got=got, want=want, bound=bound, x=x, w=w, untouched=untouched, kernel=kernel, runs=runs,
                           typical=reference.conv2d_typical_error(p, x, w, target, matrix=not naive))  # fmt: skip


@settings(max_examples=examples(18), suppress_health_check=list(HealthCheck))
@given(p=problems(20, 40, 4, 3), where=st.sampled_from(KINDS))
def test_any_convolution_validates(p, where):
    target, dt = where
    assert_right(convolve(replace(p, dtype=dt, dtype_c=""), target))


@settings(max_examples=examples(6), suppress_health_check=list(HealthCheck))
@given(p=problems(20, 40, 4, 3), target=st.sampled_from(TARGETS), dt=st.sampled_from(("f32", "f16", "bf16")))
def test_the_naive_kernel_validates(p, target, dt):
    assert_right(convolve(replace(p, dtype=dt, dtype_c=""), target, naive=True))


@settings(max_examples=examples(10), suppress_health_check=list(HealthCheck))
@given(p=problems(20, 40, 4, 3), where=st.sampled_from(KINDS))
def test_the_packing_kernel_is_the_function(p, where):
    target, dt = where
    tree = Conv2d(replace(p, dtype=dt, dtype_c=""), target)
    w = operands(tree.problem, target)[1]
    want, kernel, gpu = packed_filter(tree.plan, w), emit_pack(tree), device(target)
    buffers = gpu.upload(w), gpu.alloc(want.nbytes)
    asm.launch(kernel, gpu, *buffers)
    assert (buffers[1].download(np.uint8, want.nbytes) == want.view(np.uint8).ravel()).all()


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("ic", [1, 2, 3])
def test_few_channels_become_more(target, ic):
    """E28: a 3x3 filter on a few channels becomes one step of more channels and fewer taps, with the same products."""
    p = Conv2dProblem(1, ic, 21, 40, 33, 3, 3, padding=(1, 1), stride=(1, 2))
    result = convolve(p, target)
    plan = result.kernel.plan
    assert (
        plan.factor > 1
        and plan.tiled_problem.kh * plan.tiled_problem.kw < 9
        and plan.fill > Conv2d(p, target, "published").derivation.fill
    )
    assert_right(result)


def test_tiles_of_several_atoms_and_batches():
    """Large tiles, halos of several pixels a work-item, split channels."""
    big = convolve(Conv2dProblem(4, 32, 64, 64, 64, 3, 3, padding=(1, 1)))
    assert big.kernel.plan.pixels >= 64 and len(big.runs) == 1
    assert_right(big)
    spread = convolve(Conv2dProblem(1, 70, 40, 60, 8, 3, 3, dilation=(7, 7), stride=(3, 2)))
    assert spread.kernel.plan.positions > spread.kernel.plan.batch
    assert_right(spread)
    split = convolve(Conv2dProblem(1, 512, 7, 7, 32, 3, 3, padding=(1, 1)))
    assert split.kernel.plan.split_ic > 1 and len(split.runs) == 2
    assert_right(split)


@pytest.mark.parametrize("dt", ["f32", "f16"])
def test_tiles_that_are_no_powers_of_two(dt):
    result = convolve(Conv2dProblem(8, 64, 28, 28, 96, 1, 1, dtype=dt))
    assert result.kernel.plan.tile_oc == 96
    assert_right(result)
    assert_right(convolve(Conv2dProblem(2, 16, 32, 32, 192, 3, 3, padding=(1, 1), dtype=dt), "gfx942"))


def test_a_plan_whose_registers_fit_once_takes_one_block():
    p = Conv2dProblem(64, 110, 28, 58, 256, 3, 3, dtype="i8")
    plan = Conv2d(p, "mi355x").plan
    assert plan.blocks_wanted == 1 and plan.resources.arch_vgprs + plan.resources.acc_vgprs > 256


def test_large_filters_loop_over_their_rows():
    p = Conv2dProblem(1, 33, 41, 12, 5, 37, 9, padding=(2, 0))
    result = convolve(p, "gfx942")
    assert "tap_row_0:" in result.kernel.text and "tap_row_0:" not in asm.emit(Conv2d(SHAPES[0])).text
    assert_right(result)


@pytest.mark.covering(1)
@pytest.mark.parametrize(("target", "dt"), KINDS)
@pytest.mark.parametrize("cus", [None, 1])
def test_published_tiles(target, dt, cus):
    """Tiles validate if they fit into the registers; else the plan's own row refuses them (E3, E8).

    Tiles that the occupancy rule has shrunk are refused only if one instruction needs 64 bytes of k or more.
    """
    p = Conv2dProblem(2, 24, 19, 33, 70, 3, 3, stride=(2, 1), padding=(1, 2), groups=2, dtype=dt)
    if Conv2d(p, on_cus(target, cus), "published").derivation.feasible:
        assert_right(convolve(p, target, "published", cus=cus))
    else:
        large = cus == 1 and target in ("gfx942", "gfx950") and dt not in ("f32", "f64")
        assert large or (target == "gfx950" and dt in ("i8", "fp8", "bf8"))
        with pytest.raises(ResourceError, match=r"VGPR file needs .* registers, the limit is 128"):
            asm.emit(Conv2d(p, on_cus(target, cus), "published"))


def test_taps_that_leave_work_items_over():
    """192 x 8 elements of f32 are one and a half words for each of 1024 work-items."""
    result = convolve(Conv2dProblem(1, 24, 9, 16, 200, 2, 3), "gfx950", "published", cus=1)
    assert result.kernel.plan.tile_oc == 192 and result.kernel.plan.threads == 1024
    assert_right(result)


@pytest.mark.parametrize(("target", "dt"), [("gfx942", "bf16"), ("gfx950", "fp8"), ("gfx90a", "f64")])
def test_checked_mode_finds_nothing(target, dt):
    result = convolve(Conv2dProblem(1, 140, 9, 20, 7, 2, 3, padding=(1, 1), dtype=dt), target, check=True)
    assert_right(result)
    assert not [str(finding) for run in result.runs for finding in run.findings]


def test_nan_and_infinity_reach_only_their_windows():
    """Padding is 0 and not 0 · infinity: only outputs whose window contains the element see it."""
    p = Conv2dProblem(1, 5, 9, 20, 3, 3, 3, padding=(1, 1))
    x, w = operands(p, "gfx908")
    x[0, 2, 0, 0], x[0, 1, 8, 19] = np.nan, np.inf
    result = convolve(p, xw=(x, w))
    with np.errstate(invalid="ignore"):
        assert (np.isfinite(result.got) == np.isfinite(result.want)).all() and (~np.isfinite(result.got)).sum() == 24


def test_the_packed_filter_is_read_once_a_block_and_used():
    p = Conv2dProblem(1, 16, 16, 16, 32, 3, 3, padding=(1, 1))
    right, wrong = convolve(p), convolve(p, corrupt=lambda packed: np.roll(packed, 1, axis=-1))
    assert_right(right)
    assert (np.abs(wrong.got - wrong.want) > wrong.bound).mean() > 0.9
    counters, plan = right.runs[0].counters, right.kernel.plan
    assert counters["unique_read_bytes"] == right.x.nbytes + right.w.nbytes
    products = plan.blocks * plan.pixels * plan.tile_oc * plan.tile_ic * 9
    assert counters["mfma_flops"] == 2 * products and counters["unique_write_bytes"] == 4 * 32 * 16 * 16


# -- what it takes -------------------------------------------------------------------------------

SHAPES = [
    Conv2dProblem(8, 64, 56, 56, 64, 3, 3, padding=(1, 1)), Conv2dProblem(1, 3, 224, 224, 64, 7, 7, (2, 2), (3, 3)),
    Conv2dProblem(4, 256, 14, 14, 256, 3, 3, padding=(1, 1)), Conv2dProblem(1, 70, 40, 60, 8, 3, 3, dilation=(7, 6), stride=(3, 2)),
    Conv2dProblem(2, 12, 30, 5, 20, 5, 1, groups=2), Conv2dProblem(1, 64, 28, 28, 256, 1, 1, stride=(2, 2)),
]  # fmt: skip


@pytest.mark.covering(1)
@pytest.mark.parametrize(("target", "dt"), KINDS)
def test_the_code_objects_take_what_the_plan_says(target, dt):
    for p in (SHAPES[3], SHAPES[4]):
        tree = Conv2d(replace(p, dtype=dt, dtype_c=""), target)
        assert_takes(asm.emit(tree), tree.plan.resources, tree.descriptor.sgpr_granule)


@pytest.mark.covering(1)
@pytest.mark.parametrize(("target", "dt"), one_in(3, KINDS))
def test_the_lds_is_used_without_bank_conflicts(target, dt):
    lane = np.arange(64)
    i, g = lane % 16, lane // 16
    for p, policy in product(SHAPES[:4], ("corrected", "published")):
        plan = Conv2d(replace(p, dtype=dt, dtype_c=""), target, policy).derivation
        halo, taps = plan.halo, plan.taps
        if plan.tile_ow < 16:
            continue
        lost = functools.partial(lds_banks.conflicts, target)
        for kh, kw in product(range(plan.tiled_problem.kh), range(plan.tiled_problem.kw)):
            slot = halo.pixel(1, 0) + halo.tap(kh, kw) + i
            for h in range(halo.reads):
                assert lost("read", halo.chunk, (h * halo.groups + g) * halo.plane + slot * halo.chunk) == 0
        assert lost("write", halo.chunk, halo.plane + (64 + lane) * halo.chunk) == 0
        for h in range(taps.reads):
            read = [taps.byte(16 + int(channel), h * taps.groups + int(group)) for channel, group in zip(i, g, strict=True)]
            assert lost("read", taps.chunk, read) == 0
        staged = [taps.byte(*divmod(piece, taps.groups * taps.reads)) for piece in range(64, 128)]
        assert lost("write", taps.chunk, staged) == 0


def test_the_layouts_are_what_keeps_banks_apart():
    """Layouts that conflict: chunks of a pixel side by side, planes without padding at some size, a stride without column
    phases.
    """
    lane = np.arange(64)
    i, g = lane % 16, lane // 16
    for addresses in (64 * i + 16 * g, 16 * i + 16 * 181 * g, 16 * (2 * i) + 16 * 184 * g):
        assert lds_banks.conflicts("gfx908", "read", 16, addresses) > 0
    taps = Conv2d(Conv2dProblem(1, 256, 28, 28, 64, 3, 3, dtype="fp8"), "gfx950").plan.taps
    assert taps.reads == 2
    staged = np.array([taps.byte(*divmod(piece, 8)) for piece in range(64)])
    without_half_a_line = np.where(np.arange(64) % 8 < 4, staged, staged - 64)
    assert lds_banks.conflicts("gfx950", "write", 16, staged) == 0 < lds_banks.conflicts("gfx950", "write", 16, without_half_a_line)


def test_slots_are_a_layout():
    """Every halo pixel has its own slot, and taps are a fixed distance apart."""
    for p in SHAPES:
        plan = Conv2d(p).plan
        halo, cut = plan.halo, plan.tiled_problem
        high, wide = cut.halo(plan.tile_oh, plan.tile_ow)
        slots = [halo.slot(row, column) for row, column in product(range(high), range(wide))]
        assert len(set(slots)) == len(slots) and max(slots) < halo.slots
        for oh, ow, kh, kw in ((0, 0, 0, 0), (1, 3, cut.kh - 1, cut.kw - 1), (plan.tile_oh - 1, plan.tile_ow - 1, 0, cut.kw - 1)):
            row, column = oh * cut.stride[0] + kh * cut.dilation[0], ow * cut.stride[1] + kw * cut.dilation[1]
            assert halo.slot(row, column) == halo.pixel(oh, ow) + halo.tap(kh, kw)


@pytest.mark.slow
def test_llvm_has_no_warning(tmp_path):
    (tool, *_) = toolchain.candidates()
    for target, dt in KINDS[::3]:
        tree = Conv2d(Conv2dProblem(1, 70, 20, 30, 40, 3, 2, dtype=dt), target)
        for kernel in (*asm.emit(tree).steps, emit_pack(tree)):
            (tmp_path / "k.s").write_text(kernel.text)
            command = [*tool.clang, *toolchain.CLANG_OPTIONS, "-Wall", f"-mcpu={target}", "k.s", "-o", "k.o"]
            answer = toolchain._run(command, str(tmp_path))
            assert answer.returncode == 0 and "k.s:" not in answer.stderr, answer.stderr


@pytest.mark.covering(1)
@pytest.mark.parametrize("images", [1, 3, 13])
@pytest.mark.parametrize(("board", "xcds"), [("mi300x", 8), ("mi300a", 6)])
def test_xcds_take_turns_in_the_order_of_dispatch(board, xcds, images):
    """Every workgroup has its own number, whether XCDs have equally many, some have one more, or some have none."""
    for edge in (20, 4):
        result = convolve(Conv2dProblem(images, 16, edge, edge, 24, 1, 1, dtype="bf16"), board, cus=304)
        assert_right(result)
        turns = min(xcds, result.kernel.plan.blocks)
        assert (f"{turns} XCDs take turns" in result.kernel.text) == (turns > 1)


def test_text_says_tree_node_coordinates_and_arrays():
    text = asm.emit(Conv2d(Conv2dProblem(2, 64, 30, 30, 64, 3, 3))).text
    for word in ("Conv2d:", "BlockConv2dNode", "WarpConv2dNode: tap 2,1 of 3x3", "Y[0][0] += W[0] X[0], step 0", "X halo",
                 "W, two taps", "accumulators", "workgroup = (((image", "conv2d/emitter.py:"):  # fmt: skip
        assert word in text, word


def test_what_cannot_be():
    with pytest.raises(TargetError, match="f64"):
        asm.emit(Conv2d(Conv2dProblem(1, 16, 8, 8, 16, 1, 1, dtype="f64"), "gfx908"))
    with pytest.raises(UnsupportedInstruction, match="naive convolution is emitted for f32, f16, bf16, not for i8"):
        emit_naive(Conv2d(Conv2dProblem(1, 16, 8, 8, 16, 1, 1, dtype="i8")))
    with pytest.raises(LaunchError, match=r"input channels of a step take .* the limit is 2\^30"):
        asm.emit(Conv2d(Conv2dProblem(1, 64, 5000, 5000, 16, 1, 1)))
    assert {d for d in hardware.target("mi100").dtypes()} <= {"f32", "f16", "bf16", "i8"}
