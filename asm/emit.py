"""A computation's tree to its kernels, and their launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.hardware.errors import LaunchError, TargetError
from simgpu.operators.tree import Node


def launch(kernel: EmittedKernel, device: Any, *buffers: object) -> list[Any]:
    """Launches a kernel and those behind it on a device (simulated or real); their runs, in order.

    buffers: one for each of `kernel.operands`. Scratch memory is allocated here and freed. LaunchError if
    their number is wrong; raises what the device's launch raises.
    """
    if len(buffers) != len(kernel.operands):
        raise LaunchError(f"{kernel.name} takes {len(kernel.operands)} buffers ({', '.join(kernel.operands)}), not {len(buffers)}")
    named: dict[str, object] = dict(zip(kernel.operands, buffers, strict=True))
    scratch = {name: device.alloc(nbytes) for name, nbytes in kernel.scratch}
    try:
        named |= scratch
        module = device.load(kernel.assemble())
        if getattr(device, "check", False):  # its findings name them
            module.origins = kernel.origins
        return [module[step.name].launch(grid=step.grid, block=step.block, args=step.bind(named)) for step in kernel.steps]
    finally:
        for buffer in scratch.values():
            device.free(buffer)


Emitter = Callable[[Any], EmittedKernel]
EMITTERS: dict[type[Node], Emitter] = {}


def emits(root: type[Node]) -> Callable[[Emitter], Emitter]:
    """Decorator: registers the emitter of trees with such a root."""

    def register(emitter: Emitter) -> Emitter:
        EMITTERS[root] = emitter
        return emitter

    return register


class EmitVisitor:
    """Visits the root of a tree and returns its kernel; the root's type decides how."""

    def visit(self, root: Node) -> EmittedKernel:
        """The kernel of a tree. TargetError for a root that no emitter knows; ResourceError,
        LaunchError for a plan that cannot be emitted."""
        emitter = EMITTERS.get(type(root))
        if emitter is None:
            known = ", ".join(node.__name__ for node in EMITTERS)
            raise TargetError(f"no emitter for a {type(root).__name__}: there are emitters for {known}")
        return emitter(root)


def emit(root: Node) -> EmittedKernel:
    """The kernel of a computation's tree; raises as `EmitVisitor.visit`."""
    return EmitVisitor().visit(root)
