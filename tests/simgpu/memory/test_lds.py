"""LDS instructions against models in Python: atomics, two places, wide and short, counters."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from simgpu import Buffer, Device, Kernel, debug
from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hardware.errors import MemoryFault, UnsupportedInstruction
from simgpu.sampling.samples import sample
from tests.support.engine_kernel import execute
from tests.support.kernels import KernelText, assemble, loaded_kernel

u32, u64 = np.uint32, np.uint64
SIZE = 16384
BF16: Any = ml_dtypes.bfloat16
LANES = np.arange(64, dtype=u32)

# Copies the input buffer's first 4096 bytes to LDS, 64 bytes a lane; v60 stays 4·lane.
FILL = """
v_lshlrev_b32 v50, 6, v0
global_load_dwordx4 v[52:55], v50, s[4:5]
s_waitcnt vmcnt(0)
ds_write_b128 v50, v[52:55]
global_load_dwordx4 v[52:55], v50, s[4:5] offset:16
s_waitcnt vmcnt(0)
ds_write_b128 v50, v[52:55] offset:16
global_load_dwordx4 v[52:55], v50, s[4:5] offset:32
s_waitcnt vmcnt(0)
ds_write_b128 v50, v[52:55] offset:32
global_load_dwordx4 v[52:55], v50, s[4:5] offset:48
s_waitcnt vmcnt(0)
ds_write_b128 v50, v[52:55] offset:48
s_waitcnt lgkmcnt(0)
"""
# Copies LDS back to the input buffer.
EMPTY = """
s_waitcnt lgkmcnt(0)
ds_read_b128 v[52:55], v50
s_waitcnt lgkmcnt(0)
global_store_dwordx4 v50, v[52:55], s[4:5]
ds_read_b128 v[52:55], v50 offset:16
s_waitcnt lgkmcnt(0)
global_store_dwordx4 v50, v[52:55], s[4:5] offset:16
ds_read_b128 v[52:55], v50 offset:32
s_waitcnt lgkmcnt(0)
global_store_dwordx4 v50, v[52:55], s[4:5] offset:32
ds_read_b128 v[52:55], v50 offset:48
s_waitcnt lgkmcnt(0)
global_store_dwordx4 v50, v[52:55], s[4:5] offset:48
s_waitcnt vmcnt(0)
"""


def image(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, 4096, dtype=np.uint8)


def run(target: str, lines: str, dump: list[str], data: np.ndarray, write_back: bool = True) -> Any:
    whole = FILL + lines + (EMPTY if write_back else "\ns_waitcnt lgkmcnt(0)")
    return execute(target, whole, dump, data, group_segment_fixed_size=SIZE)


def signed(x: int, bits: int) -> int:
    return x - (1 << bits) if x >> (bits - 1) else x


INTEGER: dict[str, Any] = {
    "add_{u}": lambda old, x, n: old + x, "sub_{u}": lambda old, x, n: old - x,
    "rsub_{u}": lambda old, x, n: x - old, "inc_{u}": lambda old, x, n: 0 if old >= x else old + 1,
    "dec_{u}": lambda old, x, n: x if old == 0 or old > x else old - 1,
    "min_{i}": lambda old, x, n: min(old, x, key=lambda v: signed(v, n)),
    "max_{i}": lambda old, x, n: max(old, x, key=lambda v: signed(v, n)),
    "min_{u}": lambda old, x, n: min(old, x), "max_{u}": lambda old, x, n: max(old, x),
    "and_{b}": lambda old, x, n: old & x, "or_{b}": lambda old, x, n: old | x,
    "xor_{b}": lambda old, x, n: old ^ x, "wrxchg_{b}": lambda old, x, n: x,
}  # fmt: skip


def named(form: str, bits: int) -> str:
    return form.format(u=f"u{bits}", i=f"i{bits}", b=f"b{bits}")


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("form", list(INTEGER))
def test_integer_atomics(form: str, bits: int) -> None:
    """With return; two lanes share each place, the lower first."""
    stem, suffix = named(form, bits).split("_")
    size = bits // 8
    regs, old = ("v2", "v4") if bits == 32 else ("v[2:3]", "v[4:5]")
    lines = f"""
    v_lshrrev_b32 v1, 1, v0
    v_mul_u32_u24 v1, {size}, v1
    ds_read_b{bits} {regs}, v1 offset:1024
    s_waitcnt lgkmcnt(0)
    ds_{stem}_rtn_{suffix} {old}, v1, {regs} offset:8
    """
    data = image(len(form) + bits)
    got = run("gfx908", lines, ["v4", "v5"], data)
    kind: Any = {32: u32, 64: u64}[bits]
    cells, operands = data[8:1024].view(kind), data[1024:].view(kind)
    want = [int(c) for c in cells]
    for lane in range(64):
        place = lane // 2
        returned = int(got["v4"][lane]) | (int(got["v5"][lane]) << 32 if bits == 64 else 0)
        assert returned == want[place]
        want[place] = INTEGER[form](want[place], int(operands[place]), bits) & (1 << bits) - 1
    np.testing.assert_array_equal(got.memory[8:1024].view(kind), np.array(want, kind))


def test_two_operands() -> None:
    """ds_cmpst, ds_mskor and ds_wrap take data0 and data1."""
    lines = """
    ds_read_b32 v1, v60
    ds_read_b32 v2, v60 offset:256
    s_waitcnt lgkmcnt(0)
    v_and_b32 v3, 1, v0
    v_add_u32 v3, v1, v3
    ds_cmpst_b32 v60, v3, v2
    ds_mskor_rtn_b32 v4, v60, v1, v2 offset:512
    ds_wrap_rtn_b32 v5, v60, v1, v2 offset:768
    """
    data = image(5)
    got = run("gfx90a", lines, ["v4", "v5"], data)
    rows = data[:1024].view(u32).reshape(4, 64)
    after = got.memory[:1024].view(u32).reshape(4, 64)
    np.testing.assert_array_equal(after[0], np.where(LANES % 2 == 0, rows[1], rows[0]))
    np.testing.assert_array_equal(after[2], rows[2] & ~rows[0] | rows[1])
    np.testing.assert_array_equal(got["v4"], rows[2])
    wrapped = np.where(rows[3] >= rows[0], rows[3] - rows[0], rows[3] + rows[1])
    np.testing.assert_array_equal(after[3], wrapped)
    np.testing.assert_array_equal(got["v5"], rows[3])


FLOATS: list[tuple[str, str, int, Any]] = [
    ("gfx908", "add_f32", 32, lambda a, b: (a.view("f4") + b.view("f4")).view(u32)),
    ("gfx90a", "min_f32", 32, lambda a, b: np.minimum(a.view("f4"), b.view("f4")).view(u32)),
    ("gfx90a", "add_f64", 64, lambda a, b: (a.view("f8") + b.view("f8")).view(u32)),
    ("gfx908", "max_f64", 64, lambda a, b: np.maximum(a.view("f8"), b.view("f8")).view(u32)),
    ("gfx942", "pk_add_f16", 32, lambda a, b: (a.view("f2") + b.view("f2")).view(u32)),
    ("gfx950", "pk_add_bf16", 32, lambda a, b: (a.view(BF16) + b.view(BF16)).view(u32)),
]  # fmt: skip


@pytest.mark.parametrize(("target", "name", "bits", "rule"), FLOATS)
def test_float_atomics(target: str, name: str, bits: int, rule: Any) -> None:
    dtype: Any = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "f64": np.float64}[
        name.split("_")[-1]
    ]
    rng = np.random.default_rng(bits)
    data = rng.normal(size=4096 // np.dtype(dtype).itemsize).astype(dtype).view(np.uint8)
    stem, suffix = name.rsplit("_", 1)
    regs, old = ("v2", "v4") if bits == 32 else ("v[2:3]", "v[4:5]")
    lines = f"""
    v_mul_u32_u24 v1, {bits // 8}, v0
    ds_read_b{bits} {regs}, v1 offset:1024
    s_waitcnt lgkmcnt(0)
    ds_{stem}_{suffix} v1, {regs}
    ds_{stem}_rtn_{suffix} {old}, v1, {regs} offset:512
    """
    got = run(target, lines, ["v4", "v5"], data)
    count = bits // 32
    for at in (0, 512):
        a, b = data[at : at + 256 * count].view(u32), data[1024 : 1024 + 256 * count].view(u32)
        np.testing.assert_array_equal(got.memory[at : at + 256].view(u32), rule(a, b)[:64])
    np.testing.assert_array_equal(got["v4"], data[512 : 512 + 256 * count].view(u32)[::count])


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("form", ["2", "2st64"])
def test_two_places(form: str, bits: int) -> None:
    """read2, write2 and wrxchg2 count offsets in elements, st64 forms in 64 elements."""
    unit = bits // 8 * (64 if form == "2st64" else 1)
    first, second = (1, 5) if form == "2st64" else (3, 250)
    low, high = ("v2", "v3") if bits == 32 else ("v[2:3]", "v[4:5]")
    both, old = ("v[2:3]", "v[6:7]") if bits == 32 else ("v[2:5]", "v[6:9]")
    offsets = f"offset0:{first} offset1:{second}"
    lines = f"""
    v_mul_u32_u24 v1, {bits // 8}, v0
    ds_read{form}_b{bits} {both}, v1 offset0:{first - (form == '2st64')} offset1:2
    s_waitcnt lgkmcnt(0)
    ds_write{form}_b{bits} v1, {low}, {high} {offsets}
    ds_wrxchg{form}_rtn_b{bits} {old}, v1, {high}, {low} {offsets}
    """
    data = image(bits)
    dump = ["v6", "v7", "v8", "v9"][: 2 * bits // 32]
    got = run("gfx90a", lines, ["v2", "v3", *dump], data)
    kind: Any = {32: u32, 64: u64}[bits]
    lds = np.concatenate([data, np.zeros(SIZE - 4096, np.uint8)])

    def places(offset: int) -> np.ndarray:
        return (LANES.astype(np.int64) * (bits // 8) + offset * unit) // (bits // 8)

    cells = lds.view(kind)
    a = cells[places(first - (form == "2st64"))].copy()
    b = cells[places(2)].copy()
    returned: list[np.ndarray] = []
    for values in ((a, b), (b, a)):
        returned = []
        for offset, value in zip((first, second), values, strict=True):
            returned.append(cells[places(offset)].copy())
            cells[places(offset)] = value
    np.testing.assert_array_equal(got.memory, lds[:4096])
    if bits == 32:
        np.testing.assert_array_equal(got["v6"], returned[0])
        np.testing.assert_array_equal(got["v7"], returned[1])
    else:
        for part in range(2):
            np.testing.assert_array_equal(got[f"v{6 + 2 * part}"], returned[part].astype(u32))
            np.testing.assert_array_equal(got[f"v{7 + 2 * part}"], (returned[part] >> u64(32)).astype(u32))


@pytest.mark.parametrize("far", [False, True])
def test_lds_to_lds(far: bool) -> None:
    """B = A + 4·distance; the distance comes from the offset, or from the address's top bits."""
    packed = """
    s_mov_b32 s20, 0xc80000
    v_or_b32 v1, s20, v60
    ds_add_src2_u32 v1 offset:0x8000
    """
    near = """
    v_add_u32 v1, 0x400, v60
    ds_add_src2_u32 v1 offset:0x7f80
    ds_write_src2_b32 v1 offset:0x40
    """
    data = image(11)
    got = run("gfx908", packed if far else near, [], data)
    want = data.copy().view(u32)
    if far:
        for lane in range(64):
            want[lane : lane + 1] += want[lane + 100]
    else:
        for lane in range(64):
            want[256 + lane : 257 + lane] += want[256 + lane - 128]
        for lane in range(64):
            want[256 + lane] = want[256 + lane + 64]
    np.testing.assert_array_equal(got.memory.view(u32), want)


def test_addresses_by_lane_number() -> None:
    lines = """
    s_mov_b32 m0, 0x100
    v_mul_u32_u24 v1, 7, v0
    ds_write_addtid_b32 v1 offset:16
    s_waitcnt lgkmcnt(0)
    s_mov_b32 m0, 0xf0
    ds_read_addtid_b32 v2 offset:36
    """
    data = image(12)
    got = run("gfx90a", lines, ["v2"], data)
    want = data.copy()
    want[0x110:0x210].view(u32)[:] = 7 * LANES
    np.testing.assert_array_equal(got.memory, want)
    np.testing.assert_array_equal(got["v2"], want[0x114:0x214].view(u32))


@pytest.mark.parametrize("width", [96, 128])
def test_wide_reads_and_writes(width: int) -> None:
    count = width // 32
    regs = {96: "v[2:4]", 128: "v[2:5]"}[width]
    lines = f"""
    v_mul_u32_u24 v1, {width // 8}, v0
    v_sub_u32 v6, {63 * width // 8}, v1
    ds_read_b{width} {regs}, v1 offset:{width // 8}
    s_waitcnt lgkmcnt(0)
    s_mov_b32 exec_lo, 0x55555555
    s_mov_b32 exec_hi, 0x55555555
    ds_write_b{width} v6, {regs} offset:2048
    s_mov_b64 exec, -1
    """
    data = image(width)
    got = run("gfx90a", lines, [f"v{2 + i}" for i in range(count)], data)
    want = data.copy()
    source = data.copy()
    for lane in range(64):
        piece = source[(lane + 1) * width // 8 : (lane + 2) * width // 8]
        for i in range(count):
            assert got[f"v{2 + i}"][lane] == piece.view(u32)[i]
        if lane % 2 == 0:
            at = 2048 + (63 - lane) * width // 8
            want[at : at + width // 8] = piece
    np.testing.assert_array_equal(got.memory, want)


def test_short_forms() -> None:
    """d16 loads clear the other half, as GPUs with SRAM-ECC do."""
    lines = """
    v_mov_b32 v2, 0x89abcdef
    v_mov_b32 v3, v2
    v_mov_b32 v4, v2
    v_mov_b32 v5, v2
    ds_read_u8_d16 v2, v60 offset:1
    ds_read_i8_d16_hi v3, v60 offset:2
    ds_read_u16_d16_hi v4, v60
    ds_read_i8_d16 v5, v60 offset:3
    ds_read_i16 v6, v60 offset:2
    ds_read_u8 v7, v60 offset:3
    ds_read_b32 v8, v60
    s_waitcnt lgkmcnt(0)
    ds_write_b8_d16_hi v60, v8 offset:2048
    ds_write_b16_d16_hi v60, v8 offset:2050
    ds_write_b8 v60, v8 offset:2049
    """
    data = image(13)
    got = run("gfx90a", lines, [f"v{n}" for n in range(2, 8)], data)
    raw = data[:256].reshape(64, 4)
    shorts = data[:256].view(np.uint16).reshape(64, 2).astype(u32)
    sign = raw.view(np.int8).astype(np.int16).view(np.uint16).astype(u32)
    np.testing.assert_array_equal(got["v2"], raw[:, 1])
    np.testing.assert_array_equal(got["v3"], sign[:, 2] << u32(16))
    np.testing.assert_array_equal(got["v4"], shorts[:, 0] << u32(16))
    np.testing.assert_array_equal(got["v5"], sign[:, 3])
    np.testing.assert_array_equal(got["v6"].view(np.int32), data[:256].view(np.int16)[1::2])
    np.testing.assert_array_equal(got["v7"], raw[:, 3])
    after = got.memory[2048:2304].reshape(64, 4)
    np.testing.assert_array_equal(after[:, 0], raw[:, 2])
    np.testing.assert_array_equal(after[:, 1], raw[:, 0])
    np.testing.assert_array_equal(after[:, 2:].copy().view(np.uint16)[:, 0], shorts[:, 1])


def test_counters() -> None:
    lines = """
    s_mov_b32 m0, 0x20
    ds_append v1 offset:4
    s_mov_b64 exec, 0xff0
    ds_append v2 offset:4
    ds_consume v3 offset:4
    s_mov_b64 exec, -1
    """
    data = image(14)
    got = run("gfx90a", lines, ["v1", "v2", "v3"], data)
    start = int(data[0x24:0x28].view(u32)[0])
    assert set(got["v1"].tolist()) == {start}
    assert set(got["v2"][4:12].tolist()) == {start + 64 & 0xFFFFFFFF}
    assert set(got["v3"][4:12].tolist()) == {start + 72 & 0xFFFFFFFF}
    assert got.memory[0x24:0x28].view(u32)[0] == (start + 64) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("line", "width", "bits"),
    [
        ("ds_read_b64_tr_b4 v[2:3], v1", 64, 4), ("ds_read_b96_tr_b6 v[2:4], v1", 96, 6),
        ("ds_read_b64_tr_b8 v[2:3], v1", 64, 8), ("ds_read_b64_tr_b16 v[2:3], v1", 64, 16),
    ],
)  # fmt: skip
def test_transposing_reads(line: str, width: int, bits: int) -> None:
    """In each 16 lanes, element j of lane i is element 16·j + i of the group's data in order."""
    data = image(15)
    rows, count = width // 32, width // bits
    got = run("gfx950", f"v_mul_u32_u24 v1, {width // 8}, v0\n{line}", [f"v{2 + n}" for n in range(rows)], data)
    for group in range(4):
        start = group * 16 * width // 8
        whole = int.from_bytes(data[start : start + 16 * width // 8].tobytes(), "little")
        elements = [whole >> bits * n & (1 << bits) - 1 for n in range(16 * count)]
        for i in range(16):
            lane = sum(int(got[f"v{2 + n}"][16 * group + i]) << 32 * n for n in range(rows))
            assert [lane >> bits * j & (1 << bits) - 1 for j in range(count)] == elements[i::16][:count]


@pytest.mark.parametrize(
    "line",
    ["ds_write_b8 v2, v1", "ds_wrxchg2_rtn_b32 v[2:3], v60, v1, v1 offset1:255", "ds_add_u32 v2, v1"],
)
def test_out_of_range_is_reported(line: str) -> None:
    with pytest.raises(MemoryFault, match="LDS offset"):
        execute("gfx90a", "v_add_u32 v2, 0x1ff, v60\n" + line, group_segment_fixed_size=256)


@pytest.mark.parametrize("line", [
    "ds_read_b32 v1, v2", "ds_read_b32 a1, v2\nv_accvgpr_read_b32 v1, a1", "ds_read_u8_d16_hi v1, v2",
    "ds_read2st64_b64 v[4:7], v2 offset1:9\nv_mov_b32 v1, v7", "ds_read_b128 v[4:7], v2\nv_mov_b32 v1, v7",
])  # fmt: skip
def test_reads_of_one_address_past_all_lds_return_zero(line: str) -> None:
    """Tensile's kernels clear accumulators so. The first lanes are off: their registers stay."""
    text = f"""v_mov_b32 v2, 0xf00000
v_mov_b32 v1, 7
s_mov_b64 exec, 0xfffffffffffffff0
{line.replace(chr(10), chr(10) + 's_waitcnt lgkmcnt(0)' + chr(10))}
s_waitcnt lgkmcnt(0)
s_mov_b64 exec, -1"""
    got = run("gfx90a", text, ["v1"], image(3))["v1"]
    assert (got[:4] == 7).all() and not got[4:].any()


def test_zeros_from_past_all_lds_are_defined() -> None:
    text = "v_mov_b32 v2, 0xf00000\nds_read_b64 v[4:5], v2\nv_lshlrev_b32 v3, 3, v0\ns_load_dwordx2 s[4:5], s[0:1], 0x0\n"
    text += "s_waitcnt lgkmcnt(0)\nglobal_store_dwordx2 v3, v[4:5], s[4:5]"
    module = Device("mi210", check=True).load(assemble("gfx90a", KernelText("k", text, args=("buffer",))))
    out = np.full(128, 7, u32)
    assert module["k"].launch(grid=1, block=64, args=[out]).findings == []
    assert not out.any()


OUTSIDE = {  # loads whose upper lanes, or upper halves, are outside 512 bytes: registers of the result, and of it inside
    "ds_read_b32 v4, v2 offset:384": (["v4"], [32]),
    "ds_read_u8_d16_hi v4, v2 offset:387": (["v4"], [32]),
    "ds_read2_b32 v[4:5], v2 offset1:96": (["v4", "v5"], [64, 32]),
    "ds_read_b64 v[4:5], v2 offset:258": (["v4", "v5"], [62, 62]),
    "ds_read_b128 v[4:7], v2 offset:500": (["v4", "v7"], [0, 0]),
}


@pytest.mark.parametrize("line", OUTSIDE)
def test_loads_outside_lds_are_zeros_and_a_note(line: str) -> None:
    """As on the GPU. Checked mode stops there, at the first lane outside; numerics, samples and the debugger go on."""
    dump, inside = OUTSIDE[line]
    stores = "\n".join(f"global_store_dword v2, {name}, s[4:5] offset:{256 * i}" for i, name in enumerate(dump))
    lines = f"""
v_lshlrev_b32 v2, 2, v0
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_mov_b32 v3, 0x07070707
ds_write2st64_b32 v2, v3, v3 offset1:1
s_waitcnt lgkmcnt(0)
{line}
s_waitcnt lgkmcnt(0)
{stores}"""
    out = np.full((len(dump), 64), 9, u32)
    devices = [Device("mi300x"), Device("mi300x", check=True), Device("mi300x", check="numerics")]
    plain, checked, numerics = (loaded_kernel(one, lines, "buffer", group_segment_fixed_size=512) for one in devices)
    (note,) = plain.launch(grid=1, block=64, args=[out]).notes
    assert line in note and "gets 0, as on the GPU" in note
    for row, count in zip(out, inside, strict=True):
        assert row[:count].all() and not row[count:].any()
    numeric, stepped = (device.upload(np.full_like(out, 9)) for device in (devices[2], devices[0]))
    assert sample(plain, Geometry.of(1, 64), [stepped]).whole
    numerics.launch(grid=1, block=64, args=[numeric])
    for got in (numeric.download(u32), left_by_debugger(plain, stepped)):
        np.testing.assert_array_equal(got.reshape(out.shape), out)
    with pytest.raises(MemoryFault, match="LDS offset"):
        checked.launch(grid=1, block=64, args=[out])


def left_by_debugger(kernel: Kernel, out: Buffer) -> np.ndarray:
    """Runs a workgroup to its end, by a debugger that stops on the way; returns what the buffer has then."""
    with debug(kernel, grid=1, block=64, args=[out]) as debugger:
        debugger.step(4)
        debugger.go_on()
        assert debugger.stop.kind == "ended"
        return out.download(u32)


def test_other_reads_past_all_lds_are_faults_in_checked_mode() -> None:
    for line in ("v_add_u32 v2, 0x40000, v60\nds_read_b32 v1, v2", "v_mov_b32 v2, 0x3fffc\nds_read_b32 v1, v2"):
        with pytest.raises(MemoryFault, match="LDS offset"):
            execute("gfx90a", line, group_segment_fixed_size=256, check=True)


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("gfx908", "ds_add_u32 v1, v2 gds"),
        ("gfx908", "ds_ordered_count v1, v2 gds"),
        ("gfx908", "ds_append v1 gds"),
    ],
)
def test_what_is_not_there_says_so(target: str, line: str) -> None:
    with pytest.raises(UnsupportedInstruction, match=line.split()[0]):
        execute(target, line, group_segment_fixed_size=256)
