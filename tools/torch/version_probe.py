"""Runs one part of what a pair of PyTorch and Triton must do: `python -m simgpu.tools.torch.version_probe launch`.

Prints "passed". `versions` sets the variables, such as SIMGPU, that each part needs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import triton
import triton.language as tl

from simgpu.tools.torch import autoload

BLOCK = 256


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton refuses other annotations
    """Adds vectors of n elements."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


def _sum(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns two random vectors' sum by the kernel, which is told `count` elements, and by PyTorch."""
    x, y = torch.randn(1000, device="cuda"), torch.randn(1000, device="cuda")
    out = torch.empty_like(x)
    add[(triton.cdiv(count, BLOCK),)](x, y, out, count, BLOCK=BLOCK)
    return out, x + y


def launch() -> bool:
    """Launches a kernel."""
    out, expected = _sum(1000)
    return torch.equal(out, expected) and out.is_cuda


def finding() -> bool:
    """Launches a kernel that leaves its buffers, which must be found."""
    from simgpu.triton.driver import active_driver

    _sum(1001)
    return bool(active_driver().session.findings)


def training() -> bool:
    """Trains a transformer's layer for one step."""
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True).cuda()
    optimizer = torch.optim.AdamW(layer.parameters())
    x = torch.randn(2, 8, 32, device="cuda", requires_grad=True)
    before = layer.linear1.weight.detach().clone()
    layer(x).square().sum().backward()
    optimizer.step()
    return x.grad is not None and x.grad.is_cuda and not torch.equal(before, layer.linear1.weight)


def operators() -> bool:
    """Computes the same on the host and on the simulated GPU."""
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    x = torch.randn(2, 8, 32)
    expected = layer(x)
    return torch.allclose(layer.cuda()(x.cuda()).cpu(), expected, atol=1e-4)


def compile() -> bool:
    """Compiles a module by Inductor, forward and backward."""
    module = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128)).cuda()
    x = torch.randn(8, 64, device="cuda", requires_grad=True)
    result = torch.compile(module)(x)
    result.sum().backward()
    return torch.allclose(result, module(x), atol=1e-4) and x.grad is not None


PARTS: dict[str, Callable[[], bool]] = {part.__name__: part for part in (launch, finding, training, operators, compile)}


if __name__ == "__main__":
    autoload.begin()
    torch.manual_seed(0)
    right = PARTS[sys.argv[1]]()
    print("passed" if right else "Error: another result than the host's")
