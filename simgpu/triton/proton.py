"""Proton (`triton.profiler`) on the simulated device: each launch's count and modelled nanoseconds, in the tree of its scopes.

Proton's library keeps sessions, scopes and metrics without a GPU. The figures of its profilers are added here as metrics. A
session with such a profiler is started as one of "instrumentation", which needs no library of ROCm.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from simgpu.hardware.errors import LaunchError
from simgpu.triton.model import ModelledTime
from simgpu.triton.session import Session, properties

PROFILERS = ("rocprofiler", "roctracer")  # of AMD's GPUs; each needs a library of ROCm
TIME, COUNT = "time (ns)", "count"


class Profiles:
    """Proton's sessions on a simulated device. active: by number, True while it records."""

    def __init__(self, native: Any, device: Session, alone: Callable[[], bool]) -> None:
        self._native, self._device, self._alone = native, device, alone
        self.active: dict[int, bool] = {}
        self._paths: dict[int, str] = {}
        self._sweep = ExitStack()

    def start(self, own: Callable[..., int], path: str, context: str, data: str, profiler: str, mode: str = "") -> int:
        """Starts a session and returns its number. Raises LaunchError for a mode of one of PROFILERS. own: Proton's function."""
        if profiler not in PROFILERS:
            return own(path, context, data, profiler, mode)
        if mode:
            raise LaunchError(f"proton.start(mode={mode!r}): the simulated device has no modes of {profiler}; leave it out")
        warnings.warn("simgpu: proton gives modelled times (simgpu help timing), no GPU was timed", ModelledTime, stacklevel=4)
        number = own(path, context, data, "instrumentation", "hip")
        if not self.active:  # only the times of later launches, a benchmark's repetitions, are read
            self._sweep.enter_context(self._device.clock.sweeping(self._alone()))
        self._paths[number] = path
        self._mark(number, True)
        return number

    def switch(self, on: bool, own: Callable[..., None], number: int | None, *rest: Any) -> None:
        """Starts or stops the recording of a session, or of all."""
        own(*(() if number is None else (number,)), *rest)
        for each in [number] if number in self.active else self.active if number is None else []:
            self._mark(each, on)

    def end(self, own: Callable[..., None], number: int | None, *rest: Any) -> None:
        """Ends a session, or all, and writes their files."""
        own(*(() if number is None else (number,)), *rest)
        for each in list(self.active) if number is None else [number]:
            if self.active.pop(each, None) is not None:
                complete(Path(f"{self._paths.pop(each)}.hatchet"), self._device)
        self._update_listener()
        if not self.active:
            self._sweep.close()

    def _mark(self, number: int, on: bool) -> None:
        self.active[number] = on
        self._update_listener()

    def _update_listener(self) -> None:
        self._device.clock.profile = self._note if any(self.active.values()) else None

    def _note(self, name: str, milliseconds: float) -> None:
        """Records a launch in the open scope, or in the scope of Proton's own launch hook if that is enabled."""
        from triton.profiler.hooks import launch

        metrics = {TIME: round(1e6 * milliseconds), COUNT: 1}
        if launch.enabled.get():
            self._native.add_metrics(launch.id.get(), metrics)
            return
        scope = self._native.record_scope()
        self._native.enter_op(scope, name)
        self._native.add_metrics(scope, metrics)
        self._native.exit_op(scope, name)


def complete(file: Path, device: Session) -> None:
    """Adds what Proton's profilers would write to the file of a session: sums at the root, the devices, and each kernel's device.

    With several devices, the kernels' devices are not known. Does nothing if the session was written in another format.
    """
    if not file.is_file():
        return
    root, devices = json.loads(file.read_text())
    root["metrics"] = {TIME: 0, COUNT: 0, **root["metrics"]}
    told = properties(device)
    about = {"arch": told["arch"], "num_sms": told["multiprocessor_count"], "clock_rate": told["sm_clock_rate"]}
    about |= {"memory_clock_rate": told["mem_clock_rate"], "bus_width": told["mem_bus_width"]}
    devices["HIP"] = {str(index): about for index in range(len(device.gpus))}
    pending = list(root["children"])
    while pending:
        node = pending.pop()
        pending += node["children"]
        if COUNT in node["metrics"] and len(device.gpus) == 1:
            node["metrics"] |= {"device_id": "0", "device_type": "HIP"}
    file.write_text(json.dumps([root, devices], indent=4))


def _with_values(own: Callable[..., None]) -> Callable[..., None]:
    """Wraps Proton's `add_metrics`: reads the values of tensors here, which its library would fetch through the GPU's driver."""

    def add_metrics(scope: int, metrics: Mapping[str, Any], tensors: Mapping[str, Any] | None = None) -> None:
        found = {name: metric._value for name, metric in (tensors or {}).items()}
        own(scope, {**metrics, **{name: value.tolist() if value.numel() > 1 else value.item() for name, value in found.items()}})

    return add_metrics


@contextmanager
def profile(device: Session, alone: Callable[[], bool]) -> Iterator[None]:
    """Runs a block in which Proton's sessions are those of the simulated device.

    `alone`: returns True if only samples of launches run; called when a session begins.
    """
    try:
        from triton._C.libproton import proton as native
    except ImportError:  # a build of Triton without Proton
        yield
        return
    profiles = Profiles(native, device, alone)
    own = {name: getattr(native, name) for name in ("start", "activate", "deactivate", "finalize")}
    of_all = {name: getattr(native, f"{name}_all") for name in ("activate", "deactivate", "finalize")}
    with ExitStack() as stack:

        def replace_function(name: str, answer: Callable[..., Any]) -> None:
            stack.enter_context(mock.patch.object(native, name, answer, create=True))  # Triton 3.6 has no set_metric_kernels

        replace_function("set_metric_kernels", lambda *_handles: None)  # for metrics on the GPU, by handles of the host's driver
        replace_function("add_metrics", _with_values(native.add_metrics))
        replace_function("start", lambda *given: profiles.start(own["start"], *given))
        for name, on in (("activate", True), ("deactivate", False)):
            replace_function(name, lambda number, *rest, on=on, name=name: profiles.switch(on, own[name], number, *rest))
            replace_function(f"{name}_all", lambda *rest, on=on, name=name: profiles.switch(on, of_all[name], None, *rest))
        replace_function("finalize", lambda number, *rest: profiles.end(own["finalize"], number, *rest))
        replace_function("finalize_all", lambda *rest: profiles.end(of_all["finalize"], None, *rest))
        yield
