"""Rows along k that are loaded by whole cache lines: results, what is touched, lines that are requested."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simgpu.hardware import target as board
from simgpu.hardware.errors import LaunchError, ResourceError
from simgpu.operators.gemm import limits
from simgpu.operators.gemm.tree import TiledComputation
from tests.support.exhaustive import examples
from tests.support.gemm_case import gemm

CASES = [(target, name) for target in ("gfx908", "gfx90a", "gfx942", "gfx950") for name in ("f32", "xf32")
         if name in board(target).dtypes()]  # fmt: skip
ALONG_K = [(False, True), (False, False), (True, True)]  # transposes of products with an operand along k


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Loads all operands that cut lines by whole lines, also where that does not pay."""
    monkeypatch.setattr(limits, "_whole_lines_pay", lambda *_: True)
    monkeypatch.setattr(limits, "ALIGNED_STEPS", 0)


def whole_numbers(*operands):
    """Makes the operands small integers, which are exact in every type: a wrong, missing or repeated element shows."""
    for number, operand in enumerate(operands):
        operand[...] = np.random.default_rng(number).integers(-2, 3, operand.shape).astype(operand.dtype)


def run(case, trans, tile, sizes, **more):
    """Runs a product of integers with operands that begin and end with their allocations, in checked mode."""
    tree = TiledComputation(*sizes, case[0], dtype=case[1], trans_a=trans[0], trans_b=trans[1])
    split = {"split_k": more.pop("split", 1), "blocks": 1, "limited_by": None}
    tiling = replace(tree.plan.tiling, tile_m=tile[0], tile_n=tile[1], tile_k=tile[2], **split)
    return gemm(*sizes, *case, trans, tiling=tiling, check=True, edit=whole_numbers, **{"guard": 0, **more})


@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck), deadline=None)
@given(
    case=st.sampled_from(CASES),
    trans=st.sampled_from(ALONG_K),
    tile=st.tuples(*[st.sampled_from((32, 64, 96, 160))] * 2, st.sampled_from((16, 32))),
    sizes=st.tuples(st.integers(1, 170), st.integers(1, 170), st.integers(1, 150) | st.integers(1, 20)),
    split=st.sampled_from((1, 1, 2)),
    pads=st.tuples(*[st.sampled_from((0, 0, 1, 3, 8))] * 3),
    batch=st.sampled_from((1, 1, 2)),
    guard=st.sampled_from((0, 3)),
)
def test_any_rows_are_multiplied_exactly(case, trans, tile, sizes, split, pads, batch, guard):
    try:
        result = run(case, trans, tile, sizes, split=split, pads=pads, batch=batch, guard=guard)
    except (LaunchError, ResourceError):
        return  # no such tile of this type
    assert (result.got == result.want).all() and result.untouched
    assert not [str(finding) for each in result.runs for finding in each.findings]
