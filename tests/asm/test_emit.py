"""An operator that a test registers from its own file is executed, counted, emitted and launched like the others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import simgpu
from simgpu import asm
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.parts.buffers import buffer_at
from simgpu.hardware import target
from simgpu.hardware.errors import LaunchError
from simgpu.operators import ComputeVisitor
from simgpu.operators.compute import Executor
from simgpu.operators.traffic import Counters, block_counters
from simgpu.operators.tree import Extent, Node, Root, View

THREADS = 64


class Twice(Root):
    """Root of a tree: Y = 2 X, with `n` f32 elements."""

    def __init__(self, n: int) -> None:
        self.descriptor = target("gfx908")
        self.views = tuple(View(name, Extent.whole(1), Extent.whole(n)) for name in "XY")

    def on(self, descriptor: object) -> Twice:
        return self

    def children(self) -> Iterator[Node]:
        return iter(())

    def describe(self) -> tuple[tuple[str, ...], ...]:
        return (("Twice  Y = 2 X",),)


class TwiceExecutor(Executor, root=Twice):
    def visit_device(self, tree: Twice, x: np.ndarray) -> np.ndarray:
        self.count(flops=tree.views[0].elements)
        return 2 * x


@block_counters.register(Twice)
def _moved(tree: Twice) -> Counters:
    return Counters(flops=tree.views[0].elements, hbm_bytes=8 * tree.views[0].elements)


@asm.emit.register(Twice)
def _emit(root: Twice) -> asm.EmittedKernel:
    k = KernelBuilder("twice", root.descriptor.arch, THREADS)
    for name in "XY":
        k.argument(name, 8, "global_buffer")
    arguments = k.load_arguments()
    k.work_item_x()
    base, value = k.s.alloc("bytes before the workgroup"), k.v.alloc("value")
    k.s_lshl_b32(base, k.group_x, 8)
    k.v_lshlrev_b32(k.work_item, 2, k.work_item)
    for name, move in (("X", k.buffer_load_dword), ("Y", k.buffer_store_dword)):
        resource = k.s.alloc(f"{name} buffer", 4)
        buffer_at(k, resource, arguments[name], name, (base, 1))
        move(value, k.work_item, resource, 0, offen=True)
        if name == "X":
            k.v_add_f32(value, value, value)
    k.s_endpgm()
    return k.finish(grid=(root.views[0].elements // THREADS, 1, 1))


def test_a_registered_operator_is_executed_counted_and_emitted() -> None:
    tree, x = Twice(256), np.arange(256, dtype=np.float32)
    visitor = ComputeVisitor()
    assert (visitor.visit(tree, x) == 2 * x).all()
    assert visitor.counters.flops == block_counters(tree).flops == 256
    kernel = asm.EmitVisitor().visit(tree)
    assert (kernel.buffers, kernel.operands, kernel.block, kernel.grid) == (("X", "Y"), ("X", "Y"), (THREADS, 1, 1), (4, 1, 1))


def test_what_nothing_counts_is_named() -> None:
    with pytest.raises(LaunchError, match="nothing counts what a View moves"):
        block_counters(Twice(64).views[0])  # type: ignore[arg-type]


def test_a_prepared_computation_launches_as_often_as_wanted() -> None:
    gpu, x = simgpu.Device("gfx908"), np.arange(128, dtype=np.float32)
    prepared = asm.Prepared(asm.emit(Twice(128)), gpu)
    buffers = [gpu.upload(x), *(gpu.upload(np.zeros_like(x)) for _ in range(2))]
    for source, result in ((0, 1), (1, 2)):
        (run,) = prepared.launch(buffers[source], buffers[result])
        assert run.counters
    assert (buffers[2].download(np.float32, x.shape) == 4 * x).all()
    with pytest.raises(LaunchError, match=r"twice takes 2 buffers \(X, Y\), not 1"):
        prepared.launch(buffers[0])
    prepared.free()
