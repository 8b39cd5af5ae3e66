"""A computation's kernels on a device with their buffers, to be launched as often as wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from simgpu import Buffer, Device, Run
    from simgpu.asm import EmittedKernel


@dataclass(frozen=True)
class Prepared:
    """kernel: emitted, loaded on the device; buffers: of its operands; bound: each step's entry, extents and arguments."""

    kernel: EmittedKernel
    device: Device
    buffers: Sequence[Buffer]
    bound: Sequence[tuple[Any, Mapping[str, Any]]]

    @classmethod
    def of(cls, kernel: EmittedKernel, device: Device, arrays: Sequence[np.ndarray]) -> Prepared:
        """Uploads one array for each of the kernel's operands."""
        buffers = [device.upload(array) for array in arrays]
        named = dict(zip(kernel.operands, buffers, strict=True))
        named |= {name: device.alloc(nbytes) for name, nbytes in kernel.scratch}
        module = device.load(kernel.assemble())
        bound = [
            (module[step.name], {"grid": step.grid, "block": step.block, "args": step.bind(named)}) for step in kernel.steps
        ]
        return cls(kernel, device, buffers, bound)

    def launch(self) -> list[Run]:
        """All of it; the kernels' runs, in order."""
        return [entry.launch(**call) for entry, call in self.bound]

    def warm_up(self) -> None:
        """One workgroup of each kernel: compiles most of what they use."""
        for entry, call in self.bound:
            entry.launch(**{**call, "grid": 1})
