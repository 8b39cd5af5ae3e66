"""simgpu.triton on PyTorch's CPU tensors; skipped without Triton or PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton", reason="Triton is an optional extra")
torch = pytest.importorskip("torch", reason="PyTorch is not among the extras: its wheel takes gigabytes")

import triton  # noqa: E402

import simgpu.triton  # noqa: E402
from tests.support import triton_kernels as kernels  # noqa: E402

FP8 = ("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3fn", "float8_e5m2")
DTYPES = ("float16", "bfloat16", "float32", "float64", "bool", "uint8", "int8", "int16", "uint32", "int64", *FP8)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: str) -> None:
    given = torch.linspace(-3, 3, 64).to(getattr(torch, dtype))
    out = torch.zeros(64).to(given.dtype)
    with simgpu.triton.device("mi355x", check=True):
        kernels.copy_past_the_end[(1,)](given, out, 64, BLOCK=64)
    assert torch.equal(out.view(torch.uint8), given.view(torch.uint8))


@pytest.mark.parametrize("view", ["plain", "transposed", "every second", "expanded"])
def test_views_are_read_in_place(view: str) -> None:
    whole = torch.arange(64.0 * 64).reshape(64, 64)
    given = {
        "plain": whole[3:19, 5:21],
        "transposed": whole.T[:16, :16],
        "every second": whole[::4, 1::3][:16, :16],
        "expanded": whole[7, :16].expand(16, 16),
    }[view]
    out = torch.zeros(16, 16)
    with simgpu.triton.device("mi300x", check=True):
        kernels.strided_copy[(1,)](given, out, *given.stride(), ROWS=16, COLS=16)
    assert torch.equal(out, given)


def test_a_view_with_an_offset_is_guarded_by_its_own_end() -> None:
    whole = torch.arange(64.0)
    with simgpu.triton.device("mi300x"), pytest.raises(simgpu.MemoryFault, match=r"0 bytes past the end of argument x \(32 torch"):
        kernels.copy_past_the_end[(1,)](whole[8:40], torch.zeros(64), 64, BLOCK=64)


def test_empty_scalar_and_differentiable_tensors() -> None:
    leaf, total = torch.ones(100, requires_grad=True), torch.zeros(())
    out, parameter = torch.empty(100), torch.nn.Parameter(torch.arange(100.0))
    with simgpu.triton.device("mi300x", check=True):
        kernels.vector_add[(1,)](*(torch.empty(0) for _ in range(3)), 0, BLOCK=128)
        kernels.vector_add[(1,)](*(torch.ones(4)[2:2] for _ in range(3)), 0, BLOCK=128)  # their data_ptr() is null
        kernels.add_atomically[(4,)](leaf, total, 100, BLOCK=32)
        kernels.vector_add[(1,)](leaf, parameter, out, 100, BLOCK=128)
    assert total.item() == 100
    assert torch.equal(out, torch.arange(1.0, 101.0))


def test_addresses_in_place_of_tensors() -> None:
    """Triton's own tests for AMD launch compiled kernels so: with `data_ptr()` of live tensors."""
    x, y, out = torch.arange(100.0), torch.ones(100), torch.zeros(100)
    with simgpu.triton.device("mi300x", check=True):
        compiled = kernels.vector_add[(1,)](x, y, torch.empty(100), 100, BLOCK=128)
        compiled[(1, 1, 1)](x.data_ptr(), y.data_ptr(), out.data_ptr(), 100)
    assert torch.equal(out, x + 1)


def test_a_tensor_elsewhere_is_refused() -> None:
    with simgpu.triton.device("mi300x"), pytest.raises(simgpu.LaunchError, match="argument x is a meta tensor"):
        kernels.vector_add[(1,)](torch.empty(4, device="meta"), torch.ones(4), torch.ones(4), 4, BLOCK=128)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_matmul_in_bf16(target: str) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(70, 75).bfloat16(), torch.randn(65, 75).bfloat16().T
    c = torch.zeros(70, 65, dtype=torch.bfloat16)
    with simgpu.triton.device(target, check=True):
        kernels.matmul[(6,)](a, b, c, 70, 65, 75, *a.stride(), *b.stride(), *c.stride(), BM=32, BN=64, BK=32, GROUP=1)
    exact = (a.double() @ b.double()).bfloat16()
    torch.testing.assert_close(c, exact, atol=1e-3, rtol=2**-7)


@pytest.mark.parametrize(
    ("target", "dtype"), [("gfx942", "float8_e4m3fnuz"), ("gfx950", "float8_e4m3fn"), ("gfx950", "float8_e5m2")]
)
def test_matmul_in_fp8(target: str, dtype: str) -> None:
    torch.manual_seed(1)
    a, b = (torch.randn(64, 64).to(getattr(torch, dtype)) for _ in range(2))
    c = torch.zeros(64, 64)
    with simgpu.triton.device(target, check=True):
        compiled = kernels.matmul[(2,)](a, b.T, c, 64, 64, 64, 64, 1, 1, 64, 64, 1, BM=32, BN=64, BK=32, GROUP=1)
    torch.testing.assert_close(c, a.float() @ b.float().T, atol=5e-3, rtol=5e-3)  # sums of fp8 products truncate
    assert all(name.endswith(("fp8_fp8", "bf8_bf8")) for name in simgpu.triton.report(compiled).matrix)


def test_softmax_layer_norm_and_attention_are_torch_s() -> None:
    torch.manual_seed(2)
    x, functional = torch.randn(7, 131), torch.nn.functional
    soft, normed, mean, rstd = torch.empty_like(x), torch.empty_like(x), torch.empty(7), torch.empty(7)
    weight, bias = torch.randn(131), torch.randn(131)
    q, k, v = (torch.randn(2, 100, 32).half() for _ in range(3))
    out = torch.empty_like(q)
    with simgpu.triton.device("mi300x", check=True):
        kernels.softmax_rows[(3,)](x, soft, x.stride(0), soft.stride(0), 7, 131, BLOCK=256)
        kernels.layer_norm[(7,)](x, normed, weight, bias, mean, rstd, 131, 131, 1e-5, BLOCK=128)
        strides = [step for tensor in (q, k, v, out) for step in tensor.stride()[:2]]
        kernels.attention[(2, 2)](q, k, v, out, 32**-0.5, *strides, 100, D=32, BM=64, BN=32, CAUSAL=True)
    torch.testing.assert_close(soft, torch.softmax(x, 1))
    torch.testing.assert_close(normed, functional.layer_norm(x, (131,), weight, bias))
    torch.testing.assert_close(out, functional.scaled_dot_product_attention(q, k, v, is_causal=True), atol=3e-3, rtol=0)


def test_a_gradient_that_is_one_element_is_guarded() -> None:
    """A sum's gradient is expanded: kernels that take it for contiguous read past it, as on a GPU."""
    found: list[Any] = []
    leaf = torch.ones(64, requires_grad=True)
    leaf.register_hook(found.append)
    leaf.sum().backward()
    with (
        simgpu.triton.device("mi300x"),
        pytest.raises(simgpu.MemoryFault, match=r"past the end of argument x \(64 torch.float32\)"),
    ):
        kernels.copy_past_the_end[(1,)](found[0], torch.zeros(64), 64, BLOCK=64)


def test_tensor_descriptors_of_the_host() -> None:
    from triton.tools.tensor_descriptor import TensorDescriptor

    x, out = torch.randn(16, 32), torch.zeros(16, 32)
    with simgpu.triton.device("mi300x", check=True):
        kernels.block_copy[(1,)](TensorDescriptor.from_tensor(x, [16, 32]), TensorDescriptor.from_tensor(out, [16, 32]))
    assert torch.equal(x, out)


def test_autotune_and_what_it_resets() -> None:
    x, out, count = torch.arange(3000.0), torch.zeros(3000), torch.zeros(1)
    with simgpu.triton.device("mi300x"), pytest.warns(simgpu.triton.ModelledTime):
        kernels.tuned_count[lambda meta: (triton.cdiv(3000, meta["BLOCK"]),)](x, out, count, 3000)
    assert torch.equal(out, torch.arange(1.0, 3001.0)) and torch.equal(x, out) and count.item() == 3000
