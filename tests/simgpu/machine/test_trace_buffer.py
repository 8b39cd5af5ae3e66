"""Trace buffers: words in order, a count of lost ones, and no byte past a buffer's end."""

from __future__ import annotations

import ctypes

import numpy as np

from simgpu.machine.jit import compiler
from simgpu.machine.runtime import store32, structure
from simgpu.machine.runtime.functions import Runtime
from simgpu.machine.trace_buffer import TRACE_BUFFER, TraceMemory, reserve


def append(buffer_at: int, word: int) -> int:
    """Appends a word twice, at once."""
    at = reserve(structure(buffer_at, TRACE_BUFFER), 8)
    if at:
        store32(at, word)
        store32(at + 4, word)
    return at


def test_appends_are_drained_in_order_and_the_rest_counted() -> None:
    address = compiler().address_of_source("test trace buffer", Runtime(append).source)
    put = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 3)(address)
    headers = np.zeros(3, TRACE_BUFFER)
    memory = TraceMemory(headers, 5, np.uint32)
    memory.words[:] = 7
    places = [put(headers[1:].ctypes.data, word) for word in (1, 2, 3)]
    assert [place - memory.words[1].ctypes.data for place in places[:2]] == [0, 8] and places[2] == 0
    assert memory.drain(1).tolist() == [1, 1, 2, 2, 7]
    assert memory.requested_words.tolist() == [0, 6, 0] and memory.overflows
    assert (memory.words[[0, 2]] == 7).all() and len(memory.drain(0)) == 0
    memory.clear()
    assert not memory.overflows and put(headers[1:].ctypes.data, 4) == places[0]
    assert memory.drain(1).tolist() == [4, 4]


def test_buffers_may_be_fields_of_other_structures() -> None:
    owners = np.zeros(2, np.dtype([("before", np.int64), ("buffer", TRACE_BUFFER), ("behind", np.int64)]))
    memory = TraceMemory(owners["buffer"], 4, np.int64)
    assert owners["buffer"]["room"].tolist() == [32, 32]
    assert owners["buffer"]["address"].tolist() == [memory.words[0].ctypes.data, memory.words[1].ctypes.data]
