"""Functions of `torch.cuda` and `torch.accelerator`, answered for the simulated devices in use, by their names."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import torch

from simgpu.tools.torch.cuda import autocast, comm, devices, generators, graphs, memory, streams
from simgpu.tools.torch.operators import attention
from simgpu.tools.torch.places import HOST, PINNED, Place, mark, mark_of
from simgpu.triton import Session
from simgpu.triton.driver import active_driver
from simgpu.triton.tensors import plain_torch, pointees


def _session() -> Session:
    return active_driver().session


class DeviceProperties:
    """Replaces `torch.cuda._CudaDeviceProperties`, by which Dynamo knows a constant: HIP's names, the descriptor's figures."""

    def __init__(self, **figures: Any) -> None:
        vars(self).update(figures)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceProperties) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(vars(self)["uuid"])


def _properties(device: object = None) -> DeviceProperties:
    session, index = _session(), devices.index_of(device)
    chip, (major, minor) = session.gpu.descriptor, _capability()
    return DeviceProperties(
        name=_name(), major=major, minor=minor, gcnArchName=session.gpu.arch, multi_processor_count=chip.num_cus,
        total_memory=chip.hbm_bytes, L2_cache_size=chip.l2_bytes, warp_size=chip.wavefront_size,
        max_threads_per_block=chip.max_workgroup_size,
        max_threads_per_multi_processor=chip.threads_per_cu,
        shared_memory_per_block=chip.lds_bytes, shared_memory_per_multiprocessor=chip.lds_bytes,
        clock_rate=chip.clock_mhz * 1000, is_integrated=0, is_multi_gpu_board=0,
        uuid=uuid.uuid5(uuid.NAMESPACE_DNS, f"{session.board}:{index}"),
    )  # fmt: skip


def _name(device: object = None) -> str:
    devices.index_of(device)
    return f"simgpu {_session().board}"


def _capability(device: object = None) -> tuple[int, int]:
    devices.index_of(device)
    return active_driver().get_device_capability()


def _supported_types(device: object) -> set[torch.dtype]:
    """Returns the types that tensors of a GPU may have: all of PyTorch's except the quantized ones, which only the CPU has."""
    devices.index_of(device)
    return {kind for kind in vars(torch).values() if isinstance(kind, torch.dtype) and not str(kind).startswith("torch.q")}


def _constant(value: Any) -> Callable[..., Any]:
    """Returns a function that always returns `value`; each name gets its own function, as `torch._dynamo` demands."""
    return lambda *_args, **_options: value


class CudaStatus(IntEnum):
    """Codes of errors of `torch.cuda.cudart()`, as HIP's; PyTorch names only the first."""

    success = 0
    hipErrorInvalidValue = 1
    hipErrorOutOfMemory = 2
    hipErrorNotInitialized = 3
    hipErrorInvalidDevice = 101
    hipErrorUnknown = 999


class CudaError(RuntimeError):
    """Replaces `torch.cuda.CudaError`: the error of a code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{_CUDART.cudaGetErrorString(CudaStatus(code))} ({code})")


def _check(code: int) -> None:
    """Answers `torch.cuda.check_error`."""
    if code != CudaStatus.success:
        raise CudaError(code)


def _register(pointer: int, before: Place, after: Place) -> int:
    """Changes the place of the tensors in whose memory an address is; returns the code of an error if there are none."""
    with plain_torch():
        found = [tensor for _, tensor in pointees((), (pointer,)) if mark_of(tensor) == before]
        for tensor in found:
            mark(tensor, after)
    return CudaStatus.success if found else CudaStatus.hipErrorInvalidValue


# Functions of `torch.cuda.cudart()` that programs call.
_CUDART = SimpleNamespace(
    cudaError=CudaStatus, cudaGetErrorString=lambda code: "no error" if code == CudaStatus.success else code.name,
    cudaProfilerStart=lambda: 0, cudaProfilerStop=lambda: 0,
    cudaHostRegister=lambda pointer, _size, _flags: _register(pointer, HOST, PINNED),
    cudaHostUnregister=lambda pointer: _register(pointer, PINNED, HOST),
    cudaMemGetInfo=lambda device: memory.free_and_all(device),
)  # fmt: skip


def _of_the_host(own: Callable[..., None]) -> Callable[..., None]:
    """Wraps the constructor of `torch.autograd.profiler.profile`, which `torch.profiler` uses: a CPU build records no GPU's
    activity."""

    def init_profile(profile: Any, *args: Any, use_cuda: bool = False, use_device: str | None = None, **options: Any) -> None:
        there = use_cuda or use_device == "cuda"
        device = {"use_cpu": True} if there else {"use_device": use_device}
        own(profile, *args, **{**options, **device})

    return init_profile


# By the name in `torch`. Functions without an effect here return None.
ANSWERS: dict[str, Any] = {
    **{f"cuda.{name}": _constant(None) for name in (
        "synchronize", "ipc_collect", "_sleep",
        "nvtx.mark", "nvtx.range_end",
        "profiler.start", "profiler.stop", "memory._record_memory_history",
        "set_sync_debug_mode", "tunable.enable", "tunable.tuning_enable",
    )},
    **devices.ANSWERS, **comm.ANSWERS, **memory.ANSWERS, **graphs.ANSWERS, **autocast.ANSWERS, **generators.ANSWERS,
    **streams.ANSWERS, **attention.ANSWERS,
    **{f"cuda.{name}": _constant(True) for name in ("is_available", "is_initialized", "is_bf16_supported")},
    # The depth of a range, or its number: nothing records ranges.
    **{f"cuda.nvtx.{name}": _constant(0) for name in ("range_push", "range_pop", "range_start")},
    "cuda.get_sync_debug_mode": _constant(0),
    # Builds with CUDA have libraries for real GPUs. Without them PyTorch adds gradients, and keeps recurrent weights, by itself.
    "cuda.nccl.is_available": _constant(False), "backends.cudnn.is_acceptable": _constant(False),
    "cuda.tunable.is_enabled": _constant(False), "cuda.tunable.tuning_is_enabled": _constant(False),
    "cuda.get_device_name": _name,
    "cuda.get_device_capability": _capability,
    "cuda.get_device_properties": _properties, "cuda._CudaDeviceProperties": DeviceProperties,
    "cuda.get_arch_list": lambda: [_session().gpu.arch],
    "_C._dynamo.guards._empty_strided_cuda": lambda size, stride, dtype: torch.empty_strided(  # Inductor's code allocates with it
        size, stride, dtype=dtype, device="cuda"
    ),
    "autograd.profiler.profile.__init__": _of_the_host(torch.autograd.profiler.profile.__init__),
    "accelerator.is_available": _constant(True),
    "accelerator.current_accelerator": lambda _check=False, **_options: torch.device("cuda"),
    "accelerator.synchronize": _constant(None),
    "accelerator.get_device_capability": lambda device=None: {"supported_dtypes": _supported_types(device)},
    "version.cuda": None, "cuda.cudart": lambda: _CUDART, "cuda.check_error": _check, "cuda.CudaError": CudaError,
}  # fmt: skip
