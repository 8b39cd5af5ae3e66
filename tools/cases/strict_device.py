"""A simulated GPU for tests: a launch raises if checked mode finds an error."""

from __future__ import annotations

from typing import Any

from simgpu.device import Device, Kernel, Module
from simgpu.engine.finding import KernelFinding, errors_among
from simgpu.engine.result import Run
from simgpu.hardware.errors import says_it_all

__tracebackhide__ = says_it_all


class StrictKernel(Kernel):
    """A kernel whose launch raises KernelFinding for findings that are errors."""

    def launch(self, *args: Any, **options: Any) -> Run:
        """Runs the kernel as `Kernel.launch`. Also raises KernelFinding."""
        device = self.module.device
        assert isinstance(device, StrictDevice)
        device.launches += 1
        run = super().launch(*args, **options)
        if errors := errors_among(run.findings):
            raise KernelFinding(errors)
        return run


class StrictModule(Module):
    """A code object of strict kernels."""

    kernel_class = StrictKernel


class StrictDevice(Device):
    """A simulated GPU, as `simgpu.Device`, whose modules have strict kernels."""

    module_class = StrictModule
    launches = 0
