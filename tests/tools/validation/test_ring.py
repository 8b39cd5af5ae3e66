"""Variants of others' kernels in the ring: equal ones, a wrong one, one that does not run; kernels taken out of a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is an optional extra")

from simgpu.hardware.errors import LaunchError
from simgpu.tools.cases.same import DIFFERENT, EQUAL, Side
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.validation.ring.__main__ import row
from simgpu.tools.validation.ring.groups import FIRST, NOT_RUN, Group, Variant, judge
from simgpu.tools.validation.ring.launches import Addresses, TritonLaunch
from simgpu.tools.validation.ring.reference import as_type, product, reference
from simgpu.tools.validation.ring.sources import kernels_of

SOURCE = """
import missing_package
import triton, triton.language as tl

def sizes():
    return [16, 32] if is_wide() else [16]

@triton.autotune(configs=[missing_package.Config()], key=[])
@triton.jit
def total(x, pointers, out, n, BLOCK: tl.constexpr, LIMIT: tl.constexpr):
    y = tl.load(pointers).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        live = start + at < n - LIMIT
        sums += tl.load(x + start + at, mask=live, other=0) * tl.load(y + start + at, mask=live, other=0)
    tl.store(out, tl.sum(sums, 0))

def test_nested():
    @triton.jit
    def inner(x):
        tl.store(x, 1.0)
    inner[(1,)](None)
"""
N = 100


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "tutorial-1.py"
    path.write_text(SOURCE)
    (tmp_path / "scratch").mkdir()
    return path


def test_kernels_leave_the_rest_of_their_file(source: Path) -> None:
    module = kernels_of(source, source.parent / "scratch", helpers=("sizes",), names={"is_wide": lambda: True})
    assert module.sizes() == [16, 32] and not hasattr(module, "test_nested")
    assert hasattr(kernels_of(source, source.parent / "scratch", "test_nested").inner, "run")
    changed = kernels_of(source, source.parent / "scratch", replaced=("n - LIMIT", "n"))
    assert "start + at < n\n" in changed.total.src
    for rest, problem in (({"replaced": ("there is none", "")}, "has no 'there is none'"), ({"within": "sizes"}, "in sizes")):
        with pytest.raises(UsageError, match=problem):
            kernels_of(source, source.parent / "scratch", **rest)


def test_configurations_are_equal_but_for_a_wrong_one(source: Path) -> None:
    kernel = kernels_of(source, source.parent / "scratch").total
    x, y = (np.random.default_rng(seed).standard_normal(N).astype(np.float32) for seed in (0, 1))
    out = np.zeros(1, np.float32)

    def variant(block: int, limit: int = 0) -> Variant:
        options = {"BLOCK": block, "LIMIT": limit, "num_warps": 1}
        launch = TritonLaunch(kernel, (1,), {"x": x, "table": Addresses(["y"]), "out": out, "n": N}, options, {"y": y})
        return launch.variant(f"{block} {limit}", "mi300x")

    def fails() -> Side:
        raise LaunchError("too much LDS")

    want = as_type(product(x[None], y[:, None]).ravel(), out.dtype)
    variants = [variant(16), variant(128), variant(64, limit=1), Variant("large", fails)]
    found = list(judge(Group("total", variants, reference({"x": x, "y": y, "out": out}, {"out": want}))))
    assert [each.verdict for each in found] == [EQUAL, EQUAL, DIFFERENT, NOT_RUN]
    assert found[-1].reason == "too much LDS" and row("total", found) == ["total", 4, 2, 0, 0, 0, 1, 1]
    alone = list(judge(Group("total", variants[:2])))
    assert [each.verdict for each in alone] == [FIRST, EQUAL]
