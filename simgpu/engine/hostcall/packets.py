"""Calls from a kernel to the host, through the buffer of its argument hidden_hostcall_buffer: printf, failed assertions.

A wave takes a packet from the buffer's stack of free ones, writes eight words a lane, pushes the packet on the stack of
ready ones, sends an interrupt and waits until the packet's control word is 0 (ROCm's device library, ockl/src/hostcall_impl.cl
and services.cl). The interrupt is where the simulator answers, so a wave never waits.

The kernel may write anything into the buffer. What the host follows, the stack's links and a packet's fields, is looked at before
it is used; what it needs not read there, such as the index mask, it keeps for itself. Damage ends in HostCallError.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import TextIO

import numpy as np

from simgpu.engine.allocations import Memory
from simgpu.engine.hostcall.printf import formatted
from simgpu.hardware.errors import HostCallError, UnsupportedInstruction
from simgpu.machine.host_memory import aligned_bytes
from simgpu.machine.layout import LANES

ARGUMENT = "hidden_hostcall_buffer"

# buffer_t, in words: headers, payloads, doorbell, free stack, ready stack, index mask.
_HEADERS, _PAYLOADS, _DOORBELL, _FREE, _READY, _MASK = range(6)
# amd_signal_t, in words: kind, value, address of the event's mailbox, event (hsa/amd_hsa_signal.h).
# Kernels interrupt where there is a mailbox.
_SIGNAL, _MAILBOX_FIELD, _MAILBOX, _FIRST_HEADER = 8, 2, 16, 24
# header_t, in words: next, active lanes, service and control (32 bits each).
_HEADER_WORDS, _LANE_WORDS = 3, 8
_PRINTF = 2  # the service; others: 1 call a function, 3 allocate memory, 4 report of a sanitizer
_BEGIN, _END = 1, 2  # flags of a message's descriptor, its length in words from bit 5 on, its number from bit 8 on
MESSAGE_LIMIT = 1 << 17  # words of messages that have begun and not ended, together
COMPLAINTS_LIMIT = 1 << 24  # characters of different texts that go to stderr


class HostCalls:
    """One launch's buffer: `address` on the device, `serve` for an interrupt, `complaints` for what went to stderr.

    packets: as many as waves may be resident: each holds one at most.
    """

    def __init__(self, memory: Memory, packets: int) -> None:
        index_bits = packets.bit_length()
        self._packets, self._mask = packets, (1 << index_bits) - 1
        self._payloads = _FIRST_HEADER + -(-packets * _HEADER_WORDS // 8) * 8
        raw = aligned_bytes(8 * (self._payloads + packets * LANES * _LANE_WORDS))
        self.allocation = memory.allocate(raw.size, data=raw, label="the host's call buffer", tracked=False)
        self.address = self.allocation.address
        self.complaints: Counter[str] = Counter()
        self._words = raw.view(np.uint64)
        self._messages: dict[int, list[int]] = {}
        self._made = self._held = self._said = 0
        words = self._words
        words[_HEADERS] = self.address + 8 * _FIRST_HEADER
        words[_PAYLOADS] = self.address + 8 * self._payloads
        words[_DOORBELL] = self.address + 8 * _SIGNAL
        words[_SIGNAL + _MAILBOX_FIELD] = self.address + 8 * _MAILBOX
        words[_MASK] = self._mask
        for packet in range(packets):
            # A pointer is a packet's index below a tag; 0 ends a stack, so packet 0 begins with a tag.
            words[self._header(packet)] = 0 if packet == 0 else words[_FREE]
            words[_FREE] = packet or 1 << index_bits

    def _header(self, pointer: int) -> int:
        """Where the header of a pointer's packet begins."""
        return _FIRST_HEADER + self._index(pointer) * _HEADER_WORDS

    def _index(self, pointer: int) -> int:
        index = pointer & self._mask
        if index >= self._packets:
            raise HostCallError(
                f"a call of the host: {pointer:#x} on the stack of ready packets names packet {index}, there are {self._packets}; "
                "the kernel wrote over the buffer of hidden_hostcall_buffer"
            )
        return index

    def serve(self) -> None:
        """Answer all ready packets; UnsupportedInstruction for a service that is not modelled, HostCallError for a damaged call."""
        for pointer in self._ready():
            header = self._header(pointer)
            lanes, kind = int(self._words[header + 1]), int(self._words[header + 2])
            service = kind & 0xFFFFFFFF
            if service != _PRINTF:
                raise UnsupportedInstruction(
                    f"the kernel calls the host for service {service}; only printf's, {_PRINTF}, is modelled"
                )
            payload = self._payloads + self._index(pointer) * LANES * _LANE_WORDS
            for lane in range(LANES):
                if lanes >> lane & 1:
                    at = payload + lane * _LANE_WORDS
                    self._append(self._words[at : at + _LANE_WORDS])
            self._words[header + 2] = service  # control 0: the wave may go on

    def _ready(self) -> Iterator[int]:
        """Packets on the ready stack, which is empty afterwards."""
        pointer = int(self._words[_READY])
        self._words[_READY] = 0
        seen: set[int] = set()
        while pointer:
            index = self._index(pointer)
            if index in seen:
                raise HostCallError(
                    f"a call of the host: the stack of ready packets comes back to packet {index}; "
                    "the kernel wrote over the buffer of hidden_hostcall_buffer"
                )
            seen.add(index)
            following = int(self._words[self._header(pointer)])
            yield pointer
            pointer = following

    def _append(self, slot: np.ndarray) -> None:
        """One lane's words: a descriptor, and a piece of a message that it begins, continues or ends."""
        descriptor = int(slot[0])
        if descriptor & _BEGIN:
            self._made += 1
            self._messages[self._made] = []
            descriptor = descriptor & 0xFE | self._made << 8
            slot[0] = descriptor
        message = self._messages.setdefault(descriptor >> 8, [])
        words = [int(word) for word in slot[1 : 1 + (descriptor >> 5 & 7)]]
        message += words
        self._held += len(words) + bool(descriptor & _BEGIN)
        if self._held > MESSAGE_LIMIT:
            raise HostCallError(f"printf: messages of more than {MESSAGE_LIMIT:,} words have begun and not ended")
        if descriptor & _END:
            del self._messages[descriptor >> 8]
            self._held = max(0, self._held - len(message) - 1)
            slot[0] = self._print(message)

    def flush(self) -> None:
        """Write out what the kernel sent to stderr, unless an error told it."""
        for text, times in self.complaints.items():
            for _ in range(times):
                _put(sys.stderr, text)
        self.complaints.clear()

    def _print(self, message: list[int]) -> int:
        """A whole message: its first word says where it goes. Returns its length in bytes, as printf does."""
        text = formatted(message[1:])
        if message and message[0] & 1:
            self._said += 0 if text in self.complaints else len(text)
            if self._said > COMPLAINTS_LIMIT:
                raise HostCallError(f"printf: more than {COMPLAINTS_LIMIT:,} characters to stderr")
            self.complaints[text] += 1
        else:
            _put(sys.stdout, text)
        return len(text.encode())


def _put(stream: TextIO, text: str) -> None:
    """Write a text; what the stream's encoding lacks is escaped."""
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
