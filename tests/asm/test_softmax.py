"""Softmax kernels on the simulated GPU against float64: every way to hold a row, masks, NaN, infinities, planned resources."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simgpu import asm
from simgpu.asm.builder import toolchain
from simgpu.asm.parts.activation_f64 import OF_EXP
from simgpu.hardware import target as find_target
from simgpu.hardware.dtypes import numpy_dtype
from simgpu.hardware.errors import LaunchError, UnsupportedInstruction
from simgpu.operators import Band, Softmax, SoftmaxProblem, reference
from simgpu.operators.softmax.plan import EXP_SGPRS, F64_INSTRUCTIONS
from simgpu.tools.shared.faithful import likeness
from simgpu.tools.validation.paper.operators import MACHINE_PRECISION, argument_ulps
from tests.support.devices import device
from tests.support.exhaustive import examples, left_out
from tests.support.resources import assert_takes

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
NARROWER = ("f32", "f16", "bf16")
TYPES = (*NARROWER, "f64")
GUARD = 5  # elements before and after; odd, so that views are aligned to one element only


def padded(rows, stride, kind, guard):
    """Returns NaN-filled memory, and the (rows, stride) part of it that contains a view."""
    memory = np.full(2 * guard + rows * stride, np.nan, kind)
    return memory, memory[guard : guard + rows * stride].reshape(rows, stride)


def softmax(rows, n, dt="f32", target="gfx908", policy="corrected", pads=(0, 0), in_place=False, x=None,
            mask=None, edit=None, check=False, board=None, guard=GUARD, **more):  # fmt: skip
    """Runs a softmax. Returns result, reference, bound, whether memory around Y is untouched, the kernel, the launches."""
    ldx, ldy = n + pads[0], n + pads[in_place - 1]
    problem = SoftmaxProblem(rows, n, dt, ldx=ldx, ldy=ldy, mask=mask is not None, **more)
    kernel = asm.emit(Softmax(problem, board or target, policy))
    kernel = replace(kernel, text=edit(kernel.text)) if edit else kernel
    kind, kind_y = numpy_dtype(dt), numpy_dtype(problem.dtype_y)
    source, place = padded(rows, ldx, kind, guard)
    rng = np.random.default_rng(rows * 9001 + n)
    place[:, :n] = rng.standard_normal((rows, n)) * 3 if x is None else x
    view = place[:, :n].copy()
    result = source if in_place else padded(rows, ldy, kind_y, guard)[0]
    gpu = device(target, check)
    buffers = [gpu.upload(source)]
    buffers.append(buffers[0] if in_place else gpu.upload(result))
    pointers = [buffer.address + guard * each.itemsize for buffer, each in zip(buffers, (kind, kind_y))]
    if mask is not None:
        buffers.append(gpu.upload(mask.astype(np.uint8)))
        pointers.append(buffers[-1].address)
    runs = asm.launch(kernel, gpu, *pointers)
    after = buffers[1].download(kind_y, result.shape)
    for buffer in {id(buffer): buffer for buffer in buffers}.values():
        gpu.free(buffer)
    got = after[guard : guard + rows * ldy].reshape(rows, ldy)[:, :n]
    around = np.ones(after.shape, bool)
    around[guard : guard + rows * ldy].reshape(rows, ldy)[:, :n] = False
    bits = f"u{kind_y.itemsize}"
    untouched = (after.view(bits) == result.view(bits))[around].all()
    want, bound = reference.softmax(problem, view, mask), reference.softmax_error_bound(problem, view, mask)
    return SimpleNamespace(got=got.astype(float), want=want, bound=bound, untouched=untouched, kernel=kernel, runs=runs,
                           typical=reference.softmax_typical_error(problem, view, mask, target))  # fmt: skip


def assert_right(result):
    same = (np.isnan(result.got) & np.isnan(result.want)) | (result.got == result.want)
    error = np.where(same, 0.0, np.abs(np.where(same, 0.0, result.got) - np.where(same, 0.0, result.want)))
    wrong = ~((error <= result.bound) | same)
    assert not wrong.any(), f"{np.argwhere(wrong)[:3]}: {result.got[wrong][:3]}, want {result.want[wrong][:3]}"
    assert result.untouched, "memory around Y was written"
    assert likeness(result.got, result.typical).passed


@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))
@given(
    rows=st.integers(1, 9),
    n=st.integers(1, 70) | st.integers(1, 1100) | st.sampled_from((63, 64, 65, 128, 256, 257, 512, 1023)),
    dt=st.sampled_from(TYPES),
    target=st.sampled_from(TARGETS),
    policy=st.sampled_from(("corrected", "corrected", "published")),
    pads=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    in_place=st.booleans(),
    scale=st.sampled_from((1.0, 0.125, -2.0)),
)
def test_any_shape_validates(rows, n, dt, target, policy, pads, in_place, scale):
    assert_right(softmax(rows, n, dt, target, policy, pads, in_place, scale=scale))


@pytest.mark.parametrize("policy", ["corrected", "published"])
@pytest.mark.parametrize("target", TARGETS)
def test_the_papers_softmax(target, policy):
    """512 x 512, "validated at machine precision": every weight is off by a few units of its last place and of exp's argument's."""
    result = softmax(512, 512, target=target, policy=policy)
    assert_right(result)
    assert (argument_ulps(result.got, result.want) <= MACHINE_PRECISION).all()
    off = softmax(512, 512, target=target, policy=policy, scale=1 + 2.0**-18)
    assert (argument_ulps(off.got, result.want) > MACHINE_PRECISION).mean() > 0.5, "the last bits decide"


@settings(max_examples=examples(10), suppress_health_check=list(HealthCheck))
@given(
    n=st.integers(1, 600),
    target=st.sampled_from(TARGETS),
    policy=st.sampled_from(("corrected", "published")),
    pads=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    narrow=st.sampled_from((("f16", 2.0**15), ("f16", 1.0), ("bf16", 1.0))),
    check=st.booleans(),
)
def test_a_narrower_result(n, target, policy, pads, narrow, check):
    """X in f32, Y in a 2-byte type: the P that unfused attention multiplies by V."""
    dtype_y, gain = narrow
    result = softmax(5, n, "f32", target, policy, pads, check=check, dtype_y=dtype_y, gain=gain)
    assert_right(result)
    assert not any(run.findings for run in result.runs)


@settings(max_examples=examples(8), suppress_health_check=list(HealthCheck))
@given(
    n=st.integers(1, 600),
    dt=st.sampled_from(TYPES),
    target=st.sampled_from(TARGETS),
    policy=st.sampled_from(("corrected", "published")),
    band=st.builds(Band, st.integers(1, 4), st.integers(-700, 3), st.integers(-3, 700)) | st.none(),
)
def test_masks_and_bands(n, dt, target, policy, band):
    mask = np.random.default_rng(n).random((6, n)) < 0.5
    mask[2] = False
    assert_right(softmax(6, n, dt, target, policy, mask=mask, band=band))
    assert_right(softmax(6, n, dt, target, policy, band=band))


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("rows", "n", "cus", "waves", "launches"),
    [
        (5, 1100, 1, 1, 1), left_out(8, 5000, 1, 1, 1), (2, 20001, 1, 4, 1), left_out(1, 40001, 1, 8, 1), (1, 60001, 104, 1, 2),
        left_out(1, 100003, 300, 1, 2),
    ],
)  # fmt: skip
def test_every_way_to_hold_a_row_in_f64(rows, n, cus, waves, launches, target):
    """Has the same ways as the other types. Only some waves see the largest element, and there are masks."""
    board = replace(find_target(target), num_cus=cus)
    x = np.random.default_rng(n).standard_normal((rows, n)) * 2
    x[:, n // 3] = 20
    result = softmax(rows, n, "f64", target, x=x, board=board)
    assert_right(result)
    assert (np.abs(result.got - result.want) <= 64 * 2.0**-53 * result.want + 1e-320).all()
    if target != "gfx908":
        assert (result.kernel.plan.waves_row, len(result.runs)) == (waves, launches)
    mask = np.random.default_rng(n).random((rows, n)) < 0.5
    mask[0] = False
    masked = softmax(rows, n, "f64", target, board=board, mask=mask, check=True)
    assert_right(masked)
    assert not any(run.findings for run in masked.runs)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dt", NARROWER)
@pytest.mark.parametrize(
    ("rows", "n", "cus", "waves", "launches"),
    [(110, 2100, 26, 1, 1), (1, 2100, 104, 4, 1), (1, 100001, 1, 8, 1), (1, 100001, 104, 1, 2), (1, 150001, 104, 1, 2)],
)
def test_every_way_to_hold_a_row(dt, rows, n, cus, waves, launches):
    """A row is in the registers of one, four or eight waves, or streamed and split over blocks that a second kernel merges.

    It is split if it does not fit, or if many CUs are faster than one.
    """
    result = softmax(rows, n, dt, "gfx90a", board=replace(find_target("gfx90a"), num_cus=cus))
    plan = result.kernel.plan
    assert (plan.waves_row, len(result.runs)) == (waves, launches)
    assert plan.reads == launches and (plan.split_n > 20) == (launches == 2)
    assert_right(result)


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("n", "dt", "pads", "each", "lanes"), [
    (51, "bf16", (1, 2), 4, 64), (33, "f32", (0, 1), 2, 64), (9, "f16", (1, 0), 4, 16), (1, "f16", (0, 3), 2, 1),
    (256, "bf16", (0, 0), 1, 32), (20, "f32", (2, 0), 1, 8), (68, "f16", (0, 2), 1, 32),
])  # fmt: skip
def test_several_rows_a_wave(n, dt, pads, each, lanes, target):
    """A wave has as many rows in flight as keep a CU's loads busy, with short rows side by side, if there are enough rows.

    The last wave has fewer rows, and the last workgroup has waves without rows.
    """
    board = replace(find_target(target), num_cus=1)
    waves = board.max_waves_per_simd * board.simds_per_cu
    rows = each * waves * (64 // lanes) + 5
    result = softmax(rows, n, dt, target, pads=pads, check=target == "gfx942", in_place=dt == "f32", board=board)
    plan = result.kernel.plan
    assert (plan.lanes_row, plan.tile_rows) == (lanes, 4 * each * (64 // lanes))
    assert_right(result)
    assert not any(run.findings for run in result.runs)
    few = softmax(waves if lanes < 64 else 2 * each - 1, n, dt, target, board=board)
    assert few.kernel.plan.tile_rows == 4


@settings(max_examples=examples(15), suppress_health_check=list(HealthCheck))
@given(
    rows=st.integers(41, 150),
    n=st.integers(1, 32) | st.integers(1, 64).map(lambda n: 2 * n) | st.integers(1, 32).map(lambda n: 8 * n),
    types=st.sampled_from((("f32", "f32"), ("f16", "f16"), ("bf16", "bf16"), ("f32", "f16"), ("f32", "bf16"))),
    target=st.sampled_from(TARGETS),
    pads=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    guard=st.sampled_from((4, GUARD)),
    in_place=st.booleans(),
    scale=st.sampled_from((1.0, -2.0)),
    check=st.booleans(),
)
def test_short_rows_side_by_side(rows, n, types, target, pads, guard, in_place, scale, check):
    """Fetches several rows by one load of a wave. Memory past a row's end is neither read nor written."""
    dt, dtype_y = types
    board = replace(find_target(target), num_cus=1)
    result = softmax(rows, n, dt, target, "corrected", pads, in_place and dt == dtype_y, check=check, board=board, guard=guard,
                     scale=scale, dtype_y=dtype_y)  # fmt: skip
    lanes = n // min(n & -n, 4 if dt == "f32" else 8)
    assert result.kernel.plan.lanes_row // 2 < lanes <= result.kernel.plan.lanes_row or lanes > 32
    assert_right(result)
    assert not any(run.findings for run in result.runs)
    assert result.runs[0].counters["unique_read_bytes"] == rows * n * (4 if dt == "f32" else 2)


def test_short_rows_with_nan_and_infinities():
    x = np.random.default_rng(5).standard_normal((48, 24))
    x[0, 3], x[1, 23], x[2, 0], x[3], x[4, 5:7], x[5, ::2] = np.nan, np.inf, -np.inf, -np.inf, np.inf, -np.inf
    result = softmax(48, 24, "f16", "gfx90a", x=x, board=PACKED)
    assert result.kernel.plan.rows_load == 16
    assert_right(result)
    assert np.isnan(result.got[[0, 1, 3, 4]]).all() and (result.got[5, ::2] == 0).all() and result.got[2, 0] == 0


PACKED = replace(find_target("gfx90a"), num_cus=1)  # one CU, for which no other way to hold a long row is as fast


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("n", "dt", "pads", "scale", "guard"), [
    (65535, "f16", (0, 0), 1.0, 5), (65536, "bf16", (0, 0), -2.0, 4), (65537, "bf16", (1, 1), 0.125, 4),
    (66000, "f16", (2, 4), -2.0, 4), (66002, "bf16", (0, 0), 1.0, 2), (66000, "bf16", (2, 0), 1.0, 5),
])  # fmt: skip
def test_two_elements_a_register(n, dt, pads, scale, guard, target):
    """Rows end in a wave's part, at an odd element and before whole waves' parts, by dwords and element by element."""
    board, check = replace(find_target(target), num_cus=2), (n, target) in ((65537, "gfx90a"), (66000, "gfx942"))
    result = softmax(2, n, dt, target, pads=pads, scale=scale, guard=guard, in_place=pads == (0, 0), check=check, board=board)
    assert result.kernel.plan.sizes["packing"] == 2 and result.kernel.plan.reads == 1
    assert_right(result)
    assert not any(run.findings for run in result.runs)


@pytest.mark.covering(1)
@pytest.mark.parametrize("scale", [1.0, -1.0])
@pytest.mark.parametrize(("n", "dt"), [
    (131071, "f16"), (131072, "bf16"), pytest.param(152064, "f16", marks=pytest.mark.exhaustive),
])  # fmt: skip
def test_two_elements_a_register_of_the_longest_rows(n, dt, scale):
    """Rows that do not fit in f32. Columns past the end count nothing, whatever the sign of the others."""
    x = np.full((1, n), -90.0 * scale)
    result = softmax(1, n, dt, board=PACKED, target="gfx90a", scale=scale, gain=4096.0, x=x, guard=4)
    assert result.kernel.plan.packing == 2
    assert_right(result)
    assert result.got == pytest.approx(4096 / n, rel=0.01)


@pytest.mark.parametrize("dt", ["f16", "bf16"])
@pytest.mark.parametrize("scale", [1.0, -0.5])
def test_two_elements_a_register_nan_and_infinities(dt, scale):
    n = 65601
    x = np.random.default_rng(5).standard_normal((6, n))
    x[0, 3], x[1, n - 1], x[2, 0], x[3], x[4, 5:7], x[5, ::2] = np.nan, np.inf, -np.inf, -np.inf, np.inf, -np.inf
    result = softmax(6, n, dt, "gfx90a", x=x * np.sign(scale), scale=scale, board=PACKED)
    assert result.kernel.plan.packing == 2
    assert_right(result)
    assert np.isnan(result.got[[0, 1, 3, 4]]).all() and (result.got[5, ::2] == 0).all() and result.got[2, 0] == 0


@pytest.mark.covering(1)
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("dt", TYPES)
@pytest.mark.parametrize(("n", "target", "policy", "cus"), [
    (7, "gfx908", "corrected", 1), (300, "gfx942", "corrected", 304), (2300, "gfx950", "published", 256),
    (9000, "gfx942", "corrected", 304), (65601, "gfx90a", "corrected", 1), (100003, "gfx90a", "corrected", 300),
])  # fmt: skip
def test_infinities_nan_and_the_least_number(n, target, policy, cus, dt, log):
    """Every way to hold a row: NaN in all of a row with an infinity or NaN, or of minus infinities; 1/n in one of the least number.

    0 in a row in which nothing counts, by a mask, a band, or both; NaN if only minus infinities count.
    """
    board, rng = replace(find_target(target), num_cus=cus), np.random.default_rng(n)
    x = rng.standard_normal((9, n)) * np.array([3] * 5 + [60] * 4)[:, None]
    x[0, n // 2], x[1, 0], x[2], x[3, 1:] = np.inf, np.nan, -np.inf, -np.inf
    x[4] = float(ml_dtypes.finfo(numpy_dtype(dt)).min)
    nothing = -np.inf if log else 0
    result = softmax(9, n, dt, target, policy, x=x, board=board, log=log, check=n < 9000)
    assert_right(result)
    assert np.isnan(result.got[:3]).all() and (result.got[3] == [0 if log else 1, *[nothing] * (n - 1)]).all()
    assert result.got[4] == pytest.approx(-np.log(n) if log else 1 / n, rel=0.01) and np.isfinite(result.got[5:]).all()
    mask = rng.random((9, n)) < 0.5
    mask[6], mask[7], mask[2, n - 1] = False, False, True
    mask[7, n - 1] = True  # outside of the band
    for scale, band in ((1.0, None), (-1.0, Band(9, -9, n - 9)), (0.0, Band(9, -n, -8))):
        signed = -x if scale < 0 else x
        masked = softmax(9, n, dt, target, policy, x=signed, board=board, mask=mask, band=band, scale=scale, log=log)
        assert_right(masked)
        assert (masked.got[6] == nothing).all() and (band is not None or np.isnan(masked.got[2]).all())
    banded = softmax(9, n, dt, target, policy, x=x, board=board, band=Band(9, -8, 1 - 8), log=log)
    assert_right(banded)
    assert (banded.got[5:7] == nothing).all()


@settings(max_examples=examples(15), suppress_health_check=list(HealthCheck))
@given(
    rows=st.integers(1, 70),
    n=st.integers(1, 70) | st.integers(1, 3000),
    types=st.sampled_from((("f32", "f32"), ("f16", "f16"), ("bf16", "bf16"), ("f64", "f64"), ("f16", "f32"), ("f32", "bf16"))),
    target=st.sampled_from(TARGETS),
    policy=st.sampled_from(("corrected", "published")),
    scale=st.sampled_from((1.0, 0.125, -2.0)),
    masked=st.booleans(),
    check=st.booleans(),
)
def test_logarithms(rows, n, types, target, policy, scale, masked, check):
    mask = np.random.default_rng(n).random((rows, n)) < 0.5 if masked else None
    board = replace(find_target(target), num_cus=1)
    more = {"dtype_y": types[1], "scale": scale, "log": True}
    result = softmax(rows, n, types[0], target, policy, mask=mask, check=check, board=board, **more)
    assert_right(result)
    assert not any(run.findings for run in result.runs)


def test_which_rows_are_packed():
    """Rows of 16-bit types are packed if f32 leaves a CU one workgroup or none, whatever the factor."""
    for n, dt, more, packing in (
        (63488, "f16", {}, 1), (63489, "f16", {}, 2), (245760, "bf16", {}, 2), (245761, "bf16", {}, 1), (65536, "f32", {}, 1),
        (65536, "f16", {"scale": 0.0}, 2), (65536, "f16", {"mask": True}, 1), (65536, "f16", {"band": Band(9, -9, 1)}, 1),
        (65536, "f32", {"dtype_y": "f16"}, 1), (65536, "f16", {"scale": 1e-40}, 2),
    ):  # fmt: skip
        plan = Softmax(SoftmaxProblem(2000, n, dt, **more), "mi300x").derivation
        assert (plan.packing, plan.resident) == (packing, n < 245761), (n, dt, more)
    for scale in (0.0, 1e-40):
        assert_right(softmax(1, 65537, "f16", "gfx90a", scale=scale, board=PACKED))


@pytest.mark.parametrize("dt", ["f32", "f64"])
@pytest.mark.parametrize("policy", ["corrected", "published"])
def test_nan_and_infinities_as_the_reference(policy, dt):
    x = np.random.default_rng(5).standard_normal((8, 300)).astype("f4")
    x[0, 3], x[1, 299], x[2, 0], x[3] = np.nan, np.inf, -np.inf, -np.inf
    x[4, 5:7], x[5], x[6, ::2] = np.inf, np.nan, -np.inf
    result = softmax(8, 300, dt, x=x, policy=policy)
    assert_right(result)
    assert np.isnan(result.got[[0, 1, 3, 4, 5]]).all() and (result.got[6, ::2] == 0).all() and result.got[2, 0] == 0
    masked = softmax(8, 300, dt, x=x, policy=policy, mask=np.isfinite(x))
    assert_right(masked)
    assert not np.isnan(masked.got).any()


@pytest.mark.parametrize("dt", ["f32", "f64"])
def test_checked_mode_finds_nothing(dt):
    mask = np.random.default_rng(1).random((3, 301)) < 0.5
    result = softmax(3, 301, dt, check=True, mask=mask, band=Band(3, -1, 200))
    assert_right(result)
    assert not [str(finding) for run in result.runs for finding in run.findings]


def test_shared_rows_in_place_whose_last_step_would_be_part_of_a_chunk():
    """Such a chunk overlaps the step before, which another block stores: a race if blocks end there."""
    result = softmax(2, 64 * 2048 + 7, "f16", "gfx942", in_place=True, check=True, board="mi300x")
    assert len(result.runs) == 2
    assert_right(result)
    assert not [finding for run in result.runs for finding in run.findings]


def test_f64_is_as_exact_as_its_reference():
    """Rows in registers and streamed rows, near and far exponents: off by some units of f64, better than any f32 exponential."""
    for n in (300, 9000):
        x = np.random.default_rng(n).standard_normal((3, n)) * [[1], [30], [300]]
        result = softmax(3, n, "f64", x=x)
        assert result.kernel.plan.resident == (n == 300)
        assert_right(result)
        assert (np.abs(result.got - result.want) <= 64 * 2.0**-53 * result.want + 1e-320).all()


def test_padding_counts_nothing():
    """E30: rows far below zero, whose missing columns would win if they read as 0."""
    for dt in TYPES:
        for n in (1, 3, 65, 257):
            result = softmax(2, n, dt, x=np.full((2, n), -90.0))
            assert_right(result)
            assert result.got == pytest.approx(1 / n, rel=0.01)


def test_a_kernel_that_pads_with_0_fails():
    """Runs the same kernel with 0 instead of -infinity for missing columns, the error that the paper warns of (E30)."""
    x = np.full((1, 65), -9.0)
    right, wrong = softmax(1, 65, x=x), softmax(1, 65, x=x, edit=lambda text: text.replace("0xff800000", "0"))
    assert_right(right)
    assert (wrong.got < right.got / 100).all()


def test_bytes_of_a_run():
    """A resident row is read once, a streamed one twice; each byte of Y is written once."""
    once, twice = softmax(4, 1000).runs[0].counters, softmax(4, 1000, policy="published").runs[0].counters
    assert once["unique_read_bytes"] == twice["unique_read_bytes"] == once["unique_write_bytes"] == 4 * 1000 * 4
    assert once["global_write_bytes"] <= 4 * 1024 * 4
    assert twice["global_read_bytes"] == 2 * once["global_read_bytes"] > 1.9 * once["unique_read_bytes"]


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dt", TYPES)
@pytest.mark.parametrize(("rows", "n", "mask", "band", "wide"), [
    *((500, n, False, None, False) for n in (1, 500, 20000, 65537, 200000)), (1, 300000, False, None, False),
    (500, 777, True, Band(500, -500, 1), False), (1, 300000, True, Band(1, -1, 999), False), (500, 20000, False, None, True),
    (1 << 20, 60, False, None, False),
])  # fmt: skip
def test_the_code_objects_take_what_the_plan_says(rows, n, mask, band, wide, dt, target):
    """wide: the result is of type dt, the rows are f32, or f64 if dt is."""
    read = "f32" if wide and dt != "f64" else dt
    problem = SoftmaxProblem(rows, n, read, mask=mask, band=band, dtype_y=dt if wide else None)
    kernel = asm.emit(Softmax(problem, target))
    plan = kernel.plan
    for part in kernel.steps:
        use = assert_takes(part, plan.resources, find_target(target).sgpr_granule)
        assert use.acc_vgprs == 0 and use.workgroup_size == plan.waves * 64


@pytest.mark.slow
def test_llvm_has_no_warning(tmp_path):
    (tool, *_) = toolchain.candidates()
    for target in TARGETS:
        for dt in TYPES:
            text = asm.emit(Softmax(SoftmaxProblem(9, 700, dt, mask=True, band=Band(9, -9, 1)), target)).text
            (tmp_path / "k.s").write_text(text)
            command = [*tool.clang, *toolchain.CLANG_OPTIONS, "-Wall", f"-mcpu={target}", "k.s", "-o", "k.o"]
            answer = toolchain._run(command, str(tmp_path))
            assert answer.returncode == 0 and "k.s:" not in answer.stderr, answer.stderr


def test_exponentials_in_loops_load_no_constants():
    """A lone wave issues an instruction in four clocks, so each constant costs as much as an FMA."""
    kernel = asm.emit(Softmax(SoftmaxProblem(1, 400000, "f64"), "gfx942"))
    text = "".join(part.text for part in kernel.steps)
    steps = re.findall(r"(?:pass0|results)_step_0:\n(.*?)_step_done_0:", text, re.DOTALL)
    assert len(steps) == 2
    for step in steps:
        assert step.count("v_ldexp_f64") >= 8 and not step.count("s_mov_b32")


def test_the_plan_counts_f64_s_instructions_and_constants():
    """Two rows in the registers of a wave, of 2 and 6 loads: the difference is the elements'."""
    assert 2 * len(OF_EXP) == EXP_SGPRS
    texts = [asm.emit(Softmax(SoftmaxProblem(4096, loads * 128, "f64"), "mi300x")).text for loads in (2, 6)]
    few, many = (len(re.findall(r"^\s+v_", text, re.MULTILINE)) for text in texts)
    assert round((many - few) / 8) == F64_INSTRUCTIONS


def test_text_says_tree_node_coordinates_and_arrays():
    text = asm.emit(Softmax(SoftmaxProblem(100, 5000))).text
    for word in ("Softmax:", "BlockSoftmaxNode", "WarpSoftmaxNode", "LaneSoftmaxNode", "rows I", "m, delta", "LDS 0..31",
                 "x columns 256 + 4·lane", "rows/states.py:"):  # fmt: skip
        assert word in text, word


def test_one_object_serves_rows_strides_and_scales():
    texts = {asm.emit(Softmax(SoftmaxProblem(rows, 130, scale=scale, ldx=ldx))).text
             for rows, ldx, scale in ((3, 130, 1.0), (900, 137, 0.5), (7, 192, 1e-40))}  # fmt: skip
    assert len(texts) == 1


def test_what_cannot_be():
    with pytest.raises(UnsupportedInstruction, match="f32, f16, bf16, f64, not for fp8"):
        asm.emit(Softmax(SoftmaxProblem(3, 4, "fp8"), "gfx942"))
    with pytest.raises(UnsupportedInstruction, match="from f64 to f32: f64 is both types, or neither"):
        asm.emit(Softmax(SoftmaxProblem(3, 4, "f64", dtype_y="f32"), "gfx90a"))
    with pytest.raises(LaunchError, match="gain = 2: a logarithm has no factor"):
        SoftmaxProblem(3, 4, gain=2.0, log=True)
    with pytest.raises(LaunchError, match="ldx = 3 is shorter than a row of 4"):
        SoftmaxProblem(3, 4, ldx=3)
    with pytest.raises(LaunchError, match=r"ldy = 536870912: .* ldy < 536870912"):
        asm.emit(Softmax(SoftmaxProblem(3, 4, ldy=1 << 29)))
    with pytest.raises(LaunchError, match="n < 536870912"):
        Softmax(SoftmaxProblem(3, 1 << 29))
