"""Launches of several GPUs that are checked together: none stays open after an error, and one checked alone says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import simgpu
from simgpu.checks.races.overlap import MOST_GROUPS, OVERLAP
from simgpu.engine.launch import Launch, Supervisor
from simgpu.engine.node import DeviceNode
from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hardware.errors import InstructionLimit
from tests.support.kernels import KernelText, assemble

FOREVER = "again:\ns_branch again"


def loaded(lines: str = "s_nop 0", node: DeviceNode | None = None, **options: Any) -> tuple[DeviceNode, Any]:
    """Returns a node and a kernel on a GPU of it."""
    gpu = simgpu.Device("gfx942", check=True, threads=1, **options)
    gpu.node = node or DeviceNode()
    return gpu.node, gpu.load(assemble("gfx942", KernelText("k", lines, ("buffer",))))["k"]


class Interrupted(Supervisor):
    """Ends a launch by an error before its first workgroup."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def before_run(self, launch: Any, workers: Any) -> None:
        assert OVERLAP in launch.node.shared
        raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, simgpu.SimError])
def test_an_error_or_an_interrupt_leaves_no_overlap_open(error: type[BaseException]) -> None:
    node, kernel = loaded()
    with pytest.raises(error):
        Launch(kernel, Geometry.of(2, 64), [0], supervisor=Interrupted(error)).run()
    assert OVERLAP not in node.shared


def test_neither_does_a_limit_nor_a_check_that_fails_to_prepare(monkeypatch: pytest.MonkeyPatch) -> None:
    node, kernel = loaded(FOREVER, max_instructions=1000)
    with pytest.raises(InstructionLimit):
        kernel.launch(grid=2, block=64, args=[0])
    assert OVERLAP not in node.shared
    monkeypatch.setattr("simgpu.checks.races.check.shared_order", lambda *_: 1 // 0)
    with pytest.raises(simgpu.SimError, match="check Races"):
        kernel.launch(grid=2, block=64, args=[0])
    assert OVERLAP not in node.shared


@contextmanager
def running(kernel: Any) -> Iterator[None]:
    """Keeps a launch in its overlap."""
    launch = Launch(kernel, Geometry.of(2, 64), [0])
    try:
        launch.begin()
        yield
    finally:
        launch.end(True)


def test_a_launch_checked_alone_says_which_limit_was_reached() -> None:
    node, kernel = loaded()
    _, other = loaded(node=node)
    call: dict[str, Any] = {"block": 64, "args": [0]}
    large = MOST_GROUPS + 1
    assert kernel.launch(grid=large, **call).findings == []  # nothing ran beside it
    with running(other):
        (found,) = kernel.launch(grid=large, **call).findings
        assert (found.kind, found.severity) == ("resource", "note") and "at most 4,096 workgroups of an overlap" in found.message
        said = [finding.message for _ in range(63) for finding in kernel.launch(grid=1, **call).findings]
        assert len(said) == 1 and "at most 63 kernels of an overlap" in said[0]
    assert kernel.launch(grid=1, **call).findings == []
