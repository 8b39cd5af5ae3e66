"""Buffers that handlers append to and Python reads: traces of waves.

An append that does not fit is only counted, so that the owner knows how much room the run needed.
"""

from __future__ import annotations

from ctypes import Structure, c_int64
from typing import Any

import numpy as np

from simgpu.machine.runtime import part


class TraceBuffer(Structure):
    """A buffer's header, as handlers see it."""

    _fields_ = (
        ("address", c_int64),
        ("room", c_int64),  # bytes
        ("used", c_int64),  # bytes, including appends that did not fit
    )


TRACE_BUFFER = np.dtype(TraceBuffer)


@part
def reserve(buffer: Any, count: int) -> int:
    """Returns the address of `count` more bytes; 0 if they do not fit."""
    used = buffer.used
    buffer.used = used + count
    return buffer.address + used if used + count <= buffer.room else 0


class TraceMemory:
    """Memory of some buffers of `room` words each; the host allocates pages as they fill.

    headers: records of TRACE_BUFFER, one a buffer.
    """

    def __init__(self, headers: np.ndarray, room: int, word: type[np.integer]) -> None:
        self.headers = headers
        self.words = np.empty((len(headers), room), word)
        each = self.words.strides[0]
        headers["address"] = self.words.ctypes.data + each * np.arange(len(headers))
        headers["room"] = each
        self.clear()

    def clear(self) -> None:
        """Discards the appended words."""
        self.headers["used"] = 0

    @property
    def requested_words(self) -> np.ndarray:
        """Words that were appended to each buffer, including words that did not fit."""
        return np.asarray(self.headers["used"] // self.words.itemsize)

    @property
    def overflows(self) -> bool:
        """True if some words did not fit."""
        return bool((self.headers["used"] > self.headers["room"]).any())

    def drain(self, number: int) -> np.ndarray:
        """Returns the words of a buffer that fit."""
        return self.words[number, : min(int(self.requested_words[number]), self.words.shape[1])]
