"""Emits the kernels of a computation's tree, and launches them.

An emitter takes sizes from the tree as `operators.compute` does: tiles and steps are its nodes' loops, edges the ends of its axes.
From the plan it takes how a kernel holds them: registers, stages, waves.
"""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.hardware.errors import LaunchError, TargetError, says_it_all
from simgpu.operators.tree import Node

__tracebackhide__ = says_it_all


class Prepared:
    """A computation on a device, simulated or real: kernels are loaded and scratch memory is allocated.

    It can be launched any number of times.

    >>> import numpy as np
    >>> import simgpu
    >>> from simgpu import asm, operators
    >>> gpu = simgpu.Device("mi300x")
    >>> prepared = asm.Prepared(asm.emit(operators.TiledComputation(16, 16, 16, target="mi300x")), gpu)
    >>> ones, c = gpu.upload(np.ones((16, 16), np.float32)), gpu.empty((16, 16))
    >>> [len(prepared.launch(ones, ones, c)) for _ in range(2)]
    [1, 1]
    >>> prepared.free()
    """

    def __init__(self, kernel: EmittedKernel, device: Any) -> None:
        self.kernel, self.device = kernel, device
        module = device.load(kernel.assemble())
        if getattr(device, "check", False):  # findings name these Python lines
            module.origins = kernel.origins
        self.entries = [module[step.name] for step in kernel.steps]
        self.scratch = {name: device.alloc(nbytes) for name, nbytes in kernel.scratch}

    def calls(self, *buffers: object) -> list[tuple[Any, dict[str, Any]]]:
        """Returns (entry, keyword arguments of its `launch`) for each kernel, in order.

        buffers: one for each of `kernel.operands`; LaunchError if their number is wrong.
        """
        kernel = self.kernel
        if len(buffers) != len(kernel.operands):
            names = ", ".join(kernel.operands)
            raise LaunchError(f"{kernel.name} takes {len(kernel.operands)} buffers ({names}), not {len(buffers)}")
        named = {**dict(zip(kernel.operands, buffers, strict=True)), **self.scratch}
        return [
            (entry, {"grid": step.grid, "block": step.block, "args": step.bind(named)})
            for entry, step in zip(self.entries, kernel.steps, strict=True)
        ]

    def launch(self, *buffers: object) -> list[Any]:
        """Launches the kernels in order and returns their runs. buffers: as in `calls`."""
        return [entry.launch(**call) for entry, call in self.calls(*buffers)]

    def free(self) -> None:
        """Frees the scratch memory."""
        for buffer in self.scratch.values():
            self.device.free(buffer)


def launch(kernel: EmittedKernel, device: Any, *buffers: object) -> list[Any]:
    """Launches a kernel and its `following` kernels once, and returns their runs, in order.

    buffers: one for each of `kernel.operands`. Raises as `Prepared` and the device's launch.

    >>> import numpy as np
    >>> import simgpu
    >>> from simgpu import asm, operators
    >>> kernel = asm.emit(operators.TiledComputation(16, 16, 16, target="mi300x"))
    >>> gpu = simgpu.Device("mi300x")
    >>> ones, c = gpu.upload(np.ones((16, 16), np.float32)), gpu.empty((16, 16))
    >>> runs = asm.launch(kernel, gpu, ones, ones, c)
    >>> len(runs), c.download()[0, :3]
    (1, array([16., 16., 16.], dtype=float32))
    """
    prepared = Prepared(kernel, device)
    try:
        return prepared.launch(*buffers)
    finally:
        prepared.free()


@functools.singledispatch
def emit(root: Node) -> EmittedKernel:
    """Returns the kernel of a computation's tree. If the computation needs more kernels, they are in its `following`.

    An operator of simgpu.operators.NAME registers its emitters in simgpu.asm.NAME. That module is loaded at the first
    call. A root that derives from another has the other's emitter, unless it registers its own. Raises TargetError for a
    root that no operator registered, or a type that the target lacks; UnsupportedInstruction, ResourceError or LaunchError for a
    plan that has no kernel.

    >>> from simgpu import asm, operators
    >>> asm.emit(operators.TiledComputation(100, 77, 33, target="mi300x"))
    <EmittedKernel gemm_f32_nn_32x32x32 for gfx942: grid 12x1x1, block 256x1x1, ...>
    """
    for kind in type(root).__mro__:
        prefix, _, rest = kind.__module__.partition("simgpu.operators.")
        name = rest.partition(".")[0]
        if not prefix and name and importlib.util.find_spec(f"simgpu.asm.{name}"):
            importlib.import_module(f"simgpu.asm.{name}")
    if (emitter := emit.dispatch(type(root))) is emit.dispatch(object):
        known = ", ".join(kind.__name__ for kind in emit.registry if kind is not object)
        raise TargetError(f"no emitter for a {type(root).__name__}: there are emitters for {known}")
    return emitter(root)


class EmitVisitor:
    """Visitor, named as in the paper, that calls `emit`.

    >>> from simgpu import asm, operators
    >>> asm.EmitVisitor().visit(operators.TiledComputation(100, 77, 33, target="mi300x")).operands
    ('A', 'B', 'C')
    """

    def visit(self, root: Node) -> EmittedKernel:
        """Returns the kernel of a tree. Raises as `emit`."""
        return emit(root)
