"""Messages between the judge and its child processes: JSON, and arrays as bytes. Nothing is unpickled."""

from __future__ import annotations

import json
import os
import select
import struct
import time
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

HEAD = struct.Struct("<QQ")  # bytes of the JSON, and of the arrays
MOST_JSON = 64 << 20  # bytes
MOST_ARRAYS = 16 << 30


class ProtocolError(Exception):
    """Raised for a message that is none, an end of the stream, and a deadline."""


@dataclass
class ArrayMessage:
    """A JSON document, and arrays that it refers to by number."""

    document: dict[str, Any]
    arrays: list[np.ndarray] = field(default_factory=list)


def kind_named(name: str) -> np.dtype:
    """Returns the numpy type of a name, those of ml_dtypes included. Raises ProtocolError.

    >>> kind_named("bfloat16").itemsize
    2
    """
    try:
        kind = np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
    except TypeError:
        kind = np.dtype("O")
    if kind.hasobject or not kind.itemsize:
        raise ProtocolError(f"{name[:40]!r} is no type of numbers")
    return kind


def send(descriptor: int, message: ArrayMessage) -> None:
    """Writes a message to a pipe. Raises OSError."""
    raw = [np.ascontiguousarray(array).reshape(array.shape) for array in message.arrays]
    forms = [{"kind": array.dtype.name, "shape": array.shape} for array in raw]
    text = json.dumps({"document": message.document, "arrays": forms}).encode()
    _write(descriptor, HEAD.pack(len(text), sum(array.nbytes for array in raw)) + text)
    for array in raw:
        _write(descriptor, array.reshape(-1).view(np.uint8) if array.size else b"")


def _write(descriptor: int, data: Any) -> None:
    view = memoryview(data)
    while view.nbytes:
        view = view[os.write(descriptor, view[: 1 << 20]) :]


def receive(descriptor: int, seconds: float | None = None) -> ArrayMessage:
    """Reads a message from a pipe, within `seconds` if given.

    Raises ProtocolError for an end of the stream, a deadline, and a message of another form: its sender may be hostile.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    text_bytes, array_bytes = HEAD.unpack(_read(descriptor, HEAD.size, deadline))
    if text_bytes > MOST_JSON or array_bytes > MOST_ARRAYS:
        raise ProtocolError(f"a message of {text_bytes:,} and {array_bytes:,} bytes, more than {MOST_JSON:,} and {MOST_ARRAYS:,}")
    try:
        told = json.loads(bytes(_read(descriptor, text_bytes, deadline)))
        document, forms = dict(told["document"]), [(kind_named(str(one["kind"])), _shape(one["shape"])) for one in told["arrays"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ProtocolError("a message of another form") from None
    sizes = [kind.itemsize * int(np.prod(shape, dtype=object)) for kind, shape in forms]
    if sum(sizes) != array_bytes:
        raise ProtocolError("arrays of another size than the message says")
    arrays = [
        np.frombuffer(_read(descriptor, size, deadline), np.uint8).view(kind).reshape(shape)
        for size, (kind, shape) in zip(sizes, forms, strict=True)
    ]
    return ArrayMessage(document, arrays)


def _shape(given: Any) -> tuple[int, ...]:
    shape = tuple(int(extent) for extent in given)
    if len(shape) > 32 or min(shape, default=0) < 0:
        raise ValueError
    return shape


def _read(descriptor: int, count: int, deadline: float | None) -> bytearray:
    data = bytearray()
    while len(data) < count:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and (left <= 0 or not select.select([descriptor], [], [], left)[0]):
            raise ProtocolError("out of time")
        got = os.read(descriptor, min(count - len(data), 1 << 20))
        if not got:
            raise ProtocolError("the process ended")
        data += got
    return data
