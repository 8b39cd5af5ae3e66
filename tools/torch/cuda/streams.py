"""Streams and events of the pretended GPU.

Work is done when a launch returns, so streams order nothing and wait for nothing; events take their time from the model
of `simgpu.triton.model`.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import warnings
from typing import Any

from simgpu.tools.torch.cuda.graphs import CUDAGraph
from simgpu.tools.torch.places import HERE
from simgpu.triton import ModelledTime
from simgpu.triton.driver import active_driver

_NUMBERS = itertools.count(1)


class Event:
    """`torch.cuda.Event`: notes the modelled time of the launches so far."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self.device = HERE
        self._at: float | None = None

    def record(self, stream: object = None) -> None:
        """Now, on whatever stream."""
        self._at = active_driver().session.clock.now()

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

    device_index = HERE.index

    def __init__(self, device: object = None, priority: int = 0, **_options: object) -> None:
        self.device = HERE
        self.priority = priority
        self.stream_id = self.cuda_stream = next(_NUMBERS)
        self._before: list[Stream] = []

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"

    def query(self) -> bool:
        """True: all work is done."""
        return True

    def is_capturing(self) -> bool:
        """Whether a graph is captured."""
        return CUDAGraph.capturing()

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
        self._before.append(current())
        choose(self)
        return self

    def __exit__(self, *_: object) -> None:
        choose(self._before.pop())


class _Default(Stream):
    """Stream 0."""

    def __init__(self) -> None:
        super().__init__()
        self.stream_id = self.cuda_stream = 0


DEFAULT = _Default()
_CHOSEN = threading.local()


def current(_device: object = None) -> Stream:
    """`torch.cuda.current_stream`: this thread's."""
    return getattr(_CHOSEN, "stream", DEFAULT)


def default(_device: object = None) -> Stream:
    """`torch.cuda.default_stream`."""
    return DEFAULT


def choose(stream: Stream | None) -> None:
    """`torch.cuda.set_stream`, for this thread; None chooses nothing."""
    if stream is not None:
        _CHOSEN.stream = stream


class StreamContext(contextlib.ExitStack):
    """`torch.cuda.stream`: the stream is current for the block."""

    def __init__(self, stream: Stream | None = None) -> None:
        super().__init__()
        self.stream = stream

    def __enter__(self) -> Any:
        if self.stream is not None:
            self.enter_context(self.stream)
        return super().__enter__()


class Guard(contextlib.nullcontext[None]):
    """`torch.cuda.device` and `device_of` as context managers: there is one device."""

    def __init__(self, *_chosen: object) -> None:
        super().__init__()
        self.idx = HERE.index
