"""Typed buffer accesses: every data and number format against a model of bit fields in Python."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from tests.simgpu.memory.test_buffers import DATA, MEMORY, QUADS, SETUP, Resource, inputs
from tests.support.engine_kernel import Kernel

WIDTHS = {
    1: [8], 2: [16], 3: [8, 8], 4: [32], 5: [16, 16], 6: [11, 11, 10], 7: [10, 11, 11],
    8: [2, 10, 10, 10], 9: [10, 10, 10, 2], 10: [8] * 4, 11: [32] * 2, 12: [16] * 4,
    13: [32] * 3, 14: [32] * 4,
}  # fmt: skip
UNORM, SNORM, USCALED, SSCALED, UINT, SINT, FLOAT = 0, 1, 2, 3, 4, 5, 7
PAIRS = [
    (data, number)
    for data, widths in WIDTHS.items()
    for number in (UNORM, SNORM, USCALED, SSCALED, UINT, SINT, FLOAT)
    if (number == FLOAT) == (data in (6, 7)) or (number == FLOAT and min(widths) >= 16)
    if not (number < UINT and 32 in widths)
]
f32 = np.float32


def bits_of(value: float) -> int:
    return int(f32(value).view(np.uint32))


def half(bits: int) -> np.float16:
    return np.array(bits, np.uint16).view(np.float16)[()]


def unpacked(raw: int, width: int, number: int) -> int:
    """Returns a field's 32-bit register value."""
    signed = raw - (1 << width) if raw >> (width - 1) else raw
    if number == UINT:
        return raw
    if number == SINT:
        return signed & 0xFFFFFFFF
    if number == FLOAT:
        if width == 32:
            return raw
        return bits_of(half(raw << {16: 0, 11: 4, 10: 5}[width]))
    if number == UNORM:
        return bits_of(f32(raw) / f32(2**width - 1))
    if number == SNORM:
        return bits_of(max(f32(signed) / f32(2 ** (width - 1) - 1), f32(-1)))
    return bits_of(f32(raw if number == USCALED else signed))


def element(memory: np.ndarray, at: int, data: int) -> list[int]:
    widths = WIDTHS[data]
    size = sum(widths) // 8
    whole = int.from_bytes(memory[at : at + size].tobytes(), "little")
    fields = []
    for width in widths:
        fields.append(whole & ((1 << width) - 1))
        whole >>= width
    return fields


def one(number: int) -> int:
    return 1 if number in (UINT, SINT) else 0x3F800000


def components(fields: list[int], data: int, number: int) -> list[int]:
    """Returns X, Y, Z, W of an element, with 0, 0, 0, 1 for missing ones."""
    values = [unpacked(raw, width, number) for raw, width in zip(fields, WIDTHS[data], strict=True)]
    return (values + [0, 0, 0, one(number)][len(values) :])[:4]


@functools.cache
def kernel(line: str) -> Kernel:
    return Kernel("gfx90a", QUADS + SETUP + line + "\ns_waitcnt vmcnt(0)", ["v4", "v5", "v6", "v7"])


LOAD = "buffer_load_format_xyzw v[4:7], v3, s[20:23], s24 offen"
LOAD_D16 = "buffer_load_format_d16_xyz v[4:5], v3, s[20:23], s24 offen"
STORE = "buffer_store_format_xyzw v[4:7], v3, s[20:23], s24 offen"


def prepared(data: int, number: int, select: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    r = Resource(0, False, 1000, 0, False, 0, data, number, select)
    rng = np.random.default_rng(seed)
    size = sum(WIDTHS[data]) // 8
    offset = (size * rng.permutation(64)).astype(np.uint32)
    offset[5] = 1000 - size + 1  # out of range by a byte
    if size > 1:
        offset[5] &= ~np.uint32(size - 1) if size & (size - 1) == 0 else 0xFFFFFFFF
        offset[5] = max(offset[5], 1001 - size)
    return inputs(r, np.zeros(64, np.uint32), offset, rng), offset


@pytest.mark.parametrize(("data", "number"), PAIRS)
def test_loads_by_resource(data: int, number: int) -> None:
    select = [(7, 5, 1, 4), (4, 5, 6, 7), (0, 6, 4, 1)][(data + number) % 3]
    packed = sum(code << 3 * i for i, code in enumerate(select))
    image, offset = prepared(data, number, packed, data * 8 + number)
    memory, size = image[MEMORY:], sum(WIDTHS[data]) // 8
    got = kernel(LOAD).run(image)
    for lane in range(64):
        at = int(offset[lane])
        inside = at + size <= 1000
        values = components(element(memory, at, data), data, number) if inside else [0] * 4
        for c, code in enumerate(select):
            want = values[code - 4] if code >= 4 else one(number) * (code == 1)
            have = int(got[f"v{4 + c}"][lane])
            nan = number == FLOAT and np.isnan(np.array(want, np.uint32).view(f32))
            assert have == want or (nan and np.isnan(np.array(have, np.uint32).view(f32))), (lane, c)


@pytest.mark.parametrize(("data", "number"), [pair for pair in PAIRS if pair[0] in (1, 3, 5, 9, 10, 12)])
def test_half_loads_by_resource(data: int, number: int) -> None:
    image, offset = prepared(data, number, 4 | 5 << 3 | 6 << 6 | 7 << 9, data * 8 + number)
    memory, size = image[MEMORY:], sum(WIDTHS[data]) // 8
    got = kernel(LOAD_D16).run(image)
    for lane in range(64):
        at = int(offset[lane])
        values = components(element(memory, at, data), data, number) if at + size <= 1000 else [0] * 3
        halves = []
        for value in values[:3]:
            if number in (UINT, SINT):
                halves.append(value & 0xFFFF)
            else:
                with np.errstate(over="ignore"):
                    rounded = np.array(value, np.uint32).view(f32).astype(np.float16)
                halves.append(int(rounded.view(np.uint16)))
        have = [int(got["v4"][lane]) & 0xFFFF, int(got["v4"][lane]) >> 16, int(got["v5"][lane]) & 0xFFFF]
        nans = [number == FLOAT and np.isnan(half(h)) for h in halves]
        assert all(n or h == w for h, w, n in zip(have, halves, nans, strict=True)), lane
        assert not int(got["v5"][lane]) >> 16


def packed_field(value: int, width: int, number: int) -> int:
    """Returns a register value as a field."""
    real = np.array(value, np.uint32).view(f32)[()]
    mask = (1 << width) - 1
    if number in (UINT, SINT):
        return value & mask
    if number == FLOAT:
        if width == 32:
            return value
        bits = int(real.astype(np.float16).view(np.uint16))
        return bits if width == 16 else (0 if bits >> 15 else bits >> {11: 4, 10: 5}[width])
    if number == UNORM:
        return int(np.rint(min(max(real, f32(0)), f32(1)) * f32(mask)))
    if number == SNORM:
        return int(np.rint(min(max(real, f32(-1)), f32(1)) * f32(mask >> 1))) & mask
    low = 0 if number == USCALED else -(2**31)
    return int(min(max(np.rint(np.float64(real)), low), 2**32 - 1)) & mask


@pytest.mark.parametrize(("data", "number"), PAIRS)
def test_stores_by_resource(data: int, number: int) -> None:
    image, offset = prepared(data, number, 4 | 5 << 3 | 6 << 6 | 7 << 9, data * 8 + number)
    rng = np.random.default_rng(data + 100 * number)
    values = rng.uniform(-1.5, 1.5, (64, 4)).astype(f32)
    if number in (USCALED, SSCALED):
        values *= 60
    image[DATA : DATA + 1024] = values.view(np.uint8).reshape(-1)
    if number in (UINT, SINT):
        image[DATA : DATA + 1024] = rng.integers(0, 256, 1024)
    words = image[DATA : DATA + 1024].view(np.uint32).reshape(64, 4)
    widths = WIDTHS[data]
    size = sum(widths) // 8
    want = image[MEMORY:].copy()
    for lane in range(64):
        at = int(offset[lane])
        if at + size > 1000:
            continue
        whole, shift = 0, 0
        for c, width in enumerate(widths):
            whole |= packed_field(int(words[lane, c]), width, number) << shift
            shift += width
        want[at : at + size] = np.frombuffer(whole.to_bytes(size, "little"), np.uint8)
    got = kernel(STORE).run(image)
    np.testing.assert_array_equal(got.memory[MEMORY:], want)


@pytest.mark.parametrize(("data", "number"), [(10, UNORM), (5, SINT), (4, FLOAT), (9, SNORM), (12, FLOAT)])
def test_instruction_formats(data: int, number: int) -> None:
    """tbuffer takes its own formats and ignores the resource's and dst_sel."""
    image, offset = prepared(data, number, 0, 3)
    image[8:12].view(np.uint32)[0] &= 0xFFF  # only dst_sel: everything selects 0
    memory, size = image[MEMORY:], sum(WIDTHS[data]) // 8
    line = f"tbuffer_load_format_xyzw v[4:7], v3, s[20:23], s24 format:{data | number << 4} offen"
    got = kernel(line).run(image)
    for lane in range(64):
        at = int(offset[lane])
        values = components(element(memory, at, data), data, number) if at + size <= 1000 else [0] * 4
        for c, want in enumerate(values):
            have = int(got[f"v{4 + c}"][lane])
            nan = number == FLOAT and np.isnan(np.array(want, np.uint32).view(f32))
            assert nan or have == want


def test_high_half_forms() -> None:
    """buffer_load_format_d16_hi_x clears the low half; the store takes the high one."""
    image, offset = prepared(2, UINT, 4, 9)
    lines = (
        "buffer_load_format_d16_hi_x v4, v3, s[20:23], s24 offen\n"
        "s_waitcnt vmcnt(0)\n"
        "v_mov_b32 v5, 0x12345678\n"
        "buffer_store_format_d16_hi_x v5, v3, s[20:23], s24 offen"
    )
    got = kernel(lines).run(image)
    for lane in range(64):
        at = int(offset[lane])
        loaded = int(image[MEMORY + at : MEMORY + at + 2].view(np.uint16)[0]) if at + 2 <= 1000 else 0
        assert int(got["v4"][lane]) == loaded << 16
        if at + 2 <= 1000:
            assert got.memory[MEMORY + at : MEMORY + at + 2].view(np.uint16)[0] == 0x1234


def test_format_conversion_on_the_way_to_lds() -> None:
    """buffer_load_format_x lds converts X at M0 + offset + 4·lane; a lane out of range gets 0."""
    image, offset = prepared(10, UNORM, 4, 11)
    lines = (
        QUADS + SETUP + "s_mov_b32 m0, 0x40\nbuffer_load_format_x v3, s[20:23], s24 offen lds\n"
        "s_waitcnt vmcnt(0)\nds_read_b32 v4, v60 offset:0x40\ns_waitcnt lgkmcnt(0)"
    )
    got = Kernel("gfx90a", lines, ["v4"], group_segment_fixed_size=1024).run(image)["v4"].view(f32)
    inside = offset + 4 <= 1000
    assert not inside.all()
    want = np.where(inside, image[MEMORY + np.where(inside, offset, 0)] / f32(255), f32(0))
    np.testing.assert_array_equal(got, want.astype(f32))
