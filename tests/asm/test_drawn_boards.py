"""Descriptor's promise: change figures of a board, and every operator still derives, names what binds, emits, assembles and
runs right on that board, or refuses in words with what to change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simgpu
from simgpu import asm, hardware
from simgpu.hardware import HardwareDescriptor
from simgpu.hardware.errors import LaunchError, ResourceError, TargetError
from simgpu.operators import (
    AttentionProblem,
    Conv2d,
    Conv2dProblem,
    FusedAttention,
    GemmProblem,
    LayerNorm,
    Quantise,
    Rope,
    RowSum,
    RowTree,
    Softmax,
    SoftmaxProblem,
    TiledComputation,
    UnfusedAttention,
)
from simgpu.operators.gemm.plan import with_tiling
from simgpu.operators.gemm.problem import MX_BLOCK
from simgpu.operators.resources import WIDTH
from simgpu.operators.tree import Root
from simgpu.tools.cases.execute import execute
from simgpu.tools.cases.operators import workload
from tests.support.exhaustive import examples

KIB = 1 << 10
# Values of a field; a board that has it is refused where the field's own test says so, below.
FIGURES: dict[str, st.SearchStrategy[Any]] = {
    "lds_bytes": st.sampled_from([32 * KIB, 40000, 48 * KIB, 96 * KIB, 128 * KIB, 160 * KIB]) | st.integers(32 * KIB, 160 * KIB),
    "vgpr_per_thread": st.sampled_from([64, 128, 512]) | st.integers(32, 512),
    "agpr_per_thread": st.sampled_from([0, 1, 64, 512]) | st.integers(0, 512),
    "vgpr_granule": st.sampled_from([1, 4, 8, 16]),
    "max_waves_per_simd": st.sampled_from([1, 2, 4, 16, 32]),
    "simds_per_cu": st.sampled_from([1, 2, 3, 8]),
    "max_workgroup_size": st.sampled_from([64, 128, 256, 300, 512]),
    "sgprs_per_wave": st.sampled_from([32, 48, 64, 128]),
    "sgpr_file_per_simd": st.sampled_from([100, 256, 1600]),
    "sgpr_granule": st.sampled_from([1, 8, 32]),
    "lds_granule": st.sampled_from([1, 128, 1024, 2048]),
    "lds_banks": st.sampled_from([16, 32, 64]),
    "clock_mhz": st.sampled_from([1, 500, 10000]),
    "xcds": st.sampled_from([1, 2, 3, 6, 38]),
    "num_cus": st.sampled_from([1, 3, 13, 1000, 100000]),
    "hbm_bandwidth_tb": st.sampled_from([1e-3, 1.0, 100.0]),
    "l2_bytes": st.sampled_from([1, 64 * KIB, 256 << 20]),
    "l2_bytes_per_clock": st.sampled_from([1, 65536]),
    "mall_bytes": st.sampled_from([0, 1 << 20, 256 << 20]),
    "passes": st.sampled_from([1, 4, 16, 1000]),  # of every matrix instruction
}
ROOTS: dict[str, Callable[[Any, HardwareDescriptor, str], Root]] = {
    "gemm": TiledComputation.of, "conv2d": Conv2d, "softmax": Softmax, "attention": FusedAttention, "unfused": UnfusedAttention,
    "rows": RowTree,
}  # fmt: skip


def changed(board: str, figures: dict[str, Any]) -> HardwareDescriptor:
    """Returns a board with other figures; `passes` are those of all matrix instructions."""
    d, fields = hardware.target(board), dict(figures)
    passes = fields.pop("passes", None)
    if passes:
        fields |= {name: [replace(atom, passes=passes) for atom in getattr(d, name)] for name in ("atoms", "scaled_atoms")}
    return replace(d, **fields)


@st.composite
def boards(draw: st.DrawFn) -> HardwareDescriptor:
    names = draw(st.lists(st.sampled_from(sorted(FIGURES)), min_size=1, max_size=3, unique=True))
    return changed(draw(st.sampled_from(hardware.targets())), {name: draw(FIGURES[name]) for name in names})


@st.composite
def problems(draw: st.DrawFn, op: str, d: HardwareDescriptor, size: int) -> Any:
    number, flag = st.integers(1, size), st.booleans()
    if op == "gemm":
        kind = draw(st.sampled_from([*d.dtypes(), *(("fp4", "fp6") if d.scaled_atoms else ())]))
        more: dict[str, Any] = {"trans_a": draw(flag), "trans_b": draw(flag)}
        k = draw(number)
        if kind in ("fp4", "fp6"):
            k, more = -(-k // MX_BLOCK) * MX_BLOCK, {"trans_b": True, "scales": "mx"}
        elif kind in ("fp8", "bf8") and draw(flag):
            more |= {"scales": "block"}
        return GemmProblem(draw(number), draw(number), k, kind, **more)
    if op == "conv2d":
        taps, groups, edge = draw(st.sampled_from([1, 3, 5])), draw(st.sampled_from([1, 1, 2])), draw(st.integers(5, 14))
        channels = [groups * draw(st.integers(1, 40)) for _ in range(2)]
        kind, layout = draw(st.sampled_from(d.dtypes())), draw(st.sampled_from(["nchw", "nhwc"]))
        steps = draw(st.sampled_from([(1, 1), (2, 1)]))
        return Conv2dProblem(1, channels[0], edge, edge, channels[1], taps, taps, steps, (taps // 2, 1), dtype=kind, layout=layout,
                             groups=groups)  # fmt: skip
    kind = draw(st.sampled_from(["f32", "f16", "bf16"]))
    if op == "rows":
        form = draw(st.sampled_from([LayerNorm, Quantise, Rope, RowSum]))
        return form(draw(number), 2 * draw(st.integers(1, 10 * size)), kind)
    if op == "softmax":
        return SoftmaxProblem(draw(number), draw(st.integers(1, 20 * size)), kind)
    queries, heads = draw(number), draw(st.sampled_from([1, 2, 3, 6]))
    keys = queries if (causal := draw(flag)) else draw(number)
    return AttentionProblem(queries, keys, draw(st.sampled_from([16, 64, 80, 128])), heads, 1, causal=causal, dtype=kind)


def derived(op: str, problem: Any, d: HardwareDescriptor, policy: str) -> Root | None:
    """Returns the tree, whose plan names what binds, or None after a refusal in words."""
    try:
        tree = ROOTS[op](problem, d, policy)
    except (TargetError, LaunchError) as refusal:
        assert ": use " in str(refusal) or "add one" in str(refusal), "it says what to change"
        return None
    plan = tree.derivation
    assert plan.binding.name and max(map(len, str(plan).splitlines()[1:])) <= WIDTH
    if plan.feasible:
        assert plan.binding.name.split(": ")[-1] in tree.tree() or policy == "published"  # whose tree is the paper's
        return tree
    assert plan.remedy and plan.binding.use > plan.binding.limit
    with pytest.raises(ResourceError, match="the limit is"):
        plan.check()
    return None


def assert_runs(tree: Root, policy: str, check: bool = False) -> None:
    """Asserts that the tree's kernels give the reference's result on a device of its board, without findings.

    The published policy does not count a small workgroup's registers for staging: then the emitter refuses the tile.
    """
    device = simgpu.Device(tree.descriptor, check=check)
    work = workload(tree, device.arch, 1)
    try:
        emitted = asm.emit(tree)
    except ResourceError as refusal:
        assert policy == "published" and "registers left for" in str(refusal) and "shrink the tile" in str(refusal)
        return
    (result, *_), runs = execute(device, emitted, work)
    verdict = work.compare(result, "result")
    assert verdict.passed, verdict.lines()
    assert not [finding for run in runs for finding in run.findings]


@pytest.mark.parametrize("policy", ["corrected", "published"])
@pytest.mark.parametrize("op", ROOTS)
@given(data=st.data(), d=boards())
@settings(max_examples=examples(40))
def test_every_operator_derives_or_says_what_to_change(op: str, policy: str, data: st.DataObject, d: HardwareDescriptor) -> None:
    derived(op, data.draw(problems(op, d, 5000)), d, policy)


@pytest.mark.parametrize("policy", ["corrected", "published"])
@pytest.mark.parametrize("op", ROOTS)
@given(data=st.data(), d=boards(), check=st.booleans())
@settings(max_examples=examples(4))
def test_what_is_derived_runs_right(op: str, policy: str, data: st.DataObject, d: HardwareDescriptor, check: bool) -> None:
    if tree := derived(op, data.draw(problems(op, d, 150)), d, policy):
        assert_runs(tree, policy, check)


@pytest.mark.exhaustive
@pytest.mark.parametrize("policy", ["corrected", "published"])
@pytest.mark.parametrize("op", ROOTS)
@pytest.mark.parametrize("board", ["mi100", "mi210", "mi300x", "mi355x"])
@given(data=st.data())
@settings(max_examples=examples(3))
def test_each_figure_alone(op: str, policy: str, board: str, data: st.DataObject) -> None:
    for name, values in FIGURES.items():
        d = changed(board, {name: data.draw(values)})
        if tree := derived(op, data.draw(problems(op, d, 150)), d, policy):
            assert_runs(tree, policy)


# -- faults that drawn boards found -----------------------------------------------------------------

IMAGE = Conv2dProblem(1, 8, 9, 9, 24, 3, 3, padding=(1, 1), dtype="f16")
HEADS = AttentionProblem(40, 50, 64, 2, 1, dtype="f16")


@pytest.mark.parametrize(("op", "problem"), [("gemm", GemmProblem(70, 90, 50, "f16")), ("conv2d", IMAGE), ("attention", HEADS)])
def test_the_fastest_matrix_instruction_may_be_32_wide(op: str, problem: Any) -> None:
    """Layouts of convolution and attention are for 16x16: they take the fastest of those."""
    d = changed("mi300x", {"passes": 8})
    assert d.atom("f16").m == 32
    tree = derived(op, problem, d, "corrected")
    assert tree is not None
    assert_runs(tree, "corrected")
    without = replace(d, atoms=[atom for atom in d.atoms if atom.m == 32])
    assert (derived(op, problem, without, "corrected") is None) == (op != "gemm")


@pytest.mark.slow
def test_more_lds_than_the_architecture_has_runs_on_that_board_only() -> None:
    """With one CU no split of K pays, so that LDS sets the tile."""
    board = "mi300x"
    d = replace(hardware.target(board), lds_bytes=160 * KIB, num_cus=1)
    tree = TiledComputation(300, 300, 600, target=d, dtype="f32")
    tiling = replace(tree.plan.tiling, tile_m=128, tile_n=160, tile_k=32, blocks=1, limited_by=None)
    tree.derivation = with_tiling(tree.problem, d, "corrected", tiling)
    assert tree.plan.resources.lds_bytes > 64 * KIB
    assert_runs(tree, "corrected")
    named, kernel = simgpu.Device(board), asm.emit(tree)
    work = workload(tree, named.arch, 1)
    with pytest.raises(LaunchError, match="bytes of LDS"):
        asm.launch(kernel, named, *map(named.upload, work.arrays))


@pytest.mark.parametrize(("board", "lds", "dtype"), [("mi355x", 160, "f16"), ("mi300x", 96, "f16"), ("mi355x", 160, "f32")])
def test_published_k_steps_are_powers_of_two(board: str, lds: int, dtype: str) -> None:
    """So a work-item stages whole loads, whatever the LDS."""
    d = replace(hardware.target(board), lds_bytes=lds * KIB)
    tree = TiledComputation(100, 90, 333, target=d, dtype=dtype, policy="published")
    spans = tree.plan.tile_k // tree.plan.warp_k
    assert spans & (spans - 1) == 0
    assert_runs(tree, "published")


def test_few_registers_few_simds_small_workgroups() -> None:
    few = derived("attention", HEADS, changed("mi300x", {"agpr_per_thread": 1}), "corrected")
    assert few is None
    assert_runs(Softmax(SoftmaxProblem(5, 3000), changed("mi300x", {"simds_per_cu": 1})), "corrected")
    long = AttentionProblem(4096, 4096, 128, 16, dtype="f16")
    assert FusedAttention(long, "mi300x").plan.shared
    assert not FusedAttention(long, changed("mi300x", {"max_workgroup_size": 256})).plan.shared


def test_an_instruction_names_256_registers_however_many_there_are() -> None:
    many = changed("mi100", {"vgpr_per_thread": 1024, "agpr_per_thread": 1024})
    assert many.vgpr_budget(1)[:2] == many.vgpr_budget(2)[:2] == (256, 256)
    assert many.waves_from_vgprs(256, 256) == 4 and many.waves_from_vgprs(257, 0) == 0
    uneven = changed("mi100", {"agpr_per_thread": 64})
    assert uneven.waves_from_vgprs(32, 64) == 1 and uneven.waves_from_vgprs(32, 0) == 8


@pytest.mark.parametrize(("figures", "said"), [
    ({"wavefront_size": 32}, "wavefront_size = 32: a CDNA wavefront has 64"), ({"num_cus": 2.5}, "num_cus = 2.5 is a count"),
    ({"xcds": 0}, "xcds = 0 must be positive"), ({"agpr_per_thread": -1}, "agpr_per_thread = -1 is negative"),
    ({"hbm_bandwidth_tb": float("inf")}, "hbm_bandwidth_tb = inf must be positive and finite"),
    ({"max_workgroup_size": 2048}, "max_workgroup_size = 2048: a code object can have 1024"),
    ({"unified_vgprs": False}, "unified_vgprs = False, but gfx942 has one file"),
])  # fmt: skip
def test_figures_that_no_board_can_have_are_refused(figures: dict[str, Any], said: str) -> None:
    with pytest.raises(TargetError, match=said):
        replace(hardware.target("mi300x"), **figures)
