"""A computation's tree to its kernels, and their launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.hardware.errors import LaunchError, TargetError
from simgpu.operators.tree import Node


class Prepared:
    """A computation on a device (simulated or real), its kernels loaded and its scratch memory allocated, for any launches."""

    def __init__(self, kernel: EmittedKernel, device: Any) -> None:
        self.kernel, self.device = kernel, device
        module = device.load(kernel.assemble())
        if getattr(device, "check", False):  # its findings name them
            module.origins = kernel.origins
        self.entries = [module[step.name] for step in kernel.steps]
        self.scratch = {name: device.alloc(nbytes) for name, nbytes in kernel.scratch}

    def calls(self, *buffers: object) -> list[tuple[Any, dict[str, Any]]]:
        """Entry and extents and arguments of each launch, in order. buffers: one for each of `kernel.operands`; LaunchError if
        their number is wrong."""
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
        """Launches the kernels one behind the other; their runs, in order."""
        return [entry.launch(**call) for entry, call in self.calls(*buffers)]

    def free(self) -> None:
        """Gives the scratch memory back."""
        for buffer in self.scratch.values():
            self.device.free(buffer)


def launch(kernel: EmittedKernel, device: Any, *buffers: object) -> list[Any]:
    """Launches a kernel and those behind it once; their runs, in order. Raises as `Prepared` and the device's launch."""
    prepared = Prepared(kernel, device)
    try:
        return prepared.launch(*buffers)
    finally:
        prepared.free()


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
