"""Operators on 16-bit types that a GPU computes in f32, on the pretended GPU; skipped if Triton or PyTorch is not installed."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.support.pretended_gpu import session, torch  # noqa: F401  (the fixture)

functional = torch.nn.functional


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_of_norms_are_summed_in_f32(dtype: str) -> None:
    kind = getattr(torch, dtype)
    torch.manual_seed(4)
    x, dy = torch.randn(1151, 130).to(kind), (0.1 * torch.randn(1151, 130)).to(kind)
    found, exact = [], []
    for place, wide, gradients in (("cuda", kind, found), ("cpu", torch.float64, exact)):
        leaves = [tensor.to(wide).to(place).requires_grad_() for tensor in (x, torch.ones(130), torch.zeros(130))]
        functional.layer_norm(leaves[0], (130,), *leaves[1:]).backward(dy.to(wide).to(place))
        gradients += [leaf.grad.cpu() for leaf in leaves]
    for got, want in zip(found, exact, strict=True):
        assert got.dtype == kind
        torch.testing.assert_close(got.double(), want, atol=2e-4, rtol=torch.finfo(kind).eps)


def _embedded(rows: Any) -> Any:
    """Returns the gradient of a table of four rows; 75 of 300 numbers look up each row."""
    table = torch.zeros(4, 50, dtype=rows.dtype, device=rows.device, requires_grad=True)
    functional.embedding(torch.arange(300, device=rows.device) % 4, table).backward(rows)
    return table.grad


def _gradient(function: Any) -> Any:
    """Returns a function with the gradient of its result's sum."""

    def gradient(x: Any) -> Any:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(function(x).sum(), x)[0]

    return gradient


def _convolved(rows: Any) -> Any:
    """Returns the elements of a transposed convolution and of its filter's gradient."""
    taps = rows[:36, :24].reshape(6, 4, 36)[..., :9].reshape(6, 4, 3, 3).detach().requires_grad_()
    out = functional.conv_transpose2d(rows[:, :36].reshape(50, 6, 6, 6), taps, stride=2)
    return torch.cat([out.detach().flatten(), torch.autograd.grad(out.sum(), taps)[0].flatten()])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("function", [
    lambda x: x.prod(0), lambda x: x[:, :2].prod(), _embedded, _convolved,
    lambda x: functional.interpolate(x[None], scale_factor=1.7, mode="linear"),
    lambda x: functional.batch_norm(x, None, None, training=True), lambda x: functional.instance_norm(x.T[None]),
    lambda x: functional.adaptive_avg_pool3d(x.T.reshape(1, 50, 5, 6, 10), 2),
    lambda x: functional.grid_sample(x.reshape(1, 50, 12, 25), x[:, :2].reshape(1, 10, 30, 2) - 1, align_corners=False),
    _gradient(lambda x: functional.avg_pool1d(x.T[None], 100, 1)), _gradient(lambda x: functional.max_pool2d(x[None], 40, 1)),
])  # fmt: skip
def test_sums_of_16_bits_are_rounded_once(function: Any, dtype: str) -> None:
    torch.manual_seed(5)
    x = (1 + 0.01 * torch.rand(300, 50)).to(getattr(torch, dtype))
    got, want = function(x.cuda()).cpu(), function(x.double())
    torch.testing.assert_close(got.double(), want, atol=5e-5, rtol=torch.finfo(x.dtype).eps, equal_nan=True)


def _bagged(rows: Any) -> Any:
    """Returns the means of bags of 25 rows."""
    places = torch.arange(len(rows), device=rows.device)
    return functional.embedding_bag(places.view(-1, 25), rows, mode="mean")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("function", [
    lambda x: functional.log_softmax(x, 1), lambda x: functional.softmax(x, 0), _gradient(lambda x: functional.glu(x, 1)),
    torch.erf, lambda x: x.clone().erf_(), _bagged,
])  # fmt: skip
def test_results_of_16_bits_are_the_nearest_ones(function: Any, dtype: str) -> None:
    torch.manual_seed(7)
    x = torch.randn(200, 600).to(getattr(torch, dtype))
    got, want = function(x.cuda()).cpu().double(), function(x.double())
    unit = torch.finfo(x.dtype).eps * want.abs().clamp(min=torch.finfo(x.dtype).tiny).log2().floor().exp2()
    assert float(((got - want).abs() / unit).max()) < 0.52


@pytest.mark.parametrize("mixed", [False, True])
def test_batch_norm_s_statistics_are_f32_and_its_running_ones_are_updated(mixed: bool) -> None:
    """As MIOpen's, whose weights may be f32. The gradient of the weight is a sum of 4000 terms that cancel."""
    torch.manual_seed(6)
    x = torch.rand(4000, 3).half()
    norms = [torch.nn.BatchNorm1d(3).to(torch.float32 if mixed else torch.float16).cuda(), torch.nn.BatchNorm1d(3).double()]
    for norm, values in zip(norms, (x.cuda(), x.double())):
        (norm(values) * values).sum().backward()
    found, exact = norms
    assert found.weight.grad.dtype == found.running_mean.dtype == (torch.float32 if mixed else torch.float16)
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(getattr(found, name).cpu().double(), getattr(exact, name), rtol=1e-3, atol=0)
    torch.testing.assert_close(found.weight.grad.cpu().double(), exact.weight.grad, rtol=4e-3, atol=0)


def test_results_in_given_tensors_are_those_of_the_same_operator() -> None:
    torch.manual_seed(8)
    x = (1 + 0.01 * torch.rand(300, 50)).bfloat16().cuda()
    norm = partial(torch.native_batch_norm, x, x[0], x[1], None, None, True, 0.1, 1e-5)
    into = [torch.empty(0, dtype=kind, device="cuda") for kind in (x.dtype, torch.float32, torch.float32)]
    for found, expected, out in zip(norm(out=into), norm(), into, strict=True):
        assert found is out and torch.equal(found, expected)
    wide = torch.empty(0, device="cuda")
    assert torch.equal(torch.prod(x, 0, out=into[0]), x.prod(0)) and torch.prod(x, 0, out=wide) is wide
    narrow = torch.view_as_complex(x.half()[:, :2].contiguous())
    torch.testing.assert_close(torch.sqrt(narrow, out=torch.empty_like(narrow)), narrow.sqrt(), rtol=0, atol=0)


def test_a_group_norm_s_statistics_have_its_type() -> None:
    """As on a GPU, unlike those of other norms."""
    x = torch.rand(2, 6, 5, device="cuda").half()
    assert [one.dtype for one in torch.native_group_norm(x, x[0, :, 0], x[1, :, 0], 2, 6, 5, 3, 1e-5)] == [torch.float16] * 3
    assert torch.native_layer_norm(x, (5,), None, None, 1e-5)[1].dtype == torch.float32


@pytest.mark.parametrize("function", [
    lambda x: functional.avg_pool3d(x.reshape(2, 3, 4, 5, 6), 2, 1), lambda x: _gradient(lambda x: functional.avg_pool3d(x, 2, 1))(
        x.reshape(2, 3, 4, 5, 6)),
    lambda x: functional.interpolate(x.reshape(2, 3, 5, 24), (3, 7), mode="bilinear", antialias=True),
    lambda x: functional.multi_margin_loss(x.reshape(40, 18), torch.arange(40, device=x.device) % 18),
    lambda x: functional.rrelu(x - 0.5), lambda x: torch.sin(x.to(_complex_of(x))), lambda x: x.to(_complex_of(x)).exp_(),
])  # fmt: skip
def test_types_that_only_gpus_have(function: Any) -> None:
    torch.manual_seed(7)
    x = torch.rand(720).half()
    got, want = function(x.cuda()), function(x.double())
    assert got.is_cuda and got.dtype in (torch.float16, torch.complex32)
    wide = got.cpu().to(want.dtype)
    torch.testing.assert_close(wide, want, rtol=2e-3, atol=1e-3)


def _complex_of(x: Any) -> Any:
    return torch.complex32 if x.dtype == torch.float16 else torch.complex128


def test_the_host_s_16_bits_stay_the_cpu_s() -> None:
    x = torch.rand(4000, 3).half()
    with torch.no_grad():
        narrow = functional.instance_norm(x.T[None])  # it makes tensors without a place
    assert not torch.equal(narrow, functional.instance_norm(x.T[None].cuda()).cpu())
