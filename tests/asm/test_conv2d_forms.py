"""Convolutions with an epilogue, with channels last, and with filters that LDS cannot hold whole, against float64."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from simgpu import asm, hardware
from simgpu.asm.conv2d.naive import emit_naive
from simgpu.asm.conv2d.pack import emit_pack
from simgpu.hardware.dtypes import numpy_dtype
from simgpu.hardware.errors import LaunchError, UnsupportedInstruction
from simgpu.operators import ComputeVisitor, Conv2d, Conv2dProblem, packed_filter, reference
from simgpu.operators.gemm.problem import OUTPUTS
from simgpu.operators.levels import Level
from tests.support.conv2d_problems import assert_right, problems
from tests.support.devices import device
from tests.support.exhaustive import examples, one_in

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
GUARD = 32  # elements after Y
KINDS = [
    (target, kind, output)
    for target in TARGETS
    for kind in hardware.target(target).dtypes()
    for output in OUTPUTS[hardware.dtypes.dtype(kind).accumulator]
    if output not in ("fp8", "bf8") or output in hardware.target(target).dtypes()
]


def drawn(kind, shape, source):
    if kind.kind == "i":
        return source.integers(-100, 100, shape).astype(kind)
    return source.standard_normal(shape).astype(kind)


def on_few_cus(target):
    """Returns a board of one CU, whose plans merge groups in small problems."""
    return replace(hardware.target(target), num_cus=1, xcds=1)


def merging(p, target, groups=0):
    """Returns a tree that computes `groups` groups as one; 0: the plan's number."""
    tree = Conv2d(p, on_few_cus(target))
    assert tree.plan.groups > 1
    cut = (replace(loop, tile=groups or loop.tile) if loop.axis == "group" else loop for loop in tree.loops)
    return tree.with_loops(Level.DEVICE, tuple(cut))


def convolve(p, target="gfx942", check=False, corrupt=lambda packed: packed, groups=None, special=False):
    """Runs a convolution on normal deviates. groups: as for `merging`, or None. special: True for infinities and NaN in X.

    Returns result, reference, bound, typical error, whether memory after Y is untouched, plan, runs.
    """
    source, tree = np.random.default_rng(7), Conv2d(p, target) if groups is None else merging(p, target, groups)
    kernel, kind, gpu = asm.emit(tree), numpy_dtype(p.dtype_c, target), device(target, check)
    x, w = (drawn(numpy_dtype(p.dtype, target), shape, source) for shape in p.shapes[:2])
    if special:
        places = source.integers(0, x.size, 6)
        x.reshape(-1)[places] = [np.nan, np.inf, -np.inf, np.nan, np.inf, np.inf]
    bias = drawn(numpy_dtype(p.gemm.dtype_addend, target), (p.oc,), source) if p.bias else None
    before = np.full(int(np.prod(p.shapes[2])) + GUARD, 77, kind)
    arrays = [x, corrupt(packed_filter(tree.plan, w)), before, *([bias] if p.bias else [])]
    buffers = [gpu.upload(array) for array in arrays]
    runs = asm.launch(kernel, gpu, *buffers)
    after = buffers[2].download(kind, before.shape)
    for buffer in buffers:
        gpu.free(buffer)
    untouched = (after[-GUARD:].view(np.uint8) == before[-GUARD:].view(np.uint8)).all()
    return SimpleNamespace(
        got=after[:-GUARD].reshape(p.shapes[2]).astype(float), want=reference.conv2d(p, x, w, bias, target),
        bound=reference.conv2d_error_bound(p, x, w, target, bias), untouched=untouched, plan=tree.plan, runs=runs,
        typical=reference.conv2d_typical_error(p, x, w, target, bias=bias), tree=tree, operands=(x, w, bias),
    )  # fmt: skip


DILATIONS = ((1, 1), (2, 1), (3, 400), (1000, 1), (300, 300))


@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate))
@given(
    p=problems(12, 30, 3, 2, st.sampled_from(DILATIONS)), where=st.sampled_from(KINDS),
    layout=st.sampled_from(("nchw", "nhwc")), bias=st.booleans(),
    activation=st.sampled_from(("none", "relu", "gelu", "silu")),
)  # fmt: skip
def test_any_form_validates(p, where, layout, bias, activation):
    target, kind, output = where
    if output == "i32":
        activation, alpha = {"none": "none"}.get(activation, "relu"), 3.0
    else:
        alpha = 2.0**-6 if kind == "i8" else 1.5
    form = replace(p, dtype=kind, dtype_c=output, layout=layout, bias=bias, activation=activation, alpha=alpha,
                   scale_c=0.125 if output in ("fp8", "bf8") else 1.0)  # fmt: skip
    assert_right(convolve(form, target))


SHAPE = Conv2dProblem(2, 24, 9, 20, 20, 3, 3, padding=(1, 1), groups=2, dtype="f16", bias=True, activation="gelu", alpha=0.5)


@pytest.mark.covering(1)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(("target", "more"), one_in(4, [
    ("gfx908", {"dtype_c": "f16"}), ("gfx90a", {"dtype": "f64", "dtype_c": "bf16"}), ("gfx942", {"dtype_c": "fp8", "scale_c": 4.0}),
    ("gfx950", {"dtype": "fp8", "dtype_c": "bf16"}), ("gfx942", {"dtype": "i8", "dtype_c": "f16", "alpha": 2.0**-9}),
    ("gfx90a", {"dilation": (1, 300), "iw": 620, "dtype_c": "bf16"}),
    ("gfx950", {"n": 1, "ic": 1030, "oc": 22, "dtype": "bf16", "dtype_c": "bf16", "ih": 5, "iw": 7}),
]))  # fmt: skip
def test_checked_mode_finds_nothing(target, more, layout):
    result = convolve(replace(SHAPE, layout=layout, **more), target, check=True)
    assert_right(result)
    assert not [str(finding) for run in result.runs for finding in run.findings]


@pytest.mark.slow
def test_split_channels_take_the_epilogue_behind_the_sum():
    """Y's elements do not divide by a work-item's four, and a channel has more pixels than a workgroup of the sum."""
    for layout, ih, oc in (("nhwc", 7, 33), ("nchw", 37, 8)):
        p = Conv2dProblem(1, 2048, ih, ih, oc, 1, 1, dtype="f16", layout=layout, bias=True, activation="silu", dtype_c="f16")
        result = convolve(p)
        assert result.plan.split_ic > 1 and len(result.runs) == 2
        assert_right(result)


@pytest.mark.covering(1)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(("kernel", "dilation", "window"), one_in(4, [
    ((3, 3), (200, 1), (1, 3)), ((3, 3), (1, 3000), (1, 1)), ((2, 5), (700, 700), (1, 1)), ((121, 95), (1, 1), None),
    ((5, 1), (1000, 1), (1, 1)),
]))  # fmt: skip
def test_filters_that_lds_cannot_hold_go_by_windows(kernel, dilation, window, layout):
    """A window is the largest part of the filter that LDS holds: rows, else part of one row."""
    p = Conv2dProblem(1, 7, dilation[0] * (kernel[0] - 1) + 2, dilation[1] * (kernel[1] - 1) + 19, 5, *kernel, dilation=dilation,
                      layout=layout, dtype="f16")  # fmt: skip
    result = convolve(p, "gfx90a")
    assert result.plan.windows != (1, 1) and window in (None, result.plan.window)
    assert_right(result)
    x, w, _ = result.operands
    for level in ("device", "block"):
        assert np.allclose(ComputeVisitor(level).visit(result.tree, x, w), result.want, rtol=1e-9, atol=1e-6)


def test_the_packing_kernel_knows_windows():
    p = Conv2dProblem(1, 21, 420, 640, 5, 3, 6, dilation=(200, 100), dtype="f16")
    tree, gpu = Conv2d(p, "gfx942"), device("gfx942")
    w = drawn(np.dtype(np.float16), p.shapes[1], np.random.default_rng(1))
    want = packed_filter(tree.plan, w)
    buffers = gpu.upload(w), gpu.alloc(want.nbytes)
    asm.launch(emit_pack(tree), gpu, *buffers)
    assert tree.plan.windows != (1, 1) and (buffers[1].download(np.uint8, want.nbytes) == want.view(np.uint8).ravel()).all()


def test_only_what_taps_read_is_staged():
    """A filter of one tap at stride 2 reads a quarter of X, and so does a filter with stride and dilation 2."""
    for kernel, dilation in ((1, 1), (3, 2)):
        p = Conv2dProblem(1, 32, 41, 41, 32, kernel, kernel, stride=(2, 2), dilation=(dilation, dilation), dtype="f16")
        result = convolve(p)
        assert_right(result)
        assert result.plan.lattice == (2, 2)
        read = result.runs[0].counters["unique_read_bytes"] - 2 * 32 * 32 * kernel**2
        assert read <= 2 * 32 * 21 * 21


def test_channels_last_move_sixteen_bytes_at_once():
    texts = {layout: asm.emit(Conv2d(replace(SHAPE, groups=1, ic=64, oc=64, layout=layout, dtype_c="f16"), "gfx942")).text
             for layout in ("nchw", "nhwc")}  # fmt: skip
    assert "buffer_load_ushort" in texts["nchw"] and "buffer_store_short" in texts["nchw"]
    assert "buffer_load_dwordx4" in texts["nhwc"]


@pytest.mark.parametrize("channels", [64, 63])
def test_neighbours_store_adjacent_elements(channels):
    """Pixels in nchw, channels in nhwc: 16 lanes fill a line, however many channels there are."""
    for layout, other in (("nchw", {}), ("nhwc", {"oc": channels})):
        result = convolve(replace(SHAPE, groups=1, ic=64, layout=layout, **other), "gfx942", check=True)
        text = asm.emit(Conv2d(result.plan.problem, "gfx942")).text
        assert "buffer_store_dword " in text and "buffer_store_dwordx" not in text
        assert_right(result)


def test_a_broken_filter_is_noticed():
    """Rolling a window's channels by one gives wrong results."""
    result = convolve(replace(SHAPE, dtype_c="bf16", layout="nhwc"), corrupt=lambda packed: np.roll(packed, 1, axis=-1))
    assert (np.abs(result.got - result.want) > result.bound).mean() > 0.5


MERGED = [
    ("gfx908", {"dtype": "f32"}, 4), ("gfx90a", {"dtype": "bf16", "dtype_c": "bf16"}, 7),
    ("gfx942", {"dtype": "fp8", "dtype_c": "f16", "stride": (2, 1)}, 33), ("gfx950", {"dtype": "f16", "dilation": (1, 5)}, 5),
    ("gfx90a", {"dtype": "f64", "activation": "gelu"}, 0), ("gfx942", {"dtype": "i8", "dtype_c": "f16", "alpha": 2.0**-9}, 37),
    ("gfx942", {"dtype": "f16", "ic": 74, "oc": 37 * 12, "kh": 1, "kw": 1, "dtype_c": "f16"}, 5),
    ("gfx950", {"dtype": "bf16", "ic": 37 * 6, "oc": 37 * 2, "activation": "silu"}, 0),
    ("gfx942", {"dtype": "f16", "ih": 420, "dilation": (200, 1)}, 8),
]  # fmt: skip


@pytest.mark.covering(1)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(("target", "more", "groups"), one_in(4, MERGED))
def test_merged_groups_in_checked_mode(target, more, groups, layout):
    """Groups as one, with fewer in the last. Infinities and NaN reach only outputs of their own group."""
    base = Conv2dProblem(2, 37, 7, 18, 74, 3, 3, padding=(1, 1), groups=37, bias=True)
    p = replace(base, layout=layout, **{"dtype_c": "", **more})
    for special in (False, True) if p.dtype != "i8" else (False,):
        result = convolve(p, target, check=True, groups=groups, special=special)
        assert result.plan.groups == groups or groups == 0 < result.plan.groups
        assert_right(result)
        assert not [str(finding) for run in result.runs for finding in run.findings]


def test_only_the_loop_over_own_taps_keeps_them_apart(monkeypatch):
    """Without it, a NaN reaches all groups that a block computes as one."""
    monkeypatch.setattr("simgpu.asm.conv2d.own_taps.OwnTaps.branch", lambda self, label: None)
    p = Conv2dProblem(1, 64, 9, 9, 64, 3, 3, groups=64, dtype="f16")
    with pytest.raises(AssertionError, match="wrong"):
        assert_right(convolve(p, groups=0, special=True))


PADDED = Conv2dProblem(2, 3, 19, 17, 6, 7, 5, (2, 1), (3, 2), bias=True, activation="relu")


@pytest.mark.covering(1)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(("dt", "target"), [
    ("f32", "gfx908"), ("bf16", "gfx908"), ("f16", "gfx90a"), ("f64", "gfx90a"), ("f32", "gfx942"), ("f16", "gfx950"),
])  # fmt: skip
@pytest.mark.parametrize("p", [
    PADDED, Conv2dProblem(2, 1, 19, 17, 20, 3, 3), Conv2dProblem(2, 6, 19, 17, 40, 5, 3, (1, 2), (1, 1), (2, 3), groups=2),
    Conv2dProblem(2, 2, 19, 17, 6, 3, 1, padding=(1, 0), bias=True),
])  # fmt: skip
def test_infinities_and_nan_reach_only_their_taps(p, dt, target, layout):
    """Taps that are channels are padded to a multiple of 2 or 4, with weights of 0."""
    result = convolve(replace(p, dtype=dt, layout=layout, dtype_c=None), target, check=p.ic == 3, special=True)
    plan = result.plan
    taps_stay_taps = dt == "f64" and p.icg == 3  # a step has 4 channels there
    assert plan.split_ic == 1 and (plan.factor == 1 if taps_stay_taps else plan.factor > 1 and plan.adds_zeros)
    assert_right(result)
    assert (np.isfinite(result.got) == np.isfinite(result.want)).all() and np.isfinite(result.got).any()
    assert not [str(finding) for run in result.runs for finding in run.findings]


def test_only_the_loop_over_own_taps_keeps_infinities_from_added_taps(monkeypatch):
    monkeypatch.setattr("simgpu.asm.conv2d.own_taps.OwnTaps.branch", lambda self, label: None)
    result = convolve(PADDED, special=True)
    assert (np.isnan(result.got) & np.isfinite(result.want)).any()


@pytest.mark.parametrize(("groups", "channels"), [(4, (1, 1)), (5, (3, 2)), (5, (1, 4))])
def test_the_packing_kernel_merges_groups(groups, channels):
    p = Conv2dProblem(8, 37 * channels[0], 20, 20, 37 * channels[1], 3, 3, groups=37, dtype="f16")
    tree, gpu = merging(p, "gfx942", groups), device("gfx942", True)
    w = drawn(np.dtype(np.float16), p.shapes[1], np.random.default_rng(3))
    want = packed_filter(tree.plan, w)
    assert np.abs(want).sum() == np.abs(w).sum()
    buffers = gpu.upload(w), gpu.alloc(want.nbytes)
    (run,) = asm.launch(emit_pack(tree), gpu, *buffers)
    assert (buffers[1].download(np.float16, want.shape) == want).all() and not run.findings


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_groups_of_few_channels_fill_tiles(layout):
    """Depthwise convolutions and those of ResNeXt: merged groups, and fewer blocks."""
    for groups, channels in ((512, 512), (32, 256), (97, 97)):
        p = Conv2dProblem(16, channels, 28, 28, channels, 3, 3, padding=(1, 1), groups=groups, dtype="f16", layout=layout)
        plan = Conv2d(p, "mi300x").plan
        assert min(groups, 16) <= plan.groups * channels // groups <= 32 and plan.merged.groups == -(-groups // plan.groups)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("target", "dt"), [
    ("gfx908", "bf16"), ("gfx908", "i8"), ("gfx90a", "f64"), ("gfx90a", "f16"), ("gfx942", "f32"), ("gfx942", "fp8"),
    ("gfx950", "i8"), ("gfx950", "bf16"),
])  # fmt: skip
def test_all_steps_load_16_bytes_at_once(target, dt, groups):
    """A pixel's channels begin anywhere; the last step of a group has fewer, and loads none of the next group or pixel."""
    p = Conv2dProblem(2, 149 * groups, 7, 18, 22 * groups, 3, 3, padding=(1, 1), groups=groups, dtype=dt, layout="nhwc")
    result = convolve(p, target, check=True, special=dt != "i8")
    plan = result.plan
    assert plan.channels_at_once * p.element.bytes == 16 and plan.tails == (149 % plan.tile_ic,)
    assert_right(result)
    assert not [str(finding) for run in result.runs for finding in run.findings]
    text = asm.emit(Conv2d(p, target)).text
    assert len(set(re.findall(r"(buffer_load_\w+) .*X pixel 0, channel 0", text))) == 1 and "dwordx4" in text


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("target", "dt", "ic", "suffix"), [
    ("gfx908", "bf16", 8, "dwordx4"), ("gfx90a", "f16", 3, "dword"), ("gfx90a", "i8", 16, "dwordx4"),
    ("gfx942", "f32", 3, "dwordx2"), ("gfx942", "fp8", 13, "dwordx2"), ("gfx950", "bf8", 5, "dword"),
    ("gfx950", "f16", 1, "ushort"),
])  # fmt: skip
def test_few_channels_are_loaded_at_once_under_each_tap(target, dt, ic, suffix, groups):
    """Taps become channels, and each has the channels of a pixel in turn; a load that a group's end cuts ends there."""
    p = Conv2dProblem(2, ic * groups, 19, 18, 21 * groups, 3, 5, (1, 2), (1, 2), (2, 1), groups, dtype=dt, layout="nhwc")
    result = convolve(p, target, check=True, special=dt != "i8")
    plan = result.plan
    assert plan.factor > 1 and plan.channels_at_once == min(1 << ic.bit_length() - 1, 16 // p.element.bytes)
    assert_right(result)
    assert not [str(finding) for run in result.runs for finding in run.findings]
    loads = re.findall(r"buffer_load_(\w+) .*X pixel 0, channel (\d+)", asm.emit(Conv2d(p, target)).text)
    assert {form for form, _ in loads} == {suffix}
    assert len({channel for _, channel in loads}) == plan.tile_ic // plan.channels_at_once


@pytest.mark.parametrize(("target", "dt"), [("gfx90a", "f16"), ("gfx942", "fp8"), ("gfx942", "f32")])
def test_the_last_of_merged_groups_ends_its_loads_elsewhere(target, dt):
    """11 groups of 6 channels, of which a block computes several; the last block has fewer, and its pixels end there."""
    p = Conv2dProblem(2, 66, 9, 33, 33, 3, 3, padding=(1, 1), groups=11, dtype=dt, layout="nhwc")
    result = convolve(p, target, check=True, special=True, groups=0)
    assert result.plan.ragged and len(result.plan.tails) == 2 and result.plan.end_of_channels == "cut load"
    assert_right(result)
    assert not [str(finding) for run in result.runs for finding in run.findings]


def test_infinity_and_nan_reach_only_their_pixels_channels_last():
    """Puts NaN into the second group's channels, which follow the first's; the filter's padding must not multiply them."""
    p = Conv2dProblem(1, 10, 6, 20, 6, 1, 1, groups=2, dtype="f16", layout="nhwc")
    tree, gpu = Conv2d(p, "gfx942"), device("gfx942")
    x, w = (drawn(np.dtype(np.float16), shape, np.random.default_rng(3)) for shape in p.shapes[:2])
    x[..., 5:] = np.nan
    buffers = gpu.upload(x), gpu.upload(packed_filter(tree.plan, w)), gpu.alloc(4 * int(np.prod(p.shapes[2])))
    asm.launch(asm.emit(tree), gpu, *buffers)
    y = buffers[2].download(np.float32, p.shapes[2])
    assert np.isfinite(y[..., :3]).all() and np.isnan(y[..., 3:]).all()


def test_what_cannot_be():
    cases = {
        "layout 'hwcn'": {"layout": "hwcn"}, "Y is f16: use alpha": {"dtype_c": "f16", "scale_c": 2.0},
        "takes pairs of columns of a GEMM": {"activation": "swiglu"},
        "Y in i32 takes an integer": {"dtype": "i8", "dtype_c": "i32", "activation": "none"},
        "is a fraction of an integer": {"dtype": "i8", "dtype_c": "i32", "alpha": 1.0},
    }  # fmt: skip
    for message, more in cases.items():
        with pytest.raises(LaunchError, match=message):
            replace(SHAPE, **more)
    with pytest.raises(hardware.errors.TargetError, match="no instruction that rounds to fp8"):
        Conv2d(replace(SHAPE, dtype_c="fp8"), "gfx90a")
    with pytest.raises(UnsupportedInstruction, match="neither an epilogue nor nhwc"):
        emit_naive(Conv2d(SHAPE))
    with pytest.raises(LaunchError, match=r"input pixels take .* the limit is 2\^30"):
        asm.emit(Conv2d(Conv2dProblem(1, 64, 5000, 5000, 16, 1, 1, layout="nhwc")))


@pytest.mark.parametrize(("got", "want", "bound", "right"), [
    (1.0, 1.25, 0.5, True), (1.0, 2.0, 0.5, False), (np.inf, np.inf, np.inf, True), (-np.inf, np.inf, np.inf, False),
    (9.0, np.inf, np.inf, False), (np.inf, 7e4, np.inf, True), (np.nan, 7e4, np.inf, False), (np.nan, np.nan, 1.0, True),
    (0.0, np.nan, 1.0, False),
])  # fmt: skip
def test_what_is_right(got, want, bound, right):
    """Infinity and NaN must match exactly. A finite number may overflow only if its bound allows it."""
    result = SimpleNamespace(got=np.array([got]), want=np.array([want]), bound=np.array([bound]), untouched=True, typical=None)
    if right:
        assert_right(result)
        return
    with pytest.raises(AssertionError, match="1 wrong"):
        assert_right(result)
