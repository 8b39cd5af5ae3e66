"""Tensors that PyTorch makes unseen by torch function modes, and their places; skipped if Triton or PyTorch is not installed."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from tests.support.pretended_gpu import session, torch  # noqa: F401  (the fixture)

from torch.fx.experimental.proxy_tensor import make_fx  # isort: skip  (PyTorch is optional)

from simgpu.tools.torch.places import mark_of  # isort: skip
from simgpu.triton.tensors import plain_torch  # isort: skip


class Plain(torch.Tensor):
    """A class without methods of its own."""


class Exported:
    """Another library's tensor, in the memory of PyTorch's."""

    def __init__(self, tensor: Any) -> None:
        self.__dlpack__, self.__dlpack_device__ = tensor.__dlpack__, tensor.__dlpack_device__


@pytest.mark.parametrize("make", [
    lambda: torch.Tensor([1.0, 2.0]), lambda: torch.Tensor(2, 3), lambda: torch.FloatTensor([1.0]), lambda: torch.LongTensor([1]),
    lambda: torch.from_dlpack(torch.ones(2)), lambda: torch.from_dlpack(np.ones(2)),
    lambda: torch.utils.dlpack.from_dlpack(np.ones(2)), lambda: torch.nested.nested_tensor([[1.0], [2.0, 3.0]]),
    lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)]),
    lambda: torch.jit.script(torch.nn.Linear(3, 2))(torch.ones(1, 3)),
    lambda: torch.jit.trace(torch.sin, torch.ones(2))(torch.ones(2)),
    lambda: torch.from_dlpack(torch.ones(2).__dlpack__()), lambda: torch.from_dlpack(torch.to_dlpack(torch.ones(2))),
    lambda: torch.from_dlpack(np.ones(2).__dlpack__()), lambda: torch.from_dlpack(Exported(torch.ones(2))),
    lambda: torch.from_dlpack(torch.ones(2).cuda().__dlpack__(dl_device=(1, 0))),
    lambda: Plain([1.0, 2.0]), lambda: Plain(2, 3), lambda: torch.ones(2).as_subclass(Plain) + 1,
    lambda: torch.ones(2, device="cuda").type(torch.FloatTensor), lambda: torch.ones(2, device="cuda").type("torch.DoubleTensor"),
])  # fmt: skip
def test_the_host_s_tensors_are_the_host_s(make: Any) -> None:
    assert not make().is_cuda


@pytest.mark.parametrize("make", [
    lambda: torch.cuda.FloatTensor([1.0]), lambda: torch.LongTensor([1]).cuda(), lambda: torch.Tensor(torch.ones(2).cuda()),
    lambda: torch.from_dlpack(torch.ones(2).cuda()), lambda: torch.from_dlpack(np.ones(2), device="cuda"),
    lambda: torch.from_dlpack(torch.ones(2).cuda().__dlpack__()), lambda: torch.from_dlpack(torch.to_dlpack(torch.ones(2).cuda())),
    lambda: torch.from_dlpack(Exported(torch.ones(2).cuda())), lambda: Plain(torch.ones(2).cuda()), lambda: Plain([1.0]).cuda() + 1,
    lambda: torch.nested.nested_tensor([torch.ones(2).cuda()]), lambda: torch.nested.nested_tensor([[1.0]], device="cuda"),
    lambda: torch.jit.script(torch.nn.Linear(3, 2).cuda())(torch.ones(1, 3).cuda()),
    lambda: torch.ones(2).type(torch.cuda.HalfTensor),
])  # fmt: skip
def test_the_gpu_s_tensors_are_the_gpu_s(make: Any) -> None:
    assert make().is_cuda


def test_a_class_of_tensors_is_printed() -> None:
    assert repr(Plain([1.0]).cuda()) == "Plain([1.], device='cuda:0')" and f"{Plain([1.0, 2.0]).sum()}" == "Plain(3.)"


def test_dlpack_names_rocm_s_device() -> None:
    host, there = torch.ones(2), torch.ones(2, device="cuda")
    assert (host.__dlpack_device__(), there.__dlpack_device__()) == ((1, 0), (10, 0))  # kDLCPU, kDLROCM of dlpack.h
    assert torch.from_dlpack(there).data_ptr() == there.data_ptr() != torch.from_dlpack(there, device="cpu").data_ptr()
    with pytest.raises(BufferError, match="by a copy only"):
        there.__dlpack__(dl_device=(1, 0), copy=False)


def test_tensors_that_no_mode_sees_being_made_are_where_the_call_says() -> None:
    with plain_torch():
        there = [
            torch.zeros(2, device="cuda"), torch.arange(3, device="cuda:0"), torch.rand(2, device="cuda", dtype=torch.float64),
            torch.empty_strided((2, 2), (1, 2), device="cuda"), torch.linspace(0, 1, 3, device="cuda"), torch.eye(2, device="cuda"),
        ]  # fmt: skip
        host = torch.zeros(2)
    assert all(tensor.is_cuda and (tensor + 1).is_cuda for tensor in there) and there[1].tolist() == [0, 1, 2]
    assert there[3].stride() == (1, 2) and not torch.from_numpy(np.ones(2)).is_cuda and mark_of(host) is None


def test_legacy_types_tell_places_apart() -> None:
    host, there = torch.FloatTensor([1.0]), torch.cuda.FloatTensor([1.0])
    assert isinstance(host, torch.FloatTensor) and isinstance(there, torch.cuda.FloatTensor)
    assert not isinstance(host, (torch.cuda.FloatTensor, torch.LongTensor)) and not isinstance(there, torch.FloatTensor)
    assert torch.FloatTensor.dtype == torch.float32 and host.type(torch.FloatTensor) is host
    torch.set_default_tensor_type(torch.DoubleTensor)
    assert torch.ones(1).dtype == torch.float64
    torch.set_default_tensor_type("torch.FloatTensor")
    assert torch.ones(1).dtype == torch.float32


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_hooks_and_functions_see_where_a_gradient_is(place: str) -> None:
    seen: list[Any] = []

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 3

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            seen.append(grad)
            return grad * torch.full((2,), 3.0, device=grad.device)

    layer = torch.nn.Linear(3, 2).to(place)
    layer.register_full_backward_hook(lambda _module, _inputs, outputs: seen.append(outputs[0]))
    x = torch.ones(4, 3, device=place, requires_grad=True)
    x.register_hook(seen.append)
    (Scaled.apply(layer(x)).sin() * torch.tensor(2.0)).sum().backward()
    assert len(seen) == 3 and {one.device.type for one in (*seen, x.grad, layer.weight.grad)} == {place}


@pytest.mark.parametrize("sorted_", [True, False])
def test_packed_sequences_have_their_sizes_on_the_host(sorted_: bool) -> None:
    host = torch.nn.LSTM(4, 5, batch_first=True)
    x, lengths = torch.randn(3, 6, 4), torch.tensor([6, 4, 2] if sorted_ else [4, 6, 2])
    results = []
    for place in ("cpu", "cuda"):
        packed = torch.nn.utils.rnn.pack_padded_sequence(x.to(place), lengths, batch_first=True, enforce_sorted=sorted_)
        made, (last, _) = copy.deepcopy(host).to(place)(packed)
        assert packed.data.device.type == made.data.device.type == last.device.type == place and not packed.batch_sizes.is_cuda
        padded, sizes = torch.nn.utils.rnn.pad_packed_sequence(made, batch_first=True)
        assert not sizes.is_cuda and sizes.tolist() == lengths.tolist()
        results.append(padded.cpu())
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_attention_of_nested_tensors(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [torch.randn(length, 2, 4, device=place) for length in (2, 3)]
    for where in ("host", "simulated"):
        monkeypatch.setenv("SIMGPU_OPERATORS", where)
        q = torch.nested.nested_tensor(rows, layout=torch.jagged).transpose(1, 2)
        found = torch.nn.functional.scaled_dot_product_attention(q, q, q).transpose(1, 2)
        strided = torch.nested.nested_tensor([row[:, 0] for row in rows]).softmax(-1)
        assert found.device.type == strided.device.type == place
        for one, row in zip(found.unbind(), rows):
            each = row.transpose(0, 1)
            torch.testing.assert_close(one.transpose(0, 1), torch.nn.functional.scaled_dot_product_attention(each, each, each))


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("where", ["host", "simulated"])
def test_a_tracer_of_real_tensors_records_the_program_s_operators(where: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMGPU_OPERATORS", where)
    weight, x = (torch.randn(3, 3, device="cuda").to(getattr(torch, kind)) for _ in range(2))
    graph = make_fx(lambda x: torch.softmax(x @ weight, -1))(torch.zeros_like(x))
    names = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    assert names[:2] == ["aten.mm.default", "aten._softmax.default"]
    torch.testing.assert_close(graph(x), torch.softmax(x @ weight, -1))
