"""PyTorch's operators that only GPUs have, on the pretended GPU; skipped if Triton or PyTorch is missing."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.support.pretended_gpu import session, torch  # noqa: F401  (the fixture)

from torch.utils._python_dispatch import TorchDispatchMode  # isort: skip  (PyTorch is optional)
from torch.utils.flop_counter import FlopCounterMode  # isort: skip

functional = torch.nn.functional


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_as_only_gpus_have_it(causal: bool, bias: bool) -> None:
    """Memory-efficient attention, forward and backward, agrees with its formula; three rows attend to five columns."""
    made = [torch.randn(2, 4, rows, 8, device="cuda", requires_grad=True) for rows in (3, 5, 5)]
    q, k, v = made
    added = torch.randn(1, 4, 3, 5, device="cuda", requires_grad=True) if bias else None
    found = torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, added, True, 0.0, causal, scale=0.5)
    scores = 0.5 * q @ k.mT + (0 if added is None else added)
    if causal:
        scores = scores.masked_fill(~torch.ones(3, 5, dtype=torch.bool, device="cuda").tril(), -torch.inf)
    expected = scores.softmax(-1) @ v
    assert found[0].is_cuda and found[1].shape == (2, 4, 3)
    torch.testing.assert_close(found[0], expected)
    torch.testing.assert_close(found[1], scores.logsumexp(-1))
    inputs = made + ([added] if bias else [])
    for ours, theirs in zip(*(torch.autograd.grad(out.square().sum(), inputs) for out in (found[0], expected))):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_flash_attention_s_own_operators_have_windows_and_groups_of_heads() -> None:
    q, k, v = (torch.randn(1, 6, heads, 8, device="cuda") for heads in (4, 2, 2))
    given = (None, None, 6, 6, 0.0, False)
    window = {"window_size_left": 2, "window_size_right": 0}
    out, lse, seed, offset, _ = torch.ops.aten._flash_attention_forward(q, k, v, *given, False, **window)
    away = torch.arange(6, device="cuda") - torch.arange(6, device="cuda")[:, None]
    theirs = [one.transpose(1, 2).detach().requires_grad_() for one in (q, k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(*theirs, attn_mask=(away <= 0) & (away >= -2), enable_gqa=True)
    torch.testing.assert_close(out, expected.transpose(1, 2))
    grads = torch.ops.aten._flash_attention_backward(torch.ones_like(out), q, k, v, out, lse, *given, seed, offset, **window)
    for ours, grad in zip(grads, torch.autograd.grad(expected.sum(), theirs)):
        torch.testing.assert_close(ours, grad.transpose(1, 2))
    host = [one.cpu() for one in (q, k, v)]
    with pytest.raises(NotImplementedError, match="'CPU' backend"):
        torch.ops.aten._flash_attention_forward(*host, *given, False)


@pytest.mark.parametrize("mask", [0, 1, 2])
def test_efficient_attention_s_own_operators(mask: int) -> None:
    """Consecutive sequences of 3, 1 and 4 rows attend as each one separately; masks: none, from the first, to the last."""
    rows, columns = [0, 3, 4, 8], [0, 5, 7, 11]
    starts = [torch.tensor(ends, dtype=torch.int32, device="cuda") for ends in (rows, columns)]
    q, k, v = (torch.randn(1, length, 2, 8, device="cuda") for length in (8, 11, 11))
    own, back = torch.ops.aten._efficient_attention_forward, torch.ops.aten._efficient_attention_backward
    out, lse, seed, offset, *_ = own(q, k, v, None, *starts, 4, 5, 0.0, mask, True, scale=0.5)
    grads = back(torch.cos(out), q, k, v, None, out, *starts, 4, 5, lse, 0.0, seed, offset, mask, False, scale=0.5)
    assert out.is_cuda and lse.shape == (3, 2, 4)
    for number, (i, j, m, n) in enumerate(zip(rows, rows[1:], columns, columns[1:])):
        part = [one.detach().requires_grad_() for one in (q[:, i:j], k[:, m:n], v[:, m:n])]
        scores = torch.einsum("bihd,bjhd->bhij", part[0], part[1]) * 0.5
        if mask:
            allowed = torch.ones(j - i, n - m, dtype=torch.bool, device="cuda").tril(n - m - (j - i) if mask == 2 else 0)
            scores = scores.masked_fill(~allowed, -torch.inf)
        expected = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), part[2])
        torch.testing.assert_close(out[:, i:j], expected)
        torch.testing.assert_close(lse[number, :, : j - i], scores.logsumexp(-1)[0])
        alone = own(*part, None, None, None, None, None, 0.0, mask, True, scale=0.5)
        torch.testing.assert_close(alone[0], out[:, i:j])
        assert alone[4:] == (j - i, n - m)
        theirs = torch.autograd.grad((expected * torch.cos(expected.detach())).sum(), part)
        for ours, grad in zip((grads[0][:, i:j], grads[1][:, m:n], grads[2][:, m:n]), theirs):
            torch.testing.assert_close(ours, grad, rtol=1e-4, atol=1e-5)
    with pytest.raises(NotImplementedError, match="window_size"):
        own(q, k, v, None, *starts, 4, 5, 0.0, mask, window_size=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_norm_over_processes(dtype: Any) -> None:
    """Results of two processes on parts of a batch give together the batch norm of the whole."""
    x, grad = (torch.randn(6, 3, 5, device="cuda").to(dtype) for _ in range(2))
    weight, bias = (torch.randn(3, device="cuda", requires_grad=True) for _ in range(2))
    whole = x.double().requires_grad_()
    running = [torch.zeros(3, device="cuda"), torch.ones(3, device="cuda")]
    theirs = [one.double() for one in running]
    expected = torch.nn.functional.batch_norm(whole, *theirs, weight.double(), bias.double(), True, 0.25, 1e-3)
    wanted = torch.autograd.grad(expected, (whole, weight, bias), grad.double())
    parts, grads = x.split([4, 2]), grad.split([4, 2])
    means, invstds = map(torch.stack, zip(*(torch.batch_norm_stats(part, 1e-3) for part in parts)))
    counts = torch.tensor([20.0, 10.0], device="cuda")
    mean, invstd = torch.batch_norm_gather_stats_with_counts(x, means, invstds, *running, 0.25, 1e-3, counts)
    for ours, one in zip(running, theirs):
        torch.testing.assert_close(ours, one.float())
    tolerance = {"rtol": 0.01, "atol": 0.02} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    out = torch.cat([torch.batch_norm_elemt(part, weight, bias, mean, invstd, 1e-3) for part in parts])
    assert out.dtype == dtype and out.is_cuda
    torch.testing.assert_close(out, expected.to(dtype), **tolerance)
    reduced = [
        torch.batch_norm_backward_reduce(of, part, mean, invstd, weight, True, True, True) for of, part in zip(grads, parts)
    ]  # fmt: skip
    sums, moved, of_weight, of_bias = (sum(each) for each in zip(*reduced))
    of_x = torch.cat([
        torch.batch_norm_backward_elemt(of, part, mean, invstd, weight, sums, moved, counts.int())
        for of, part in zip(grads, parts)
    ])  # fmt: skip
    for ours, one in zip((of_x, of_weight, of_bias), wanted):
        torch.testing.assert_close(ours, one.to(ours.dtype), **tolerance)
    halves = [torch.batch_norm_stats(part, 1e-3) for part in x.split(3)]
    equal = torch.batch_norm_gather_stats(x, *map(torch.stack, zip(*halves)), None, None, 0.25, 1e-3, 15)
    torch.testing.assert_close(equal, (mean, invstd))


def test_lu_without_pivots() -> None:
    a = torch.randn(2, 5, 4, device="cuda") + 4 * torch.eye(5, 4, device="cuda")
    factors, pivots = torch.linalg.lu_factor(a, pivot=False)
    assert factors.is_cuda and pivots.tolist() == [[1, 2, 3, 4]] * 2
    permutation, lower, upper = torch.linalg.lu(a, pivot=False)
    assert permutation.numel() == 0 and torch.equal(factors.triu(), torch.nn.functional.pad(upper, (0, 0, 0, 1)))
    torch.testing.assert_close(lower @ upper, a)
    torch.testing.assert_close(torch.linalg.lu(a.mT, pivot=False)[1] @ torch.linalg.lu(a.mT, pivot=False)[2], a.mT)
    into = (torch.empty(0, device="cuda"), *(torch.empty(0, dtype=torch.int32, device="cuda") for _ in range(2)))
    torch.linalg.lu_factor_ex(a, pivot=False, out=into)
    assert torch.equal(into[0], factors) and not into[2].any()
    singular = torch.tensor([[1.0, 2.0], [2.0, 4.0]], device="cuda")
    assert torch.linalg.lu_factor_ex(singular, pivot=False)[2] == 2
    with pytest.raises(RuntimeError, match="zero"):
        torch.linalg.lu_factor(singular, pivot=False)
    assert torch.equal(torch.linalg.lu_factor(a)[0], torch.linalg.lu_factor(a.cpu())[0].cuda())
    with pytest.raises(RuntimeError, match="not implemented on the CPU"):
        torch.linalg.lu_factor(a.cpu(), pivot=False)


def test_convolutions_and_others_by_their_gpu_s_names() -> None:
    x, weight, bias = (torch.randn(size, device="cuda") for size in ((2, 3, 6, 6), (6, 1, 3, 3), (6,)))
    aten, convolved = torch.ops.aten, torch.nn.functional.conv2d(x, weight, bias, 2, 1, 1, groups=3)
    assert torch.equal(aten._conv_depthwise2d(x, weight, [3, 3], bias, [2, 2], [1, 1], [1, 1]), convolved)
    assert torch.equal(aten.miopen_convolution(x, weight, bias, [1, 1], [2, 2], [1, 1], 3, False, False), convolved)
    back = torch.nn.functional.conv_transpose2d(x, weight[:3], None, 2, 1, 1)
    transposed = aten.miopen_convolution_transpose(x, weight[:3], None, [1, 1], [1, 1], [2, 2], [1, 1], 1, False, False)
    assert torch.equal(transposed, back)
    dropped, mask = torch._fused_dropout(x, 0.75)
    assert torch.equal(dropped, torch._masked_scale(x, mask, 1 / 0.75)) and 0 < mask.float().mean() < 1
    with pytest.raises(NotImplementedError, match="'CPU' backend"):
        aten._conv_depthwise2d(x.cpu(), weight.cpu(), [3, 3], None, [2, 2], [1, 1], [1, 1])


def _twice(x: Any) -> Any:
    return (x.float() * 2).to(x.dtype)


@pytest.mark.parametrize("where", ["host", "simulated"])
def test_a_programs_modes_see_operators_and_not_their_parts(where: str, monkeypatch: pytest.MonkeyPatch, request: Any) -> None:
    monkeypatch.setenv("SIMGPU_OPERATORS", where)
    library = torch.library.Library("simgpu_modes", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", _twice, "CUDA")
    x = torch.ones(8, 8, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    with FlopCounterMode(display=False) as flops, Names() as outer, Names() as inner:
        y = torch.ops.simgpu_modes.twice(x.detach()) + x @ x
        functional.conv1d(x[None], x[:, :, None])
        y.sum().backward()
    assert flops.get_total_flops() == 4 * 2 * 8**3
    assert outer.seen == inner.seen and "aten::copy_" not in outer.seen
    assert [outer.seen.count(name) for name in ("simgpu_modes::twice", "aten::mm", "aten::convolution")] == [1, 3, 1]
    assert y.is_cuda and (y == 10).all() and (x.grad == 16).all()
    simulated = [name for name, use in request.getfixturevalue("session").operators.items() if use.simulated]
    assert ("aten::mm" in simulated) == ("aten::convolution" in simulated) == (where == "simulated")


def test_attention_is_counted_on_the_gpu() -> None:
    """As by PyTorch on a GPU: two products forward, five backward; the host's attention is not counted."""
    for device, products in (("cuda", 2), ("cpu", 0)):
        q = torch.ones(1, 2, 8, 4, device=device, requires_grad=True)
        with FlopCounterMode(display=False) as flops:
            out = functional.scaled_dot_product_attention(q, q, q)
        assert flops.get_total_flops() == products * 2 * (2 * 8 * 8 * 4)
        with FlopCounterMode(display=False) as flops:
            out.sum().backward()
        assert flops.get_total_flops() == (products and 5) * 2 * (2 * 8 * 8 * 4)


def test_a_checkpoint_that_keeps_products_computes_them_once() -> None:
    choose = partial(torch.utils.checkpoint.create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
    seen = []
    for dtype, device in ((torch.float32, "cpu"), (torch.bfloat16, "cuda")):
        x = torch.ones(8, 8, dtype=dtype, device=device, requires_grad=True)
        with Names() as names:
            y = torch.utils.checkpoint.checkpoint(lambda x: (x @ x).sin().cos(), x, use_reentrant=False, context_fn=choose)
            y.sum().backward()
        seen.append(names.seen)
    assert seen[0] == seen[1] and seen[0].count("aten::mm") == 3


class Names(TorchDispatchMode):  # type: ignore[misc]
    """Lists the names of the operators that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.name())
        return func(*args, **(kwargs or {}))
