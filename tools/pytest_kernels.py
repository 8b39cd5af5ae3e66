"""pytest's fixture for kernels of files: HIP, OpenCL C, assembly and code objects. Nothing is imported before a test uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def simgpu_load(request: pytest.FixtureRequest, simgpu_target: str) -> Callable[..., Any]:
    """Returns a function that loads kernels for the test's target in checked mode, where a finding fails the test.

    It takes a file in the folder of the test's module, or the text of a source, and options of `simgpu.Device`. It returns a
    `simgpu.Module`, whose launches raise KernelFinding, and raises the errors of `simgpu.load`.
    """
    from simgpu.hardware import target_count
    from simgpu.tools.cases.sources import is_text, read_code_object
    from simgpu.tools.cases.strict_device import StrictDevice
    from simgpu.tools.torch.environment import CHECKS

    option, (board, _) = request.config.option, target_count(simgpu_target)

    def load(source: str, **options: Any) -> Any:
        given = {"check": CHECKS[option.simgpu_check], "suppressions": option.simgpu_suppressions, **options}
        path = source if is_text(source) else str(request.path.parent / source)
        device = StrictDevice(board, **given)
        if (plugin := request.config.pluginmanager.get_plugin("simgpu-targets")) is not None:
            plugin.counting.append(device)
        return device.load(read_code_object(path, board).data)

    return load
