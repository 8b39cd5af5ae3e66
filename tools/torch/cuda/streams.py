"""Streams and events of the pretended GPUs.

A launch returns when its work is done, so streams order nothing and wait for nothing. Events take their time from the model of
`simgpu.triton.model`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import warnings
from typing import Any, Self

import torch

from simgpu.tools.torch.cuda import devices
from simgpu.tools.torch.hip_memory import new_stream
from simgpu.triton import ModelledTime
from simgpu.triton.driver import active_driver

_NUMBERS = itertools.count(1)
_CUDA = 1  # number of the type of device, as c10::DeviceType's
_RESOLUTION = 0.001  # ms: "approximately 1us", hipEventElapsedTime in HIP's hip_runtime_api.h


class AnyEvent:
    """Replaces `torch.Event`: notes the modelled time of the launches so far."""

    def __init__(self, device: object = None, **_options: bool) -> None:
        self.device: torch.device | None = None  # until it is recorded
        self._at: float | None = None

    @property
    def event_id(self) -> int:
        """Handle of the event, 0 until it is recorded."""
        return 0 if self._at is None else id(self)

    def __repr__(self) -> str:
        return f"<torch.cuda.Event {self.event_id:#x}>"

    def record(self, stream: Stream | None = None) -> None:
        """Records the present time, on any stream. Raises RuntimeError if it was recorded on another GPU before."""
        device = (current() if stream is None else stream).device
        if self.device not in (None, device):
            raise RuntimeError(f"Event device {self.device} does not match recording stream's device {device}.")
        self.device = device
        self._at = active_driver().session.clock.modelled_ms()

    def elapsed_time(self, end: AnyEvent) -> float:
        """Returns the modelled ms of the launches between two events; without a launch, the least that a GPU reports."""
        if self._at is None or end._at is None:
            raise RuntimeError("both events must be recorded before their elapsed time is queried")
        if self.device != end.device:
            raise RuntimeError(f"CUDA error: invalid resource handle: the events are on {self.device} and {end.device}")
        warnings.warn(
            "simgpu: events give modelled milliseconds (simgpu help timing), no GPU was timed", ModelledTime, stacklevel=2
        )
        return end._at - self._at or (0.0 if end is self else _RESOLUTION)

    def query(self) -> bool:
        """True: all work is done."""
        return True

    def wait(self, stream: object = None) -> None:
        """Returns at once: there is nothing to wait for."""

    def synchronize(self) -> None:
        """Returns at once: there is nothing to wait for."""


class Event(AnyEvent):
    """Replaces `torch.cuda.Event`, whose arguments have another order."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        super().__init__()


class Stream:
    """Replaces `torch.cuda.Stream`: launches run when they are made, on any stream."""

    device_type = _CUDA

    def __new__(cls, *_args: object, **_options: object) -> Self:
        """Makes a stream: PyTorch's class has such a method too, and Dynamo would trace the other one into a compiled function."""
        return super().__new__(cls)

    def __init__(
        self, device: object = None, priority: int = 0, *, stream_id: int | None = None, device_index: int | None = None,
        **_options: object,
    ) -> None:  # fmt: skip
        self.device_index = devices.index_of(device if device_index is None else device_index)
        self.device = torch.device("cuda", self.device_index)
        self.priority = priority
        self.stream_id = self.cuda_stream = (new_stream() or next(_NUMBERS)) if stream_id is None else stream_id
        self._before: list[tuple[Stream, Stream]] = []  # this GPU's stream, and the current one, before each `with`

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.device, self.cuda_stream) == (other.device, other.cuda_stream)

    def __hash__(self) -> int:
        return hash((self.device, self.cuda_stream))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"

    def query(self) -> bool:
        """True: all work is done."""
        return True

    def is_capturing(self) -> bool:
        """True while a graph is captured."""
        return torch.cuda.is_current_stream_capturing()

    def synchronize(self) -> None:
        """Returns at once: there is nothing to wait for."""

    def wait_stream(self, stream: object) -> None:
        """Returns at once: there is nothing to wait for."""

    def wait_event(self, event: object) -> None:
        """Returns at once: there is nothing to wait for."""

    def record_event(self, event: AnyEvent | None = None) -> AnyEvent:
        """Records the event, or a new one, and returns it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        self._before.append((current(self.device), current()))
        choose(self)
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self._before.pop():
            choose(stream)


class ExternalStream(Stream):
    """Replaces `torch.cuda.ExternalStream`: a stream that other code made."""

    def __init__(self, stream_ptr: int, device: object = None, **_options: object) -> None:
        super().__init__(device, stream_id=stream_ptr)


class _CurrentStreams(threading.local):
    """Current stream of each GPU in one thread, by its number."""

    def __init__(self) -> None:
        self.streams: dict[int, Stream] = {}


_CHOSEN = _CurrentStreams()


@functools.cache
def _stream_0(index: int) -> Stream:
    """Returns stream 0 of the GPU of this number."""
    return ExternalStream(0, index)


def current(device: object = None) -> Stream:
    """Answers `torch.cuda.current_stream`: this thread's, of a GPU."""
    index = devices.index_of(device)
    return _CHOSEN.streams.get(index) or _stream_0(index)


def raw(device: int) -> int:
    """Answers `torch._C._cuda_getCurrentRawStream`, as Inductor's kernels and others call it: the handle of this thread's
    stream."""
    return current(device).cuda_stream


def default(device: object = None) -> Stream:
    """Answers `torch.cuda.default_stream`, of a GPU."""
    return _stream_0(devices.index_of(device))


def choose(stream: Stream | None) -> None:
    """Answers `torch.cuda.set_stream`, for this thread, whose GPU becomes the stream's; None chooses nothing."""
    if stream is not None:
        devices.choose(stream.device_index)
        _CHOSEN.streams[stream.device_index] = stream


def current_by_gpu() -> dict[int, Stream]:
    """Returns this thread's current stream of each GPU that has another than stream 0, by the GPU's number."""
    return dict(_CHOSEN.streams)


def choose_by_number(**numbers: int) -> None:
    """Answers `torch._C._cuda_setStream`, which takes a stream's numbers by their names."""
    choose(Stream(**numbers) if numbers["stream_id"] else _stream_0(numbers["device_index"]))


def _numbers(stream: Stream) -> tuple[int, int, int]:
    """Returns the numbers by which PyTorch's C++ knows a stream."""
    return stream.stream_id, stream.device_index, stream.device_type


class StreamContext(contextlib.ExitStack):
    """Replaces `torch.cuda.StreamContext`: the stream is current for the block."""

    def __init__(self, stream: Stream | None = None) -> None:
        super().__init__()
        self.stream = stream

    def __enter__(self) -> Any:
        if self.stream is not None:
            self.enter_context(self.stream)
        return super().__enter__()


def within(stream: Stream | None) -> StreamContext:
    """Answers `torch.cuda.stream`: a block in which the stream is current."""
    return StreamContext(stream)


# Compiled functions make streams and events by the classes in `torch._C`.
ANSWERS: dict[str, Any] = {
    "Tensor.record_stream": lambda _tensor, _stream: None,
    "Event": AnyEvent, "Stream": Stream, "cuda.Event": Event, "cuda.Stream": Stream, "cuda.ExternalStream": ExternalStream,
    "cuda.current_stream": current, "cuda.default_stream": default, "cuda.set_stream": choose,
    "cuda.stream": within, "cuda.StreamContext": StreamContext, "_C.Stream": Stream, "_C.Event": AnyEvent,
    "accelerator.current_stream": current,
    "accelerator.set_stream": choose, "_C._cuda_getCurrentRawStream": raw, "_C._cuda_setStream": choose_by_number,
    "_C._cuda_getCurrentStream": lambda device: _numbers(current(device)),
    "_C._cuda_getDefaultStream": lambda device: _numbers(default(device)),
}  # fmt: skip
