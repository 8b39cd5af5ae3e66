"""`torch.cuda` of the pretended GPU: streams, graphs, memory, autocast, files; skipped if Triton or PyTorch is missing."""

from __future__ import annotations

import gc
import io
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support import triton_kernels as kernels
from tests.support.pretended_gpu import double, session, torch  # noqa: F401  (the fixture)


def test_a_stream_is_current_for_its_block_and_its_thread() -> None:
    first, second = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
    seen: list[Any] = []
    with torch.cuda.stream(first):
        assert torch.cuda.current_stream() == first != torch.cuda.default_stream()
        with second:
            assert torch.cuda.current_stream() is second
        thread = threading.Thread(target=lambda: seen.append(torch.cuda.current_stream()))
        thread.start()
        thread.join()
        x = torch.ones(3, device="cuda")
        x.record_stream(first)
    assert torch.cuda.current_stream() is seen[0] is torch.cuda.default_stream()
    assert first.cuda_stream != second.cuda_stream and torch.cuda.current_stream().cuda_stream == 0


def test_all_functions_of_torch_accelerator_answer() -> None:
    of_a_device = {"device_index", "set_device_idx", "set_device_index", "set_stream"}
    for name in sorted(set(torch.accelerator.__all__) - of_a_device - {"Graph"}):
        getattr(torch.accelerator, name)()
    capability = getattr(torch.accelerator, "get_device_capability", None)  # older PyTorch has none
    assert capability is None or {torch.float8_e4m3fnuz, torch.int64} < capability()["supported_dtypes"]


def test_the_functions_below_torch_cuda_that_kernels_are_launched_by() -> None:
    from torch._C import _cuda_getCurrentRawStream as raw_stream

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        assert raw_stream(0) == stream.cuda_stream
    assert (raw_stream(0), torch._C._cuda_getDevice()) == (0, 0)
    made = torch._C._dynamo.guards._empty_strided_cuda((2, 3), (1, 2), torch.float16)
    assert (made.device.type, made.stride(), made.dtype) == ("cuda", (1, 2), torch.float16)


def test_a_graph_computes_again_what_was_captured(session: Any) -> None:  # noqa: F811
    x, total, graph = torch.ones(10, device="cuda"), torch.zeros(10, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        y = double(x) + 1
        rows = y.view(2, 5)[1]
        total += y
    assert not torch.cuda.is_current_stream_capturing() and not total.cpu().any()  # nothing ran yet
    launches = session.launches
    for step in (1.0, 2.0):
        x.fill_(step)
        graph.replay()
        assert torch.equal(y.cpu(), torch.full((10,), 2 * step + 1)) and torch.equal(rows.cpu(), y.cpu()[5:])
    assert torch.equal(total.cpu(), torch.full((10,), 8.0)) and session.launches == launches + 2
    with pytest.raises(RuntimeError, match="not been captured"):
        torch.cuda.CUDAGraph().replay()


def test_a_captured_step_of_training_is_that_of_eager_mode() -> None:
    torch.manual_seed(3)
    data = torch.randn(3, 16, 8, device="cuda")
    nets = [torch.nn.Linear(8, 1).to("cuda") for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
    x, graph = torch.zeros(16, 8, device="cuda"), torch.cuda.CUDAGraph()

    def step(which: int, given: Any) -> None:
        optimizers[which].zero_grad(set_to_none=False)
        nets[which](given).square().mean().backward()
        optimizers[which].step()

    for parameter in nets[1].parameters():
        parameter.grad = torch.zeros_like(parameter)
    with torch.cuda.graph(graph):
        step(1, x)
    for batch in data:
        step(0, batch)
        x.copy_(batch)
        graph.replay()
    assert torch.equal(nets[0].weight.detach().cpu(), nets[1].weight.detach().cpu())


def test_memory_is_counted_as_the_allocator_does() -> None:
    gc.collect()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    big, small = torch.empty(1 << 18, device="cuda"), torch.empty(3, device="cuda")
    view, host = big[5:], torch.empty(1 << 18)
    assert torch.cuda.memory_allocated() - before == (1 << 20) + 512
    del big
    assert torch.cuda.memory_allocated() - before == (1 << 20) + 512  # the view keeps it
    del view, small
    assert torch.cuda.memory_allocated() == before and torch.cuda.max_memory_allocated() - before == (1 << 20) + 512
    assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == torch.cuda.max_memory_allocated() and host.is_cpu
    free, size = torch.cuda.mem_get_info()
    assert free == size - torch.cuda.memory_reserved() and torch.cuda.memory_reserved() >= torch.cuda.max_memory_allocated()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_narrows_products_and_widens_sums(dtype: Any) -> None:
    linear, x = torch.nn.Linear(4, 4).cuda(), torch.ones(2, 4, device="cuda")
    with torch.autocast("cuda", dtype=dtype):
        y = linear(x)
        assert (y.dtype, (y @ y.T).dtype, y.relu().dtype) == (dtype,) * 3
        for wide in (y.softmax(-1), torch.nn.functional.layer_norm(y, (4,)), y.exp(), y.sum(), torch.pow(y, 2)):
            assert wide.dtype == torch.float32
        assert y.sum(dtype=torch.float64).dtype == torch.float64
        with torch.autocast("cuda", enabled=False):
            assert linear(x).dtype == torch.float32
        y.sum().backward()
    assert linear(x).dtype == torch.float32 and linear.weight.grad.dtype == torch.float32
    assert not torch.is_autocast_enabled("cpu") and not torch.is_autocast_enabled("cuda")


@pytest.mark.parametrize(("to", "places"), [(None, ("cuda", "cpu")), ("cpu", ("cpu", "cpu")), ("cuda", ("cuda", "cuda"))])
def test_files_keep_the_places_of_tensors(to: Any, places: tuple[str, str]) -> None:
    held = io.BytesIO()
    torch.save([torch.ones(3, device="cuda"), torch.ones(3)], held)
    held.seek(0)
    assert tuple(tensor.device.type for tensor in torch.load(held, map_location=to)) == places


def test_integers_are_counted() -> None:
    experts = torch.tensor([0, 2, 2, 3], device="cuda")
    for counts in (torch.histc(experts, bins=4, min=0, max=4), experts.histc(4, 0, 4)):
        assert counts.is_cuda and counts.dtype == torch.int64 and counts.tolist() == [1, 0, 2, 1]


def test_there_is_one_gpu() -> None:
    with pytest.raises(RuntimeError, match="invalid device ordinal: cuda:1"):
        torch.ones(3, device="cuda:1")


def test_operators_of_libraries_are_traced_without_their_kernels() -> None:
    @torch.library.custom_op("simgpu_test::double", mutates_args=(), device_types="cuda")
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return double(x)

    doubled.register_fake(torch.empty_like)
    torch.library.opcheck(doubled, (torch.ones(5, device="cuda"),))


def test_operators_for_all_devices_see_where_their_tensors_lie() -> None:
    seen: list[Any] = []

    @torch.library.custom_op("simgpu_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        seen.append((x.device.type, torch.empty_like(x).device.type))
        return 2 * x

    twice.register_autograd(lambda _context, grad: twice(grad))
    x = torch.ones(3, device="cuda", requires_grad=True)
    out = twice(x)
    out.sum().backward()
    assert out.is_cuda and x.grad.is_cuda and float(x.grad[0]) == 2
    assert not twice(torch.ones(3)).is_cuda
    assert seen == [("cuda", "cuda"), ("cuda", "cuda"), ("cpu", "cpu")]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_operators_that_consist_of_operators_run_on_the_gpu() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(1, 2, 16, 16, device="cuda", dtype=torch.float16, requires_grad=True)
    out = flex_attention(q, q, q)
    out.sum().backward()
    assert out.is_cuda and q.grad.is_cuda
    expected = torch.nn.functional.scaled_dot_product_attention(*(q.detach().float(),) * 3)
    assert torch.allclose(out.float(), expected, atol=2e-3)


def test_attention_by_a_backend_that_is_chosen() -> None:
    q = torch.randn(1, 2, 4, 8, device="cuda")
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION):
        torch.nn.functional.scaled_dot_product_attention(q, q, q)
        with pytest.raises(RuntimeError, match="No viable backend"):
            torch.nn.functional.scaled_dot_product_attention(q.cpu(), q.cpu(), q.cpu())


def test_what_scripts_ask_besides() -> None:
    """Streams and events of any device, generators' places, profilers, legacy types, CUDA's array interface."""
    stream, event = torch.Stream(device="cuda"), torch.Event(device="cuda")
    event.record(stream)
    assert torch.cuda.ExternalStream(stream.cuda_stream) == stream and event.query()
    assert isinstance(torch.cuda.Event(True), torch.Event) and isinstance(torch.cuda.Stream(), torch.Stream)
    assert torch.Generator("cuda").manual_seed(3).device == torch.device("cuda:0") and torch.Generator().device.type == "cpu"
    x = torch.arange(6.0, device="cuda").view(2, 3)
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        x + x
    assert "aten::add" in profile.key_averages().table(sort_by="cuda_time_total")
    torch.cuda.profiler.start()
    assert torch.cuda.cudart().cudaProfilerStop() == 0 and torch.cuda.memory_snapshot() == []
    assert torch.cuda.get_sync_debug_mode() == 0 and torch.accelerator.get_memory_info()[1] == torch.cuda.mem_get_info()[1]
    assert x.type() == "torch.cuda.FloatTensor" and x.cpu().type() == "torch.FloatTensor" and x.type(torch.float64).is_cuda
    assert torch.zeros(2).type("torch.cuda.DoubleTensor").type() == "torch.cuda.DoubleTensor"
    told = x.T.__cuda_array_interface__
    assert told["data"][0] == x.data_ptr() and told["shape"] == (3, 2) and told["strides"] == (4, 12)
    with pytest.raises(AttributeError, match="non-CUDA"):
        _ = x.cpu().__cuda_array_interface__


def test_a_module_on_the_gpu_is_exported() -> None:
    module, x = torch.nn.Linear(3, 3).cuda(), torch.ones(2, 3, device="cuda")
    before = torch.cuda.memory_allocated()
    program = torch.export.export(module, (x,))
    assert torch.cuda.memory_allocated() == before
    exported = program.module()(x)
    assert exported.is_cuda and torch.equal(exported, module(x))


def _nothing(gpu: Any) -> float:
    begin, end = (gpu.Event(enable_timing=True) for _ in range(2))
    begin.record()
    end.record()
    elapsed: float = begin.elapsed_time(end)
    return elapsed


def test_a_program_times_launches_by_a_loop_of_its_own() -> None:
    """Copies of Triton's `do_bench` have such a loop."""
    from triton.runtime import driver

    gpu, x = driver.active.get_device_interface(), torch.ones(64, device="cuda")
    cache = driver.active.get_empty_cache_for_benchmark()
    begin, end = (gpu.Event(enable_timing=True) for _ in range(2))
    begin.record()
    driver.active.clear_cache(cache)
    double(x)
    end.record()
    gpu.synchronize()
    assert begin.elapsed_time(begin) == 0
    assert 0 < _nothing(gpu) < begin.elapsed_time(end), "by which such loops divide"
    assert cache.is_cuda and begin.elapsed_time(end) > 0


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int32"])
def test_of_equal_elements_the_first_are_the_largest(kind: str) -> None:
    values = (torch.arange(4000, device="cuda") % 10).view(4, 1000).to(getattr(torch, kind))
    found, at = torch.topk(values, 30)
    assert at.is_cuda and (found == 9).all() and at.tolist() == 4 * [list(range(9, 300, 10))]
    assert values.topk(2, dim=0, largest=False).indices.tolist() == [[0] * 1000, [1] * 1000]
    with pytest.raises(RuntimeError, match="out of range"):
        values.topk(1001)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_a_checkpoint_computes_again_lies_where_it_lay(device: str) -> None:
    x = torch.ones(4, 4, device=device, requires_grad=True)
    torch.utils.checkpoint.checkpoint(lambda x: (x @ x).sin().softmax(0), x, use_reentrant=False).sum().backward()
    assert x.grad.device.type == device


def test_a_stream_is_chosen_by_its_numbers_as_in_pytorchs_own_tests() -> None:
    stream, before = torch.cuda.Stream(), torch.cuda.current_stream()
    for one in (stream, before):
        torch._C._cuda_setStream(stream_id=one.stream_id, device_index=one.device_index, device_type=one.device_type)
        assert torch.cuda.current_stream() == one
        assert torch._C._cuda_getCurrentStream(0) == (one.stream_id, 0, 1)
    assert torch._C._cuda_getDefaultStream(0) == (0, 0, 1)
    event = torch.cuda.Event()
    assert event.event_id == 0 and "torch.cuda.Event" in repr(event)
    event.record(stream)
    assert event.event_id != 0


def test_memory_that_the_host_lacks_is_out_of_memory_on_the_gpu() -> None:
    with pytest.raises(torch.OutOfMemoryError, match=r"out of memory. Tried to allocate 131072.00 GiB. GPU 0 has a total"):
        torch.empty(1 << 47, dtype=torch.int8, device="cuda")
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator"):
        torch.empty(1 << 47, dtype=torch.int8)
    with pytest.raises(RuntimeError, match="size"):  # other errors stay as they are
        torch.ones(3, device="cuda") @ torch.ones(4, device="cuda")


def test_memory_is_compared_before_the_host_allocates(monkeypatch: pytest.MonkeyPatch) -> None:
    on_host = torch.empty(1 << 28, dtype=torch.int8)
    monkeypatch.setattr("simgpu.tools.torch.cuda.memory.free_bytes", lambda: 1 << 27)
    generator = torch.Generator("cuda")
    for make in (
        lambda device: torch.ones(1 << 20, 1 << 8, dtype=torch.int8, device=device),
        lambda device: torch.randn((1 << 26,), generator=generator, device=device),
        lambda device: torch.full(size=(1 << 28,), fill_value=True, device=device),
        lambda device: torch.arange(1 << 26, device=device), lambda device: on_host.to(device),
    ):  # fmt: skip
        with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 0\.[25]"):
            make("cuda")
    with pytest.raises(torch.OutOfMemoryError):
        on_host.cuda()
    assert torch.ones(1 << 20, device="cuda").is_cuda and torch.ones(1 << 28, dtype=torch.int8).is_cpu
    assert torch.randint(1 << 40, (5,), device="cuda").is_cuda and torch.empty(1 << 60, device="meta").is_meta


def test_results_are_compared_before_the_host_allocates(monkeypatch: pytest.MonkeyPatch) -> None:
    column, row = torch.ones(1 << 14, 1, device="cuda"), torch.ones(1 << 14, device="cuda")
    wide, part = column.expand(-1, 1 << 13), torch.ones(1 << 24, device="cuda")
    image, filters = torch.ones(1, 1, 512, 512, device="cuda"), torch.ones(512, 1, 3, 3, device="cuda")
    sparse = torch.eye(4, device="cuda").to_sparse()
    monkeypatch.setattr("simgpu.tools.torch.cuda.memory.free_bytes", lambda: 1 << 27)
    for make in (
        lambda: column @ column.T, lambda: column * row, lambda: torch.outer(row, row), lambda: row.repeat(1 << 13),
        lambda: wide.contiguous(), lambda: wide + 1, lambda: wide.reshape(-1), lambda: torch.cat([part] * 5),
        lambda: torch.nn.functional.linear(column, column), lambda: torch.einsum("i,j->ij", row, row),
        lambda: row.new_zeros(1 << 14, 1 << 13), lambda: torch.stack([part] * 4, 1),
        lambda: torch.nn.functional.embedding(torch.zeros(1 << 14, dtype=torch.int64, device="cuda"), wide[:4].clone()),
        lambda: torch.nn.functional.conv2d(image, filters), lambda: torch.where(column > 0, row, 2.0),
    ):  # fmt: skip
        with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate [01]\.\d"):
            make()
    assert wide.sum() == 1 << 27 and wide[:5].contiguous().is_cuda and part.add_(1).view(-1, 16).is_cuda
    assert (sparse @ torch.ones(4, device="cuda")).is_cuda and (row.expand(1 << 14, -1) @ row).is_cuda


def test_a_fraction_of_the_memory_is_all_that_a_process_gets() -> None:
    for wrong, error in ((1, TypeError), (2.0, ValueError), (-0.1, ValueError)):
        with pytest.raises(error, match="Invalid"):
            torch.cuda.set_per_process_memory_fraction(wrong)
    part = (torch.cuda.memory_allocated() + (1 << 20)) / torch.cuda.get_device_properties().total_memory
    torch.cuda.set_per_process_memory_fraction(part, 0)
    try:
        assert torch.cuda.get_per_process_memory_fraction() == part
        torch.ones(1 << 17, device="cuda")
        with pytest.raises(torch.OutOfMemoryError):
            torch.ones(1 << 19, device="cuda")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_statistics_of_memory_count_what_was_allocated_and_freed() -> None:
    gc.collect()
    before = torch.cuda.memory_stats()
    kept = torch.ones(1 << 10, device="cuda")
    torch.ones(1 << 12, device="cuda")
    gc.collect()
    now = torch.cuda.memory_stats()
    change = {name: now[name] - before[name] for name in now}
    assert change["allocated_bytes.all.allocated"] == 5 << 12 and change["allocated_bytes.all.freed"] == 4 << 12
    assert change["active.all.current"] == 1 and change["allocation.all.allocated"] == 2 and kept.is_cuda
    assert now["segment.all.current"] * (2 << 20) == now["reserved_bytes.all.current"]


def test_a_capture_needs_a_stream_and_draws_no_random_numbers() -> None:
    graph, x = torch.cuda.CUDAGraph(), torch.zeros(32, device="cuda")
    with pytest.raises(RuntimeError, match="must be captured on a non-default stream"):
        graph.capture_begin()
    torch.cuda.manual_seed(5)
    expected = [torch.rand(32, device="cuda") for _ in range(2)]
    torch.cuda.manual_seed(5)
    with torch.cuda.graph(graph):
        x.copy_(torch.rand(32, device="cuda"))
    for numbers in expected:
        graph.replay()
        assert torch.equal(x, numbers)


def test_autocast_refuses_promotes_and_widens_as_on_a_gpu() -> None:
    x, wide = torch.rand(4, 8, device="cuda", dtype=torch.float16), torch.rand(4, 8, device="cuda")
    with torch.autocast("cuda"):
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            torch.nn.functional.binary_cross_entropy(x, x)
        results = (
            torch.rms_norm(x, (8,)), x**1.5, torch.norm(x), torch.cdist(x, x), torch.addcmul(x, x, wide),
            torch.bilinear(x, wide, torch.rand(3, 8, 8, device="cuda", dtype=torch.float16), None),
        )  # fmt: skip
        assert {result.dtype for result in results} == {torch.float32}
        assert torch.addcmul(x, x, x).dtype is torch.float16
        mixed = torch.tensordot(x, wide, [[0, 1], [0, 1]]), torch.vdot(x[0], wide[0]), torch.logsumexp(x, 0)
        assert {result.dtype for result in mixed} == {torch.float32}


def test_autocast_narrows_products_that_the_cpus_leaves_wide() -> None:
    wide, cell = torch.rand(4, 4, device="cuda"), torch.nn.GRUCell(4, 4).cuda()
    image, taps = torch.rand(1, 1, 4, 4, device="cuda"), torch.rand(1, 1, 2, 2, device="cuda")
    with torch.autocast("cuda"):
        results = (
            torch.mv(wide, wide[0]), torch.addr(wide, wide[0], wide[1]), torch.linalg.multi_dot([wide] * 3), cell(wide),
            torch.convolution(image, taps, None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1), wide @ wide,
        )  # fmt: skip
    assert {result.dtype for result in results} == {torch.float16}


def test_a_gpus_properties_and_errors_are_values() -> None:
    assert torch.cuda.get_device_properties(0) == torch.cuda.get_device_properties("cuda:0")
    assert len(str(torch.cuda.get_device_properties(0).uuid)) == 36
    torch.cuda.check_error(0)
    with pytest.raises(torch.cuda.CudaError, match="hipErrorOutOfMemory"):
        torch.cuda.check_error(2)
    torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("a part"))


def test_a_snapshot_of_memory_is_a_file(tmp_path: Path) -> None:
    torch.cuda.init()
    torch.cuda.memory._dump_snapshot(str(tmp_path / "memory.pickle"))
    assert pickle.loads((tmp_path / "memory.pickle").read_bytes())["segments"] == []


def test_a_default_device_is_a_threads_own() -> None:
    made: list[Any] = []
    with torch.device("cuda"):
        thread = threading.Thread(target=lambda: made.append(torch.ones(2)))
        thread.start()
        thread.join()
        made.append(torch.ones(2))
    assert [tensor.device.type for tensor in made] == ["cpu", "cuda"]


def test_a_functions_backward_runs_on_its_forwards_stream() -> None:
    stream, seen = torch.cuda.Stream(), []

    class Watch(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            seen.append(torch.cuda.current_stream())
            return grad * 2

    x = torch.ones(3, device="cuda", requires_grad=True)
    first = Watch.apply(x)
    with torch.cuda.stream(stream):
        second = Watch.apply(first)
    with torch.cuda.stream(torch.cuda.Stream()):
        second.sum().backward()
    assert seen == [stream, torch.cuda.default_stream()] and x.grad.tolist() == [4, 4, 4]


def test_host_operators_run_once_during_a_capture() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4).tolist()
    torch.manual_seed(3)
    count, graph = torch.zeros(2), torch.cuda.CUDAGraph()
    graph.enable_debug_mode()
    with torch.cuda.graph(graph):
        x = torch.rand(2, device="cuda")
        drawn = torch.rand(2)
        count += 1
    drawn = [*drawn.tolist(), *torch.rand(2).tolist()]
    graph.replay()
    assert drawn == expected and count.tolist() == [1, 1] and x.cpu().all()


def test_a_graph_is_dumped_if_debugging_was_enabled(tmp_path: Any) -> None:
    x, graph = torch.ones(4, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        double(x) + 1
    graph.debug_dump(str(tmp_path / "none"))
    graph.enable_debug_mode()
    graph.debug_dump(str(tmp_path / "some"))
    (written,) = tmp_path.iterdir()
    assert "vector_add" in written.read_text() and "aten::add.Tensor" in written.read_text()


def test_generators_share_and_exchange_states() -> None:
    for generator in (torch.Generator("cuda"), torch.cuda.default_generators[0]):
        generator.manual_seed(5).set_offset(8)
        old, new = generator.graphsafe_get_state(), generator.clone_state()
        first, second = (torch.rand(3, device="cuda", generator=generator).tolist() for _ in range(2))
        assert torch.rand(3, device="cuda", generator=new).tolist() == first != second
        old.manual_seed(5)
        assert generator.get_offset() == 0 and new.get_offset() == 8
        assert torch.rand(3, device="cuda", generator=generator).tolist() == first
        generator.graphsafe_set_state(new)
        assert torch.rand(3, device="cuda", generator=generator).tolist() == second


def test_registered_host_memory_is_pinned_and_kernels_reach_it() -> None:
    host, runtime = torch.ones(64), torch.cuda.cudart()
    assert runtime.cudaHostRegister(host.data_ptr(), host.nbytes, 0) == runtime.cudaError.success and host[3:].is_pinned()
    out = torch.zeros(64, device="cuda")
    kernels.vector_add[(1,)](host, host, out, 64, BLOCK=64)
    assert out.tolist() == [2] * 64
    assert runtime.cudaHostUnregister(host.data_ptr()) == 0 != runtime.cudaHostUnregister(host.data_ptr())
    assert not host.is_pinned()


def test_libraries_of_real_gpus_are_not_there() -> None:
    """A build with CUDA has them, and PyTorch would call them."""
    x = torch.ones(2, device="cuda")
    assert not torch.cuda.nccl.is_available([x]) and not torch.backends.cudnn.is_acceptable(x)
