"""PyTorch's element-wise operators and channel norms on the simulated GPU; skipped if Triton or PyTorch is not installed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not among the extras: its wheel takes gigabytes")

from tests.support.pretended_gpu import pretended_gpu, simgpu, simulated_session, torch  # noqa: F401  (the fixture)

functional = torch.nn.functional


def on_host(session: Any) -> set[str]:
    """Returns the names of operators that the host computed."""
    return {name.removeprefix("aten::") for name, use in session.operators.items() if use.host}


def assert_alike(function: Callable[..., Any], *given: Any, tolerance: float = 2e-6) -> None:
    """Asserts that a function has the same results, types and strides on the GPU and on the host."""
    wanted, got = function(*copy.deepcopy(given)), function(*(one.cuda() for one in given))
    for one, other in zip(wanted if isinstance(wanted, tuple) else (wanted,), got if isinstance(got, tuple) else (got,)):
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride()) and other.is_cuda
        torch.testing.assert_close(other.cpu(), one, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("function", [
    lambda x, y: x + y[0], lambda x, y: x.t() * y.t(), lambda x, y: x[:, ::2] - 3 * y[:, ::2], lambda x, y: 2 - x,
    lambda x, y: 2 / y, lambda x, y: x / 3, lambda x, y: torch.sub(x, y, alpha=0.3),
    lambda x, y: torch.add(x, y, out=torch.empty_like(x)),
    lambda x, y: x.clone().add_(y).mul_(y[:, :1]).clamp_(-1), lambda x, y: x * y.sum(),
    lambda x, y: y.sum() * 2,
    lambda x, y: torch.where(x > y, x, y), lambda x, y: x.masked_fill(x > 0, -torch.inf), lambda x, y: (y**2, y**-0.5, y**3),
    lambda x, y: torch.lerp(x, y, 0.9), lambda x, y: torch.addcdiv(x, x, y, value=0.3), lambda x, y: x.reshape(5, 7, 3, 1) + 1,
])  # fmt: skip
def test_operands_broadcast_and_keep_their_layout(function: Any, session: Any) -> None:
    assert_alike(function, torch.randn(5, 21), torch.rand(5, 21) + 0.1)
    assert not on_host(session)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [1, 63, 1024, 3001])
def test_any_number_of_elements(count: int, kind: Any) -> None:
    assert_alike(lambda x: functional.silu(x), torch.randn(count).to(kind), tolerance=2e-6 if kind == torch.float32 else 8e-3)


@pytest.mark.parametrize("name", ["relu", "silu", "gelu", "sigmoid", "tanh", "leaky_relu", "hardtanh"])
def test_activations_of_special_values(name: str) -> None:
    """As in f64: the CPU's GELU of f32 makes NaN of an infinity."""
    function = getattr(torch, name, None) or getattr(functional, name)
    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, 1e-42, 1e-4, -1e-4, 88.0, -100.0, 3e38])
    torch.testing.assert_close(function(x.cuda()).cpu(), function(x.double()).float(), rtol=2e-6, atol=1e-38, equal_nan=True)


@pytest.mark.parametrize("name", ["relu", "silu", "gelu", "sigmoid", "tanh", "leaky_relu"])
def test_gradients_of_activations(name: str) -> None:
    function = getattr(torch, name, None) or getattr(functional, name)

    def gradient(x: Any) -> Any:
        x = x.detach().requires_grad_()
        function(x).square().sum().backward()
        return x.grad

    assert_alike(gradient, torch.linspace(-6, 6, 101), tolerance=5e-6)


def test_what_pytorch_refuses_is_refused() -> None:
    with pytest.raises(RuntimeError, match="broadcast shape"):
        torch.ones(3, device="cuda").add_(torch.ones(2, 3, device="cuda"))
    with pytest.raises(RuntimeError, match="size of tensor"):
        torch.ones(3, device="cuda") + torch.ones(2, device="cuda")


def test_lists_of_tensors_are_one_launch(session: Any) -> None:
    ours = [torch.ones(3, 5, device="cuda"), torch.ones(7, device="cuda")]
    torch._foreach_mul_(ours, 3.0)
    torch._foreach_add_(ours, [2.0, 4.0])
    assert [one.flatten()[0].item() for one in ours] == [5.0, 7.0]
    launches = {name.removeprefix("aten::"): sum(use.kernels.values()) for name, use in session.operators.items()}
    assert launches["_foreach_mul_.Scalar"] == 2 and launches["_foreach_add_.ScalarList"] == 4  # whole rows and the last one


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD])
def test_an_optimizer_s_step_is_simulated(optimizer: Any, session: Any) -> None:
    model = torch.nn.Linear(5, 3)
    found = []
    for device in ("cpu", "cuda"):
        ours = copy.deepcopy(model).to(device)
        step = optimizer(ours.parameters(), lr=0.1, weight_decay=0.1, foreach=True)
        for _ in range(2):
            ours(torch.ones(2, 5, device=device)).square().sum().backward()
            step.step()
        found.append(ours.weight.detach().cpu())
    torch.testing.assert_close(*found)
    assert not any(name.startswith("_foreach") for name in on_host(session))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("make", "shape"), [
    (lambda: torch.nn.BatchNorm2d(5), (3, 5, 7, 6)), (lambda: torch.nn.BatchNorm1d(5, affine=False), (9, 5)),
    (lambda: torch.nn.BatchNorm3d(4, track_running_stats=False), (2, 4, 3, 3, 3)), (lambda: torch.nn.GroupNorm(2, 6), (3, 6, 7, 5)),
    (lambda: torch.nn.InstanceNorm2d(4, affine=True), (2, 4, 5, 5)),
])  # fmt: skip
def test_norms_of_channels(make: Any, shape: tuple[int, ...], training: bool, session: Any) -> None:
    norm, x = make().train(training), torch.randn(shape)

    def run(values: Any) -> Any:
        ours, values = copy.deepcopy(norm).to(values.device), values.detach().requires_grad_()
        out = ours(values)
        (out * torch.linspace(0, 1, out.numel(), device=values.device).view(out.shape)).sum().backward()
        return out, values.grad, *(one.grad for one in ours.parameters()), *(one for one in ours.buffers() if one.dim())

    assert_alike(run, x, tolerance=2e-5)
    reasons = {reason for use in session.operators.values() for reason in use.reasons}
    assert reasons <= {"of running statistics"}
