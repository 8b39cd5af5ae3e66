"""Loads and stores of bytes, halves and dwords against a numpy model, for any relation between the lanes' addresses."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import ir

from simgpu.hardware.errors import MemoryFault
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.jit import compiler
from simgpu.machine.values import I32, I64
from simgpu.memory.whole_wave.direct import LaneSpan, all_zero
from tests.support.engine_kernel import Kernel
from tests.support.exhaustive import examples
from tests.support.one_instruction import Wave

u32 = np.uint32
LANES = 64
TABLES, ROOM = 0x400, 0x3000  # of the input: distances, a first access's distances, EXEC; then the accessed memory
LDS = 0x1800
OLD = 0x5EED0000  # the registers' old value, plus their number
DATA = 20  # first register of a load or store
SEEDS = st.integers(0, 2**32 - 1)


@dataclass(frozen=True)
class Case:
    """An instruction with one or two places."""

    line: str
    lane_bytes: int
    space: str = "global"
    shifts: tuple[int, ...] = (0,)  # bytes from a lane's distance to each place
    store: bool = False
    first: int = DATA  # of its data registers
    sign: bool = False  # of bytes and halves
    high: bool = False  # the half of the register

    @property
    def registers(self) -> range:
        return range(self.first, self.first + max(1, self.lane_bytes // 4) * len(self.shifts))

    def loaded(self, data: np.ndarray) -> int:
        """Returns a register with a lane's bytes, at most four."""
        value = int.from_bytes(data.tobytes(), "little", signed=self.sign) & 0xFFFFFFFF
        return value << 16 if self.high else value

    def stored(self, register: int) -> np.ndarray:
        """Returns the bytes that a register is stored as, at most four."""
        return np.frombuffer(int(register >> 16 if self.high else register).to_bytes(4, "little"), np.uint8)[: self.lane_bytes]


def _loads(space: str, line: str, **more: tuple[int, ...]) -> list[Case]:
    return [
        Case(line.format(width=width, data=f"v[{DATA}:{DATA + count - 1}]" if count > 1 else f"v{DATA}"), 4 * count, space,
             store="store" in line or "write" in line, **more)
        for width, count in (("", 1), ("x2", 2), ("x4", 4))
    ]  # fmt: skip


CASES = [
    *_loads("global", "global_load_dword{width} {data}, v1, s[14:15] offset:16", shifts=(16,)),
    *_loads("global", "global_load_dword{width} {data}, v[2:3], off offset:-4", shifts=(-4,)),
    *_loads("buffer", "buffer_load_dword{width} {data}, v1, s[24:27], s28 offen offset:8", shifts=(40,)),
    *_loads("global", "global_store_dword{width} v1, {data}, s[14:15]"),
    *_loads("global", "global_store_dword{width} v[2:3], {data}, off offset:12", shifts=(12,)),
    *_loads("buffer", "buffer_store_dword{width} {data}, v1, s[24:27], 0 offen"),
    Case("global_load_dwordx4 v[1:4], v1, s[14:15]", 16, first=1),
    Case("global_load_dwordx2 v[2:3], v[2:3], off", 8, first=2),
    Case("ds_read_b32 v20, v1 offset:12", 4, "lds", (12,)),
    Case("ds_read_b64 v[20:21], v1", 8, "lds"),
    Case("ds_read_b128 v[20:23], v1 offset:32", 16, "lds", (32,)),
    Case("ds_read_b128 v[1:4], v1", 16, "lds", first=1),
    Case("ds_read2_b32 v[20:21], v1 offset0:3 offset1:9", 4, "lds", (12, 36)),
    Case("ds_read2_b64 v[1:4], v1 offset1:6", 8, "lds", (0, 48), first=1),
    Case("ds_read2st64_b32 v[20:21], v1 offset1:1", 4, "lds", (0, 256)),
    Case("ds_write_b32 v1, v20 offset:4", 4, "lds", (4,), True),
    Case("ds_write_b64 v1, v[20:21]", 8, "lds", (0,), True),
    Case("ds_write_b128 v1, v[20:23] offset:16", 16, "lds", (16,), True),
    Case("ds_write2_b32 v1, v20, v21 offset1:2", 4, "lds", (0, 8), True),
    Case("ds_write2_b64 v1, v[20:21], v[22:23] offset1:1", 8, "lds", (0, 8), True),
    Case("global_load_ubyte v20, v1, s[14:15] offset:16", 1, shifts=(16,)),
    Case("global_load_sshort v20, v[2:3], off offset:-4", 2, shifts=(-4,), sign=True),
    Case("global_load_short_d16_hi v20, v1, s[14:15]", 2, high=True),
    Case("global_load_ushort v1, v1, s[14:15]", 2, first=1),
    Case("global_store_byte v1, v20, s[14:15]", 1, store=True),
    Case("global_store_short_d16_hi v[2:3], v20, off offset:12", 2, shifts=(12,), store=True, high=True),
    Case("buffer_load_sbyte v20, v1, s[24:27], s28 offen offset:8", 1, "buffer", (40,), sign=True),
    Case("buffer_store_short v20, v1, s[24:27], 0 offen", 2, "buffer", store=True),
    Case("ds_read_u8 v20, v1 offset:3", 1, "lds", (3,)),
    Case("ds_read_i16 v1, v1", 2, "lds", first=1, sign=True),
    Case("ds_read_u16_d16_hi v20, v1 offset:32", 2, "lds", (32,), high=True),
    Case("ds_write_b8 v1, v20 offset:4", 1, "lds", (4,), True),
    Case("ds_write_b16_d16_hi v1, v20", 2, "lds", (0,), True, high=True),
]
NAMES = [case.line for case in CASES]


@functools.cache
def kernel(case: Case) -> Kernel:
    """Runs the instruction twice, each time with fresh registers: the second run finds the first one's traces."""
    fill = [
        "v_lshlrev_b32 v40, 4, v0", "s_movk_i32 s16, 0",
        "fill:", "v_add_u32 v41, s16, v40", f"global_load_dwordx4 v[42:45], v41, s[4:5] offset:{TABLES}",
        "s_waitcnt vmcnt(0)", "ds_write_b128 v41, v[42:45]", "s_add_u32 s16, s16, 0x400",
        f"s_cmp_lt_u32 s16, {LDS}", "s_cbranch_scc1 fill",
    ]  # fmt: skip
    drain = [
        "s_movk_i32 s16, 0", "s_waitcnt lgkmcnt(0)",
        "drain:", "v_add_u32 v41, s16, v40", "ds_read_b128 v[42:45], v41", "s_waitcnt lgkmcnt(0)",
        f"global_store_dwordx4 v41, v[42:45], s[4:5] offset:{TABLES}", "s_add_u32 s16, s16, 0x400",
        f"s_cmp_lt_u32 s16, {LDS}", "s_cbranch_scc1 drain",
    ]  # fmt: skip
    lds = case.space == "lds"
    lines = [
        "global_load_dword v50, v60, s[4:5]", "global_load_dword v51, v60, s[4:5] offset:256",
        "s_load_dwordx2 s[10:11], s[4:5], 0x200",
        f"s_add_u32 s14, s4, {TABLES}", "s_addc_u32 s15, s5, 0", "s_waitcnt vmcnt(0) lgkmcnt(0)",
        "s_mov_b32 s24, s14", "s_and_b32 s25, s15, 0xffff", f"s_movk_i32 s26, {ROOM}", "s_mov_b32 s27, 0x20000",
        "s_movk_i32 s28, 32", "v_mov_b32 v42, 0", "v_mov_b32 v43, 0", "v_mov_b32 v44, 0", "v_mov_b32 v45, 0",
        "global_store_dwordx4 v51, v[42:45], s[14:15]" if case.store else "global_load_dwordx4 v[42:45], v51, s[14:15]",
        "s_waitcnt vmcnt(0)", *(fill if lds else ()), "s_movk_i32 s17, 2",
        "again:", "v_mov_b32 v1, v50", "v_mov_b32 v3, s15", "v_add_co_u32 v2, vcc, s14, v1", "v_addc_co_u32 v3, vcc, 0, v3, vcc",
        *(f"v_mov_b32 v{r}, {OLD + r:#x}" for r in case.registers if r >= DATA),
        *(f"v_add_u32 v{r}, v{r}, v60" for r in case.registers if r >= DATA),
        "s_mov_b64 exec, s[10:11]", case.line, "s_waitcnt vmcnt(0) lgkmcnt(0)", "s_mov_b64 exec, -1",
        "s_sub_u32 s17, s17, 1", "s_cmp_lg_u32 s17, 0", "s_cbranch_scc1 again", *(drain if lds and case.store else ()),
    ]  # fmt: skip
    dump = [] if case.store else [f"v{r}" for r in case.registers]
    return Kernel("gfx908", "\n".join(lines), dump, group_segment_fixed_size=LDS if lds else 0)


def distances(rng: np.random.Generator, case: Case, room: int) -> np.ndarray:
    """Draws 64 distances within the room: streams, runs, tiles, fragments, broadcasts, or random, some with changes."""
    size, lane = case.lane_bytes, np.arange(LANES)
    step = int(rng.choice([1, 4, 16, 64])) if case.space != "lds" else size
    low = -(-max(0, -min(case.shifts)) // step) * step
    high = room - size - max(case.shifts)

    def starts(count: int, reach: int, unit: int) -> np.ndarray:
        return low + rng.integers(0, (high - low - reach) // unit + 1, count) * unit

    kind = rng.integers(0, 9)
    sharing = 64 // size
    if kind == 0:  # runs
        found = starts(LANES, 64, step)[lane // sharing] + lane % sharing * size
    elif kind == 1:  # lines, permuted
        chunk = np.concatenate([rng.permutation(sharing) for _ in range(LANES // sharing)])
        found = starts(LANES, 64, step)[lane // sharing] + chunk * size
    elif kind == 7:  # lines with permuted 16-byte chunks, as in swizzled tiles
        order = rng.permutation(4)
        at = lane % sharing * size
        found = starts(LANES, 64, step)[lane // sharing] + order[at // 16] * 16 + at % 16
    elif kind == 8:  # all lanes in sequence
        found = starts(1, 64 * size, step) + lane * size
    elif kind == 6:  # lines, with the same part of each repeated
        found = starts(LANES, 64, step)[lane // sharing] + lane % int(rng.choice([1, 2, 4])) * size
    elif kind == 2:  # a matrix fragment
        found = starts(LANES, 64, step)[lane % 16] + lane // 16 * size
    elif kind == 3:  # affine, up or down, contended or apart
        stride = int(rng.choice([0, 4, size, 2 * size, size + step, 64]))
        found = starts(1, 64 * stride, step) + stride * (lane if rng.integers(2) else LANES - 1 - lane)
    elif kind == 4:
        found = starts(LANES, 0, step)
    else:  # broadcast by groups
        found = starts(LANES, 0, step)[lane // int(rng.choice([2, 4, 16, 32]))]
    if rng.integers(3) == 0:
        found[rng.integers(0, LANES)] = starts(1, 0, step)[0]
    return found.astype(np.int64)


def masks(rng: np.random.Generator) -> np.ndarray:
    some = rng.integers(0, 2, LANES).astype(bool)
    return [np.ones(LANES, bool), np.ones(LANES, bool), some, np.arange(LANES) < rng.integers(0, 65)][rng.integers(0, 4)]


def lines_before(rng: np.random.Generator) -> np.ndarray:
    """Draws distances of a first access, 16 bytes a lane: whole lines, which set bits of the bitmaps around the next access."""
    return np.repeat(rng.integers(0, ROOM // 64, 16) * 64, 4) + np.arange(LANES) % 4 * 16


def image(rng: np.random.Generator, found: np.ndarray, active: np.ndarray) -> np.ndarray:
    data = rng.integers(0, 256, TABLES + ROOM, dtype=np.uint8)
    data[:256] = found.astype(u32).view(np.uint8)
    data[256:512] = lines_before(rng).astype(u32).view(np.uint8)
    data[512:520] = np.packbits(active, bitorder="little")
    return data


def expected(
    case: Case, data: np.ndarray, found: np.ndarray, active: np.ndarray, room: int
) -> tuple[np.ndarray, np.ndarray, set[int]]:
    """Returns registers, memory afterwards and touched bytes; a lane out of a buffer's range, or a load out of LDS, reads 0. Such a
    lane stores nothing."""
    registers = np.array([OLD + r + 4 * np.arange(LANES) for r in case.registers], u32)
    if case.first < DATA:  # they held the address
        registers[:] = 0
    memory, touched = data.copy(), set[int]()
    for at in data[256:512].view(u32):
        touched.update(range(TABLES + int(at), TABLES + int(at) + 16))
        memory[TABLES + int(at) : TABLES + int(at) + 16] *= not case.store
    part, size = max(1, case.lane_bytes // 4), min(4, case.lane_bytes)
    for number, shift in enumerate(case.shifts):
        for lane in np.flatnonzero(active):
            for dword in range(part):
                at = int(found[lane]) + shift + 4 * dword
                register = number * part + dword
                inside = (at + size if case.space == "buffer" else int(found[lane]) + shift + case.lane_bytes) <= room
                if inside:
                    touched.update(range(TABLES + at, TABLES + at + size))
                place = memory[TABLES + at : TABLES + at + size] if inside else np.zeros(size, np.uint8)
                if case.store:
                    place[:] = case.stored(registers[register, lane])
                else:
                    registers[register, lane] = case.loaded(place)
    return registers, memory, touched


def compare(case: Case, data: np.ndarray, found: np.ndarray, active: np.ndarray, room: int) -> None:
    registers, memory, touched = expected(case, data, found, active, room)
    got = kernel(case).run(data)
    np.testing.assert_array_equal(got.memory, memory)
    for name, row in zip(kernel(case).dump, registers, strict=False):
        np.testing.assert_array_equal(got[name][active], row[active], err_msg=name)
        if case.first >= DATA:
            np.testing.assert_array_equal(got[name][~active], row[~active], err_msg=name)
    if case.space != "lds":
        read = set(range(520)) | (set() if case.store else touched)
        assert got.run.counters["unique_read_bytes"] == len(read)
        dumped = 256 * len(kernel(case).dump)
        assert got.run.counters["unique_write_bytes"] == dumped + (len(touched) if case.store else 0)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
@settings(max_examples=examples(25))
@given(seed=SEEDS)
def test_patterns(case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    room = LDS if case.space == "lds" else ROOM
    found, active = distances(rng, case, room), masks(rng)
    compare(case, image(rng, found, active), found, active, room)


@pytest.mark.parametrize("case", [case for case in CASES if case.space == "buffer"], ids=lambda case: case.line)
@settings(max_examples=examples(15))
@given(seed=SEEDS)
def test_lanes_out_of_a_buffers_range(case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    found, active = rng.permutation(LANES) * 16, masks(rng)
    last = ROOM - case.lane_bytes - case.shifts[0]
    lanes = rng.permutation(LANES)[: rng.integers(1, 4)]
    found[lanes] = rng.choice([ROOM, 0x7FFFFFF0, 0xFFFFFF00], len(lanes))
    found[lanes[0]] = last + rng.choice([0, 4])
    compare(case, image(rng, found, active), found, active, ROOM)


@pytest.mark.parametrize("case", [case for case in CASES if case.space != "buffer"], ids=lambda case: case.line)
@pytest.mark.parametrize("beyond", [0, 1, 0xFFFF_0000])
def test_bounds_of_every_lane(case: Case, beyond: int) -> None:
    """Any lane can use the last place that fits; a byte further is a fault that names the lane, if active. Loads get 0 from LDS."""
    rng = np.random.default_rng(beyond)
    room = LDS if case.space == "lds" else ROOM
    for lane in (0, 17, 63):
        found = np.arange(LANES) * 16 + 16
        found[lane] = min(room - case.lane_bytes - max(case.shifts) + beyond, 0xFFFF_FFFF)
        active = np.ones(LANES, bool)
        if not beyond or (case.space == "lds" and not case.store):
            compare(case, image(rng, found, active), found, active, room)
            continue
        with pytest.raises(MemoryFault, match=f"lane {lane}"):
            kernel(case).run(image(rng, found, active))
        active[lane] = False
        compare(case, image(rng, found, active), found, active, room)


@pytest.mark.parametrize("case", [case for case in CASES if case.space == "global"], ids=lambda case: case.line)
@pytest.mark.parametrize("beyond", [4, 8])
def test_bounds_of_lanes_that_follow_each_other(case: Case, beyond: int) -> None:
    rng = np.random.default_rng(beyond)
    active, size = np.ones(LANES, bool), case.lane_bytes
    found = ROOM - max(case.shifts) - size * np.arange(LANES, 0, -1)
    compare(case, image(rng, found, active), found, active, ROOM)  # the record knows its allocation from here on
    found += beyond
    with pytest.raises(MemoryFault, match=f"lane {LANES - -(-beyond // size)}"):
        kernel(case).run(image(rng, found, active))


@pytest.mark.parametrize("case", [case for case in CASES if case.space != "lds"], ids=lambda case: case.line)
def test_bytes_beyond_a_line_touched_before(case: Case) -> None:
    """Lanes' last bytes are in an untouched line; an earlier launch lets the record learn its allocation."""
    rng = np.random.default_rng(0)
    active = np.ones(LANES, bool)
    for at in (1024, 1024 + 64 - case.lane_bytes, 1024 + 64 - case.lane_bytes // 2):
        found = np.full(LANES, at - case.shifts[0])
        data = image(rng, found, active)
        data[256:512] = (1024 + np.arange(LANES) % 4 * 16).astype(u32).view(np.uint8)
        compare(case, data, found, active, ROOM)
        compare(case, data, found, active, ROOM)


@pytest.mark.parametrize("size", [4, 8, 16])
def test_zero_is_seen_in_lanes_in_any_order(size: int) -> None:
    """Checked mode only takes more time if zeros are not seen, so results do not show it."""

    def emit(module: ir.Module, name: str) -> None:
        frame = Frame(module, name)
        span = LaneSpan(frame, frame.at(frame.wave, layout.VGPR), frame.state(0, I64).pointer(), frame.state(0, I64), size)
        frame.set_state(layout.SCC, all_zero(span).zext(I32))
        frame.build.ret_void()

    memory, lanes = np.zeros(4096, np.uint8), np.random.default_rng(size).permutation(LANES)
    for found in (np.arange(LANES) * size, lanes * size, lanes * (size + 4)):
        wave = Wave()
        wave.s[:2].view(np.uint64)[0] = memory.ctypes.data
        wave.v[0] = found
        for lane in (None, 0, 17, 63):
            if lane is not None:
                memory[found[lane] + size - 1] = 0x80
            wave.call(compiler().address(f"all_zero {size}", emit))
            assert wave.scc == (lane is None)
            memory[:] = 0
