"""PyTorch's operators on the simulated GPU, SIMGPU_OPERATORS=simulated; skipped if Triton or PyTorch is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgpu.engine.finding import KernelFinding
from simgpu.hardware.errors import LaunchError
from simgpu.operators import AttentionProblem, Conv2dProblem, GemmProblem, SoftmaxProblem, reference
from tests.support.places import ROOT

pytest.importorskip("torch", reason="PyTorch is not among the extras: its wheel takes gigabytes")

from simgpu.tools.torch.operators import gemms
from simgpu.tools.torch.operators.kernels import TYPES
from simgpu.tools.torch.operators.summary import lines
from tests.support.pretended_gpu import pretended_gpu, simgpu, simulated_session, torch  # noqa: F401  (the fixture)

from torch.autograd import forward_ad  # isort: skip  (PyTorch is optional)

functional = torch.nn.functional
attention = functional.scaled_dot_product_attention


def draw(*shape: int, kind: Any = torch.float32) -> Any:
    return torch.randn(shape).cuda().to(kind)


def wide(tensor: Any) -> np.ndarray:
    """Returns a GPU's tensor in float64, on the host."""
    return np.asarray(tensor.detach().cpu().double().numpy())


def counts(session: Any) -> dict[str, tuple[int, int]]:
    """Returns how many calls of each operator were simulated, and how many not."""
    return {name.removeprefix("aten::"): (use.simulated, use.host) for name, use in session.operators.items()}


LAYOUTS = {
    "plain": lambda t: t, "transposed": lambda t: t.mT.contiguous().mT,
    "columns": lambda t: torch.cat([t, t], -1)[..., : t.shape[-1]],
    "every other column": lambda t: torch.stack([t, t], -1)[..., 0],
    "odd address": lambda t: torch.cat([t, t], -1)[..., -t.shape[-1] :],
}  # fmt: skip


NARROW = {"transposed": torch.float16, "odd address": torch.bfloat16, "plain": torch.float64}


@pytest.mark.parametrize(("layout", "kind"), [*((layout, torch.float32) for layout in LAYOUTS), *NARROW.items()])
def test_products_are_within_the_gemm_s_bound(layout: str, kind: Any, session: Any) -> None:
    change = LAYOUTS[layout]
    a, b = change(draw(2, 5, 19, kind=kind)), change(draw(2, 19, 33, kind=kind))
    for left, right, product in ((a[0], b[0], torch.mm), (a, b, torch.bmm), (a[0], b[0][:, :1], torch.mm), (a, b[0], torch.matmul)):
        out = product(left, right)
        assert out.is_cuda and out.dtype == kind
        flat = (wide(left).reshape(-1, 19) if right.dim() < left.dim() else wide(left)), wide(right)
        batch = len(left) if right.dim() == 3 else 1
        problem = GemmProblem(flat[0].shape[-2], right.shape[-1], 19, TYPES[kind], batch=batch, dtype_c=TYPES[kind])
        bound = reference.gemm_error_bound(problem, *flat, arch="gfx942")
        assert np.all(np.abs(wide(out).reshape(bound.shape) - reference.gemm(problem, *flat)) <= bound)
    told = counts(session)  # PyTorch folds a batch, or not
    assert told["mm"][0] + told["bmm"][0] == 4 and told["mm"][1] == told["bmm"][1] == 0


@pytest.mark.parametrize("shape", [(), (1,), (33,), (5, 1), (5, 33), (1, 33)])
def test_addends_broadcast(shape: tuple[int, ...], session: Any) -> None:
    a, b, addend = draw(5, 19), draw(19, 33), draw(*shape)
    for options in ({}, {"alpha": 2, "beta": 0.5}, {"beta": 0}):
        given = addend.fill_(torch.nan) if options == {"beta": 0} else addend
        wanted = torch.addmm(given.double().cpu(), a.double().cpu(), b.double().cpu(), **options)
        torch.testing.assert_close(torch.addmm(given, a, b, **options).cpu(), wanted.float())
    into = draw(5, 33)
    torch.mm(a, b, out=into)
    assert torch.equal(into.addmm_(a, b, beta=0), a @ b)
    found = counts(session)
    assert found["addmm"] == (3, 0) and found["mm.out"] == found["addmm_"] == (1, 0)


def test_int8_s_product_is_exact(session: Any) -> None:
    a, b = (torch.randint(-128, 128, shape, dtype=torch.int8, device="cuda") for shape in ((32, 64), (64, 48)))
    assert torch.equal(torch._int_mm(a, b).cpu(), a.cpu().int() @ b.cpu().int()) and counts(session)["_int_mm"] == (1, 0)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dim", [-1, 0])
def test_softmaxes_are_within_their_bounds(dim: int, kind: Any, session: Any) -> None:
    x = draw(6, 37, kind=kind)
    rows = wide(x) if dim else wide(x).T
    problem = SoftmaxProblem(*rows.shape, TYPES[kind])
    found = wide(torch.softmax(x, dim))
    bound = reference.softmax_error_bound(problem, rows)
    assert np.all(np.abs((found if dim else found.T) - reference.softmax(problem, rows)) <= bound)
    torch.testing.assert_close(torch.log_softmax(x, dim).cpu(), torch.log_softmax(x.cpu(), dim))
    assert counts(session)["_softmax"] == counts(session)["_log_softmax"] == (1, 0)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_within_its_bound(causal: bool, session: Any) -> None:
    q, k, v = draw(2, 9, 4, 16).transpose(1, 2), draw(2, 2, 9, 16), draw(2, 2, 9, 16)
    problem = AttentionProblem(9, 9, 16, heads=4, kv_heads=2, batch=2, causal=causal)
    out = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    given = tuple(map(wide, (q, k, v)))
    bound = reference.attention_error_bound(problem, *given, arch="gfx942")
    assert np.all(np.abs(wide(out) - reference.attention(problem, *given)) <= bound)
    assert counts(session)["_scaled_dot_product_flash_attention_for_cpu"] == (1, 0)


@pytest.mark.parametrize("last", [False, True])
def test_convolutions_are_within_their_bound(last: bool, session: Any) -> None:
    x, w, bias = draw(2, 4, 9, 8), draw(6, 2, 3, 2), draw(6)
    x = x.to(memory_format=torch.channels_last) if last else x
    problem = Conv2dProblem(2, 4, 9, 8, 6, 3, 2, (2, 1), (1, 0), (1, 2), 2, bias=True)
    out = functional.conv2d(x, w, bias, (2, 1), (1, 0), (1, 2), 2)
    given = wide(x), wide(w)
    bound = reference.conv2d_error_bound(problem, *given, "gfx942", wide(bias))
    assert np.all(np.abs(wide(out) - reference.conv2d(problem, *given, wide(bias))) <= bound)
    assert out.is_contiguous(memory_format=torch.channels_last) == last and counts(session)["convolution"] == (1, 0)


@pytest.mark.parametrize("extents", [(9,), (9, 8)])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_valid_padding_is_one_number_for_all_axes(batch: tuple[int, ...], extents: tuple[int, ...], session: Any) -> None:
    x, w = draw(*batch, 4, *extents), draw(3, 4, *(3, 2)[: len(extents)])
    convolve = (functional.conv1d, functional.conv2d)[len(extents) - 1]
    wanted = convolve(x.cpu(), w.cpu())
    torch.testing.assert_close(convolve(x, w, padding="valid").cpu(), wanted, rtol=1e-5, atol=1e-5)
    assert counts(session)["convolution"] == (1, 0)


@pytest.mark.parametrize("value", [torch.inf, torch.nan])
def test_an_infinity_or_nan_reaches_only_pixels_with_a_tap_on_it(value: float, session: Any) -> None:
    """Filters of one channel are padded to a multiple of two taps."""
    x, w = draw(1, 1, 6, 6), draw(2, 1, 3, 3)
    x[0, 0, 2, 4] = value
    found, exact = functional.conv2d(x, w).cpu(), functional.conv2d(x.cpu().double(), w.cpu().double()).float()
    torch.testing.assert_close(found, exact, equal_nan=True)
    assert counts(session)["convolution"] == (1, 0)


def test_rows_of_minus_infinities_have_no_probabilities(session: Any) -> None:
    x = torch.zeros(2, 5, device="cuda").masked_fill(torch.tensor([[False], [True]], device="cuda"), -torch.inf)
    for function in (torch.softmax, torch.log_softmax):
        found = function(x, -1).cpu()
        assert found[0].isfinite().all() and found[1].isnan().all()


@pytest.mark.parametrize(("shape", "weight"), [((3,), (6,)), ((2, 6), (6,)), ((), ()), ((4,), (4,))])
@pytest.mark.parametrize("norm", [functional.layer_norm, functional.rms_norm])
def test_norms_of_other_shapes_are_pytorch_s_errors(norm: Any, shape: tuple[int, ...], weight: tuple[int, ...]) -> None:
    x, w = draw(2, 6), draw(*weight)
    with pytest.raises(RuntimeError) as wanted:
        norm(x.cpu(), shape, w.cpu())
    with pytest.raises(RuntimeError) as found:
        norm(x, shape, w)
    assert str(found.value) == str(wanted.value)


def test_zeros_of_autograd_are_tensors_as_others(session: Any) -> None:
    """`sgn` has a gradient of zeros without memory; below a dispatch mode `isclose` of it ended the process."""
    x = draw(4, 5).requires_grad_()
    (grad,) = torch.autograd.grad(x.sgn().sum(), x)
    assert torch.isclose(grad, torch.zeros_like(grad)).all() and torch.equal((grad + 1).cpu(), torch.ones(4, 5))
    host = x.detach().cpu().requires_grad_()
    assert torch.equal(torch.autograd.grad(host.sgn().sum(), host)[0] * 2 + 1, torch.ones(4, 5))


def _norm(x: Any, w: Any, b: Any) -> Any:
    return functional.layer_norm(x, x.shape[-1:], w, b)


# A function, the shapes of its operands, and the operators that must have been simulated.
DIFFERENTIABLE: dict[str, tuple[Any, tuple[tuple[int, ...], ...], str]] = {
    "linear": (functional.linear, ((2, 5, 19), (7, 19), (7,)), "addmm mm"),
    "matrix and vector": (lambda a, b: a @ b, ((5, 19), (19,)), "mv"),
    "softmax": (lambda x: torch.softmax(x, 1), ((2, 19, 3),), "_softmax _softmax_backward_data"),
    "cross entropy": (lambda x: functional.cross_entropy(x, torch.arange(5, device=x.device), reduction="none"), ((5, 19),),
                      "_log_softmax _log_softmax_backward_data"),
    "layer norm": (_norm, ((2, 5, 19), (19,), (19,)), "native_layer_norm native_layer_norm_backward"),
    "RMS norm": (lambda x, w: functional.rms_norm(x, x.shape[-1:], w), ((2, 5, 19), (19,)),
                 "_fused_rms_norm _fused_rms_norm_backward"),
    "attention": (attention, ((1, 2, 5, 8),) * 3, "_scaled_dot_product_flash_attention_for_cpu bmm"),
    "attention with a mask": (
        lambda q, k, v: attention(q, k, v, (q[0, 0] @ k[0, 0].T).detach()), ((1, 2, 5, 8),) * 3, "bmm"),
    "convolution": (lambda x, w, b: functional.conv2d(x, w, b, (2, 1), (1, 2), 1, 2), ((2, 4, 9, 8), (6, 2, 3, 2), (6,)),
                    "convolution convolution_backward"),
    "transposed": (lambda x, w, b: functional.conv_transpose2d(x, w, b, 2, 1, 1, 2), ((2, 4, 4, 3), (4, 3, 3, 2), (6,)),
                   "convolution convolution_backward"),
    "along one axis": (lambda x, w: functional.conv1d(x, w, None, 2, 1), ((2, 3, 9), (4, 3, 3)),
                       "convolution convolution_backward"),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_those_of_float64(name: str, session: Any) -> None:
    function, shapes, operators = DIFFERENTIABLE[name]
    given = [draw(*shape).requires_grad_() for shape in shapes]
    exact = [one.detach().cpu().double().requires_grad_() for one in given]
    ours, theirs = function(*given), function(*exact)
    weight = torch.randn(theirs.shape, dtype=torch.float64)
    found = torch.autograd.grad((ours * weight.float().cuda()).sum(), given)
    wanted = torch.autograd.grad((theirs * weight.float().double()).sum(), exact)
    for one, other in zip((ours, *found), (theirs, *wanted), strict=True):
        assert one.is_cuda
        torch.testing.assert_close(one.detach().cpu().double(), other.detach(), rtol=2e-5, atol=2e-5)
    told = counts(session)
    assert all(told[operator][0] > 0 and told[operator][1] == 0 for operator in operators.split()), told


@pytest.mark.parametrize("masked", [False, True])
def test_attention_of_f64_is_computed_in_f64(masked: bool) -> None:
    q, k, v = (draw(1, 2, 5, 8, kind=torch.float64).requires_grad_() for _ in range(3))
    mask = torch.ones(5, 5, dtype=torch.bool, device="cuda").tril(1) if masked else None
    found, exact = attention(q, k, v, mask), (q @ k.mT / 8**0.5)
    exact = (exact if mask is None else exact.masked_fill(~mask, -torch.inf)).softmax(-1) @ v
    for ours, theirs in zip(*((out, *torch.autograd.grad(out.square().sum(), (q, k, v))) for out in (found, exact)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("odd", [torch.nan, torch.inf])
def test_attention_keeps_nan_and_rows_that_attend_to_nothing_are_zero(odd: float) -> None:
    """A row with a NaN, and one whose score is infinite, have a NaN in each element, and in gradients to which they add."""
    q, k, v = draw(1, 1, 4, 8), draw(1, 1, 5, 8), draw(1, 1, 5, 8)
    q[..., 1, 2] = odd
    mask = torch.ones(4, 5, dtype=torch.bool, device="cuda")
    mask[2] = False
    given = [one.requires_grad_() for one in (q, k.abs(), v)]
    found = attention(*given, mask)
    assert found[0, 0].isnan().all(-1).tolist() == [False, True, False, False] and not found[0, 0, 2].any()
    of_q, of_k, of_v = torch.autograd.grad(found.sum(), given)
    assert of_q[0, 0].isnan().all(-1).tolist() == [False, True, False, False] and of_k.isnan().all() and of_v.isnan().all()


def test_a_gradient_of_an_rms_norm_has_a_gradient() -> None:
    """Also in transforms of `torch.func` and with forward gradients, which the norm's parts have."""
    x, w = draw(3, 2, 5), draw(2, 5)
    found, exact = [], []
    for results, kind, place in ((found, torch.float32, "cuda"), (exact, torch.float64, "cpu")):
        given = [one.to(place, kind).requires_grad_() for one in (x, w)]

        def norm(x: Any, w: Any = given[1]) -> Any:
            return functional.rms_norm(x, (2, 5), w, 0.1)

        grads = torch.autograd.grad((norm(*given) ** 3).sum(), given, create_graph=True)
        results += [*grads, *torch.autograd.grad(sum((grad**2).sum() for grad in grads), given)]
        results += torch.func.jvp(norm, (given[0],), (torch.ones_like(given[0]),))
        results.append(torch.func.vmap(torch.func.grad(lambda x: (norm(x[None]) ** 3).sum()))(given[0]))
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(given[0].detach(), torch.ones_like(given[0]))
            results.append(forward_ad.unpack_dual(norm(dual)).tangent)
    for ours, theirs in zip(found, exact, strict=True):
        torch.testing.assert_close(ours.cpu().double(), theirs, rtol=2e-5, atol=2e-5 * float(theirs.abs().max()))


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("axes", [(), (0,), (1, 2), (-1,), (0, 1, 2)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_sums_and_means_over_any_axes(axes: tuple[int, ...], keepdim: bool, kind: Any, session: Any) -> None:
    x = draw(5, 7, 12, kind=kind)
    for function, operator in ((torch.sum, "sum.dim_IntList"), (torch.mean, "mean.dim")):
        found, exact = function(x, axes, keepdim=keepdim), function(x.cpu().double(), axes, keepdim=keepdim)
        assert found.dtype == kind and found.shape == exact.shape
        torch.testing.assert_close(found.cpu().double(), exact, rtol=torch.finfo(kind).eps, atol=1e-5)
        assert counts(session)[operator] == (1, 0)
    wide, whole = x.sum(1, dtype=torch.float32), x.sum()
    torch.testing.assert_close(wide.cpu(), x.cpu().float().sum(1), rtol=0, atol=1e-5)
    torch.testing.assert_close(whole.cpu().double(), x.cpu().double().sum(), rtol=torch.finfo(kind).eps, atol=1e-4)
    assert counts(session)["sum"] == (1, 0)


def test_sums_that_the_host_computes(session: Any) -> None:
    x = draw(3, 4)
    assert torch.equal(x.sum(0, dtype=torch.float64).cpu(), x.cpu().double().sum(0))
    x.long().sum(dtype=torch.int8)
    assert counts(session)["sum.dim_IntList"] == (1, 0) and counts(session)["sum"] == (0, 1)
    assert {reason for use in session.operators.values() for reason in use.reasons} == {"to int8"}


def test_what_only_moves_elements_is_not_counted(session: Any) -> None:
    x = draw(1, 4, 3, 1)
    x.clone().squeeze_(3).unsqueeze_(0).transpose_(1, 2)
    functional.pixel_unshuffle(functional.pixel_shuffle(x, 2), 2), x[0, 0].diag_embed()
    assert not counts(session)


def test_calls_without_elements_are_not_counted(session: Any) -> None:
    x, none = draw(0, 3), torch.zeros(0, dtype=torch.int64, device="cuda")
    assert torch.equal((x.exp() @ draw(3, 2)).cpu(), torch.zeros(0, 2)) and torch.equal(x.sum(0).cpu(), torch.zeros(3))
    assert draw(4, 3)[none].shape == draw(4, 3)[draw(4) > 9].shape == (0, 3)
    assert not any(use.host for use in session.operators.values())
    assert not lines("mi300x", [session.operators["aten::exp"]])


def test_an_lstm_s_products_are_simulated(session: Any) -> None:
    layer, x = torch.nn.LSTM(4, 5, bidirectional=True).cuda(), draw(6, 3, 4).requires_grad_()
    exact, wide_x = torch.nn.LSTM(4, 5, bidirectional=True).double(), x.detach().cpu().double().requires_grad_()
    exact.load_state_dict(layer.state_dict())
    results = []
    for module, given in ((layer, x), (exact, wide_x)):
        out, _ = module(given)
        results.append([out, *torch.autograd.grad(out.square().sum(), [given, *module.parameters()])])
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found.detach().cpu().double(), wanted.detach(), rtol=2e-5, atol=2e-5)
    told = counts(session)
    assert told["addmm"][0] > 0 and told["mm"][0] > 0 and not any("rnn_layer" in name for name in told)


def test_a_transformer_differs_by_rounding_only(session: Any) -> None:
    """Its forward, in both modes without gradients, differs from the CPU's, so it ran elsewhere, and by rounding only."""
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = torch.randn(2, 7, 32)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            host = model.cpu()(x)
            assert not session.operators
            found = model.cuda()(x.cuda()).cpu()
        assert not torch.equal(found, host)
        torch.testing.assert_close(found, host, rtol=1e-5, atol=1e-5)
        told = counts(session)
        assert {name for name, (_, host_s) in told.items() if host_s} <= {"add.Tensor", "relu"}
        assert told["native_layer_norm"] == (4, 0) and told["_scaled_dot_product_flash_attention_for_cpu"] == (2, 0)
        session.operators.clear()
    assert session.launches == 0 and len(session.used) > 3  # the program's own, and all


def test_what_the_host_computes_is_named(session: Any) -> None:
    torch.ones(3, 4, dtype=torch.int64, device="cuda") @ torch.ones(4, 2, dtype=torch.int64, device="cuda")
    functional.conv2d(draw(1, 1, 3, 3, kind=torch.float64), draw(1, 1, 1, 1, kind=torch.float64))
    draw(3, 3).to_sparse() @ draw(3, 2)
    draw(3, 3).digamma()
    draw(4, 4) @ draw(4, 4)
    assert counts(session)["mm"] == (1, 2)
    told = lines("mi300x", session.operators.values())
    assert told[0] == "simgpu: 1 call of PyTorch's operators computed on the simulated mi300x"
    assert told[1].startswith("  aten::mm 1: gemm_f32_nn_") and all(len(line) <= 80 for line in told)
    assert "  aten::mm 2: of int64; of layout sparse_coo" in told
    assert "  aten::convolution 1: of float64" in told
    assert "aten::digamma 1" in told[-1] and "clone" not in told[-1]


def test_tensors_of_the_host_stay_there(session: Any) -> None:
    a = torch.randn(5, 5, requires_grad=True)
    (torch.softmax(a @ a, -1) ** 2).sum().backward()
    assert not session.operators and not session.used


def test_findings_and_faults_name_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GEMM that is told a stride too large reads past its operand."""
    stored = gemms._storage
    monkeypatch.setattr(gemms, "_storage", lambda matrices: (*stored(matrices)[:2], 64))
    for check, error in ((True, KernelFinding), (False, simgpu.MemoryFault)):
        with simgpu.triton.device("mi300x", check=check), pytest.raises(error, match=r"operand [AB].*\(in PyTorch's aten::mm\)"):
            torch.ones(40, 40, device="cuda") @ torch.ones(40, 40, device="cuda")


@pytest.mark.parametrize("where", ["host", "simulated"])
def test_a_graph_computes_products_again(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their kernels are no launches of the program's, which a graph captures by itself; those of f16 are simulated on both."""
    monkeypatch.setenv("SIMGPU_OPERATORS", where)
    a, out, graph = draw(5, 8, kind=torch.float16), torch.zeros(5, 5, device="cuda", dtype=torch.float16), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = torch.softmax(a @ a.T, -1)
        torch.mm(a, a.T, out=out)
    assert not out.any()
    a.copy_(draw(5, 8))
    graph.replay()
    for ours, theirs in ((found, torch.softmax(a @ a.T, -1)), (out, a @ a.T)):
        assert torch.equal(ours, theirs) and ours.any()


def test_several_gpus_and_modelled_times() -> None:
    with simgpu.triton.device("mi300x:2") as both:
        both.clock.modelled_ms()
        product = torch.ones(8, 8, device="cuda:1") @ torch.ones(8, 8, device="cuda:1")
        assert product.device == torch.device("cuda:1") and product[0, 0] == 8
        assert both.operators["aten::mm"].milliseconds > 0 and both.current == 0
        assert "ms modelled" in lines(both.name, both.operators.values())[1]
        assert both.clock.do_bench(lambda: product @ product) > 0


def test_the_variable_s_words(monkeypatch: pytest.MonkeyPatch, session: Any) -> None:
    a = draw(5, 19)
    monkeypatch.setenv("SIMGPU_OPERATORS", "host")
    assert torch.equal((a @ a.T).cpu(), a.cpu() @ a.cpu().T) and not counts(session)
    monkeypatch.setenv("SIMGPU_OPERATORS", "gpu")
    with pytest.raises(LaunchError, match="SIMGPU_OPERATORS='gpu': give host or simulated"):
        draw(3, 3) @ draw(3, 3)


def test_the_command_prints_a_summary(tmp_path: Path) -> None:
    script = tmp_path / "product.py"
    script.write_text("import torch\nprint((torch.ones(8, 8, device='cuda') @ torch.ones(8, 8, device='cuda'))[0, 0].item())\n")
    command = [sys.executable, "-m", "simgpu", "triton", "--operators", "simulated", str(script)]
    environment = {name: value for name, value in os.environ.items() if name != "SIMGPU_OPERATORS"}
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout == "8.0\n" and "1 call of PyTorch's operators computed on the simulated mi300x" in ran.stderr
