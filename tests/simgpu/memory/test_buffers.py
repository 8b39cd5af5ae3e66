"""Buffer resources against the address formula of the ISA guides and the range rules of docs/reference/semantics.md, in Python."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simgpu.engine.program import Program
from tests.support.engine_kernel import Executed, Kernel
from tests.support.exhaustive import examples

# The input buffer: the resource's last three dwords and soffset, two rows, then the memory.
INDEX, OFFSET, DATA, MEMORY, BYTES = 256, 512, 768, 2048, 1 << 16
INST_OFFSET = 12


@dataclass(frozen=True)
class Resource:
    stride: int
    swizzle: bool
    records: int
    index_stride: int  # 0 to 3: 8, 16, 32, 64
    add_tid: bool
    soffset: int
    data_format: int = 4
    number_format: int = 4
    select: int = 4 | 5 << 3 | 6 << 6 | 7 << 9

    @property
    def dwords(self) -> list[int]:
        stride = self.stride & 0x3FFF
        word3 = self.select | self.number_format << 12 | self.index_stride << 21 | self.add_tid << 23
        word3 |= (self.stride >> 14 if self.add_tid else self.data_format) << 15
        return [stride << 16 | self.swizzle << 31, self.records, word3, self.soffset]


@dataclass(frozen=True)
class Lane:
    """A lane's index register (None without idxen) and offset: the instruction's plus the register's."""

    number: int
    index: int | None
    offset: int


def place(r: Resource, lane: Lane, at: int) -> int:
    """Returns the buffer's byte for byte `at` of an access, before soffset."""
    index, stride = lane.index or 0, r.stride
    if r.add_tid and (r.swizzle or lane.index is None):
        index += lane.number
    offset = lane.offset % 2**32 + at
    if not (r.swizzle and r.add_tid):
        return index * stride + offset
    group = 8 << r.index_stride
    block = (index // group * stride + offset // 4 * 4) * group
    return block + index % group * 4 + offset % 4


def in_range(r: Resource, lane: Lane, at: int, size: int) -> bool:
    if lane.index is None and r.add_tid:
        return True
    if lane.index is not None and r.stride:
        return lane.index < r.records
    return lane.offset % 2**32 + at + size + r.soffset <= r.records


SETUP = f"""
s_load_dwordx4 s[12:15], s[4:5], 0x0
s_waitcnt lgkmcnt(0)
s_add_u32 s20, s4, {MEMORY}
s_addc_u32 s21, s5, 0
s_and_b32 s21, s21, 0xffff
s_or_b32 s21, s21, s12
s_mov_b32 s22, s13
s_mov_b32 s23, s14
s_mov_b32 s24, s15
global_load_dword v2, {{v}}, s[4:5] offset:{INDEX}
global_load_dword v3, {{v}}, s[4:5] offset:{OFFSET}
global_load_dwordx4 v[4:7], {{x}}, s[4:5] offset:{DATA}
s_waitcnt vmcnt(0)
""".replace("{v}", "v60").replace("{x}", "v63")
QUADS = "v_lshlrev_b32 v63, 2, v60\n"


@functools.cache
def kernel(instruction: str, mode: str, target: str) -> Kernel:
    address = {"": "off", "offen": "v3", "idxen": "v2", "idxen offen": "v[2:3]"}[mode]
    line = f"{instruction.format(a=address)} {mode} offset:{INST_OFFSET}"
    if "atomic" in instruction:
        line += " sc0" if target in ("gfx942", "gfx950") else " glc"
    lines = QUADS + SETUP + line + "\ns_waitcnt vmcnt(0)"
    return Kernel(target, lines, ["v4", "v5", "v6", "v7"])


def run(instruction: str, mode: str, target: str, data: np.ndarray, lean: bool) -> Executed:
    """Runs an instruction once. lean: begin with the lean handler, if it has one."""
    if not lean or mode != "offen":
        return kernel(instruction, mode, target).run(data)
    with mock.patch.object(Program, "_has_complete", lambda program, key: False):  # a complete handler would be used at once
        return kernel.__wrapped__(instruction, mode, target).run(data)


def inputs(r: Resource, index: np.ndarray, offset: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    data = rng.integers(0, 256, MEMORY + BYTES, dtype=np.uint8)
    data[:16].view(np.uint32)[:] = r.dwords
    data[INDEX : INDEX + 256].view(np.uint32)[:] = index
    data[OFFSET : OFFSET + 256].view(np.uint32)[:] = offset
    return data


resources = st.builds(
    Resource,
    stride=st.sampled_from([0, 4, 8, 12, 16, 20, 64]),
    swizzle=st.booleans(),
    records=st.sampled_from([0, 1, 5, 16, 63, 64, 65, 100, 256, 777, 2048]),
    index_stride=st.integers(0, 3),
    add_tid=st.booleans(),
    soffset=st.sampled_from([0, 4, 100, 256]),
)
modes = st.sampled_from(["", "offen", "idxen", "idxen offen"])
targets = st.sampled_from(["gfx908", "gfx942"])


def operands(mode: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    index = rng.integers(0, 90, 64).astype(np.uint32)
    offset = (4 * rng.integers(0, 40, 64)).astype(np.uint32)
    return index, offset, rng


def lanes(mode: str, index: np.ndarray, offset: np.ndarray) -> list[Lane]:
    return [
        Lane(
            number,
            int(index[number]) if "idxen" in mode else None,
            INST_OFFSET + (int(offset[number]) if "offen" in mode else 0),
        )
        for number in range(64)
    ]


@settings(max_examples=examples(60))
@given(resources, modes, targets, st.booleans(), st.integers(0, 2**32))
def test_wide_loads(r: Resource, mode: str, target: str, lean: bool, seed: int) -> None:
    index, offset, rng = operands(mode, seed)
    data = inputs(r, index, offset, rng)
    memory = data[MEMORY:]
    want = np.zeros((4, 64), np.uint32)
    for lane in lanes(mode, index, offset):
        for dword in range(4):
            if in_range(r, lane, 4 * dword, 4):
                at = place(r, lane, 4 * dword) + r.soffset
                assume(at + 4 <= BYTES)
                want[dword, lane.number] = memory[at : at + 4].copy().view(np.uint32)[0]
    got = run("buffer_load_dwordx4 v[4:7], {a}, s[20:23], s24", mode, target, data, lean)
    for dword in range(4):
        np.testing.assert_array_equal(got[f"v{4 + dword}"], want[dword])


@settings(max_examples=examples(40))
@given(resources, modes, st.sampled_from(["short", "dword", "dwordx3"]), targets, st.booleans(), st.integers(0, 2**32))
def test_stores(r: Resource, mode: str, width: str, target: str, lean: bool, seed: int) -> None:
    index, offset, rng = operands(mode, seed)
    data = inputs(r, index, offset, rng)
    values = data[DATA : DATA + 1024].copy().view(np.uint32).reshape(64, 4)
    want = data[MEMORY:].copy()
    sizes = {"short": [2], "dword": [4], "dwordx3": [4, 4, 4]}[width]
    for dword in range(len(sizes)):
        for lane in lanes(mode, index, offset):
            if in_range(r, lane, 4 * dword, sizes[dword]):
                at = place(r, lane, 4 * dword) + r.soffset
                assume(at + 4 <= BYTES)
                want[at : at + sizes[dword]] = values[lane.number, dword : dword + 1].view(np.uint8)[: sizes[dword]]
    # Lanes that write the same place in different dwords have no reliable order.
    touched = [
        place(r, lane, 4 * d)
        for lane in lanes(mode, index, offset) for d in range(len(sizes))
        if in_range(r, lane, 4 * d, sizes[d])
    ]  # fmt: skip
    assume(len(sizes) == 1 or len(set(touched)) == len(touched))
    registers = {"short": "v4", "dword": "v4", "dwordx3": "v[4:6]"}[width]
    got = run(f"buffer_store_{width} {registers}, {{a}}, s[20:23], s24", mode, target, data, lean)
    np.testing.assert_array_equal(got.memory[MEMORY:], want)


@settings(max_examples=examples(30))
@given(resources, modes, targets, st.integers(0, 2**32))
def test_atomics_with_return(r: Resource, mode: str, target: str, seed: int) -> None:
    index, offset, rng = operands(mode, seed)
    data = inputs(r, index, offset, rng)
    added = data[DATA : DATA + 1024].copy().view(np.uint32).reshape(64, 4)[:, 0]
    memory = data[MEMORY:].copy()
    want = np.zeros(64, np.uint32)
    for lane in lanes(mode, index, offset):
        if in_range(r, lane, 0, 4):
            at = place(r, lane, 0) + r.soffset
            assume(at + 4 <= BYTES)
            cell = memory[at : at + 4].view(np.uint32)
            want[lane.number] = cell[0]
            cell += added[lane.number]
    got = kernel("buffer_atomic_add v4, {a}, s[20:23], s24", mode, target).run(data)
    np.testing.assert_array_equal(got["v4"], want)
    np.testing.assert_array_equal(got.memory[MEMORY:], memory)


def test_records_are_counted_by_index_where_there_is_one_and_a_stride() -> None:
    """Swizzle is not needed; offen by itself counts bytes of a buffer that has a stride."""
    index = np.arange(64, dtype=np.uint32)
    r = Resource(16, False, 10, 3, False, 0)
    data = inputs(r, index, 4 * index, np.random.default_rng(1))
    memory = data[MEMORY:].view(np.uint32)
    load = "buffer_load_dword v4, {a}, s[20:23], s24"
    got = kernel(load, "idxen", "gfx942").run(data)["v4"]
    np.testing.assert_array_equal(got, np.where(index < 10, memory[4 * index + INST_OFFSET // 4], 0))
    got = kernel(load, "offen", "gfx942").run(data)["v4"]
    assert not got.any()  # the last byte, INST_OFFSET + 3, is past byte 10


def test_offsets_wrap_before_soffset_is_added() -> None:
    """2^32 - 8 in the register and 12 in the instruction are byte 4 (gfx950, by rocjitsu)."""
    offset = np.full(64, 2**32 - 8, np.uint32)
    r = Resource(0, False, 256, 3, False, 100)
    data = inputs(r, np.zeros(64, np.uint32), offset, np.random.default_rng(2))
    got = kernel("buffer_load_dword v4, {a}, s[20:23], s24", "offen", "gfx950").run(data)["v4"]
    assert (got == data[MEMORY + 104 : MEMORY + 108].view(np.uint32)[0]).all()


@pytest.mark.parametrize("target", ["gfx908", "gfx90a"])
def test_loads_and_stores_through_lds(target: str) -> None:
    """buffer_load ... lds and buffer_store_lds_dword: M0 + offset + 4·lane in LDS."""
    lines = (
        QUADS + SETUP + "s_mov_b32 m0, 0x100\n"
        "buffer_load_dword v3, s[20:23], s24 offen offset:8 lds\n"
        "s_waitcnt vmcnt(0)\n"
        "buffer_load_ubyte v3, s[20:23], s24 offen offset:512 lds\n"
        "s_waitcnt vmcnt(0)\n"
        "v_add_u32 v8, 0x108, v60\n"
        "ds_read_b32 v9, v8\nds_read_b32 v10, v8 offset:504\ns_waitcnt lgkmcnt(0)\n"
        "s_mov_b32 m0, 0x104\n"
        "s_mov_b32 s20, 0\ns_add_u32 s20, s4, 0x4000\n"
        "buffer_store_lds_dword s[20:23], 0 offset:4 lds"
    )
    r = Resource(0, False, 2048, 3, False, 0)
    rng = np.random.default_rng(5)
    offset = (4 * rng.permutation(64)).astype(np.uint32)
    data = inputs(r, np.zeros(64, np.uint32), offset, rng)
    memory = data[MEMORY:]
    got = Kernel(target, lines, ["v9", "v10"], group_segment_fixed_size=4096).run(data)
    words = memory[8:].view(np.uint32)[offset // 4]
    np.testing.assert_array_equal(got["v9"], words)
    np.testing.assert_array_equal(got["v10"], memory[offset + 512])
    # Every lane of the store has the same address: lane 63's dword stays.
    assert got.memory[0x4004:0x4008].view(np.uint32)[0] == words[63]
