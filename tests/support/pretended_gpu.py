"""PyTorch on the pretended GPU, for tests of it, which are skipped if Triton or PyTorch is not installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("triton", reason="Triton is an optional extra")
torch = pytest.importorskip("torch", reason="PyTorch is not among the extras: its wheel takes gigabytes")

import simgpu.triton  # noqa: E402
from simgpu.tools.torch.pretend import pretended_gpu  # noqa: E402
from tests.support import triton_kernels as kernels  # noqa: E402


@pytest.fixture(autouse=True)
def session() -> Iterator[Any]:
    with simgpu.triton.device("mi300x") as session, pretended_gpu():
        yield session


@pytest.fixture(autouse=True, name="session")
def simulated_session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Opens a session in which operators compute on the GPU."""
    monkeypatch.setenv("SIMGPU_OPERATORS", "simulated")
    torch.manual_seed(1)
    with simgpu.triton.device("mi300x") as session, pretended_gpu():
        yield session


def double(x: Any) -> Any:
    """Computes 2 x by a kernel."""
    out = torch.empty_like(x)
    kernels.vector_add[(1,)](x, x, out, x.numel(), BLOCK=64)
    return out


def assert_simulated(session: Any, function: Callable[..., Any], *given: Any, tolerance: float = 0.0) -> None:
    """Asserts that a function has the CPU's results and types, and that the host computed no operator of it."""
    wanted = function(*(one.cpu() for one in given))
    before = {name: use.host for name, use in session.operators.items()}
    got = function(*(one.cuda() for one in given))
    on_host = {name for name, use in session.operators.items() if use.host > before.get(name, 0)}
    assert not on_host
    for one, other in zip(wanted if isinstance(wanted, tuple) else (wanted,), got if isinstance(got, tuple) else (got,)):
        assert one.dtype == other.dtype and other.is_cuda
        torch.testing.assert_close(other.cpu(), one, rtol=tolerance, atol=tolerance, equal_nan=True)
