"""PyTorch's operators by Triton kernels on the simulated GPU, against the CPU's; skipped if Triton or PyTorch is not installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not among the extras: its wheel takes gigabytes")

from tests.support.pretended_gpu import assert_simulated, simulated_session, torch  # noqa: F401  (the fixture)

functional = torch.nn.functional
INF, NAN = torch.inf, torch.nan
FLOATS = torch.tensor([1.0, -2.5, 0.0, NAN, INF, -INF, 1e-42, 3.0, 3.0, -0.0])
OTHERS = torch.tensor([1.0, 2.5, -0.0, 1.0, INF, INF, 1.1e-42, 3.5, NAN, 0.0])
INTEGERS = torch.tensor([2**53 + 1, -7, 0, 5, -(2**62), 9])
DIVISORS = torch.tensor([2**53, 2, -3, -5, 7, 9])
IMAGES = torch.randn(2, 3, 9, 7, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons(name: str, session: Any) -> None:
    """Compares floats with NaN, infinities and subnormal numbers, and integers that differ in their last bit."""
    compare = getattr(torch, name)
    assert_simulated(session, compare, FLOATS, OTHERS)
    assert_simulated(session, compare, INTEGERS, DIVISORS)
    assert_simulated(session, lambda x: compare(x, 3), FLOATS.half())
    assert_simulated(session, lambda x: compare(x[:, None], x[None]), FLOATS)


@pytest.mark.parametrize("function", [
    lambda x, y: x & y, lambda x, y: x | ~y, lambda x, y: x ^ 5, lambda x, y: x + y, lambda x, y: x - 3, lambda x, y: x * y,
    lambda x, y: x % y, lambda x, y: x // y, lambda x, y: x % -4, lambda x, y: x / y, lambda x, y: -x, lambda x, y: x.sign(),
    lambda x, y: torch.maximum(x, y), lambda x, y: torch.minimum(x, y),
    lambda x, y: x.clamp_min(y), lambda x, y: x.clone().clamp_max_(y), lambda x, y: torch.where(x > y, x, y),
    lambda x, y: x.masked_fill(y > 2, 11), lambda x, y: (x > y) & (x != 5), lambda x, y: (x > y) + (x != 5),
    lambda x, y: torch.logical_xor(x, y), lambda x, y: x.clone().add_(y).mul_(3), lambda x, y: torch.add(x, y, out=y.clone()),
    lambda x, y: torch.eq(x, y, out=torch.empty_like(x, dtype=torch.bool)),
])  # fmt: skip
def test_integers_are_exact(function: Any, session: Any) -> None:
    assert_simulated(session, function, INTEGERS, DIVISORS)


@pytest.mark.parametrize("name", [
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma",
    "exp2", "expm1", "log2", "log10", "log1p", "exp", "log", "sqrt", "rsqrt", "reciprocal", "neg", "abs",
])  # fmt: skip
def test_functions(name: str, session: Any) -> None:
    """Computes in f32 and f64; a GPU's functions differ from the CPU's in their last bits."""
    function, x = getattr(torch, name), torch.cat([torch.linspace(-4, 4, 41), FLOATS[:6]])
    assert_simulated(session, function, x, tolerance=4e-6)
    assert_simulated(session, function, x.double(), tolerance=1e-12)
    assert_simulated(session, function, x.bfloat16(), tolerance=8e-3)
    assert_simulated(session, function, torch.arange(1, 9), tolerance=4e-6)


@pytest.mark.parametrize("function", [
    torch.floor, torch.ceil, torch.trunc, torch.round, torch.isnan, torch.logical_not, lambda x: x**1.7, lambda x: 2.5**x,
    lambda x: x % 0.7, lambda x: torch.fmod(x, -0.7), lambda x: torch.atan2(x, x.flip(0)), lambda x: torch.hypot(x, x.flip(0)),
    lambda x: x.double() / 3, lambda x: x.double().where(x > 0, 2), lambda x: x.to(torch.float64) * x,
])  # fmt: skip
def test_functions_of_special_values(function: Any, session: Any) -> None:
    assert_simulated(session, function, torch.cat([FLOATS[:6], FLOATS[7:], torch.linspace(-3, 3, 25)]), tolerance=4e-6)


@pytest.mark.parametrize("function", [
    functional.elu, lambda x: functional.elu(x, 0.7), functional.celu, lambda x: functional.celu(x, 1.5), functional.selu,
    functional.softplus, lambda x: functional.softplus(x, 2, 3), functional.hardsigmoid, functional.hardswish, functional.mish,
    functional.logsigmoid, functional.hardshrink, lambda x: functional.softshrink(x, 1.5), functional.relu6, functional.hardtanh,
    lambda x: functional.threshold(x, 0.5, -2), lambda x: functional.elu(x * 1, inplace=True),
    lambda x: functional.hardswish(x * 1, inplace=True),
])  # fmt: skip
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_activations(function: Any, kind: Any, session: Any) -> None:
    """Takes both sides of each branch, large numbers, and gradients; infinities and NaN without gradients."""
    x = torch.cat([torch.linspace(-7, 7, 57) + 0.01, torch.tensor([-30.0, 30.0])]).to(kind)
    assert_simulated(session, gradients(function), x, tolerance=1.6e-2 if kind == torch.bfloat16 else 4e-6)
    assert_simulated(session, function, torch.tensor([NAN, INF, -INF, 0.0, -0.0]).to(kind))


@pytest.mark.parametrize("shape", [(3, 5, 4), (2, 1500), (70,), ()])
@pytest.mark.parametrize("function", [
    torch.amax, torch.amin, torch.max, torch.min, torch.sum, torch.prod, torch.any, torch.all,
    lambda x: (x * 2).argmax(), lambda x: (x * 2).argmin(-1), lambda x: torch.max(x, -1, keepdim=True), lambda x: x.min(0),
    lambda x: x.sum(0), lambda x: x.cumsum(0), lambda x: x.cumprod(-1), lambda x: x.sort(stable=True, dim=0),
    lambda x: x.sort(stable=True, descending=True), lambda x: x.argsort(stable=True),
])  # fmt: skip
def test_along_axes(function: Any, shape: tuple[int, ...], session: Any) -> None:
    """Takes integers with many equal elements, exactly, then floats."""
    x = torch.randint(-3, 4, shape)
    assert_simulated(session, function, x)
    assert_simulated(session, function, x / 4, tolerance=1e-6)
    assert_simulated(session, function, x > 0)


def test_nan_is_the_largest_and_the_smallest(session: Any) -> None:
    for name in ("amax", "amin", "argmax", "argmin"):
        assert_simulated(session, lambda x, name=name: getattr(x, name)(-1), torch.stack([FLOATS, FLOATS.flip(0)]))
    assert_simulated(session, lambda x: x.sort(stable=True), torch.stack([FLOATS, FLOATS.flip(0)]))
    assert_simulated(session, lambda x: x.topk(3), torch.tensor([[1.0, NAN, 3.0, 2.0, INF]]))


def test_the_smallest_of_zeros_keeps_its_sign(session: Any) -> None:
    x = torch.tensor([[-0.0] * 4, [0.0] * 4])
    assert_simulated(session, lambda x: torch.cat([x.amin(-1), x.cummin(-1)[0][:, 3]]).reciprocal(), x)


@pytest.mark.parametrize("descending", [False, True])
def test_long_rows_are_merged_from_runs(descending: bool, session: Any) -> None:
    """Takes equal elements in several runs, NaN and infinities, and a last run of one element."""
    for shape in ((2, 4097), (1, 2048), (3, 2500)):
        x = torch.randint(-300, 300, shape).float()
        x[:, ::701], x[0, 5:7] = NAN, torch.tensor([-INF, INF])
        assert_simulated(session, lambda x: x.sort(stable=True, descending=descending), x)
        found = x.cuda().topk(40, largest=descending)[1].cpu()
        assert torch.equal(found, x.sort(stable=True, descending=descending)[1][:, :40])


@pytest.mark.parametrize("function", [
    lambda x: x.logsumexp(-1), lambda x: x.logsumexp((0, 2)), lambda x: x.var(-1), lambda x: x.std(), lambda x: x.norm(),
    lambda x: torch.var_mean(x, (0, 1), correction=0, keepdim=True), lambda x: x.norm(1, -1), lambda x: x.norm(INF, 0),
    lambda x: x.double().var(0, correction=0.3), lambda x: x.double().cumsum(1), lambda x: torch._foreach_norm([x, x[0]])[1],
])  # fmt: skip
def test_moments_and_norms(function: Any, session: Any) -> None:
    assert_simulated(session, function, IMAGES[0] * 3 + 1, tolerance=2e-6)


def test_logarithms_of_sums_of_infinities(session: Any) -> None:
    x = torch.tensor([[-INF, -INF], [INF, 1.0], [NAN, 1.0], [INF, -INF], [200.0, 200.0], [-INF, 0.5]])
    assert_simulated(session, lambda x: x.logsumexp(-1), x, tolerance=1e-6)


AT = torch.tensor([[0, 2, 2], [1, 0, -1]])


def stored(x: Any, at: Any) -> Any:
    """Returns a copy of x with other channels at these two."""
    out = x.clone()
    out[:, at] = x[:, 1:]
    return out


@pytest.mark.parametrize("function", [
    lambda x, at: x[0][at], lambda x, at: x[:, :, at], lambda x, at: x[:, at, at], lambda x, at: x[at[0] // 2, :, at[1]],
    lambda x, at: x.index_select(1, at[0]), lambda x, at: x.gather(2, at.abs()[None, :, :, None].expand(2, 2, 3, 2)),
    lambda x, at: functional.embedding(at.abs(), x[0, 0]),
    lambda x, at: stored(x, at.abs()[0, :2]),
    lambda x, at: x.index_put((at[0] // 2, at[1]), x[0, 0, 0, 0], accumulate=True),
    lambda x, at: x.scatter(1, at.abs()[None, :, :, None].expand(2, 2, 3, 2)[:, :1], 7.0),
    lambda x, at: x.scatter_add(3, at.abs()[None, None], x[:1, :1, :2]), lambda x, at: x.index_add(0, at[0] // 2, x[[0, 1, 0]]),
])  # fmt: skip
@pytest.mark.parametrize("kind", [torch.float32, torch.int64, torch.bfloat16])
def test_indices(function: Any, kind: Any, session: Any) -> None:
    assert_simulated(session, lambda x: function(x, AT.to(x.device)), (IMAGES * 8).round().to(kind))


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("how", ["sum", "mean", "amax", "amin"])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.int64, torch.bfloat16])
def test_scattered_reductions(kind: Any, how: str, include: bool, session: Any) -> None:
    """Combines with repeated indices, of which some are missing; means of integers and f64 are the host's."""
    if how == "mean" and kind in (torch.float64, torch.int64):
        return
    at = AT.abs()[None, :, :, None].expand(2, 2, 3, 5)

    def both(x: Any) -> Any:
        scattered = x.scatter_reduce(1, at.to(x.device), x.flip(2)[:, :2], how, include_self=include)
        if how == "sum":
            return scattered
        return scattered, x.index_reduce(2, AT.abs()[0].to(x.device), x[:, :, 3:6] * 2, how, include_self=include)

    x = (IMAGES * 8).round().to(kind)
    x = x.abs() if kind == torch.int64 else x
    assert_simulated(session, both, x, tolerance=1e-2 if kind == torch.bfloat16 else 1e-6)


def test_scattered_reductions_without_kernels(session: Any) -> None:
    """Takes NaN, and negative integers, which Triton's atomics compare as unsigned ones."""
    at = torch.tensor([0, 1, 1, 0, 1, 0, 1, 1])
    for x in (torch.arange(-5, 3), torch.tensor([1.0, NAN, 2, 3, 4, 5, 6, 7])):
        for how in ("amax", "amin", "prod"):
            wanted, found = (one.new_zeros(3).scatter_reduce(0, at.to(one.device), one, how) for one in (x, x.cuda()))
            torch.testing.assert_close(found.cpu(), wanted, equal_nan=True)


def stored_by_mask(x: Any, mask: Any) -> Any:
    """Returns a copy of x with other rows where the mask is true."""
    out = x.clone()
    out[mask] = x[0, 0, :, :5].flip(0)[mask.nonzero()[:, 0], mask.nonzero()[:, 1]][:, None, None]
    return out


MASK = torch.tensor([[True, False, True], [False, False, True]])


@pytest.mark.parametrize("function", [
    lambda x, mask: x[mask], lambda x, mask: x[:, mask[0]], lambda x, mask: x[mask[:, 0], :, [1]], lambda x, mask: mask.nonzero(),
    lambda x, mask: x.nonzero(), lambda x, mask: x[:, :, :5, :5].masked_select(mask[:, :, None, None]),
    lambda x, mask: x.masked_scatter(mask[:, :, None, None], x.flip(0)), stored_by_mask, lambda x, mask: x[x > 0],
    lambda x, mask: x.index_put((mask,), x[0, 0, 0, 0], accumulate=True), lambda x, mask: torch.argwhere(x[0, 0] > 1),
])  # fmt: skip
@pytest.mark.parametrize("kind", [torch.float32, torch.int64, torch.bfloat16])
def test_masks_as_indices(function: Any, kind: Any, session: Any) -> None:
    assert_simulated(session, lambda x: function(x, MASK.to(x.device)), (IMAGES * 2).round().to(kind))


def test_masks_of_many_elements_and_of_the_wrong_shape(session: Any) -> None:
    x = torch.randint(0, 3, (3, 1025)).float()
    assert_simulated(session, torch.nonzero, x)
    assert_simulated(session, lambda x: x[x.bool()], x)
    with pytest.raises(IndexError, match="does not match the shape"):
        x.cuda()[torch.ones(2, 1025, dtype=torch.bool, device="cuda")]
    with pytest.raises(RuntimeError):
        x.cuda().masked_scatter(x.cuda() == x.cuda(), torch.ones(3, device="cuda"))


def test_indices_may_be_in_host_memory(session: Any) -> None:
    x, at, mask = FLOATS.clone().cuda(), torch.tensor([3, 1, 1]), FLOATS > 0
    assert torch.equal(x[at - 1].cpu(), FLOATS[at - 1]) and x[at - 1].is_cuda
    assert torch.equal(x[mask].cpu(), FLOATS[mask]) and x[mask].is_cuda
    x[torch.tensor([0, 2])] = 7.0
    assert x[:3].tolist() == [7.0, -2.5, 7.0]
    mask = torch.tensor([False, True, *(False for _ in FLOATS[2:])])
    assert x[mask].tolist() == [-2.5]
    x[mask] = 5.0
    assert x[:3].tolist() == [7.0, 5.0, 7.0]
    assert not any(use.host for use in session.operators.values())
    assert session.operators["aten::index.Tensor"].simulated >= 3


def test_an_index_out_of_range_is_pytorch_s_error() -> None:
    weight, outside = torch.ones(3, 2, device="cuda"), torch.tensor([3], device="cuda")
    with pytest.raises(IndexError, match="out of range"):
        functional.embedding(outside, weight)
    with pytest.raises(RuntimeError, match="out of bounds"):
        weight.gather(0, outside[None])
    with pytest.raises(IndexError, match="out of bounds"):
        functional.nll_loss(weight, torch.tensor([0, 1, 2], device="cuda"))


def gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function's result and its gradients with weights that differ."""

    def run(*given: Any) -> Any:
        leaves = [one.detach().requires_grad_() for one in given]
        out = function(*leaves)
        slope = torch.linspace(0.5, 1.5, out.numel(), dtype=out.dtype, device=out.device).view(out.shape)
        return out, *torch.autograd.grad(out, leaves, slope)

    return run


@pytest.mark.parametrize("function", [
    lambda x: functional.max_pool2d(x, 3, 2, 1), lambda x: functional.max_pool2d(x, 2, 1, 0, 2, ceil_mode=True),
    lambda x: functional.max_pool1d(x[0], 3), lambda x: functional.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True),
    lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False), lambda x: functional.avg_pool2d(x, 2, divisor_override=3),
    lambda x: functional.avg_pool1d(x[0], 2), lambda x: functional.adaptive_avg_pool2d(x, (4, 3)),
    lambda x: functional.adaptive_avg_pool2d(x, (11, 9)), lambda x: functional.interpolate(x, scale_factor=1.7),
    lambda x: functional.interpolate(x, (4, 13)),
    lambda x: functional.max_pool2d(x.contiguous(memory_format=torch.channels_last), 2),
    lambda x: functional.adaptive_max_pool2d(x, (4, 3)), lambda x: functional.interpolate(x[0], 11),
    lambda x: functional.max_pool3d(x, 3, 2, 1), lambda x: functional.max_pool3d(x[None], (2, 3, 1), 1, 0, (1, 2, 3), True),
    lambda x: functional.avg_pool3d(x, (1, 3, 2), 2, (0, 1, 1), ceil_mode=True),
    lambda x: functional.avg_pool3d(x, 3, 2, 1, count_include_pad=False), lambda x: functional.avg_pool3d(x, 2, divisor_override=5),
    lambda x: functional.adaptive_avg_pool3d(x, (2, 4, 3)), lambda x: functional.adaptive_max_pool3d(x, (2, 4, 3)),
    lambda x: functional.interpolate(x[None], scale_factor=(1.7, 2, 0.6)), lambda x: functional.interpolate(x[None], (5, 4, 13)),
    lambda x: functional.avg_pool3d(x[None].contiguous(memory_format=torch.channels_last_3d), 2),
])  # fmt: skip
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_windows(function: Any, kind: Any, session: Any) -> None:
    assert_simulated(session, gradients(function), IMAGES.to(kind), tolerance=1e-6)


def test_the_largest_of_a_window_with_nan_and_padding(session: Any) -> None:
    x = torch.full((1, 1, 4, 4), -INF)
    x[0, 0, 0, 0] = NAN
    assert_simulated(session, lambda x: functional.max_pool2d(x, 2, 2, 1, return_indices=True), x)


@pytest.mark.parametrize("options", [
    {}, {"reduction": "sum"}, {"reduction": "none"}, {"ignore_index": 2}, {"label_smoothing": 0.1}, {"weighted": True},
])  # fmt: skip
@pytest.mark.parametrize("shape", [(5, 4), (4,), (2, 4, 3, 2)])
def test_losses_of_classes(shape: tuple[int, ...], options: dict[str, Any], session: Any) -> None:
    target = torch.randint(0, 4, [extent for axis, extent in enumerate(shape) if axis != (1 if len(shape) > 1 else 0)])
    target = torch.where(target == 2, 1, target) if options.get("ignore_index") and target.dim() == 0 else target

    def loss(x: Any) -> Any:
        kept = {key: value for key, value in options.items() if key != "weighted"}
        weight = torch.linspace(0.5, 2, 4).to(x.device) if "weighted" in options else None
        return functional.cross_entropy(x, target.to(x.device), weight, **kept)

    assert_simulated(session, gradients(loss), torch.randn(shape), tolerance=2e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_squared_errors(reduction: str, session: Any) -> None:
    assert_simulated(
        session, gradients(lambda x, y: functional.mse_loss(x, y, reduction=reduction)), IMAGES[0], IMAGES[1], tolerance=2e-5
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weights", ["", "weight", "pos_weight"])
def test_losses_of_logits(weights: str, reduction: str, session: Any) -> None:
    def loss(x: Any, y: Any) -> Any:
        given = {weights: torch.linspace(0.5, 2, 7).to(x.device)} if weights else {}
        return functional.binary_cross_entropy_with_logits(x, y.detach().sigmoid(), reduction=reduction, **given) + 0 * y.sum()

    assert_simulated(session, gradients(loss), IMAGES[0] * 4, IMAGES[1], tolerance=2e-5)


def test_an_embedding_s_gradient_adds_and_leaves_padding_out(session: Any) -> None:
    index = torch.tensor([[1, 1, 0], [3, 1, 2]])
    for padding in (None, 1):
        run = gradients(lambda weight, p=padding: functional.embedding(index.to(weight.device), weight, p))
        assert_simulated(session, run, IMAGES[0, 0, :4], tolerance=1e-6)


def test_results_that_a_type_cannot_hold_are_pytorch_s_error() -> None:
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.ones(3, dtype=torch.int32, device="cuda").div_(2)
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(torch.ones(3, device="cuda"), 1.5, out=torch.ones(3, dtype=torch.int32, device="cuda"))


@pytest.mark.parametrize(("mode", "options"), [
    ("bilinear", {"scale_factor": 2}), ("bilinear", {"size": (4, 11), "align_corners": True}),
    ("bilinear", {"scale_factor": (1.7, 0.6)}), ("bilinear", {"size": (1, 1), "align_corners": True}),
    ("bicubic", {"size": (9, 4)}), ("bicubic", {"size": (9, 14), "align_corners": True}),
])  # fmt: skip
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_interpolation_and_its_gradient(mode: str, options: Any, layout: Any, session: Any) -> None:
    images = torch.randn(2, 3, 6, 5).to(memory_format=layout)
    assert_simulated(session, gradients(lambda x: functional.interpolate(x, mode=mode, **options)), images, tolerance=4e-6)
    narrow = functional.interpolate(images.half().cuda(), mode=mode, **options)
    wide = functional.interpolate(images.half().float(), mode=mode, **options)
    torch.testing.assert_close(narrow.cpu().float(), wide, rtol=5e-4, atol=1e-6)  # half of a 16-bit float's last bit
    assert narrow.is_contiguous(memory_format=layout)


def test_interpolation_of_one_and_three_axes(session: Any) -> None:
    assert_simulated(session, lambda x: functional.interpolate(x, 13, mode="linear"), torch.randn(2, 3, 8), tolerance=2e-6)
    for align in (False, True):
        assert_simulated(
            session, lambda x, align=align: functional.interpolate(x, scale_factor=2, mode="trilinear", align_corners=align),
            torch.randn(1, 2, 3, 4, 5), tolerance=2e-6,
        )  # fmt: skip
