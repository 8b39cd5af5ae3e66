"""Classes of tensors that compute their operators themselves, tracers, and PyTorch's own class of tests, on the pretended GPU."""

from __future__ import annotations

import unittest
from typing import Any

import pytest

from tests.support.pretended_gpu import double, pretended_gpu, session, torch  # noqa: F401  (the fixture)

tree_map = torch.utils._pytree.tree_map


class Halved(torch.Tensor):
    """A tensor that stores half of its elements' values in another tensor; a kernel multiplies."""

    @staticmethod
    def __new__(cls, half: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, half.shape, dtype=half.dtype, device=half.device)

    def __init__(self, half: Any) -> None:
        self.half_of_it = half

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        held = tree_map(lambda value: value.half_of_it if isinstance(value, cls) else value, (args, kwargs or {}))
        if func is torch.ops.aten.mul.Tensor:
            assert held[0][0].is_cuda and torch.empty(3, device=held[0][0].device).is_cuda
            return double(held[0][0]) * held[0][1]
        return cls(func(*held[0], **held[1]))


@pytest.mark.parametrize(
    "move", [lambda x: x.cuda(), lambda x: x.to("cuda"), lambda x: x.to(0, torch.float32), lambda x: torch.nn.Parameter(x).cuda()]
)
def test_what_a_class_holds_moves_with_it(move: Any) -> None:
    host = Halved(torch.arange(4.0))
    moved = move(host)
    assert (host.device.type, moved.device.type, moved.half_of_it.device.type) == ("cpu", "cuda", "cuda")
    assert type(moved) is Halved and moved.to("cuda") is moved
    assert moved.cpu().device.type == moved.cpu().half_of_it.device.type == "cpu"
    assert (moved * torch.ones(4, device="cuda")).tolist() == [0, 2, 4, 6]


def test_nested_tensors_lie_where_their_values_do() -> None:
    there = torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(5, 4)], layout=torch.jagged, device="cuda")
    for nested, place in ((there, "cuda"), (2 * there, "cuda"), (there.cpu(), "cpu"), (there.cpu().cuda(), "cuda")):
        assert nested.device.type == nested.values().device.type == place


def test_pytorch_s_class_of_tests_counts_no_mode_of_ours() -> None:
    pytest.importorskip("expecttest", reason="PyTorch's own tests need it")
    from torch.testing._internal.common_utils import TestCase

    class Case(TestCase):
        def setUp(self) -> None:  # does not call PyTorch's
            pass

        def test_gpu(self) -> None:
            self.assertTrue(torch.ones(3, device="cuda").is_cuda)

    result = unittest.TestResult()
    Case("test_gpu").run(result)
    assert result.wasSuccessful(), result.errors + result.failures
    assert torch.ones(3, device="cuda").is_cuda


def test_operators_on_the_gpu_s_tensors_are_traced_backward() -> None:
    from torch._functorch.aot_autograd import aot_function

    traced: list[Any] = []

    def keep(graph: Any, _inputs: Any) -> Any:
        traced.append(graph)
        return graph

    x = torch.ones(3, device="cuda", requires_grad=True)

    def function(x: Any) -> Any:
        return torch.where(x > 0, x.sin() * x, 0) + torch.zeros(3, device=x.device)

    aot_function(function, fw_compiler=keep, bw_compiler=keep)(x).sum().backward()
    assert len(traced) == 2 and x.grad.is_cuda
    assert "device(type='cuda', index=0)" in traced[0].code and "cpu" not in traced[0].code


def test_a_tracer_s_tensors_lie_where_the_program_s_would() -> None:
    from torch._subclasses import FakeTensorMode

    mode, host = FakeTensorMode(), torch.ones(3)
    there = mode.from_tensor(host.cuda())
    with mode:
        chosen = [torch.where(there > 0, there, 0), there.half().where(there > 0, 1.5), torch.where(there > 0, 2, there)]
        assert [tensor.dtype for tensor in chosen] == [torch.float32, torch.float16, torch.float32]
        made = [*chosen, there, there + 1, there.cpu().cuda(), torch.zeros(3).cuda(), torch.ones(3, device="cuda")]
        assert torch.tensor([2.5], device="cuda").is_cuda
        weight = torch.empty(3, device="cuda", requires_grad=True)
        (2 * weight).sum().backward()
        assert [tensor.device for tensor in (*made, weight.grad)] == 9 * [torch.device("cuda:0")]
        assert torch.zeros(3).device == mode.from_tensor(host).device == torch.device("cpu")
        assert there.is_cuda and not torch.zeros(3).is_cuda
