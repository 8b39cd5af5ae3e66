"""PyTorch's operators that the simulated GPU computes by simpler ones, against the CPU's; skipped without Triton or PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not among the extras: its wheel takes gigabytes")

from simgpu.tools.torch.operators import compositions, simulated
from simgpu.tools.torch.operators.decompositions import decomposition_of
from simgpu.tools.torch.operators.registered import FailedComposition
from tests.support.pretended_gpu import assert_simulated, simulated_session, torch  # noqa: F401  (the fixture)

functional = torch.nn.functional
BOTH = pytest.mark.parametrize("kind", [torch.float32, torch.float64])


def draw(*shape: int, kind: Any = torch.float32, seed: int = 7) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(kind)


def with_gradients(function: Any) -> Any:
    """Returns a function's result, and its gradients by all arguments that are floats."""

    def run(*given: Any) -> tuple[Any, ...]:
        leaves = [one.detach().requires_grad_(one.is_floating_point()) for one in given]
        found = function(*leaves)
        weights = torch.linspace(-1, 1, found.numel(), dtype=torch.float64).to(found.device, found.dtype).view(found.shape)
        return found.detach(), *torch.autograd.grad((found * weights).sum(), [one for one in leaves if one.requires_grad])

    return run


def tolerance(kind: Any) -> float:
    return 1e-9 if kind == torch.float64 else 2e-5


@pytest.mark.parametrize("function", [
    functional.binary_cross_entropy, functional.smooth_l1_loss, functional.huber_loss,
    lambda x, y: functional.soft_margin_loss(x, y.detach()) * y.sum(),
    lambda x, y: functional.kl_div(x.log(), y), lambda x, y: torch.xlogy(x, y), lambda x, y: functional.prelu(x - y, x[0, :1]),
    lambda x, y: functional.glu(x - y, 1), lambda x, y: torch.lerp(x, y, x), lambda x, y: 1 - (x * y).sum(),
    lambda x, y: torch.add(x, y, alpha=3), lambda x, y: torch.triu(x) @ torch.tril(y).T,
    lambda x, y: functional.pad(x[None] * y[None], (2, 1), "reflect"),
    lambda x, y: functional.pad((x * y)[None], (2, 1), "replicate"),
    lambda x, y: functional.pad((x * y)[None, None], (2, 1, 0, 3), "replicate"), lambda x, y: x.logcumsumexp(1) * y,
    lambda x, y: x.cummax(0)[0] * y, lambda x, y: (x * y).cummin(1)[0],
    lambda x, y: torch._weight_norm(x, y[:, :1], 0), lambda x, y: torch._weight_norm(x, y[:1], 1),
])  # fmt: skip
@BOTH
def test_functions_and_gradients(function: Any, kind: Any, session: Any) -> None:
    x, y = draw(5, 6, kind=kind).sigmoid(), draw(5, 6, kind=kind, seed=8).sigmoid()
    assert_simulated(session, with_gradients(function), x, y, tolerance=tolerance(kind))


@pytest.mark.parametrize("function", [
    lambda x: x.softmax(1), lambda x: functional.log_softmax(x, 0), lambda x: functional.layer_norm(x, (6,)), functional.gelu,
    lambda x: x.mean(1), lambda x: functional.nll_loss(x, torch.arange(5, device=x.device)), torch.tanh, torch.sigmoid,
    functional.silu, functional.softplus, functional.elu, lambda x: functional.cosine_similarity(x, x.flip(0)),
    lambda x: functional.mse_loss(x, x.flip(0).detach()),
])  # fmt: skip
def test_f64(function: Any, session: Any) -> None:
    """Composes operators whose own kernels compute in f32."""
    assert_simulated(session, with_gradients(function), draw(5, 6, kind=torch.float64), tolerance=1e-12)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("axes", [2, 3])
def test_grid_sample(axes: int, mode: str, padding: str, session: Any) -> None:
    values, grid = draw(2, 3, *(5, 4, 3)[-axes:]), draw(2, *(4, 2, 3)[-axes:], axes)
    for align in (True, False):
        sample = with_gradients(lambda v, g, align=align: functional.grid_sample(v, g, mode, padding, align))
        assert_simulated(session, sample, values, grid, tolerance=2e-5)
    assert_simulated(session, lambda v: functional.affine_grid(v, [2, 3, 4, 5], False), draw(2, 2, 3), tolerance=1e-6)


@pytest.mark.parametrize("order", [0.0, 0.5, 1.0, 2.0, 3.0, torch.inf])
@BOTH
def test_distances_of_pairs(order: float, kind: Any, session: Any) -> None:
    x, y = draw(2, 4, 3, kind=kind), draw(2, 5, 3, kind=kind, seed=8)
    y[:, 0] = x[:, 1]
    distances = (lambda x, y: torch.cdist(x, y, order)) if order == 0 else with_gradients(lambda x, y: torch.cdist(x, y, order))
    assert_simulated(session, distances, x, y, tolerance=1e-5)


@pytest.mark.parametrize("options", [
    {}, {"mode": "sum"}, {"mode": "max"}, {"padding_idx": 3}, {"mode": "max", "padding_idx": 3}, {"include_last_offset": True},
])  # fmt: skip
def test_bags_of_embeddings(options: dict[str, Any], session: Any) -> None:
    """Compares an empty bag, a bag of equal indices and a bag of padding."""
    indices, offsets = torch.tensor([1, 3, 3, 0, 7, 3, 2]), torch.tensor([0, 3, 3, 5, 6, 7])
    offsets = offsets if "include_last_offset" in options else offsets[:-1]
    bags = with_gradients(lambda weight, at, first: functional.embedding_bag(at, weight, first, **options))
    assert_simulated(session, bags, draw(9, 4), indices, offsets, tolerance=1e-6)


def test_bags_scale_gradients_by_frequency(session: Any) -> None:
    """Compares with the formula: the CPU divides by another index's count here (EmbeddingBag.cpp, sum_mean)."""
    weight = draw(9, 4).cuda().requires_grad_()
    at = torch.tensor([1, 3, 3, 0, 7, 3]).cuda()
    functional.embedding_bag(at, weight, torch.tensor([0, 2]).cuda(), mode="sum", scale_grad_by_freq=True).sum().backward()
    assert torch.equal(weight.grad.cpu(), torch.tensor([1.0, 1, 0, 1, 0, 0, 0, 1, 0])[:, None].expand(9, 4))
    assert not any(use.host for use in session.operators.values())


def test_bags_with_weights(session: Any) -> None:
    indices, offsets = torch.tensor([1, 3, 3, 0, 7]), torch.tensor([0, 2])

    def bags(weight: Any, each: Any, at: Any, first: Any) -> Any:
        return functional.embedding_bag(at, weight, first, mode="sum", per_sample_weights=each)

    assert_simulated(session, with_gradients(bags), draw(9, 4), draw(5), indices, offsets, tolerance=1e-6)


@pytest.mark.parametrize("function", [
    lambda x: x.long().abs().bincount(minlength=9), lambda x: x.long().abs().bincount(x), lambda x: x.histc(7),
    lambda x: x.histc(5, -1, 1),
    lambda x: x.median(), lambda x: x.view(5, 8).median(1), lambda x: x.view(5, 8).kthvalue(2, 0, keepdim=True),
    lambda x: x.quantile(0.3), lambda x: x.long().unique(return_inverse=True, return_counts=True),
    lambda x: x.long().unique_consecutive(return_inverse=True, return_counts=True), lambda x: x.aminmax(),
    lambda x: torch.bucketize(x, torch.linspace(-1, 1, 5, device=x.device)), lambda x: x.long().cummax(0), lambda x: x.cummin(0),
])  # fmt: skip
def test_order_and_counts(function: Any, session: Any) -> None:
    assert_simulated(session, function, 2 * draw(40), tolerance=1e-6)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_margins_of_classes(p: int, reduction: str, session: Any) -> None:
    target, weight = torch.tensor([3, 0, 1]), torch.tensor([1.0, 0.5, 2.0, 1.5])
    for given in (None, weight):
        loss = with_gradients(lambda x, given=given: functional.multi_margin_loss(
            x, target.to(x.device), p, weight=given if given is None else given.to(x.device), reduction=reduction))
        assert_simulated(session, loss, draw(3, 4), tolerance=1e-6)


def test_running_extremes_of_long_rows_take_the_last_of_equal_ones(session: Any) -> None:
    x = draw(3, 2500).mul(3).round()
    x[1, 1200], x[2, 0] = torch.nan, torch.inf
    assert_simulated(session, lambda x: x.cummax(1), x)
    assert_simulated(session, lambda x: x.cummin(1), x)
    assert_simulated(session, lambda x: x.logcumsumexp(1), draw(3, 2500), tolerance=2e-5)


@pytest.mark.parametrize("name", ["Adam", "Adamax", "NAdam", "RAdam", "Rprop"])
def test_optimizers_in_f64(name: str, session: Any) -> None:
    """Computes lists of f64 tensors, each by itself."""

    def steps(x: Any) -> Any:
        leaf = x.clone().requires_grad_()
        made = getattr(torch.optim, name)([leaf], foreach=True)
        for _ in range(3):
            leaf.grad = leaf.detach().sin()
            made.step()
        return leaf.detach()

    assert_simulated(session, steps, draw(7, kind=torch.float64), tolerance=1e-12)


def test_a_scaler_of_gradients(session: Any) -> None:
    def scale(x: Any) -> tuple[Any, ...]:
        leaf = x.clone().requires_grad_()
        made, scaler = torch.optim.SGD([leaf], 0.1), torch.amp.GradScaler(x.device.type, 8.0, growth_interval=2)
        found = []
        for factor in (1.0, torch.inf, 1.0, 1.0):
            scaler.scale((leaf * factor).sum()).backward()
            scaler.step(made)
            scaler.update()
            made.zero_grad()
            found.append(scaler._scale.clone())
        return leaf.detach(), *found

    assert_simulated(session, scale, draw(5), tolerance=1e-7)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@BOTH
def test_ctc_loss(reduction: str, kind: Any, session: Any) -> None:
    """Compares targets with equal neighbours, an empty one, and one that its steps are too few for."""
    targets, lengths, steps = torch.tensor([[2, 2, 1], [1, 3, 4], [3, 3, 3]]), torch.tensor([3, 3, 0]), torch.tensor([7, 2, 5])

    def loss(x: Any) -> Any:
        return functional.ctc_loss(x.log_softmax(-1), targets, steps, lengths, reduction=reduction, zero_infinity=True)

    assert_simulated(session, with_gradients(loss), draw(7, 3, 5, kind=kind), tolerance=tolerance(kind))
    flat = torch.cat([row[:length] for row, length in zip(targets, lengths)])
    listed = with_gradients(lambda x: functional.ctc_loss(x, flat.to(x.device), (7, 6, 5), (3, 3, 0), reduction=reduction))
    assert_simulated(session, listed, draw(7, 3, 5, kind=kind).log_softmax(-1), tolerance=tolerance(kind))


@pytest.mark.parametrize("options", [
    {}, {"stride": (2, 1, 2), "padding": (1, 0, 1), "groups": 2}, {"dilation": (2, 1, 1), "padding": (2, 1, 0)},
])  # fmt: skip
@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_along_three_axes(transposed: bool, options: dict[str, Any], session: Any) -> None:
    groups = options.get("groups", 1)
    filters = draw(4, 3, 2, 3, 1) if transposed else draw(6, 4 // groups, 2, 3, 1)
    rest = {"output_padding": (1, 0, 1)} if transposed and "stride" in options else {}
    convolve = functional.conv_transpose3d if transposed else functional.conv3d
    run = with_gradients(lambda x, w, b: convolve(x, w, b, **options, **rest))
    assert_simulated(session, run, draw(2, 4, 5, 6, 4), filters, draw(3 * groups if transposed else 6), tolerance=2e-5)


@pytest.fixture
def mistaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the composition of `kthvalue` raise an error."""

    def divide(*_: Any) -> Any:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(compositions, "_kth", divide)


def test_an_error_in_a_composition_is_a_warning(mistaken: None, session: Any) -> None:
    text = "simgpu's composition of aten::kthvalue raised ZeroDivisionError: a mistake; the host computed the call"
    with pytest.warns(FailedComposition, match=text):
        found = torch.tensor([3.0, 1.0, 2.0]).cuda().kthvalue(2)
    assert (found.values.item(), found.indices.item()) == (2, 2)
    used = session.operators["aten::kthvalue"]
    assert (used.host, used.simulated, used.reasons) == (1, 0, {"ZeroDivisionError: a mistake": 1})


def test_the_warning_of_a_composition_as_an_error(mistaken: None, session: Any) -> None:
    with warnings.catch_warnings(action="error"), pytest.raises(FailedComposition) as raised:
        draw(5).cuda().kthvalue(2)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


@pytest.fixture
def mistaken_decomposition(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes PyTorch's decomposition of `heaviside` raise an error."""

    def divide(*_: Any) -> Any:
        raise ZeroDivisionError("a mistake")

    simulated._way_of.cache_clear()
    monkeypatch.setattr(simulated, "decomposition_of", lambda _: divide)
    yield
    simulated._way_of.cache_clear()


def test_an_error_in_a_decomposition_of_pytorch_is_a_warning(mistaken_decomposition: None, session: Any) -> None:
    text = "PyTorch's decomposition of aten::heaviside raised ZeroDivisionError: a mistake; the host computed the call"
    with pytest.warns(FailedComposition, match=text):
        found = torch.ops.aten.heaviside(torch.tensor([-1.0, 0.0]).cuda(), torch.tensor([7.0]).cuda())
    assert found.tolist() == [0, 7]
    assert session.operators["aten::heaviside"].reasons == {"ZeroDivisionError: a mistake": 1}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["gcd", "fmin", "trunc", "trunc_", "special_i0e", "digamma", "nextafter"])
def test_a_decomposition_that_arrives_at_its_own_operator(name: str, session: Any) -> None:
    """PyTorch decomposes these into a primitive, and computes the primitive by the operator."""
    kind = torch.float32 if name not in ("gcd", "trunc", "trunc_") else torch.int64
    operator = getattr(torch.ops.aten, name).default
    values = [torch.arange(1, 7).to(kind), torch.arange(6, 0, -1).to(kind)][: len(operator._schema.arguments)]
    found = operator(*(one.cuda() for one in values))
    torch.testing.assert_close(found.cpu(), operator(*values), rtol=0, atol=0)
    counts = session.operators["aten::" + name.removesuffix("_")]
    assert (counts.host, counts.simulated) == (1, 0)


@pytest.mark.filterwarnings("error")
def test_an_error_of_the_program_is_pytorch_s(mistaken: None, session: Any) -> None:
    with pytest.raises(IndexError, match="Dimension out of range"):
        torch.ops.aten.kthvalue(draw(5).cuda(), 2, 3)


def test_the_host_computes_the_others(session: Any) -> None:
    """Tries operators that draw numbers or change their arguments, errors of PyTorch, and linear algebra."""
    assert decomposition_of(torch.ops.aten.normal.float_float) is None
    assert decomposition_of(torch.ops.aten.lerp_.Tensor) is None
    with pytest.raises(RuntimeError, match="all elements of input should be between 0 and 1"):
        functional.binary_cross_entropy(torch.full((3,), 2.0).cuda(), torch.ones(3).cuda())
    with pytest.raises(RuntimeError, match="kthvalue"):
        draw(5).cuda().kthvalue(9)
    found = torch.linalg.inv(torch.eye(3).cuda())
    assert found.is_cuda and session.operators["aten::linalg_inv_ex"].host == 1
