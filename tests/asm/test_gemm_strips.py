"""Tiles of C that pass through LDS: right at every edge, silent in checked mode, found without their barriers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simgpu import asm
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.gemm import operands
from simgpu.hardware import target as board
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.errors import ResourceError
from simgpu.operators import GemmProblem, TiledComputation
from simgpu.operators.gemm.limits import Tiling
from simgpu.operators.gemm.loads import stored_lines
from simgpu.operators.gemm.plan import with_tiling
from simgpu.operators.gemm.stores import passes_lds, touched_lines
from tests.support.exhaustive import examples
from tests.support.gemm_case import TARGETS, TRANSPOSES, gemm

NOTE = "is in LDS  [gemm/strips.py"
COLUMNS = (32, 64, 96, 128, 160, 192, 224, 256)


@pytest.fixture(name="strips")
def _strips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes all tiles pass through LDS."""
    monkeypatch.setattr(operands, "passes_lds", lambda p, d, t, sums: dtype(p.accumulator).bytes == 4)


def tiling(target: str, name: str, columns: int, rows: int = 64) -> Tiling | None:
    """Returns a plan's tiling with other sides, or None if it does not fit."""
    plan = TiledComputation(512, 512, 512, target, dtype=name).plan
    step = max(plan.tiling.warp_k, 64 // dtype(name).bytes)
    made = replace(plan.tiling, tile_m=rows, tile_n=columns, tile_k=step, split_k=1, blocks=1)
    other = with_tiling(plan.problem, plan.descriptor, "corrected", made)
    return other.tiling if other.feasible else None


@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(
    sizes=st.tuples(st.integers(1, 140), st.integers(1, 300), st.integers(1, 100)), target=st.sampled_from(TARGETS),
    name=st.sampled_from(("f32", "f16", "bf16", "i8")), trans=st.sampled_from(TRANSPOSES), columns=st.sampled_from(COLUMNS),
    beta=st.sampled_from((0, 2)), pads=st.tuples(*[st.integers(0, 5)] * 3), batch=st.sampled_from((1, 1, 3)), bias=st.booleans(),
    residual=st.booleans(), scales=st.sampled_from(("none", "row")), half=st.booleans(), check=st.booleans(),
)  # fmt: skip
def test_any_tile_validates(strips, sizes, target, name, trans, columns, beta, pads, batch, bias, residual, scales, half, check):
    """C is stored in its view only, and checked mode finds nothing."""
    made = tiling(target, name, columns)
    more = {"dtype_c": "f16"} if half else {}
    try:
        result = gemm(*sizes, target, name, trans, beta=beta, pads=pads, batch=batch, bias=bias, residual=residual,
                      scales=scales, tiling=made, check=check, guard=0 if check else 41, **more)  # fmt: skip
    except ResourceError as error:
        assert "does not divide" in str(error)
        return
    result.check()
    assert NOTE in result.kernel.text and not [finding for run in result.runs for finding in run.findings]


@pytest.mark.parametrize("target", TARGETS)
def test_checked_mode_finds_missing_barriers(strips, target, monkeypatch):
    """Work-items read what other waves write."""
    whole = gemm(64, 95, 40, target, tiling=tiling(target, "f32", 96), check=True, guard=0)
    assert not [finding for run in whole.runs for finding in run.findings]
    emit = KernelBuilder._emit

    def without(k, frame, mnemonic, operands, note, modifiers):
        left_out = note.startswith("strip") and note.endswith(" is in LDS")
        return None if left_out else emit(k, frame, mnemonic, operands, note, modifiers)

    monkeypatch.setattr(KernelBuilder, "_emit", without)
    broken = gemm(64, 95, 40, target, tiling=tiling(target, "f32", 96), check=True, guard=0)
    assert "race" in {finding.kind for run in broken.runs for finding in run.findings}


def test_tiles_pass_where_stores_wait_for_lines():
    """Three atoms a wave store 64 bytes of a row at once. Aligned rows, wide runs and few blocks are stored directly."""
    chip = board("mi100")
    tree = TiledComputation.of(GemmProblem(2043, 1391, 89), chip)
    odd, narrow = tree.problem, replace(tree.plan.tiling, tile_m=128, tile_n=96, tile_k=16, split_k=1)
    assert passes_lds(odd, chip, narrow, False) and not passes_lds(odd, chip, replace(narrow, tile_n=128), False)
    assert not passes_lds(replace(odd, m=100, n=101, ldc=None), chip, narrow, False)
    assert not passes_lds(replace(odd, n=1392, ldb=None, ldc=None), chip, narrow, False)
    assert not passes_lds(replace(odd, activation="swiglu", n=1390, ldb=None, ldc=None), chip, narrow, False)
    assert touched_lines(odd, chip, narrow, False) == stored_lines(4 * 96, 4 * 1391)
    assert touched_lines(odd, chip, replace(narrow, tile_n=128), False) == stored_lines(4 * 64, 4 * 1391)


def test_the_kernel_that_is_timed_has_strips():
    """Has strips in its text and in its name, since a tile's direct kernel has another text."""
    tree = TiledComputation.of(GemmProblem(2043, 1391, 89), board("mi100"))
    made = replace(tree.plan.tiling, tile_m=128, tile_n=96, tile_k=16, split_k=1)
    tree.derivation = with_tiling(tree.problem, tree.descriptor, "corrected", made)
    emitted = asm.emit(tree)
    assert NOTE in emitted.text and emitted.name.endswith("_128x96x16_strips")
