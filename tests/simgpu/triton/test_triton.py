"""simgpu.triton: launches, shared memory, findings; skipped without Triton."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is an optional extra")

import simgpu.triton
from tests.support import triton_kernels as kernels
from tests.support.exhaustive import one_in

TARGETS = ("gfx90a", "gfx942", "gfx950")
SOURCE = Path(kernels.__file__).read_text().splitlines()


def line(text: str) -> str:
    """Returns the `file:line` of the kernels' file's only line that holds a text."""
    (number,) = [number for number, row in enumerate(SOURCE, start=1) if text in row]
    return f"triton_kernels.py:{number}"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [1, 127, 129, 1000])
def test_vector_add(target: str, n: int) -> None:
    rng = np.random.default_rng(n)
    x, y = (rng.standard_normal(n, dtype=np.float32) for _ in range(2))
    out = np.zeros_like(x)
    with simgpu.triton.device(target, check=True):
        kernels.vector_add[(-(-n // 128),)](x, y, out, n, BLOCK=128)
    assert np.array_equal(out, x + y)


@pytest.mark.parametrize("target", TARGETS)
def test_softmax(target: str) -> None:
    x = np.random.default_rng(0).standard_normal((7, 200), dtype=np.float32)[:, :131]  # rows of a wider array
    out = np.zeros((7, 131), np.float32)
    with simgpu.triton.device(target, check=True):
        kernels.softmax_rows[(3,)](x, out, x.strides[0] // 4, out.strides[0] // 4, *x.shape, BLOCK=256)
    wanted = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    assert np.allclose(out, wanted / wanted.sum(1, keepdims=True), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("target", TARGETS)
def test_matmul(target: str) -> None:
    rng = np.random.default_rng(1)
    m, n, k = 70, 65, 75
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((n, k)).astype(np.float16).T
    c = np.zeros((m, n), np.float32)
    strides = [s // t.itemsize for t in (a, b, c) for s in t.strides]
    with simgpu.triton.device(target, check=True):
        kernels.matmul[lambda meta: (-(-m // meta["BM"]) * -(-n // meta["BN"]),)](
            a, b, c, m, n, k, *strides, BM=32, BN=64, BK=32, GROUP=2
        )
    assert np.allclose(c, a.astype(np.float64) @ b.astype(np.float64), atol=1e-4)


@pytest.mark.parametrize("target", TARGETS)
def test_layer_norm(target: str) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((5, 300)).astype(np.float16)
    weight, bias = (rng.standard_normal(300, dtype=np.float32) for _ in range(2))
    out, mean, rstd = np.zeros_like(x), np.zeros(5, np.float32), np.zeros(5, np.float32)
    with simgpu.triton.device(target, check=True):
        kernels.layer_norm[(5,)](x, out, weight, bias, mean, rstd, 300, 300, 1e-5, BLOCK=128)
    exact = x.astype(np.float64)
    scale = 1 / np.sqrt(exact.var(1) + 1e-5)
    assert np.allclose(mean, exact.mean(1), atol=1e-6) and np.allclose(rstd, scale, rtol=1e-5)
    wanted = (exact - exact.mean(1, keepdims=True)) * scale[:, None] * weight + bias
    assert np.allclose(out, wanted, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("target", one_in(2, TARGETS))
@pytest.mark.parametrize("causal", [False, True])
def test_attention(target: str, causal: bool) -> None:
    rng = np.random.default_rng(3)
    heads, length, d = 2, 100, 32
    packed = rng.standard_normal((length, 3, heads, d)).astype(np.float16)  # q, k and v are views
    q, k, v = (packed[:, which].transpose(1, 0, 2) for which in range(3))
    out = np.zeros((heads, length, d), np.float16)
    strides = [s // 2 for t in (q, k, v, out) for s in t.strides[:2]]
    with simgpu.triton.device(target, check=True):
        kernels.attention[(-(-length // 64), heads)](
            q, k, v, out, d**-0.5, *strides, length, D=d, BM=64, BN=32, CAUSAL=causal
        )
    scores = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1) * d**-0.5
    if causal:
        scores[:, np.triu(np.ones((length, length), bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    assert np.allclose(out, weights / weights.sum(-1, keepdims=True) @ v.astype(np.float64), atol=3e-3)


@pytest.mark.parametrize("target", TARGETS)
def test_a_race_between_programs_is_told_at_its_line(target: str) -> None:
    x, out, scratch = (np.ones(8, np.float32) for _ in range(3))
    with simgpu.triton.device(target, check=True), pytest.raises(simgpu.triton.KernelFinding, match="race") as caught:
        kernels.neighbours_racy[(8,)](x, out, scratch, 8, BLOCK=1)
    finding = caught.value.findings[0]
    assert finding.kind == "race"
    assert {finding.source, finding.other_source} == {line("# races"), line("tl.store(scratch + program")}
    assert finding.text in str(caught.value)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [1, 41, 64])
def test_a_small_block_in_place_is_no_error(target: str, n: int) -> None:
    """Several waves load it, one stores it: a note names the element, and two waves of a program."""
    rows = 9
    a, b = (np.random.default_rng(n).standard_normal((rows, n)).astype(np.float32) for _ in range(2))
    gate, value = a.astype(np.float64), b.astype(np.float64)
    with simgpu.triton.device(target, check=True):
        kernel = kernels.gated_in_place[(rows,)](a, b, n, BLOCK=64)
        notes = kernel.function.last.run.findings
    sigmoid = 1 / (1 + np.exp(-gate))
    assert np.allclose(a, gate * sigmoid * value, atol=1e-5) and np.allclose(b, sigmoid, atol=1e-6)
    assert {(note.kind, note.severity) for note in notes} == {("race", "note")}
    assert {note.message.partition("[")[0].rpartition("(")[2] for note in notes} == {"a", "b"}
    assert all("no effect" in note.message and "of workgroup" not in note.message for note in notes)


def test_a_scan_in_place_is_no_error() -> None:
    x = np.arange(64, dtype=np.float32)
    with simgpu.triton.device("mi300x", check=True):
        kernels.cumsum_in_place[(4,)](x, BLOCK=16)
    assert np.array_equal(x.reshape(4, 16), np.arange(64, dtype=np.float32).reshape(4, 16).cumsum(1))


def test_a_counter_that_all_threads_go_on_with_is_a_race() -> None:
    counter, out = np.zeros(1, np.int32), np.zeros(256, np.int32)
    with simgpu.triton.device("mi300x", check=True), pytest.raises(simgpu.triton.KernelFinding, match=r"counter\[0\]") as caught:
        kernels.count_and_go_on[(1,)](counter, out, BLOCK=256)
    assert caught.value.findings[0].source == line("# the load may come behind")
    with simgpu.triton.device("mi300x", check=True):  # one wave is in order
        kernels.count_and_go_on[(1,)](counter, out, BLOCK=256, num_warps=1)


def test_atomics_are_no_race() -> None:
    x, total = np.ones(100, np.float32), np.zeros(1, np.float32)
    with simgpu.triton.device("mi300x", check=True):
        kernels.add_atomically[(4,)](x, total, 100, BLOCK=32)
    assert total[0] == 100


@pytest.mark.parametrize("target", TARGETS)
def test_an_access_past_a_tensor_is_told_at_its_line(target: str) -> None:
    memory = np.arange(1024, dtype=np.float32)
    x, out = memory[:1000], np.zeros(1000, np.float32)  # the bytes after x exist on the host
    guarded = simgpu.triton.device(target, check=True, guard="view")
    with guarded, pytest.raises(simgpu.triton.KernelFinding) as caught:
        kernels.copy_past_the_end[(4,)](x, out, 1000, BLOCK=256)
    finding = caught.value.findings[0]
    assert finding.source == line("# no mask") and "argument x (1000 float32)" in finding.message
    assert finding.lanes and "load" in finding.text
    assert f"lanes {finding.lanes[0]}" in str(caught.value)
    with simgpu.triton.device(target), pytest.raises(simgpu.MemoryFault, match="past the end of argument x"):
        kernels.copy_past_the_end[(4,)](x.copy(), out, 1000, BLOCK=256)


def test_the_repaired_twin_is_silent() -> None:
    out = np.zeros(1000, np.float32)
    with simgpu.triton.device("mi300x", check=True):
        kernels.copy_past_the_end[(4,)](np.arange(1024, dtype=np.float32), out, 1000, BLOCK=256)
    assert np.array_equal(out, np.arange(1000))


def test_findings_are_collected() -> None:
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    with simgpu.triton.device("mi300x", check="collect") as session:
        kernels.neighbours_racy[(8,)](x, out, np.zeros(8, np.float32), 8, BLOCK=1)
        kernels.copy_past_the_end[(1,)](x, out, 8, BLOCK=64)
        assert {finding.kernel for finding in session.findings} == {"neighbours_racy", "copy_past_the_end"}


def test_inlined_code_is_told_by_the_helper_and_its_caller() -> None:
    with simgpu.triton.device("mi300x", check="collect") as session:
        kernels.sum_past_the_end[(1,)](np.ones(60, np.float32), np.zeros(1, np.float32), 60, BLOCK=64)
    finding = session.findings[0]
    assert finding.source == line("return tl.load(at)")
    assert f"called at {line('values = fetch')}" in finding.message
