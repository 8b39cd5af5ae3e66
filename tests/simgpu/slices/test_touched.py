"""Bytes that slices touch, as bits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simgpu.engine.allocations import DeviceMemory
from simgpu.slices.touched import TouchedBytes, count, gather_bytes, meet, scatter_bytes

sizes = st.integers(1, 70).map(lambda words: 4 * words)


@st.composite
def masks(draw, size=None):
    """Draws bits of an allocation, runs and single bytes, as bool and packed."""
    size = draw(sizes) if size is None else size
    mask = np.zeros(size, bool)
    for first, length in draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(1, 40)), max_size=5)):
        mask[first : first + length] = True
    return mask, np.packbits(mask, bitorder="little")


@given(masks())
def test_what_is_taken_is_put_back_where_it_was(made):
    mask, bits = made
    source = np.random.default_rng(mask.size).integers(1, 256, mask.size).astype(np.uint8)
    target = np.zeros(mask.size, np.uint8)
    values = gather_bytes(bits, source)
    assert len(values) == mask.sum()
    scatter_bytes(bits, target, values)
    assert (target == np.where(mask, source, 0)).all()


@given(st.data())
def test_two_meet_where_a_byte_has_both_bits(data):
    size = data.draw(sizes)
    (one, first), (other, second) = data.draw(masks(size)), data.draw(masks(size))
    assert meet({256: first}, {256: second, 4096: first}) == bool((one & other).any())
    assert not meet({256: first}, {512: second})
    either = TouchedBytes({256: first}, {}) | TouchedBytes({256: second}, {512: first})
    assert (np.unpackbits(either.read[256], count=size, bitorder="little") == (one | other)).all()
    assert either.written[512] is first
    again = TouchedBytes.unpack(either.pack())
    assert (again.read[256] == either.read[256]).all() and (again.written[512] == first).all()


@given(st.integers(0, 3), st.integers(1, 100), st.data())
def test_filling_bytes_do_not_count(lead, nbytes, data):
    memory = DeviceMemory()
    room = -(-(lead + nbytes) // 4) * 4
    host = np.zeros(room + 8, np.uint8)
    start = host.ctypes.data + -host.ctypes.data % 4
    held = memory.share(start + lead, nbytes, True, "")
    mask, bits = data.draw(masks(room))
    assert held.data.size == room
    assert count({held.base: bits}, memory) == mask[lead : lead + nbytes].sum()
