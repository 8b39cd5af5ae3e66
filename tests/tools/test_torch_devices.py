"""Several pretended GPUs: places of tensors, the current GPU, and copies between GPUs; skipped if Triton or PyTorch is missing."""

from __future__ import annotations

import importlib
import io
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.pretended_gpu import double, kernels, pretended_gpu, simgpu, torch


@pytest.fixture(autouse=True)
def session() -> Iterator[Any]:
    with simgpu.triton.device("mi300x:2") as session, pretended_gpu():
        yield session


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda a, b: a + 1, 0), (lambda a, b: b + 1, 1), (lambda a, b: b.cuda(), 0), (lambda a, b: a.cuda(1), 1),
        (lambda a, b: a.cuda("cuda:1"), 1), (lambda a, b: a.cuda(device=1), 1), (lambda a, b: a.to(1), 1),
        (lambda a, b: b.to("cuda"), 0), (lambda a, b: a.to("cuda:1", torch.float16), 1), (lambda a, b: a.to(b), 1),
        (lambda a, b: torch.zeros_like(b), 1), (lambda a, b: torch.zeros_like(b, device="cuda"), 0),
        (lambda a, b: b.new_ones(2), 1), (lambda a, b: torch.ones(2, device=1), 1), (lambda a, b: b[2:].view(2, 4).T, 1),
        (lambda a, b: torch.ones(2, device=b.device), 1), (lambda a, b: a.copy_(b), 0),
        (lambda a, b: b.half() @ b.half(), 1), (lambda a, b: torch.nn.Linear(3, 1).cuda(1).weight, 1),
        (lambda a, b: torch.nn.Linear(3, 1, device="cuda:1").bias, 1), (lambda a, b: torch.nn.Linear(10, 1).to("cuda:1")(b), 1),
        (lambda a, b: torch._foreach_add([a, b], 1)[1], 1), (lambda a, b: torch.ones(3).to(b) * torch.tensor(2.0), 1),
        (lambda a, b: torch.arange(10)[b.long().cpu()].cuda(1), 1), (lambda a, b: b.clone().requires_grad_().detach(), 1),
    ],
)  # fmt: skip
def test_a_tensor_lies_on_the_gpu_that_is_named_or_where_its_arguments_do(make: Any, place: int) -> None:
    made = make(torch.arange(10.0, device="cuda"), torch.arange(10.0, device="cuda:1"))
    assert made.device == torch.device("cuda", place) and made.get_device() == place and made.is_cuda


def test_the_current_gpu_is_a_thread_s() -> None:
    seen: list[Any] = []

    def look() -> None:
        seen.append((torch.cuda.current_device(), torch.ones(1, device="cuda").device.index))

    with torch.cuda.device(1):
        look()
        with torch.cuda.device_of(torch.ones(1, device="cuda:0")), torch.cuda.device(-1):
            look()
        with torch.cuda.device("cuda"), torch.cuda.device_of(torch.ones(1)):
            look()
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    look()
    torch.cuda.set_device("cuda:1")
    look()
    torch._C._cuda_setDevice(0)  # as PyTorch's own tests do
    look()
    assert seen == [(1, 1), (0, 0), (1, 1), (0, 0), (0, 0), (1, 1), (0, 0)] and torch.cuda.device_count() == 2


def test_a_number_that_no_gpu_has_is_told(session: Any) -> None:
    host = torch.ones(2)
    for ask in (lambda: host.cuda(2), lambda: host.to(2), lambda: host.to("cuda:2"), lambda: torch.ones(2, device="cuda:2")):
        with pytest.raises(RuntimeError, match=r"invalid device ordinal: cuda:2 .*mi300x:2 is 2; SIMGPU=mi300x:3 would"):
            ask()
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.cuda.set_device(2)
    with pytest.raises(AssertionError, match="Invalid device id"):
        torch.cuda.get_device_properties(2)
    with pytest.raises(simgpu.LaunchError, match="there are 2, numbered from 0"):
        session.use(2)
    for target in ("mi300x:0", "mi300x:", "mi300x:two", "mi300x:121"):
        with pytest.raises(simgpu.SimError, match="give the number of GPUs"), simgpu.triton.device(target):
            pass


@pytest.mark.parametrize(
    "mix",
    [
        lambda a, b: a + b, lambda a, b: a.half() @ b.half(), lambda a, b: torch.cat([a, b]), lambda a, b: torch.equal(a, b),
        lambda a, b: a.add_(b), lambda a, b: torch.nn.functional.linear(a, b), lambda a, b: a * b.sum(), lambda a, b: a[b.long()],
        lambda a, b: torch._foreach_add([a], [b]),
    ],
)  # fmt: skip
def test_tensors_on_two_gpus_do_not_mix(mix: Any) -> None:
    a, b = torch.ones(4, device="cuda:0"), torch.ones(4, device="cuda:1")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device, but found at least two devices, cuda:"):
        mix(a, b)


def test_a_kernel_runs_on_the_current_gpu_and_reaches_its_tensors_alone(session: Any) -> None:
    x = torch.arange(10.0, device="cuda:1")
    with pytest.raises(ValueError, match=r"argument x is on cuda:1, .* launched on cuda:0.*torch.cuda.device\(1\)"):
        double(x)
    before = [len(gpu.memory.allocations) for gpu in session.gpus]
    with torch.cuda.device(x.device):
        out = double(x)
        with pytest.raises(ValueError, match="is on cuda:0, but vector_add is launched on cuda:1"):
            kernels.vector_add[(1,)](x, x.to("cuda:0"), out, 10, BLOCK=64)
    assert out.device.index == 1 and torch.equal(out.cpu(), 2 * torch.arange(10.0))
    loaded = [len(gpu.memory.allocations) - count for gpu, count in zip(session.gpus, before, strict=True)]
    assert loaded[0] == 0 and loaded[1] > 0  # the code object
    assert torch.equal(double(x.to("cuda:0")).cpu(), out.cpu())


class Double(torch.autograd.Function):
    """Computes 2 x; its backward launches a kernel without naming the GPU, which PyTorch's engine chooses."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        assert torch.cuda.current_device() == grad.get_device()
        return double(grad.contiguous())


def test_gradients_go_back_to_the_gpu_that_they_come_from() -> None:
    first, second = torch.nn.Linear(3, 4, device="cuda:0"), torch.nn.Linear(4, 2, device="cuda:1")
    scale = torch.ones(1, requires_grad=True)
    params = [*first.parameters(), *second.parameters()]
    optimizer = torch.optim.AdamW(params, lr=0.1)
    before = [param.detach().clone() for param in params]
    x = torch.ones(5, 3, device="cuda", requires_grad=True)
    loss = (second(Double.apply(first(x).relu().to("cuda:1"))) * scale.cuda(1)).square().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(params, 1.0)
    assert [param.grad.get_device() for param in params] == [0, 0, 1, 1] and x.grad.get_device() == 0 and loss.get_device() == 1
    assert scale.grad.device.type == "cpu" and torch.isfinite(scale.grad).all()
    optimizer.step()
    assert all(not torch.equal(old.cpu(), new.detach().cpu()) for old, new in zip(before, params, strict=True))


def test_memory_streams_and_events_are_a_gpu_s_own() -> None:
    held = [torch.cuda.memory_allocated(index) for index in (0, 1)]
    big = torch.empty(1 << 18, device="cuda:1")
    assert [torch.cuda.memory_allocated(index) - was for index, was in enumerate(held)] == [0, big.nbytes]
    assert torch.cuda.memory_stats("cuda:1")["allocated_bytes.all.current"] == torch.cuda.memory_allocated(1)
    stream, event = torch.cuda.Stream(1), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream):
        assert torch.cuda.current_device() == 1 and torch.cuda.current_stream() is stream
        assert torch.cuda.current_stream(0) is torch.cuda.default_stream(0)
        event.record()
    assert torch.cuda.current_device() == 0 and torch.cuda.current_stream(1) is torch.cuda.default_stream(1)
    other = torch.cuda.current_stream().record_event(torch.cuda.Event(enable_timing=True))
    with pytest.raises(RuntimeError, match="invalid resource handle"):
        event.elapsed_time(other)
    torch.cuda.manual_seed_all(7)
    assert [generator.initial_seed() for generator in torch.cuda.default_generators] == [7, 7]


def test_files_keep_the_gpu_and_choose_another() -> None:
    held = io.BytesIO()
    torch.save([torch.ones(3, device="cuda:1"), torch.ones(3, device="cuda:0")], held)
    for to, places in ((None, [1, 0]), ("cuda:1", [1, 1]), ({"cuda:1": "cuda:0"}, [0, 0])):
        held.seek(0)
        assert [tensor.get_device() for tensor in torch.load(held, map_location=to)] == places


def test_a_model_is_replicated_and_its_gradients_are_gathered() -> None:
    torch.manual_seed(5)
    net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4)).cuda()
    x = torch.randn(6, 8, device="cuda")
    expected = net(x)
    grads = torch.autograd.grad(expected.square().sum(), list(net.parameters()))
    places: list[int] = []
    net[1].register_forward_hook(lambda _layer, _args, out: places.append(out.get_device()))
    out = torch.nn.DataParallel(net)(x)
    out.square().sum().backward()
    assert sorted(places) == [0, 1] and out.get_device() == 0 and torch.allclose(out, expected)
    for param, grad in zip(net.parameters(), grads, strict=True):
        assert param.grad.get_device() == 0 and torch.allclose(param.grad, grad, atol=1e-6)


def test_copies_to_several_gpus_at_once_and_from_them() -> None:
    comm, x = torch.cuda.comm, torch.arange(6.0, device="cuda")
    halves = comm.scatter(x, ["cuda:1", 0], [2, 4])
    assert [part.get_device() for part in halves] == [1, 0] and comm.gather(halves, destination=1).get_device() == 1
    out = [torch.zeros(3, device="cuda:1"), torch.zeros(3)]
    comm.scatter(x, out=out)
    assert out[0].is_cuda and out[1].tolist() == [3, 4, 5] and comm.gather(out, out=torch.zeros(6)).tolist() == x.tolist()
    assert [copy.get_device() for copy in comm.broadcast(x, [0, 1])] == [0, 1]
    assert comm.broadcast(x[:3], out=out)[1].tolist() == [0, 1, 2]
    assert comm.gather(halves, destination=-1).device.type == "cpu"
    with pytest.raises(RuntimeError, match="Exactly one"):
        comm.broadcast(x)


def test_rocm_s_package_amdsmi_knows_the_gpus() -> None:
    """vLLM assumes ROCm if this package names a GPU."""
    smi = importlib.import_module("amdsmi")
    smi.amdsmi_init()
    handles = smi.amdsmi_get_processor_handles()
    told = [smi.amdsmi_get_gpu_asic_info(handle) for handle in handles]
    assert [(info["target_graphics_version"], info["device_id"]) for info in told] == [("gfx942", "0x74a1")] * 2
    assert len({smi.amdsmi_get_gpu_device_uuid(handle) for handle in handles}) == 2
    held = smi.amdsmi_get_gpu_memory_total(handles[1], smi.AmdSmiMemoryType.VRAM)
    assert held == torch.cuda.get_device_properties(1).total_memory
    assert smi.amdsmi_topo_get_link_type(*handles) == {"hops": 1, "type": smi.AmdSmiLinkType.XGMI}
    assert smi.amdsmi_topo_get_numa_node_number(handles[0]) == 0
    assert smi.amdsmi_get_gpu_enumeration_info(handles[1])["hip_id"] == 1
    smi.amdsmi_shut_down()
