"""What suites ask of `torch.cuda`, answered for the simulated device in use.

Work is done when a launch returns, so streams order nothing and wait for nothing; events take their time from the model
of `simgpu.triton.model`.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from simgpu.tools.torch.generators import PhiloxGenerator
from simgpu.tools.torch.rocm import HIP_VERSION
from simgpu.triton import ModelledTime, Session
from simgpu.triton.driver import active_driver


def _session() -> Session:
    return active_driver().session


class Event:
    """`torch.cuda.Event`: notes the modelled time of the launches so far."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self._at: float | None = None

    def record(self, stream: object = None) -> None:
        """Now, on whatever stream."""
        self._at = _session().clock.now()

    def elapsed_time(self, end: Event) -> float:
        """Modelled ms of the launches between two events."""
        if self._at is None or end._at is None:
            raise RuntimeError("both events must be recorded before their elapsed time is asked")
        warnings.warn(
            "simgpu: events give modelled milliseconds (docs/timing.md), no GPU was timed", ModelledTime, stacklevel=2
        )
        return end._at - self._at

    def query(self) -> bool:
        """True: all work is done."""
        return True

    def wait(self, stream: object = None) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""


class Stream:
    """`torch.cuda.Stream`: launches run when they are made, whatever their stream."""

    cuda_stream = 0
    stream_id = 0
    device_index = 0

    def __init__(self, device: object = None, priority: int = 0, **_options: object) -> None:
        self.device = torch.device("cuda", 0)
        self.priority = priority

    def query(self) -> bool:
        """True: all work is done."""
        return True

    def is_capturing(self) -> bool:
        """False: there are no graphs."""
        return False

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def wait_stream(self, stream: object) -> None:
        """Nothing to wait for."""

    def wait_event(self, event: object) -> None:
        """Nothing to wait for."""

    def record_event(self, event: Event | None = None) -> Event:
        """The event, or a new one, recorded."""
        event = Event() if event is None else event
        event.record()
        return event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        """The stream before is as good."""


class Guard(contextlib.nullcontext[None]):
    """`torch.cuda.device`, `device_of` and `stream` as context managers: there is one of each."""

    def __init__(self, *_chosen: object) -> None:
        super().__init__()


def _properties(_device: object = None) -> SimpleNamespace:
    """HIP's names, the descriptor's figures."""
    session = _session()
    chip, (major, minor) = session.gpu.descriptor, _capability()
    return SimpleNamespace(
        name=_name(), major=major, minor=minor, gcnArchName=session.gpu.arch, multi_processor_count=chip.num_cus,
        total_memory=chip.hbm_bytes, L2_cache_size=chip.l2_bytes, warp_size=chip.wavefront_size,
        max_threads_per_block=chip.max_workgroup_size,
        max_threads_per_multi_processor=chip.threads_per_cu,
        shared_memory_per_block=chip.lds_bytes, shared_memory_per_multiprocessor=chip.lds_bytes,
        clock_rate=chip.clock_mhz * 1000, is_integrated=0, is_multi_gpu_board=0,
    )  # fmt: skip


def _name(_device: object = None) -> str:
    return f"simgpu {_session().name}"


def _capability(_device: object = None) -> tuple[int, int]:
    return active_driver().get_device_capability()


def _always(value: Any) -> Callable[..., Any]:
    """One answer; a function of its own for each name, as `torch._dynamo` demands."""
    return lambda *_args, **_options: value


def _memory(_device: object = None) -> tuple[int, int]:
    """Free and all: nobody counts what tensors take of the host's memory."""
    size = _session().gpu.descriptor.hbm_bytes
    return size, size


def _seeded(seed: int) -> None:
    torch.default_generator.manual_seed(seed)
    GENERATOR.manual_seed(seed)


GENERATOR = PhiloxGenerator()
# By the name in `torch`. What has no effect here answers None.
ANSWERS: dict[str, Any] = {
    **{f"cuda.{name}": _always(None) for name in (
        "init", "_lazy_init", "set_device", "synchronize", "set_stream", "ipc_collect", "empty_cache", "reset_peak_memory_stats",
        "reset_max_memory_allocated", "reset_accumulated_memory_stats", "set_per_process_memory_fraction", "_sleep",
        "nvtx.range_push", "nvtx.range_pop", "nvtx.mark",
    )},
    **{f"cuda.{name}": _always(0) for name in (
        "current_device", "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved",
    )},
    **{f"cuda.{name}": _always(True) for name in ("is_available", "is_initialized", "is_bf16_supported")},
    "cuda.is_current_stream_capturing": _always(False),
    "cuda.device_count": _always(1),
    "cuda.get_device_name": _name,
    "cuda.get_device_capability": _capability,
    "cuda.get_device_properties": _properties,
    "cuda.get_arch_list": lambda: [_session().gpu.arch],
    "cuda.mem_get_info": _memory,
    "cuda.memory_stats": _always({}),
    "cuda.manual_seed": _seeded,
    "cuda.manual_seed_all": lambda seed: _seeded(seed),
    "cuda.default_generators": (GENERATOR,),
    "cuda.get_rng_state": lambda _device=None: torch.get_rng_state(),
    "cuda.set_rng_state": lambda state, _device=None: torch.set_rng_state(state),
    # Legacy constructors: tensors without a mark, the GPU's.
    **{f"cuda.{kind}Tensor": getattr(torch, f"{kind}Tensor") for kind in (
        "Float", "Double", "Half", "BFloat16", "Char", "Byte", "Short", "Int", "Long", "Bool",
    )},
    "cuda.Event": Event,
    "cuda.Stream": Stream,
    "cuda.current_stream": lambda _device=None: Stream(),
    "cuda.default_stream": lambda _device=None: Stream(),
    **{f"cuda.{name}": type(name, (Guard,), {}) for name in ("stream", "StreamContext", "device", "device_of")},
    "accelerator.is_available": _always(True),
    "accelerator.device_count": _always(1),
    "accelerator.current_accelerator": lambda _check=False, **_options: torch.device("cuda"),
    "accelerator.current_device_index": _always(0),
    "accelerator.current_stream": lambda _device=None: Stream(),
    "accelerator.set_device_index": _always(None),
    "accelerator.synchronize": _always(None),
    "version.hip": HIP_VERSION,
    "version.cuda": None,
}  # fmt: skip
