"""Kernels of attention's backward: against float64, at every edge, and broken on purpose."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simgpu
from simgpu import asm
from simgpu.asm.attention_backward.emitter import GradientEmitter
from simgpu.asm.attention_backward.weights import Weights
from simgpu.hardware.dtypes import numpy_dtype
from simgpu.operators import AttentionBackward, AttentionBackwardProblem, ComputeVisitor, reference
from simgpu.tools.shared.faithful import likeness
from tests.operators.test_attention_backward import gradients, operands
from tests.support.exhaustive import examples, one_in

TARGETS, DTYPES, RESULTS = ("gfx908", "gfx90a", "gfx942", "gfx950"), ("f16", "bf16"), ("dQ", "dK", "dV")


def backward(p: AttentionBackwardProblem, target: str, check: bool = False, given: Any = None) -> SimpleNamespace:
    tree, gpu = AttentionBackward(p, target), simgpu.Device(target, check=check)
    arrays = operands(p, numpy_dtype(p.dtype, target)) if given is None else given
    buffers = [gpu.upload(x) for x in (*arrays, *(np.full(p.shapes[name], np.nan, np.float32) for name in RESULTS))]
    runs = asm.launch(asm.emit(tree), gpu, *buffers)
    got = {name: buffer.download(np.float32, p.shapes[name]) for name, buffer in zip(RESULTS, buffers[6:], strict=True)}
    findings = [finding for run in runs for finding in run.findings]
    return SimpleNamespace(tree=tree, arrays=arrays, runs=runs, got=got, findings=findings, arch=target)


def wrong(p: AttentionBackwardProblem, result: SimpleNamespace) -> set[str]:
    """Returns the gradients that are outside their bound."""
    want = reference.attention_backward(p, *result.arrays)
    bound = reference.attention_backward_error_bound(p, *result.arrays, arch=result.arch)
    return {name for name in RESULTS if not (np.abs(result.got[name] - want[name]) <= bound[name]).all()}


@settings(max_examples=examples(12), suppress_health_check=list(HealthCheck))
@given(
    st.integers(1, 200), st.integers(1, 200), st.sampled_from((8, 32, 40, 64, 128)), st.sampled_from((0, 16, 72)),
    st.sampled_from(((1, 1), (4, 2), (3, 1))), st.booleans(), st.sampled_from(TARGETS), st.sampled_from(DTYPES),
)  # fmt: skip
def test_any_shape_validates(lq, lk, d, dv, heads, causal, target, dtype):
    p = AttentionBackwardProblem(lq, lk, d, *heads, 2, causal, dtype=dtype, dv=dv)
    result = backward(p, target)
    assert not wrong(p, result)
    typical = reference.attention_backward_typical_error(p, *result.arrays, arch=target)
    assert likeness(result.got["dQ"].astype(float), typical).passed


@pytest.mark.parametrize("size", [1, 64])
def test_errors_are_a_faithful_kernels(size: int) -> None:
    """Columns of a row share the errors of its dS; with large inputs a row's dQ is all noise."""
    p = AttentionBackwardProblem(33, 33, 64, dtype="bf16")
    kind = numpy_dtype("bf16")
    given = operands(p, kind, drawn=tuple(size * x.astype(float) for x in operands(p, kind, finish=False)))
    result = backward(p, "gfx942", given=given)
    typical, found = reference.attention_backward_typical_error(p, *given, arch="gfx942"), result.got["dQ"].astype(float)
    assert not wrong(p, result) and likeness(found, typical).passed
    assert size > 1 or not likeness(found * 1.02, typical).passed


def test_subnormal_gradients_count_in_the_sums_of_rows() -> None:
    """gfx90a's matrix units read them as 0 in dP, but the sums of rows have them."""
    p = AttentionBackwardProblem(65, 3, 256, dtype="f16", dv=64, scale=2.0)
    drawn = [x.astype(float) for x in operands(p, numpy_dtype("f16"), finish=False)]
    drawn[-1][..., ::2] = 2.0**-15
    given = operands(p, numpy_dtype("f16"), drawn=tuple(drawn))
    result = backward(p, "gfx90a", given=given)
    typical = reference.attention_backward_typical_error(p, *given, arch="gfx90a")
    assert not wrong(p, result) and likeness(result.got["dQ"].astype(float), typical).passed


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("target", one_in(2, TARGETS))
def test_checked_mode_finds_nothing(target: str, dtype: str) -> None:
    """Causal, with shared heads, rows that end within an atom, and queries that see no key. Buffers end with the arrays."""
    for p in (
        AttentionBackwardProblem(90, 300, 72, 4, 2, 1, True, dtype=dtype), AttentionBackwardProblem(75, 37, 64, dtype=dtype),
        AttentionBackwardProblem(70, 33, 32, causal=True, dtype=dtype, dv=136),
    ):  # fmt: skip
        result = backward(p, target, check=True)
        assert not result.findings and not wrong(p, result)


def test_gradients_as_pytorch_defines_them() -> None:
    """O in the operands' type and L in f32 move the gradients by their rounding only."""
    p = AttentionBackwardProblem(130, 170, 64, 4, 2, causal=True, dtype="f16")
    result = backward(p, "gfx942")
    q, k, v, _, do, _ = result.arrays
    for name, want in gradients(p, q, k, v, do).items():
        assert np.abs(result.got[name] - want).max() < 4e-3 * np.abs(want).max()


def test_same_bits_twice_and_as_the_tree() -> None:
    """No atomics: two launches give the same bits. The tree executed with numpy gives them but for roundings."""
    p = AttentionBackwardProblem(300, 260, 64, 2, 1, causal=True, dtype="bf16")
    one = backward(p, "gfx950")
    two = backward(p, "gfx950", given=one.arrays)
    executed = ComputeVisitor("warp", "problem").visit(one.tree, *one.arrays)
    for name in RESULTS:
        assert one.got[name].tobytes() == two.got[name].tobytes()
        assert np.abs(one.got[name] - executed[name]).max() < 2e-2 * np.abs(executed[name]).max()


def test_rows_that_see_no_key_have_no_gradient() -> None:
    p = AttentionBackwardProblem(40, 10, 32, causal=True, dtype="f16")
    result = backward(p, "gfx90a")
    assert not wrong(p, result) and not result.got["dQ"][0, 0, :30].any() and result.got["dQ"][0, 0, 30:].any()


def test_small_weights_are_kept() -> None:
    """gfx90a reads f16 below 2^-14 as 0. P of a long row is that small, and is rounded 2^15 times as large."""
    p = AttentionBackwardProblem(16, 40000, 16, dtype="f16")
    q, k, v, do = (0.1 * x for x in operands(p, np.dtype(float), finish=False))
    result = backward(p, "gfx90a", given=operands(p, np.dtype(np.float16), drawn=(q, k, v, np.abs(do))))
    want = reference.attention_backward(p, *result.arrays)["dV"]
    assert np.abs(result.got["dV"] - want).max() < 1e-3 * want.max()


MUTANTS = {
    "missing D": (Weights, "_of_query", lambda own: lambda self, name, at: 0 if name == "D" else own(self, name, at), {"dQ", "dK"}),
    "missing L": (Weights, "_of_query", lambda own: lambda self, name, at: 0 if name == "L" else own(self, name, at), set(RESULTS)),
    "no mask": (Weights, "_mask", lambda own: lambda self, part: None, set(RESULTS)),
    "one head of two": (GradientEmitter, "visit_block", lambda own: lambda self, block: _first_head(self, block), {"dK", "dV"}),
    "no scale": (GradientEmitter, "_store_gradient", lambda own: lambda self, name, held, factor: own(self, name, held, 1.0),
                 {"dQ", "dK", "dV"}),
}  # fmt: skip


def _first_head(emitter: GradientEmitter, block: Any) -> None:
    k = emitter.k
    emitter.left = k.s.alloc("rows left")
    if emitter.keys:
        emitter.statistics = k.s.alloc("L buffer", 4), k.s.alloc("D buffer", 4)
    emitter._steps()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_kernel_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, method, change, spoiled = MUTANTS[name]
    monkeypatch.setattr(owner, method, change(getattr(owner, method)))
    p = AttentionBackwardProblem(70, 90, 32, 2, 1, causal=True, dtype="f16")
    assert wrong(p, backward(p, "gfx942")) == spoiled


def test_a_missing_barrier_is_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    own = GradientEmitter._step

    def step(self: GradientEmitter) -> None:
        own(self)
        (last,) = [n for n, item in enumerate(self.k.items) if getattr(item, "mnemonic", "") == "s_barrier"][-1:]
        del self.k.items[last]

    monkeypatch.setattr(GradientEmitter, "_step", step)
    result = backward(AttentionBackwardProblem(70, 90, 64, dtype="bf16"), "gfx942", check=True)
    assert "race" in {finding.kind for finding in result.findings}
