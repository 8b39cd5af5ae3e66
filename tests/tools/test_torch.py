"""PyTorch's pretended GPU: places of tensors, and where the GPU is visible; skipped if Triton or PyTorch is not installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgpu.tools.torch import rocm
from tests.support.places import PYTHON_PATH
from tests.support.pretended_gpu import double, kernels, pretended_gpu, session, simgpu, torch  # noqa: F401  (the fixture)


class Double(torch.autograd.Function):
    """Computes 2 x, forward and backward by a kernel."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return double(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        out = torch.empty(grad.shape, device="cuda")
        assert grad.is_cuda and out.device == grad.device
        kernels.vector_add[(1,)](grad.contiguous(), out.zero_(), out, grad.numel(), BLOCK=64)
        return 2 * out


def _seeds(device: Any) -> Any:
    """Calls it as Inductor's and Helion's code does: the device is not a keyword."""
    from torch._inductor import inductor_prims

    return inductor_prims.seeds(3, device)


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda x, h: x, "cuda"), (lambda x, h: h, "cpu"), (lambda x, h: x + 1, "cuda"), (lambda x, h: h + 1, "cpu"),
        (lambda x, h: x * torch.tensor(2.0), "cuda"), (lambda x, h: x[2:].view(2, 4).T, "cuda"), (lambda x, h: h.view(2, 5), "cpu"),
        (lambda x, h: h.cuda(), "cuda"), (lambda x, h: x.cpu(), "cpu"), (lambda x, h: h.to(x), "cuda"),
        (lambda x, h: h.to(x.device, torch.float16), "cuda"), (lambda x, h: x.to("cpu"), "cpu"), (lambda x, h: h.to(0), "cuda"),
        (lambda x, h: torch.zeros_like(x), "cuda"), (lambda x, h: torch.zeros_like(x, device="cpu"), "cpu"),
        (lambda x, h: torch.range(0, 4, device="cuda"), "cuda"), (lambda x, h: torch.range(0, 4), "cpu"),
        (lambda x, h: x.new_zeros(3), "cuda"), (lambda x, h: h.new_zeros(3, device="cuda"), "cuda"),
        (lambda x, h: torch.stack([x, x])[0], "cuda"), (lambda x, h: torch.split(h, 5)[1], "cpu"),
        (lambda x, h: torch.func.vmap(torch.sin)(x), "cuda"), (lambda x, h: torch.func.vmap(torch.sin)(h), "cpu"),
        (lambda x, h: torch.func.grad(lambda t: t.new_ones(10, device=t.device) @ t)(h), "cpu"),
        (lambda x, h: torch.func.jvp(torch.sin, (h,), (h,))[1], "cpu"),
        (lambda x, h: torch.from_numpy(np.ones(3)), "cpu"), (lambda x, h: torch.as_tensor(np.ones(3), device="cuda"), "cuda"),
        (lambda x, h: torch.nn.Linear(3, 1).cuda().weight, "cuda"), (lambda x, h: torch.nn.Linear(3, 1).weight, "cpu"),
        (lambda x, h: torch.nn.Linear(3, 1).to("cuda").weight, "cuda"), (lambda x, h: torch.nn.Linear(3, 1).to(0).weight, "cuda"),
        (lambda x, h: torch.nn.Linear(3, 1).to(device="cuda", dtype=x.dtype).weight, "cuda"),
        (lambda x, h: torch.nn.Linear(3, 1).to(x).weight, "cuda"), (lambda x, h: torch.nn.Linear(3, 1).cuda().to(h).weight, "cpu"),
        (lambda x, h: torch.nn.Linear(3, 1).cuda().half().bias, "cuda"), (lambda x, h: h.to(torch.device(0)), "cuda"),
        (lambda x, h: torch.ops.aten.zeros_like.default(h, device=x.device), "cuda"), (lambda x, h: _seeds(x.device), "cuda"),
        (lambda x, h: h.pin_memory(), "cpu"), (lambda x, h: x.detach().requires_grad_(), "cuda"),
    ],
)  # fmt: skip
def test_a_tensor_lies_where_a_gpu_would_have_it(make: Any, place: str) -> None:
    made = make(torch.arange(10.0, device="cuda"), torch.arange(10.0))
    assert (made.device.type, made.is_cuda, made.is_cpu) == (place, place == "cuda", place == "cpu")
    assert made.get_device() == (0 if place == "cuda" else -1)


@pytest.mark.parametrize("move", [lambda x: x.cpu(), lambda x: x.to("cpu"), lambda x: x.to(device="cpu", dtype=x.dtype)])
def test_moves_copy(move: Any) -> None:
    x, h = torch.arange(10.0, device="cuda"), torch.arange(10.0)
    there = h.cuda()
    back = move(x)
    x += 1
    there += 1
    assert torch.equal(back, h) and torch.equal(there.cpu(), x.cpu())
    assert x.cuda() is x and h.cpu() is h and x.to("cuda") is x


@pytest.mark.parametrize("there", ["to", "device"])
def test_lazy_modules_get_their_parameters_on_the_gpu(there: str) -> None:
    lazy = torch.nn.LazyLinear(3).to("cuda") if there == "to" else torch.nn.LazyLinear(3, device="cuda")
    model = torch.nn.Sequential(lazy, torch.nn.LazyBatchNorm1d().cuda())
    assert str(lazy.weight) == "<UninitializedParameter>" and lazy.weight.is_cuda
    with pytest.raises(ValueError, match="uninitialized parameter"):
        lazy.weight + 1
    assert model(torch.ones(4, 2, device="cuda")).is_cuda
    assert all(value.is_cuda for value in model.state_dict().values()) and lazy.weight.shape == (3, 2)
    host = torch.nn.LazyLinear(3)
    host(torch.ones(1, 2))
    assert not host.weight.is_cuda


def test_numpy_s_memory_is_not_the_gpu_s() -> None:
    array = np.zeros(10, np.float32)
    on_gpu = torch.from_numpy(array).cuda()
    on_gpu += 1
    assert not array.any()


@pytest.mark.parametrize("ask", [lambda x: x.numpy(), lambda x: np.asarray(x), lambda x: np.asarray(x, dtype=np.float64)])
def test_numpy_takes_no_tensor_of_the_gpu(ask: Any) -> None:
    x, h = torch.arange(3.0, device="cuda"), torch.arange(3.0)
    for on_gpu in (x, x[1:], x.half(), x + h):
        with pytest.raises(TypeError, match=r"can't convert cuda:0 device .* Use Tensor.cpu\(\)"):
            ask(on_gpu)
    assert np.array_equal(ask(h), [0, 1, 2]) and np.array_equal(ask(x.cpu()), [0, 1, 2])
    copy = x.numpy(force=True)
    x += 1
    assert np.array_equal(copy, [0, 1, 2])


def test_gradients_of_host_tensors_are_the_host_s() -> None:
    h = torch.ones(2, 3, requires_grad=True)
    torch.nn.functional.linear(torch.ones(4, 3), h).sum().backward()
    assert not h.grad.is_cuda and np.array_equal(h.grad.numpy(), np.full((2, 3), 4.0))


def test_tensors_of_the_gpu_are_printed_with_their_device() -> None:
    x, h = torch.ones(2, device="cuda"), torch.ones(2)
    assert repr(x) == str(x) == f"{x}" == "tensor([1., 1.], device='cuda:0')"
    assert repr(x.half()) == "tensor([1., 1.], device='cuda:0', dtype=torch.float16)"
    assert repr(torch.nn.Parameter(x)).endswith("tensor([1., 1.], device='cuda:0', requires_grad=True)")
    assert repr(h) == f"{h}" == "tensor([1., 1.])" and f"{x[0]:.2f}" == f"{h[0]:.2f}" == "1.00"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_sampled_benchmark_computes_no_products(dtype: Any, monkeypatch: Any) -> None:
    """A sampled benchmark skips the GPU's products; the host's, and all in whole launches, are computed."""
    import triton
    from triton._C.libtriton import amd

    a, made, blas = torch.ones(3, 5, dtype=dtype, device="cuda"), [], amd.hipblas.HipblasLt(torch.empty(0))

    def products() -> None:
        out = torch.empty(3, 3, dtype=dtype, device="cuda").fill_(2)
        bias, host = torch.ones(3, dtype=dtype, device="cuda"), torch.ones(2, 2)
        torch.mm(a, a.T, out=out)
        other = torch.full_like(out, 2)
        blas.matmul(a, a, other)
        made[:] = [a @ a.T, torch.nn.functional.linear(a, a, bias), a[None] @ a.T, out, other, host @ host, double(bias)]

    triton.testing.do_bench(products)
    assert [float(one.flatten()[0]) for one in made] == [5, 6, 5, 5, 5, 2, 2]
    shapes = [(one.shape, one.dtype, one.device) for one in made]
    monkeypatch.setenv("SIMGPU_BENCH", "sample")
    triton.testing.do_bench(products)
    assert [float(one.flatten()[0]) for one in made[:6]] == [0, 0, 0, 2, 2, 2]
    assert [(one.shape, one.dtype, one.device) for one in made] == shapes


def test_kernels_refuse_host_tensors_as_triton_does() -> None:
    with pytest.raises(ValueError, match=r"accessed from Triton \(cpu tensor\?\): argument x is in host memory.*\.cuda\(\)"):
        double(torch.arange(10.0))
    with pytest.raises(ValueError, match="argument x is a meta tensor, which has no elements"):
        double(torch.empty(10, device="meta"))
    pinned, out = torch.arange(10.0).pin_memory(), torch.empty(10, device="cuda")
    kernels.vector_add[(1,)](pinned, pinned, out, 10, BLOCK=64)
    assert pinned.is_pinned() and torch.equal(out.cpu(), 2 * pinned)


@pytest.mark.parametrize("how", ["backward", "grad", "checkpoint", "hook"])
def test_backward_sees_the_gpu(how: str) -> None:
    x, seen = torch.arange(10.0, device="cuda", requires_grad=True), []
    checkpoint = torch.utils.checkpoint.checkpoint
    if how == "grad":
        (grad,) = torch.autograd.grad(Double.apply(x).sum(), x)
    else:
        x.register_hook(lambda grad: seen.append(torch.ones(1, device="cuda").is_cuda))
        y = Double.apply(x) if how == "backward" else checkpoint(Double.apply, x, use_reentrant=how == "hook")
        y.sum().backward()
        grad = x.grad
    assert torch.equal(grad.cpu(), torch.full((10,), 2.0)) and grad.is_cuda and all(seen)


def test_threads_see_the_gpu() -> None:
    found: list[Any] = []

    class Overridden(threading.Thread):
        def run(self) -> None:
            found.append(double(torch.ones(5, device="cuda")))

    for thread in (Overridden(), threading.Thread(target=lambda: found.append(double(torch.ones(5, device="cuda"))))):
        thread.start()
        thread.join()
    with ThreadPoolExecutor(1) as pool:
        found.append(pool.submit(double, torch.ones(5, device="cuda")).result())
    assert [made.device.type for made in found] == ["cuda"] * 3
    assert all(torch.equal(made.cpu(), torch.full((5,), 2.0)) for made in found)


def test_kernels_registered_for_the_gpu_are_called_for_its_tensors_only() -> None:
    library = torch.library.Library("aten", "IMPL")
    x, h = torch.arange(10.0, device="cuda"), torch.arange(10.0)
    library.impl("abs", double, "CUDA")  # a kernel that differs from PyTorch's
    library.impl("ones", lambda size, **options: torch.full(size, 7.0, device="cuda"), "CUDA")
    library.impl("silu", double, dispatch_key="CUDA")
    try:
        assert torch.equal(torch.abs(x).cpu(), 2 * h) and torch.equal(torch.abs(h), h)
        assert torch.equal(x.abs().cpu(), 2 * h) and torch.equal(torch.nn.functional.silu(x).cpu(), 2 * h)
        assert torch.ones(2, device="cuda")[0] == 7 and torch.ones(2)[0] == 1
    finally:
        library._destroy()
    assert torch.equal(torch.abs(x).cpu(), h) and torch.ones(2, device="cuda")[0] == 1


def test_a_registered_kernel_gets_the_dispatch_keys_if_it_asks_for_them() -> None:
    library = torch.library.Library("aten", "IMPL")
    library.impl("abs", lambda keys, x: double(x) if keys.has(torch._C.DispatchKey.CPU) else x, "CUDA", with_keyset=True)
    try:
        assert torch.equal(torch.abs(torch.ones(3, device="cuda")).cpu(), torch.full((3,), 2.0))
    finally:
        library._destroy()


def test_kernels_that_pytorch_itself_registers_for_its_operators_are_left_out() -> None:
    """PyTorch 2.14 for CUDA registers Triton kernels when it is imported; where none fits, they call CUDA's own."""
    library, own = torch.library.Library("aten", "IMPL"), lambda keys, x: 1 / 0
    own.__module__ = "torch._native.registry"
    library.impl("abs", own, "CUDA", with_keyset=True)
    try:
        assert torch.equal(torch.abs(-torch.ones(3, device="cuda")).cpu(), torch.ones(3))
    finally:
        library._destroy()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("target", ["mi210", "mi300x"])
def test_products_are_rounded_once_and_mi200_has_no_denormals(target: str, dtype: str) -> None:
    kind, tiny = getattr(torch, dtype), torch.finfo(getattr(torch, dtype)).tiny
    torch.manual_seed(3)
    a, b = torch.randn(33, 70).to(kind), torch.randn(70, 5).to(kind)
    a[3], a[4] = tiny / 4, 0.0
    a[4, 0] = tiny * 4  # by itself, since sums of bf16 may be denormals on the way, too
    b[:, 1] = 0.0
    b[0, 1] = 0.0625
    exact = a.double() @ b.double()
    if target == "mi210":
        exact[3] = 0
        exact[exact.abs() < tiny] = 0
    with simgpu.triton.device(target):
        found = [torch.matmul(a.cuda(), b.cuda()), a.cuda() @ b.cuda(), torch.nn.functional.linear(a.cuda(), b.T.cuda())]
        found.append(torch.addmm(torch.zeros(33, 5, dtype=kind, device="cuda"), a.cuda(), b.cuda()))
    for product in found:
        assert product.dtype == kind and product.is_cuda
        off = (product.cpu().double() - exact).abs() / exact.abs().clamp(min=float(tiny))
        assert off.max() < 1.01 * torch.finfo(kind).eps / 2 + 1e-3 * torch.finfo(kind).eps
        assert (product[3] != 0).any() == (target == "mi300x") and product[4, 1] == (0 if target == "mi210" else tiny / 4)


@pytest.mark.parametrize("target", ["mi210", "mi300x", "mi355x"])
def test_products_are_the_matrix_units_to_the_last_bit(target: str) -> None:
    torch.manual_seed(9)
    a, b = torch.randn(65, 200).bfloat16(), torch.randn(200, 70).bfloat16()
    with simgpu.triton.device(target) as device:
        on, other = a.cuda(), b.cuda()
        of_kernel = torch.empty(65, 70, device="cuda")
        sizes = (*of_kernel.shape, 200, *on.stride(), *other.stride(), *of_kernel.stride())
        kernels.matmul[(2 * 3,)](on, other, of_kernel, *sizes, BM=64, BN=32, BK=32, GROUP=2)
        products = [torch.mm(on, other, out_dtype=torch.float32), torch.bmm(on[None], other[None], out_dtype=torch.float32)[0]]
        assert all(torch.equal(product, of_kernel) for product in products) and device.launches == 1
        assert not torch.equal(of_kernel, on.float() @ other.float()), "the sums differ, or the test says nothing"
        bias = torch.full((70,), torch.nan).bfloat16().cuda()
        assert torch.equal(torch.addmm(bias, on, other, beta=0, alpha=2), (2 * of_kernel).bfloat16())
        bias.fill_(0.5)
        assert torch.equal(torch.addmm(bias, on, other, beta=3), (of_kernel + 1.5).bfloat16())
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            torch.mm(on, on)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_into_a_tensor_and_of_a_type_that_is_named(dtype: str) -> None:
    kind = getattr(torch, dtype)
    torch.manual_seed(5)
    a, b, c = (torch.randn(*shape, device="cuda").to(kind) for shape in ((9, 300), (300, 5), (9, 5)))
    exact = a.double() @ b.double()
    out, narrow = torch.empty(9, 5, device="cuda"), torch.empty(9, 5, device="cuda", dtype=kind)
    assert torch.addmm(c.float(), a, b, out_dtype=torch.float32, out=out) is out and torch.mm(a, b, out=narrow) is narrow
    assert torch.equal(narrow, exact.to(kind)) and narrow.is_cuda
    for found, expected in ((torch.mm(a, b, out_dtype=torch.float32), exact), (out, exact + c.double())):
        assert found.dtype == torch.float32 and found.is_cuda and (found - expected).abs().max() < 1e-4


def test_a_library_s_factories_make_tensors_on_the_gpu() -> None:
    library, seen = torch.library.Library("aten", "IMPL"), []

    def zeros(size: Any, **options: Any) -> torch.Tensor:
        seen.append(options["device"])
        return torch.empty(size, dtype=options["dtype"], device=options["device"]).fill_(0)

    try:
        library.impl("zeros", zeros, "CUDA")
        x = torch.ones(3, device="cuda")
        made = [torch.zeros(3, dtype=torch.int64, device="cuda"), torch.zeros(3, dtype=torch.int64, device=x.device)]
        assert all(tensor.is_cuda and tensor.sum() == 0 for tensor in made) and [place.type for place in seen] == ["cuda"] * 2
        assert not torch.zeros(3).is_cuda and len(seen) == 2
    finally:
        library._destroy()


def test_the_gpu_s_generator_has_seed_and_offset() -> None:
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    torch.manual_seed((1 << 63) + 5)
    seed, offset = generator.get_state().view(torch.int64).tolist()
    assert seed % (1 << 64) == (1 << 63) + 5 and offset == 0
    generator.set_state(torch.tensor([7, 12]).view(torch.uint8))
    assert generator.get_state().view(torch.int64).tolist() == [7, 12] and generator.initial_seed() == 7
    host = torch.Generator().manual_seed(7)
    assert torch.equal(torch.rand(3, device="cuda", generator=generator).cpu(), torch.rand(3, generator=host))
    with pytest.raises(ValueError, match="16 bytes"):
        generator.set_state(torch.zeros(3))


@pytest.mark.parametrize("dtype", ["float16", "float8_e4m3fnuz"])
def test_triton_s_hipblaslt(dtype: str) -> None:
    from triton._C.libtriton import amd

    torch.manual_seed(5)
    a, b = (torch.randint(-2, 3, shape, device="cuda").to(getattr(torch, dtype)) for shape in ((16, 32), (8, 32)))
    c, d = torch.ones(16, 8, device="cuda", dtype=torch.float16), torch.empty(16, 8, device="cuda", dtype=torch.float16)
    handle = amd.hipblas.HipblasLt(torch.empty(1 << 10, dtype=torch.uint8, device="cuda"))
    handle.gemm(a, b, c, d, 2.0, 3.0)
    handle.matmul(a, b, c)
    exact = (a.double() @ b.double().T).cpu()
    assert torch.equal(c.cpu().double(), exact) and torch.equal(d.cpu().double(), 2 * exact + 3)


def test_operators_of_a_library_s_own() -> None:
    @torch.library.custom_op("simgpu_test::twice", mutates_args=(), device_types="cuda")
    def twice(x: torch.Tensor) -> torch.Tensor:
        return double(x)

    assert torch.equal(torch.ops.simgpu_test.twice(torch.ones(3, device="cuda")).cpu(), torch.full((3,), 2.0))
    with pytest.raises(NotImplementedError, match="simgpu_test::twice"):
        torch.ops.simgpu_test.twice(torch.ones(3))


def test_a_composite_operator_for_the_gpu_keeps_the_host_s_steps() -> None:
    library = torch.library.Library("aten", "IMPL")
    library.impl("square", lambda x: double(x), "CUDA")
    try:
        assert torch.equal(torch.square(torch.ones(3, device="cuda")).cpu(), torch.full((3,), 2.0))
        assert torch.equal(torch.square(torch.full((3,), 3.0)), torch.full((3,), 9.0))
    finally:
        library._destroy()


def test_a_kernel_that_an_operator_of_pytorch_s_calls_sees_the_gpu() -> None:
    library, seen = torch.library.Library("aten", "IMPL"), []
    library.impl("square", lambda x: seen.append(x.device.type) or double(x), "CUDA")
    library.impl("relu", double, "CUDA")  # operators are handled one by one: square still arrives as PyTorch's own
    try:
        torch.square(torch.ones(3, device="cuda"))
        assert seen == ["cuda"]
    finally:
        library._destroy()


def test_what_is_compiled_runs_as_it_is() -> None:
    @torch.compile(mode="max-autotune")
    def compiled(x: Any) -> Any:
        return double(x) + 1

    assert torch.equal(torch.compile(compiled)(torch.ones(3, device="cuda")).cpu(), torch.full((3,), 3.0))


@pytest.mark.parametrize("form", ["to_sparse", "to_sparse_csr", "to_sparse_csc", "to_mkldnn"])
def test_sparse_tensors_are_moved(form: str) -> None:
    made = getattr(torch.eye(4), form)()
    there = made.to("cuda")
    assert there.is_cuda and torch.equal(there.to_dense().cpu(), torch.eye(4))
    assert form == "to_mkldnn" or (not made.is_cuda and there.cuda() is there and not there.cpu().is_cuda)


def test_legacy_constructors() -> None:
    made = torch.cuda.FloatTensor([1.0, 2.0])
    assert made.is_cuda and isinstance(made, torch.cuda.FloatTensor) and torch.equal(double(made).cpu(), torch.tensor([2.0, 4.0]))


def test_the_pretence_ends() -> None:
    before = torch.Generator
    with pretended_gpu():
        assert torch.Generator is before
    assert torch.ones(1, device="cuda").is_cuda


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("rocminfo", "  Name:  +gfx942\n"), ("rocm-smi", "GFX Version: \\s+gfx90a\n"), ("hipconfig", r"^7\."),
        ("rocm_agent_enumerator", "^gfx000\ngfx942\n$"),
    ],
)  # fmt: skip
def test_rocm_s_programs_name_the_board(program: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "gfx90a" in says:
        monkeypatch.setenv("SIMGPU", "mi210")
    else:
        monkeypatch.delenv("SIMGPU", raising=False)
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert re.search(says, done.stdout), done.stdout


def test_rocm_s_programs_name_each_gpu() -> None:
    assert re.findall(r"(?:Agent |  Name: +)(\w+)\n", rocm.rocminfo("mi210:2")) == ["1", "gfx90a", "2", "gfx90a"]
    assert len(re.findall(r"^GPU\[[01]\].*simgpu mi210$", rocm.rocm_smi("mi210:2"), re.MULTILINE)) == 2


def test_mlir_finds_a_linker_and_the_device_library_without_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that the user names stays, and so does the rest of the environment."""
    for name in rocm.ROOTS:
        monkeypatch.delenv(name, raising=False)
    if Path("/opt/rocm", rocm.LINKER).exists():
        pytest.skip("this machine has ROCm, which MLIR finds")
    with rocm.on_path("mi300x"):
        root = Path(os.environ["ROCM_ROOT"])
        said = subprocess.run([root / rocm.LINKER, "--version"], capture_output=True, text=True, check=True).stdout
        assert said.startswith("LLD") and (root / rocm.BITCODE / "ockl.bc").is_file()
        monkeypatch.setenv("SIMGPU_TEST", "kept")
    assert "ROCM_ROOT" not in os.environ and os.environ["SIMGPU_TEST"] == "kept" and not root.exists()
    monkeypatch.setenv("ROCM_PATH", "/rocm")
    with rocm.on_path("mi300x"):
        assert "ROCM_ROOT" not in os.environ


SCRIPT = '''
import subprocess, sys
import torch
import simgpu.tools.torch.autoload
simgpu.tools.torch.autoload.begin()  # `import torch` calls it where simgpu is installed
from tests.support import triton_kernels as kernels
x = torch.arange(40.0, device="cuda")
out = torch.empty_like(x)
kernels.vector_add[(1,)](x, x, out, 64 if "past" in sys.argv else 40, BLOCK=64)
half = x[None].half()
print(torch.cuda.get_device_name(), torch.equal(2 * x, out) and int(half @ half.T) == 20_544, flush=True)
if "quick" in sys.argv:
    from simgpu.tools.torch.operators.registered import REGISTERED
    print(bool(REGISTERED), "torch._dynamo" in sys.modules)
if "child" in sys.argv:
    subprocess.run([sys.executable, *sys.argv[:-1]], check=True)
'''


def script(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **variables}
    command = [sys.executable, str(folder / "script.py"), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("interpret", ["0", "1"])
def test_one_variable_gives_a_script_its_gpu_and_its_children_too(tmp_path: Path, interpret: str) -> None:
    done = script(tmp_path, "child", SIMGPU="mi210", TRITON_INTERPRET=interpret)
    assert done.stdout == "simgpu mi210 True\n" * 2 and not done.returncode, done.stderr


def test_a_script_waits_for_no_compiler_and_no_kernels_of_pytorch_s(tmp_path: Path) -> None:
    """PyTorch 2.13 registers kernels of its own for CUDA: each function would look for them. Dynamo takes two seconds to load."""
    done = script(tmp_path, "quick", SIMGPU="mi210")
    assert done.stdout == "simgpu mi210 True\nFalse False\n" and not done.returncode, done.stderr


def test_findings_of_a_script_are_told_at_its_end(tmp_path: Path) -> None:
    done = script(tmp_path, "past", SIMGPU="mi210", SIMGPU_CHECK="collect")
    assert not done.returncode and done.stdout.startswith("simgpu mi210"), done.stderr
    assert "simgpu: error: " in done.stderr and "past the end of argument x" in done.stderr


@pytest.mark.parametrize(("name", "value"), [("SIMGPU", "mi9"), ("SIMGPU_CHECK", "maybe")])
def test_wrong_variables_are_told(tmp_path: Path, name: str, value: str) -> None:
    done = script(tmp_path, **{"SIMGPU": "mi300x", name: value})
    assert done.returncode == 1 and f"{name}='{value}': " in done.stderr and "Traceback" not in done.stderr
