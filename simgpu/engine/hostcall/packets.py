"""Calls from a kernel to the host, through the buffer of its argument hidden_hostcall_buffer: printf, failed assertions.

A wave takes a packet from the buffer's stack of free ones, writes eight words a lane, pushes the packet on the stack of
ready ones, sends an interrupt and waits until the packet's control word is 0 (ROCm's device library, ockl/src/hostcall_impl.cl
and services.cl). The interrupt is where the simulator answers, so a wave never waits.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

import numpy as np

from simgpu.engine.allocations import Memory, aligned_bytes
from simgpu.engine.hostcall.printf import formatted
from simgpu.hardware.errors import UnsupportedInstruction
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


class HostCalls:
    """One launch's buffer: `address` on the device, `serve` for an interrupt, `complaints` for what went to stderr.

    packets: as many as waves may be resident: each holds one at most.
    """

    def __init__(self, memory: Memory, packets: int) -> None:
        index_bits = packets.bit_length()
        self._payloads = _FIRST_HEADER + -(-packets * _HEADER_WORDS // 8) * 8
        raw = aligned_bytes(8 * (self._payloads + packets * LANES * _LANE_WORDS))
        self.allocation = memory.allocate(raw.size, data=raw, label="the host's call buffer", tracked=False)
        self.address = self.allocation.address
        self.complaints: Counter[str] = Counter()
        self._words = raw.view(np.uint64)
        self._messages: dict[int, list[int]] = {}
        self._made = 0
        words = self._words
        words[_HEADERS] = self.address + 8 * _FIRST_HEADER
        words[_PAYLOADS] = self.address + 8 * self._payloads
        words[_DOORBELL] = self.address + 8 * _SIGNAL
        words[_SIGNAL + _MAILBOX_FIELD] = self.address + 8 * _MAILBOX
        words[_MASK] = (1 << index_bits) - 1
        for packet in range(packets):
            # A pointer is a packet's index below a tag; 0 ends a stack, so packet 0 begins with a tag.
            words[self._header(packet)] = 0 if packet == 0 else words[_FREE]
            words[_FREE] = packet or 1 << index_bits

    def _header(self, pointer: int) -> int:
        return _FIRST_HEADER + (pointer & int(self._words[_MASK])) * _HEADER_WORDS

    def serve(self) -> None:
        """Answer all ready packets; UnsupportedInstruction for a service that is not modelled."""
        for pointer in self._ready():
            header = self._header(pointer)
            lanes, kind = int(self._words[header + 1]), int(self._words[header + 2])
            service = kind & 0xFFFFFFFF
            if service != _PRINTF:
                raise UnsupportedInstruction(
                    f"the kernel calls the host for service {service}; only printf's, {_PRINTF}, is modelled"
                )
            payload = self._payloads + (pointer & int(self._words[_MASK])) * LANES * _LANE_WORDS
            for lane in range(LANES):
                if lanes >> lane & 1:
                    at = payload + lane * _LANE_WORDS
                    self._append(self._words[at : at + _LANE_WORDS])
            self._words[header + 2] = service  # control 0: the wave may go on

    def _ready(self) -> Iterator[int]:
        """Packets on the ready stack, which is empty afterwards."""
        pointer = int(self._words[_READY])
        self._words[_READY] = 0
        while pointer:
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
        message += (int(word) for word in slot[1 : 1 + (descriptor >> 5 & 7)])
        if descriptor & _END:
            del self._messages[descriptor >> 8]
            slot[0] = self._print(message)

    def flush(self) -> None:
        """Write out what the kernel sent to stderr, unless an error told it."""
        for text, times in self.complaints.items():
            sys.stderr.write(text * times)
        self.complaints.clear()

    def _print(self, message: list[int]) -> int:
        """A whole message: its first word says where it goes. Returns its length in bytes, as printf does."""
        text = formatted(message[1:])
        if message and message[0] & 1:
            self.complaints[text] += 1
        else:
            sys.stdout.write(text)
        return len(text.encode())
