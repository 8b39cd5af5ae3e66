"""`torch.compile` with Inductor for the pretended GPU; skipped if Triton or PyTorch is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simgpu.hardware.errors import LaunchError
from tests.support.pretended_gpu import kernels, pretended_gpu, simgpu, torch

import triton  # isort: skip  (after its test for being there)

from simgpu.tools.torch.inductor import _compilers  # isort: skip  (needs PyTorch)

pytestmark = pytest.mark.filterwarnings("ignore")  # Inductor's own advice, and the warning that times are a model's


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    monkeypatch.setenv("SIMGPU_COMPILE", "inductor")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    with simgpu.triton.device("mi300x") as session, pretended_gpu():
        yield session


def launched(session: Any) -> list[str]:
    """Returns Inductor's kernels that ran."""
    return [name for name in session.used if name.startswith("triton_")]


def test_forward_and_backward_are_fused_kernels(session: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(16, 33), torch.nn.GELU(), torch.nn.LayerNorm(33)).cuda()
    x = torch.randn(5, 16, device="cuda", requires_grad=True)
    out = torch.compile(model)(x)
    assert len(launched(session)) == 1 and out.is_cuda
    grads = torch.autograd.grad(out.sin().sum(), (x, *model.parameters()))
    assert len(launched(session)) > 1 and all(grad.is_cuda for grad in grads)
    expected = model.double()(x.double())
    wanted = torch.autograd.grad(expected.sin().sum(), (x, *model.parameters()))
    for ours, theirs in zip((out, *grads), (expected, *wanted)):
        torch.testing.assert_close(ours, theirs.float(), rtol=1e-4, atol=1e-4)


def test_a_triton_kernel_in_a_compiled_function_of_any_number_of_rows(session: Any) -> None:
    @torch.compile(fullgraph=True)
    def summed(x: Any, y: Any) -> Any:
        out = torch.empty_like(x)
        kernels.vector_add[(-(-x.numel() // 64),)](x, y, out, x.numel(), BLOCK=64)
        return (2 * out).relu().sum(-1)

    for rows in (3, 5, 8):
        x, y = (torch.randn(rows, 20, device="cuda") for _ in range(2))
        torch.testing.assert_close(summed(x, y), (2 * (x + y)).relu().sum(-1))
    assert "vector_add" in " ".join(session.used) and launched(session)


def test_what_a_compiled_function_sees_of_devices(session: Any) -> None:
    told = []

    @torch.compile
    def device_of(x: Any) -> Any:
        told.append((x.device, x.is_cuda, x.get_device(), (x * 2).device))
        return x + torch.ones(3, device=x.device)

    assert device_of(torch.ones(3, device="cuda")).is_cuda and launched(session)
    session.used.clear()
    assert not device_of(torch.ones(3)).is_cuda and not session.used
    gpu, host = torch.device("cuda", 0), torch.device("cpu")
    assert told == [(gpu, True, 0, gpu), (host, False, -1, host)]


def test_between_and_after_graphs() -> None:
    """Covers Python between two graphs that makes a tensor on the GPU, a graph that ends on the host, and `torch.autocast`."""
    @torch._dynamo.disable
    def apart(x: Any) -> Any:
        return x + torch.ones(3, device="cuda")

    @torch.compile
    def broken(x: Any) -> Any:
        return apart(x * 2) * 3

    assert broken(torch.ones(3, device="cuda")).tolist() == [9, 9, 9]
    moved = torch.compile(lambda x: (2 * x).cpu())(torch.ones(3, device="cuda"))
    assert not moved.is_cuda and moved.tolist() == [2, 2, 2]

    @torch.compile
    def narrowed(x: Any) -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            return x @ x

    x = torch.ones(3, 3, device="cuda")
    assert narrowed(x).dtype is torch.bfloat16
    with torch.autocast("cuda"):
        assert torch.compile(lambda x: x @ x)(x).dtype is torch.float16


@pytest.mark.parametrize("function", [
    lambda x, h: x.t()[1], lambda x, h: x * torch.ones(3).cuda(), lambda x, h: x * torch.ones(3).cuda(0),
    lambda x, h: x + h.to(x.device), lambda x, h: x + h.cuda(), lambda x, h: torch.linalg.svd(x, full_matrices=False)[2].abs(),
])  # fmt: skip
def test_views_moves_and_host_tensors_in_a_graph(function: Any) -> None:
    torch.manual_seed(2)
    x, h = torch.randn(4, 3, device="cuda"), torch.randn(3)
    found = torch.compile(function)(x, h)
    assert found.is_cuda
    torch.testing.assert_close(found, function(x, h))


def test_a_chosen_device_and_seeds_in_a_graph(session: Any) -> None:
    def seeded(x: Any) -> Any:
        torch.cuda.manual_seed(3)
        state = torch.cuda.get_rng_state()
        torch.cuda.set_rng_state(state)
        return x + 1

    x = torch.ones(3, device="cuda")
    assert torch.compile(seeded)(x).tolist() == [2, 2, 2]
    with torch.device("cuda"):
        made = torch.compile(lambda x: x + torch.ones(3))(x)
    assert made.is_cuda and made.tolist() == [2, 2, 2] and launched(session)


@pytest.mark.parametrize("function", [
    lambda x: x + torch.tensor([1.0, 2.0, 3.0], device=x.device) * torch.tensor(2.0, device=x.device),
    lambda x: x + torch.as_tensor([1.0, 2.0, 3.0], device=x.device) + x.new_tensor([4.0, 5.0, 6.0]),
    lambda x: x[torch.tensor([0, 2])].sum() + torch.tensor(list(range(40)), device=x.device),
])  # fmt: skip
def test_tensors_of_numbers_in_a_graph(function: Any) -> None:
    """Covers two compilations, as the second one takes the graph and its constants from Inductor's cache."""
    x = torch.tensor([0.5, 1.5, 2.5], device="cuda")
    for _ in range(2):
        found = torch.compile(function, fullgraph=True)(x)
        assert found.is_cuda
        torch.testing.assert_close(found, function(x))
        torch._dynamo.reset()


@pytest.mark.parametrize("function", [
    lambda x: x[[2, 0, 2], [1, 1, 0]] * 2, lambda x: x.half().softmax(-1, dtype=torch.float32),
    lambda x: torch.nn.functional.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
    lambda x: torch.where(x > 0, x, 1) * x.double().type_as(x),
])  # fmt: skip
def test_what_pytorch_s_functions_make_is_on_the_gpu(function: Any, session: Any) -> None:
    """PyTorch's C++ sees the CPU: a gradient of an index, a converted type and a decomposition are made where it sees tensors."""
    x = torch.linspace(-2, 2, 9).view(3, 3)
    found, wanted = (one.requires_grad_() for one in (x.cuda(), x))
    made = torch.compile(function)(found)
    made.sum().backward()
    function(wanted).sum().backward()
    assert made.is_cuda and found.grad.is_cuda
    torch.testing.assert_close((made.cpu(), found.grad.cpu()), (function(wanted), wanted.grad), rtol=1e-3, atol=1e-3)
    assert launched(session)

@pytest.mark.parametrize("backend", ["MATH", "EFFICIENT_ATTENTION", "FLASH_ATTENTION"])
def test_attention_is_part_of_a_whole_graph(backend: str, session: Any) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    attention = torch.nn.functional.scaled_dot_product_attention

    @torch.compile(fullgraph=True)
    def inside(q: Any) -> Any:
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return attention(q, q, q, is_causal=True) * 2

    torch.manual_seed(4)
    q = torch.randn(1, 2, 8, 4, device="cuda")
    torch.testing.assert_close(inside(q), attention(q, q, q, is_causal=True) * 2, rtol=1e-4, atol=1e-5)
    with sdpa_kernel(getattr(SDPBackend, backend)):
        assert torch.backends.cuda.math_sdp_enabled() == (backend == "MATH")
        torch.compile(attention, fullgraph=True)(q, q, q)
    assert torch.backends.cuda.math_sdp_enabled() and launched(session)


def test_after_a_break_only_the_program_is_compiled() -> None:
    embed = torch.nn.Embedding(5, 4).cuda()

    @torch.compile
    def broken(at: Any) -> Any:
        for _ in range(2):  # a break in a loop: the function runs as it is, and the functions that it calls are compiled
            torch._dynamo.graph_break()
            x = embed(at)
        return x

    counters = torch._dynamo.utils.counters
    counters.clear()
    assert broken(torch.arange(3, device="cuda")).is_cuda
    assert not counters["graph_break"] and all("graph_break()" in reason for reason in counters["unimplemented"])


def test_a_generator_breaks_a_graph() -> None:
    generator = torch.Generator("cuda").manual_seed(3)
    drawn = torch.compile(lambda x: x + torch.rand(3, device="cuda", generator=generator))(torch.zeros(3, device="cuda"))
    assert torch.equal(drawn, torch.rand(3, device="cuda", generator=generator.manual_seed(3)))


_STREAMS = """
import torch

x = torch.ones(8, device="cuda")
given, event = torch.cuda.Stream(), torch.cuda.Event()

@torch.compile(fullgraph=True)
def made(x):
    stream, done = torch.cuda.Stream(), torch.cuda.Event()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = x * 2
        done.record()
    torch.cuda.current_stream().wait_event(done)
    return y + 1

@torch.compile(fullgraph=True)
def passed(x, stream, event):
    with torch.cuda.stream(stream):
        y = x * 2
        event.record(stream)
    return y + torch.cuda.get_device_properties(x.device).major

@torch.compile(fullgraph=True)
def chosen(x):
    with torch.cuda.device(0):
        return x + torch.ones(8, device="cuda")

@torch.compile(fullgraph=True)
def chosen_by_number(x):
    with torch.accelerator.device_index(0):
        return x + torch.ones(8, device="cuda")

assert made(x).tolist() == [3] * 8
assert passed(x, given, event).tolist() == [2 + torch.cuda.get_device_capability()[0]] * 8
assert chosen(x).tolist() == [2] * 8
if torch.__version__ >= "2.12":  # Dynamo of 2.11 has no rule for `device_index`
    assert chosen_by_number(x).tolist() == [2] * 8
assert torch.cuda.current_stream().cuda_stream == 0
"""


@pytest.mark.skipif(torch.__version__ < "2.11", reason="Dynamo of PyTorch 2.10 traces into classes of streams")
def test_streams_events_and_devices_in_a_whole_graph(tmp_path: Path) -> None:
    """Dynamo looks at PyTorch's classes when it is imported, so the GPU must be there before: in a process of its own."""
    script = tmp_path / "streams.py"
    script.write_text(_STREAMS)
    environment = {**os.environ, "SIMGPU": "mi300x", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_are_compiled_by_as_many_threads_as_inductor_has(
    threads: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Compiles two kernels; each waits until another thread compiles one, too."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    together, used, compile = threading.Barrier(threads), set(), triton.compile

    def compile_together(*args: Any, **options: Any) -> Any:
        together.wait(60)
        used.add(threading.get_ident())
        return compile(*args, **options)

    monkeypatch.setattr(triton, "compile", compile_together)
    x = torch.randn(64, 32, device="cuda")
    with torch._inductor.config.patch(compile_threads=threads):
        rows, columns = torch.compile(lambda x: (x.sum(1), x.sum(0)))(x)
    torch.testing.assert_close(rows, x.sum(1))
    torch.testing.assert_close(columns, x.sum(0))
    assert len(used) == threads
    assert (threading.get_ident() in used) == (threads == 1)


def test_a_worker_leaves_a_kernel_whole_that_other_threads_use() -> None:
    """Inductor's worker calls `prepare_for_pickle`, which takes a function and its lock out of the kernel that it shares here."""

    class Kernel:
        function: str | None = "the kernel"

        def prepare_for_pickle(self) -> None:
            self.function = None

    def work(load: Any, _environment: dict[str, str]) -> Any:
        made = load("name")
        made.prepare_for_pickle()
        return made

    kernel = Kernel()
    assert work(lambda _name: Kernel(), {}).function is None
    assert _compilers().submit(work, lambda _name: kernel, {}).result() is kernel and kernel.function == "the kernel"


def test_templates_and_candidates_by_the_model() -> None:
    """Covers flex attention's template, and a product whose candidates are timed."""
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(1, 2, 128, 16, device="cuda", dtype=torch.float16)
    causal = torch.compile(flex_attention)(q, q, q, score_mod=lambda score, _b, _h, i, j: torch.where(i >= j, score, -torch.inf))
    expected = torch.nn.functional.scaled_dot_product_attention(*(q.float(),) * 3, is_causal=True)
    torch.testing.assert_close(causal.float(), expected, rtol=0.0, atol=4e-3)
    a = torch.randn(32, 32, device="cuda", dtype=torch.float16)
    options = {"max_autotune": True, "max_autotune_gemm_backends": "TRITON"}
    product = torch.compile(lambda a: (a @ a).relu(), options=options)(a)
    torch.testing.assert_close(product, (a @ a).relu(), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("option", ["", "max_autotune_pointwise", "max_autotune"])
def test_only_modes_that_tune_time_candidates(option: str, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[Any] = []
    monkeypatch.setattr(type(session.clock), "do_bench", lambda _clock, function, **_: timed.append(function) or len(timed))
    x = torch.randn(300, 80, device="cuda")
    compiled = torch.compile(lambda x: (x + 1).T.contiguous() * x.sum(), options={option: True} if option else None)
    torch.testing.assert_close(compiled(x), (x + 1).T * x.sum(), rtol=1e-4, atol=1e-2)
    assert launched(session) and bool(timed) == bool(option)


def test_flex_attention_that_is_not_compiled_has_a_backward() -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v, bias = (torch.randn(1, 2, 32, 16, device="cuda", requires_grad=True) for _ in range(4))
    mask = create_block_mask(lambda _b, _h, i, j: i >= j, None, None, 32, 32, device="cuda")
    out = flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + bias[b, h, i, j // 2], block_mask=mask)
    grads = torch.autograd.grad(out.sin().sum(), (q, k, v, bias))
    added = bias.repeat_interleave(2, -1)[..., :32]
    scores = (q @ k.mT / 4 + added).masked_fill(~torch.ones(32, 32, dtype=torch.bool, device="cuda").tril(), -torch.inf)
    expected = scores.softmax(-1) @ v
    wanted = torch.autograd.grad(expected.sin().sum(), (q, k, v, bias))
    for ours, theirs in zip((out, *grads), (expected, *wanted)):
        assert ours.is_cuda
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_other_words() -> None:
    before = torch.compile
    with pytest.MonkeyPatch.context() as changed, pytest.raises(LaunchError, match="SIMGPU_COMPILE='aot': give eager or inductor"):
        changed.setenv("SIMGPU_COMPILE", "aot")
        changed.setattr(torch, "Generator", torch._C.Generator)  # so that it starts again
        with pretended_gpu():
            pass
    assert torch.compile is before


def test_a_pytorch_that_is_too_old_for_it_is_told() -> None:
    with pytest.MonkeyPatch.context() as changed, pytest.raises(LaunchError, match=r"needs PyTorch 2\.10"):
        changed.setattr(torch, "__version__", "2.9.1+cu130")
        changed.setattr(torch, "Generator", torch._C.Generator)  # so that it starts again
        with pretended_gpu():
            pass
