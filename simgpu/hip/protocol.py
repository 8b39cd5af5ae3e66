"""Messages between a program's HIP library (`library/base/connection.c`) and its server, and the log in shared memory."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import BinaryIO

import numpy as np

VERSION = 6
FRAME = struct.Struct("<II")  # kind, number of bytes that follow; in a reply: status, bytes
# Version of the protocol, process id, address of the arena, its bytes, its bytes for code objects, path of the program.
HELLO = struct.Struct("<IIQQQ1024s")
# Function, work-items, block, dynamic LDS, cooperative, bytes of arguments, position of the log, number of the batch,
# launches of the batch that follow, stream, ticket.
LAUNCH = struct.Struct("<I3I3IIIIQIIQQ")
POSITION = 10  # index of the log's position in LAUNCH's fields
ALIKE = slice(0, 40)  # the part of LAUNCH that is equal in launches that differ only in their arguments
FINDING = struct.Struct("<Q32s")  # return address, kind
SHARE = struct.Struct("<QQQIi")  # address, bytes, offset in the file; a process, and its descriptor of the file
MAX_DEVICES = 16  # as in the library's internal.h
DESCRIPTORS = 3 + MAX_DEVICES  # arena, log, shadow, and a socket of the launches of each device
SITES = 6
ENTRY = np.dtype(
    [("kind", "<u4"), ("device", "<u4"), ("memory", "<u2"), ("coarse", "<u2"), ("access", "<u2"), ("read_only", "<u2"),
     ("address", "<u8"), ("bytes", "<u8"), ("number", "<u8"), ("sites", "<u8", SITES), ("home", "<u8")]
)  # fmt: skip
LOG_BYTES = 64 << 30


class Request(IntEnum):
    """Requests of the library."""

    GREETING = 1
    LOAD = 2
    UNLOAD = 3
    KERNEL = 4
    SYMBOL = 5
    FINDING = 6
    COMPILE = 7
    FINISH = 8
    SHARE = 9
    LINK = 10
    OCCUPANCY = 11
    NAME = 12


class Change(IntEnum):
    """Kinds of entries of the log."""

    ALLOCATE = 1
    FREE = 2
    PEER = 3
    UNDEFINED = 4
    UNPEER = 5
    STREAM = 6  # from here on work, see the library's order.c
    QUEUED = 7
    READS = 8
    WRITES = 9
    WAITS = 10
    SEEN = 11
    UNKNOWN = 12


class WorkKind(IntEnum):
    """Kinds of work (`What` of the library's order.c)."""

    KERNEL = 0
    COPY = 1
    FILL = 2
    RELEASE = 3
    ALLOCATION = 4

    @property
    def title(self) -> str:
        """Returns the work in words."""
        return ("a kernel", "a copy", "a fill", "hipFreeAsync", "hipMallocAsync")[self]


class AllocationKind(IntEnum):
    """Kinds of allocations (`Memory` of the library's internal.h; 4 is a module's)."""

    DEVICE = 0
    HOST = 1
    MANAGED = 2
    REGISTERED = 3
    MAPPED = 5
    SHARED = 6


# Names of allocations in messages.
CALLS = {
    AllocationKind.DEVICE: "hipMalloc", AllocationKind.HOST: "hipHostMalloc",
    AllocationKind.MANAGED: "hipMallocManaged", AllocationKind.REGISTERED: "hipHostRegister",
    AllocationKind.MAPPED: "hipMemMap", AllocationKind.SHARED: "hipIpcOpenMemHandle",
}  # fmt: skip


class HipStatus(IntEnum):
    """hipError_t."""

    SUCCESS = 0
    INVALID_VALUE = 1
    OUT_OF_MEMORY = 2
    INVALID_CONFIGURATION = 9
    INVALID_DEVICE_POINTER = 17
    INVALID_IMAGE = 200
    NO_BINARY = 209
    NOT_FOUND = 500
    ILLEGAL_ADDRESS = 700
    TIME_OUT = 702
    ASSERT = 710
    LAUNCH_FAILURE = 719
    NOT_SUPPORTED = 801


class ProgramEnded(Exception):
    """Raised when the program's end of a socket is closed."""


@dataclass(frozen=True)
class Message:
    """A request and its payload."""

    kind: int
    data: bytes


def receive(stream: BinaryIO, count: int) -> bytes:
    """Receives `count` bytes; raises ProgramEnded if the other side closed before."""
    try:
        data = stream.read(count)
    except ConnectionError:
        data = b""
    if len(data) < count:
        raise ProgramEnded
    return data


def next_message(stream: BinaryIO) -> Message:
    """Receives the next request."""
    kind, nbytes = FRAME.unpack(receive(stream, FRAME.size))
    return Message(kind, receive(stream, nbytes))


def next_batch(stream: BinaryIO) -> list[bytes]:
    """Receives the next launches, whose messages the library sent together."""
    batch = [next_message(stream).data]
    *_, behind, _, _ = LAUNCH.unpack_from(batch[0])
    batch += [next_message(stream).data for _ in range(behind)]
    return batch


def reply(peer: socket.socket, status: int, data: bytes = b"") -> None:
    """Answers a request."""
    send(peer, answer(status, data))


def answer(status: int, data: bytes) -> bytes:
    """Returns the bytes of an answer."""
    return FRAME.pack(status, len(data)) + data


def send(peer: socket.socket, data: bytes) -> None:
    """Sends all of the data; raises ProgramEnded if nobody reads it."""
    try:
        peer.sendall(data)
    except ConnectionError:
        raise ProgramEnded from None


@dataclass(frozen=True)
class Greeting:
    """A library's description of its program, with the descriptors that came along."""

    process: int
    path: str
    arena: int  # address in the program
    arena_bytes: int
    module_bytes: int  # bytes for code objects
    descriptors: tuple[int, ...]  # see DESCRIPTORS


def greeting(peer: socket.socket) -> Greeting:
    """Receives the first message. Raises ValueError for another protocol, ProgramEnded if there is none."""
    data, descriptors, _, _ = socket.recv_fds(peer, FRAME.size + HELLO.size, DESCRIPTORS)
    if not data:
        raise ProgramEnded
    data += receive(peer.makefile("rb"), FRAME.size + HELLO.size - len(data))  # the library sends no more before the answer
    version, process, arena, arena_bytes, module_bytes, path = HELLO.unpack_from(data, FRAME.size)
    if version != VERSION or len(descriptors) != DESCRIPTORS:
        raise ValueError(f"a HIP library of protocol {version}, this is {VERSION}: start the program again")
    name = path.partition(b"\0")[0].decode(errors="replace")
    return Greeting(process, name, arena, arena_bytes, module_bytes, tuple(descriptors))
