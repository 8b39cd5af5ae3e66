"""Calls from a kernel to the host through the buffer in hidden_hostcall_buffer: printf, failed assertions, memory.

A wave takes a packet from the buffer's stack of free ones, writes eight words a lane, and pushes the packet on the stack of
ready ones. It sends an interrupt and waits until the packet's control word is 0 (ROCm's device library,
ockl/src/hostcall_impl.cl and services.cl). The simulator answers at the interrupt, so a wave never waits.

Each worker of a launch has a separate buffer, so the host never changes words that waves of another thread are changing.

A faulty kernel may overwrite the buffer. The host checks the stack's links and a packet's fields before it uses them, keeps its
own copy of other values, such as the index mask, and raises HostCallError for damage.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simgpu.engine.allocations import DeviceMemory
from simgpu.engine.hostcall.heap import Heap
from simgpu.engine.hostcall.output import Output
from simgpu.engine.hostcall.printf import format_message
from simgpu.hardware.errors import HostCallError, UnsupportedInstruction
from simgpu.machine.host_memory import aligned_bytes
from simgpu.machine.layout import LANES

ARGUMENT = "hidden_hostcall_buffer"

# buffer_t, in words: headers, payloads, doorbell, free stack, ready stack, index mask.
_HEADERS, _PAYLOADS, _DOORBELL, _FREE, _READY, _MASK = range(6)
# amd_signal_t, in words: kind, value, address of the event's mailbox, event (hsa/amd_hsa_signal.h). Kernels send an interrupt
# if there is a mailbox.
_SIGNAL, _MAILBOX_FIELD, _MAILBOX, _FIRST_HEADER = 8, 2, 16, 24
# header_t, in words: next, active lanes, service and control (32 bits each).
_HEADER_WORDS, _LANE_WORDS = 3, 8
_PRINTF, _MEMORY = 2, 3  # the services; others: 1 call a function, 4 report of a sanitizer
_BEGIN, _END = 1, 2  # flags of a message's descriptor; its length in words is in bits 5 to 7, its number from bit 8 on
MESSAGE_LIMIT = 1 << 17  # words of all messages that have begun and not ended


def nbytes(packets: int) -> int:
    """Returns the bytes of a buffer with `packets` packets."""
    return 8 * (_payloads(packets) + packets * LANES * _LANE_WORDS)


def _payloads(packets: int) -> int:
    """Returns the word at which the payloads of a buffer with `packets` packets begin."""
    return _FIRST_HEADER + -(-packets * _HEADER_WORDS // 8) * 8


class HostCalls:
    """A worker's buffer. address: device address. `serve` answers an interrupt.

    packets: number of packets, one for each wave that may be resident.
    """

    def __init__(self, memory: DeviceMemory, packets: int) -> None:
        index_bits = packets.bit_length()
        self._packets, self._mask = packets, (1 << index_bits) - 1
        self._payloads = _payloads(packets)
        raw = aligned_bytes(nbytes(packets))
        self.allocation = memory.allocate(raw.size, data=raw, label="the host's call buffer", tracked=False)
        self.address = self.allocation.address
        self._words = raw.view(np.uint64)
        self.reset(Output())

    def reset(self, output: Output, heap: Heap | None = None) -> None:
        """Frees all packets. output: destination of texts. heap: memory for malloc in kernels, None if there is none."""
        self.output, self.heap = output, heap
        self._messages: dict[int, list[int]] = {}
        self._made = self._held = 0
        packets, words = self._packets, self._words
        words[:_FIRST_HEADER] = 0
        words[_HEADERS] = self.address + 8 * _FIRST_HEADER
        words[_PAYLOADS] = self.address + 8 * self._payloads
        words[_DOORBELL] = self.address + 8 * _SIGNAL
        words[_SIGNAL + _MAILBOX_FIELD] = self.address + 8 * _MAILBOX
        words[_MASK] = self._mask
        # A pointer is a packet's index, with a tag in the bits above it. 0 ends a stack, so packet 0 begins with tag 1. Each packet
        # links to the one before.
        pointers = np.arange(packets, dtype=np.uint64)
        pointers[0] = self._mask + 1
        words[_FREE] = pointers[-1]
        headers = words[_FIRST_HEADER : _FIRST_HEADER + packets * _HEADER_WORDS].reshape(packets, _HEADER_WORDS)
        headers[:] = 0
        headers[1:, 0] = pointers[:-1]

    def _header(self, pointer: int) -> int:
        """Returns the word at which the header of a pointer's packet begins."""
        return _FIRST_HEADER + self._index(pointer) * _HEADER_WORDS

    def _index(self, pointer: int) -> int:
        index = pointer & self._mask
        if index >= self._packets:
            raise HostCallError(
                f"a call of the host: {pointer:#x} on the stack of ready packets names packet {index}, there are {self._packets}; "
                "the kernel wrote over the buffer of hidden_hostcall_buffer"
            )
        return index

    def serve(self, group: int = 0) -> None:
        """Answers all ready packets. group: the workgroup that sent the interrupt.

        Raises UnsupportedInstruction for a service that is not modelled, HostCallError for a damaged call.
        """
        for pointer in self._ready():
            header = self._header(pointer)
            lanes, kind = int(self._words[header + 1]), int(self._words[header + 2])
            service = kind & 0xFFFFFFFF
            if service == _MEMORY and self.heap is None:
                raise UnsupportedInstruction(f"the kernel calls the host for service {service}, memory, but has no hidden_heap_v1")
            if service not in (_PRINTF, _MEMORY):
                raise UnsupportedInstruction(
                    f"the kernel calls the host for service {service}; modelled are printf's, {_PRINTF}, and malloc's, {_MEMORY}"
                )
            payload = self._payloads + self._index(pointer) * LANES * _LANE_WORDS
            for lane in range(LANES):
                if lanes >> lane & 1:
                    at = payload + lane * _LANE_WORDS
                    slot = self._words[at : at + _LANE_WORDS]
                    if service == _PRINTF:
                        self._append(slot, group)
                    elif self.heap is not None:
                        slot[0] = self.heap.request(int(slot[0]), int(slot[1]))
            self._words[header + 2] = service  # control 0: the wave may continue

    def _ready(self) -> Iterator[int]:
        """Yields the packets on the ready stack, and empties the stack."""
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

    def _append(self, slot: np.ndarray, group: int) -> None:
        """Handles one lane's words: a descriptor, and a piece of the message that the descriptor begins, continues or ends."""
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
            slot[0] = self._print(message, group)

    def _print(self, message: list[int], group: int) -> int:
        """Prints a whole message; its first word gives the destination. Returns its length in bytes, as printf does."""
        text = format_message(message[1:])
        if message and message[0] & 1:
            self.output.complain(text)
        else:
            self.output.say(group, text)
        return len(text.encode())
