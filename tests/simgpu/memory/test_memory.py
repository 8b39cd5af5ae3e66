"""Scalar stores and atomics, private memory three ways, apertures, atomics, loads to LDS."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu.hardware.architectures import TARGETS
from simgpu.hardware.errors import MemoryFault
from tests.support.engine_kernel import execute
from tests.support.exhaustive import examples

u32 = np.uint32
LANES = np.arange(64, dtype=u32)


def image(seed: int, nbytes: int = 4096) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


def word(data: np.ndarray, at: int) -> int:
    return int(data[at : at + 4].view(u32)[0])


# -- scalar memory ---------------------------------------------------------------------------------


def test_scalar_stores() -> None:
    lines = """
    s_mov_b32 s20, 0x11111111
    s_mov_b32 s21, 0x22222222
    s_mov_b32 s22, 0x33333333
    s_mov_b32 s23, 0x44444444
    s_mov_b32 s30, 0x20
    s_store_dword s20, s[4:5], 0x43
    s_store_dwordx2 s[20:21], s[4:5], s30
    s_store_dwordx4 s[20:23], s[4:5], 0x80 glc
    s_mov_b32 s32, 3
    s_scratch_store_dword s23, s[4:5], s32
    s_waitcnt lgkmcnt(0)
    s_scratch_load_dwordx2 s[26:27], s[4:5], s32
    s_dcache_wb
    s_waitcnt lgkmcnt(0)
    """
    data = image(1)
    got = execute("gfx908", lines, ["s26", "s27"], data)
    want = data.copy()
    want[0x40:0x44].view(u32)[0] = 0x11111111
    want[0x20:0x28].view(u32)[:] = 0x11111111, 0x22222222
    want[0x80:0x90].view(u32)[:] = 0x11111111, 0x22222222, 0x33333333, 0x44444444
    want[192:196].view(u32)[0] = 0x44444444  # a register offset of s_scratch counts 64 bytes
    np.testing.assert_array_equal(got.memory, want)
    assert got["s26"][0] == 0x44444444
    assert got["s27"][0] == word(want, 196)


BUFFER = """
s_mov_b32 s20, s4
s_and_b32 s21, s5, 0xffff
s_mov_b32 s22, 68
s_mov_b32 s23, 0
s_mov_b32 s30, 5
s_mov_b32 s31, 7
"""


def test_scalar_buffer_range() -> None:
    lines = BUFFER + """
    s_buffer_load_dwordx4 s[24:27], s[20:23], 0x3c
    s_buffer_store_dwordx2 s[30:31], s[20:23], 0x40
    s_buffer_atomic_add s30, s[20:23], 0x10 glc
    s_buffer_atomic_add s31, s[20:23], 0x44 glc
    s_waitcnt lgkmcnt(0)
    """
    data = image(2)
    got = execute("gfx908", lines, ["s24", "s25", "s26", "s27", "s30", "s31"], data)
    assert [int(got[f"s{n}"][0]) for n in range(24, 28)] == [word(data, 0x3C), word(data, 0x40), 0, 0]
    assert (int(got["s30"][0]), int(got["s31"][0])) == (word(data, 0x10), 0)
    want = data.copy()
    want[0x40:0x44].view(u32)[0] = 5
    want[0x10:0x14].view(u32)[0] += u32(5)
    np.testing.assert_array_equal(got.memory, want)


def test_scalar_buffers_with_a_stride_count_records() -> None:
    """17 records of 4 bytes are 68 bytes, too (ISA guides, "Scalar Memory": the range is num_records times the stride)."""
    lines = BUFFER.replace("0xffff", "0xffff\ns_or_b32 s21, s21, 0x40000").replace("68", "17") + """
    s_buffer_load_dwordx4 s[24:27], s[20:23], 0x3c
    s_waitcnt lgkmcnt(0)
    """
    data = image(2)
    got = execute("gfx908", lines, ["s24", "s25", "s26"], data)
    assert [int(got[f"s{n}"][0]) for n in range(24, 27)] == [word(data, 0x3C), word(data, 0x40), 0]


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from([1, 2, 4, 8, 16]), st.integers(0, 1023), st.integers(0, 160), st.booleans())
def test_scalar_loads_move_and_count_each_dword(count: int, first: int, records: int, limited: bool) -> None:
    """Loads from any dword on, which share words of the bitmap of bytes read; a buffer's dwords past its records are 0."""
    data = image(4, 4096 + 64)
    suffix = "" if count == 1 else f"x{count}"
    source = f"s[20:23], s30 // of {records} bytes" if limited else "s[4:5], s30"
    lines = f"""
    {BUFFER.replace("68", str(4 * first + records))}
    s_mov_b32 s30, {4 * first}
    s_{"buffer_" * limited}load_dword{suffix} s{f"[32:{31 + count}]" if count > 1 else 32}, {source}
    s_waitcnt lgkmcnt(0)
    """
    names = [f"s{number}" for number in range(32, 32 + count)]
    got, bare = execute("gfx90a", lines, names, data), execute("gfx90a", "s_nop 0", names, data)
    inside = [not limited or 4 * at + 4 <= records for at in range(count)]
    assert [int(got[name][0]) for name in names] == [
        word(data, 4 * (first + at)) if there else 0 for at, there in enumerate(inside)
    ]
    assert got.run.counters["unique_read_bytes"] - bare.run.counters["unique_read_bytes"] == 4 * sum(inside)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("swap", lambda old, x: x), ("sub", lambda old, x: old - x),
        ("smin", lambda old, x: min(old, x, key=lambda v: v - (v >> 31 << 32))),
        ("umax", max), ("xor", lambda old, x: old ^ x), ("inc", lambda old, x: 0 if old >= x else old + 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("target", TARGETS)
def test_scalar_atomics(target: str, name: str, rule: Any) -> None:
    data = image(3)
    lines = f"s_mov_b32 s20, 0x80001234\ns_atomic_{name} s20, s[4:5], 0x40 glc\ns_waitcnt lgkmcnt(0)"
    got = execute(target, lines, ["s20"], data)
    old = word(data, 0x40)
    assert int(got["s20"][0]) == old
    assert word(got.memory, 0x40) == rule(old, 0x80001234) & 0xFFFFFFFF


@pytest.mark.parametrize("target", TARGETS)
def test_scalar_compare_and_swap(target: str) -> None:
    data = image(4)
    lines = """
    s_load_dwordx2 s[22:23], s[4:5], 0x40
    s_waitcnt lgkmcnt(0)
    s_mov_b64 s[20:21], 17
    s_atomic_cmpswap_x2 s[20:23], s[4:5], 0x40
    s_atomic_cmpswap_x2 s[20:23], s[4:5], 0x48 glc
    s_waitcnt lgkmcnt(0)
    """
    got = execute(target, lines, ["s20", "s21"], data)
    want = data.copy()
    want[0x40:0x48].view(np.uint64)[0] = 17
    np.testing.assert_array_equal(got.memory, want)
    assert [int(got["s20"][0]), int(got["s21"][0])] == [word(data, 0x48), word(data, 0x4C)]


def test_scalar_store_outside_faults() -> None:
    with pytest.raises(MemoryFault, match="s_store_dword"):
        execute("gfx908", "s_store_dword s20, s[4:5], 0x1000", data=image(0))


# -- private memory --------------------------------------------------------------------------------

OLD = {
    "user_sgpr_private_segment_buffer": 1, "user_sgpr_flat_scratch_init": 1, "kernarg": "s[4:5]",
    "system_sgpr_private_segment_wavefront_offset": 1, "private_segment_fixed_size": 64,
    "before": """
    s_add_u32 flat_scratch_lo, s6, s9
    s_addc_u32 flat_scratch_hi, s7, 0
    s_add_u32 s0, s0, s9
    s_addc_u32 s1, s1, 0""",
}  # fmt: skip
NEW = {"enable_private_segment": 1, "private_segment_fixed_size": 64}
PRIVATE = {"gfx908": OLD, "gfx90a": OLD, "gfx942": NEW, "gfx950": NEW}
FLAT = "s_mov_b64 s[30:31], {base}\nv_mov_b32 v11, s31\n"


@pytest.mark.parametrize("target", list(PRIVATE))
def test_private_memory_by_scratch_and_flat(target: str) -> None:
    lines = FLAT.format(base="src_private_base") + """
    v_mul_u32_u24 v14, 3, v0
    v_mov_b32 v10, 16
    v_add_u32 v15, 1, v14
    scratch_store_dwordx2 v10, v[14:15], off
    s_mov_b32 s20, 8
    v_lshlrev_b32 v3, 16, v14
    scratch_store_short_d16_hi off, v3, s20 offset:16
    s_waitcnt vmcnt(0)
    flat_load_dwordx2 v[4:5], v[10:11]
    s_waitcnt vmcnt(0) lgkmcnt(0)
    v_mov_b32 v10, 20
    flat_atomic_add v6, v[10:11], v0 """ + ("glc" if target in ("gfx908", "gfx90a") else "sc0") + """
    s_waitcnt vmcnt(0) lgkmcnt(0)
    scratch_load_dword v7, off, s20 offset:12
    v_mov_b32 v10, 16
    flat_atomic_add_x2 v[10:11], v[4:5]
    s_waitcnt vmcnt(0) lgkmcnt(0)
    scratch_load_dwordx2 v[12:13], off, s20 offset:8
    scratch_load_ushort v8, off, s20 offset:16
    """
    got = execute(target, lines, ["v4", "v5", "v6", "v7", "v8", "v12", "v13"], block=256, **PRIVATE[target])
    lane = np.arange(256, dtype=u32)
    np.testing.assert_array_equal(got["v4"], 3 * lane)
    np.testing.assert_array_equal(got["v5"], 3 * lane + 1)
    np.testing.assert_array_equal(got["v6"], 3 * lane + 1)
    np.testing.assert_array_equal(got["v7"], 4 * lane + 1)
    np.testing.assert_array_equal(got["v8"], 3 * lane)
    np.testing.assert_array_equal(got["v12"], 6 * lane)
    np.testing.assert_array_equal(got["v13"], 7 * lane + 2)


@pytest.mark.parametrize("target", ["gfx908", "gfx90a"])
def test_private_memory_by_resource(target: str) -> None:
    lines = """
    v_mov_b32 v10, 4
    s_mov_b32 s20, 8
    buffer_store_dword v0, v10, s[0:3], s20 offen offset:16
    s_waitcnt vmcnt(0)
    scratch_load_dword v1, off, s20 offset:20
    v_add_u32 v2, 9, v0
    v_mov_b32 v3, 44
    scratch_store_dword v3, v2, off
    s_waitcnt vmcnt(0)
    buffer_load_dword v4, off, s[0:3], 0 offset:44
    """.replace("s20 offen", "0 offen").replace("offset:16", "offset:24")
    got = execute(target, lines, ["v1", "v4"], block=128, **PRIVATE[target])
    lane = np.arange(128, dtype=u32)
    np.testing.assert_array_equal(got["v1"], lane)
    np.testing.assert_array_equal(got["v4"], lane + 9)


def test_private_memory_has_an_end() -> None:
    with pytest.raises(MemoryFault, match="private offset"):
        execute("gfx942", "v_mov_b32 v1, 64\nscratch_load_dword v2, v1, off", **NEW)
    lines = FLAT.format(base="src_private_base") + "v_mov_b32 v10, 61\nflat_atomic_add v[10:11], v0"
    with pytest.raises(MemoryFault, match="private offset"):
        execute("gfx942", lines, **NEW)


# -- the LDS aperture ------------------------------------------------------------------------------


def test_flat_lds_and_global_in_one_instruction() -> None:
    """Even lanes go to LDS, odd lanes to the input buffer."""
    lines = FLAT.format(base="src_shared_base") + """
    v_mov_b32 v10, v60
    v_mov_b32 v12, s5
    v_add_u32 v13, s4, v60
    v_and_b32 v14, 1, v0
    v_cmp_eq_u32 vcc, 1, v14
    v_cndmask_b32 v10, v10, v13, vcc
    v_cndmask_b32 v11, v11, v12, vcc
    v_add_u32 v1, 5, v0
    ds_write_b32 v60, v1
    s_waitcnt lgkmcnt(0)
    v_mov_b32 v2, 100
    flat_atomic_add v3, v[10:11], v2 glc
    s_waitcnt vmcnt(0) lgkmcnt(0)
    ds_read_b32 v4, v60
    flat_load_dword v5, v[10:11]
    """
    data = image(7)
    got = execute("gfx90a", lines, ["v3", "v4", "v5"], data, group_segment_fixed_size=256)
    before = np.where(LANES % 2 == 1, data[:256].view(u32), LANES + 5)
    np.testing.assert_array_equal(got["v3"], before)
    np.testing.assert_array_equal(got["v5"], before + u32(100))
    np.testing.assert_array_equal(got["v4"], LANES + 5 + 100 * (LANES % 2 == 0))
    words = got.memory[:256].view(u32)
    np.testing.assert_array_equal(words, data[:256].view(u32) + u32(100) * (LANES % 2).astype(u32))


# -- global atomics --------------------------------------------------------------------------------


def half_sum(a: np.ndarray, b: np.ndarray, dtype: Any) -> np.ndarray:
    wide = a.view(dtype).astype(np.float64) + b.view(dtype).astype(np.float64)
    return wide.astype(np.float32).astype(dtype).view(np.uint16)


ATOMICS: list[tuple[str, str, int, Any]] = [
    ("gfx908", "add_f32", 32, lambda a, b: (a.view("f4") + b.view("f4")).view(u32)),
    ("gfx908", "pk_add_f16", 32, lambda a, b: half_sum(a, b, np.float16).view(u32)),
    ("gfx90a", "add_f64", 64, lambda a, b: (a.view("f8") + b.view("f8")).view(u32)),
    ("gfx90a", "min_f64", 64, lambda a, b: np.minimum(a.view("f8"), b.view("f8")).view(u32)),
    ("gfx942", "pk_add_bf16", 32, lambda a, b: half_sum(a, b, ml_dtypes.bfloat16).view(u32)),
    ("gfx942", "umin_x2", 64, lambda a, b: np.minimum(a.view("u8"), b.view("u8")).view(u32)),
    ("gfx950", "sub", 32, lambda a, b: a - b),
]


@pytest.mark.covering(4)  # all rows: what a target lacks is skipped
@pytest.mark.parametrize("space", ["global", "flat", "buffer"])
@pytest.mark.parametrize(("target", "name", "bits", "rule"), ATOMICS)
def test_atomics(space: str, target: str, name: str, bits: int, rule: Any) -> None:
    if space == "buffer" and (target, name) == ("gfx942", "pk_add_bf16"):
        pytest.skip("gfx950 only")
    returns = "sc0" if target in ("gfx942", "gfx950") else "glc"
    if target == "gfx908" and space != "global":
        returns = ""
        if space == "flat":
            pytest.skip("gfx908 has no flat float atomics")
    if target == "gfx908":
        returns = ""  # gfx908's float atomics return nothing
    count = bits // 32
    rng = np.random.default_rng(len(name))
    floats = "f" in name
    dtype: Any = {"f32": np.float32, "f64": np.float64, "f16": np.float16}.get(name[-3:])
    data = image(8)
    if floats:
        if name.endswith("bf16"):
            numbers = rng.normal(size=512).astype(ml_dtypes.bfloat16).view(np.uint8)
        else:
            numbers = rng.normal(size=4096 // np.dtype(dtype).itemsize // 2).astype(dtype).view(np.uint8)
        data[: numbers.size] = numbers
    regs = "v4" if count == 1 else "v[4:5]"
    old = "v6" if count == 1 else "v[6:7]"
    result = f"{old}, " if returns else ""
    where, tail = {
        "global": ("v3", f", {regs}, s[4:5]"),
        "flat": ("v[10:11]", f", {regs}"),
        "buffer": ("v3", ", s[20:23], 0 offen"),
    }[space]
    if space == "buffer":
        line = f"buffer_atomic_{name} {regs}, {where}{tail} {returns}"
        old_regs = ["v4", "v5"][:count]
    else:
        line = f"{space}_atomic_{name} {result}{where}{tail} {returns}"
        old_regs = ["v6", "v7"][:count]
    lines = f"""
    v_lshlrev_b32 v3, {1 + count}, v0
    global_load_dword{'' if count == 1 else 'x2'} {regs}, v3, s[4:5] offset:512
    v_add_co_u32 v10, vcc, s4, v3
    v_mov_b32 v11, s5
    v_addc_co_u32 v11, vcc, 0, v11, vcc
    s_mov_b32 s20, s4
    s_and_b32 s21, s5, 0xffff
    s_mov_b32 s22, 0x1000
    s_mov_b32 s23, 0
    s_waitcnt vmcnt(0)
    {line}
    """
    got = execute(target, lines, old_regs, data)
    size = 256 * count
    a, b = data[:size].view(u32), data[512 : 512 + size].view(u32)
    np.testing.assert_array_equal(got.memory[:size].view(u32), rule(a, b))
    if returns:
        for part, register in enumerate(old_regs):
            np.testing.assert_array_equal(got[register], a[part::count])


def test_colliding_atomics_add_up() -> None:
    lines = "v_mov_b32 v3, 0\nglobal_atomic_add v4, v3, v0, s[4:5] glc\n"
    got = execute("gfx90a", lines, ["v4"], np.zeros(64, u32))
    assert word(got.memory, 0) == 63 * 32
    np.testing.assert_array_equal(got["v4"], np.cumsum(LANES) - LANES)


# -- loads to LDS ----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["gfx908", "gfx942"])
def test_global_loads_to_lds(target: str) -> None:
    old = target == "gfx908"
    dword, short = ("load_dword", "load_sshort") if old else ("load_lds_dword", "load_lds_sshort")
    end = " lds" if old else ""
    lines = f"""
    s_mov_b32 m0, 0x40
    v_xor_b32 v3, 0xfc, v60
    global_{dword} v3, s[4:5] offset:4{end}
    s_waitcnt vmcnt(0)
    global_{short} v3, s[4:5] offset:260{end}
    s_waitcnt vmcnt(0)
    v_add_u32 v8, 0x44, v60
    ds_read_b32 v9, v8
    ds_read_b32 v10, v8 offset:256
    """
    data = image(9)
    got = execute(target, lines, ["v9", "v10"], data, group_segment_fixed_size=1024)
    np.testing.assert_array_equal(got["v9"], data[4:260].view(u32)[::-1])
    shorts = data[260:516].view(np.int16)[::2][::-1]
    np.testing.assert_array_equal(got["v10"].view(np.int32), shorts)


def test_scratch_load_to_lds() -> None:
    lines = """
    scratch_store_dword off, v0, off offset:8
    s_mov_b32 m0, 0
    s_waitcnt vmcnt(0)
    scratch_load_lds_dword off, off offset:8
    s_waitcnt vmcnt(0)
    ds_read_b32 v9, v60 offset:8
    """
    got = execute("gfx942", lines, ["v9"], group_segment_fixed_size=1024, **NEW)
    np.testing.assert_array_equal(got["v9"], LANES)
