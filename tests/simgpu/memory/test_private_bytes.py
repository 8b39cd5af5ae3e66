"""Private memory at any address: lanes keep their own bytes, by scratch, flat and buffer instructions, plain and checked."""

from __future__ import annotations

import re
import subprocess

import numpy as np
import pytest

from simgpu.asm.builder import toolchain
from simgpu.hardware.errors import MemoryFault
from tests.simgpu.memory.test_memory import PRIVATE
from tests.support.engine_kernel import Kernel

u32 = np.uint32
ROOM = 28  # bytes of a lane's memory for each store of a kernel
SIZE = 256  # bytes a lane, for all of them
MEMORY = 64  # first of the registers that hold a lane's memory
LANES = np.arange(64)
IDLE = 3  # the inactive lane
# An instruction's own name, and its bytes a lane; pairs of registers begin at even ones.
LOADS = {
    "dwordx4": 16, "dwordx2": 8, "dwordx3": 12, "dword": 4, "ubyte": 1, "sbyte": 1, "ushort": 2, "sshort": 2,
    "ubyte_d16": 1, "sbyte_d16_hi": 1, "short_d16": 2, "short_d16_hi": 2,
}  # fmt: skip
STORES = {"byte": 1, "byte_d16_hi": 1, "short": 2, "short_d16_hi": 2, "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16}
# By target: the ways of private accesses that LLVM 22 emits, and the flat one.
FORMS = {
    "gfx908": ("buffer", "scratch", "flat"), "gfx90a": ("buffer", "flat"),
    "gfx942": ("scratch", "flat"), "gfx950": ("scratch", "flat"),
}  # fmt: skip
CASES = [(target, form) for target, forms in FORMS.items() for form in forms]
APART = np.where(LANES == IDLE, 0xFFFF_FFF0, 4 * (LANES % 4))  # dwords of different rows; the inactive lane's is nowhere
ADDRESSES = [*(np.full(64, 8 + shift) for shift in range(4)), 4 + LANES % 7, APART]


def line(form: str, name: str, first: int, size: int, store: bool, offset: int) -> str:
    """Returns the instruction with data from v`first` on, at `offset` past v10 (v[10:11] for flat)."""
    data = f"v[{first}:{first + size // 4 - 1}]" if size > 4 else f"v{first}"
    op = "store" if store else "load"
    if form == "buffer":
        return f"buffer_{op}_{name} {data}, v10, s[0:3], 0 offen offset:{offset}"
    address, rest = ("v10", ", off") if form == "scratch" else ("v[10:11]", "")
    operands = f"{address}, {data}" if store else f"{data}, {address}"
    return f"{form}_{op}_{name} {operands}{rest} offset:{offset}"


def kernel(target: str, under_test: list[str], dump: list[str], check: bool) -> Kernel:
    """Fills a lane's memory, v2 to v5 and v20 to v39 from the input (memory last), runs lines with IDLE off, and reads memory
    back."""
    rows = [*range(2, 6), *range(20, 40), *range(MEMORY, MEMORY + SIZE // 4)]
    fill = ["v_add_u32 v12, 0x100, v60"]
    for row in rows:
        fill += [f"global_load_dword v{row}, v12, s[4:5]", "v_add_u32 v12, 0x100, v12"]
    address = ["global_load_dword v10, v60, s[4:5]", "s_mov_b64 s[30:31], src_private_base", "v_mov_b32 v11, s31"]
    put = [f"scratch_store_dword off, v{MEMORY + n}, s33 offset:{4 * n}" for n in range(SIZE // 4)]
    get = [f"scratch_load_dword v{MEMORY + n}, off, s33 offset:{4 * n}" for n in range(SIZE // 4)]
    lines = ["s_mov_b32 s33, 0", *address, *fill, "s_waitcnt vmcnt(0)", *put, "s_waitcnt vmcnt(0)", "s_mov_b64 exec, -9",
             *under_test, "s_mov_b64 exec, -1", "s_waitcnt vmcnt(0) lgkmcnt(0)", *get, "s_waitcnt vmcnt(0)"]  # fmt: skip
    options = {**PRIVATE[target], "private_segment_fixed_size": SIZE, "next_free_vgpr": 128}
    if target != "gfx908":
        options["accum_offset"] = 128
    return Kernel(target, "\n".join(lines), dump, check=check, **options)


def widened(raw: np.ndarray, name: str) -> np.ndarray:
    """Returns the register after a load of an element of 8 or 16 bits, the bytes `raw`."""
    raw = raw.view(np.uint8 if raw.size == 1 else np.uint16)
    signed = raw.view(np.int8 if raw.itemsize == 1 else np.int16).astype(np.int32).view(u32)
    value = signed if name.startswith("s") and not name.startswith("short") else raw.astype(u32)
    if name.endswith("_hi"):
        return value << u32(16)
    return value & u32(0xFFFF) if "_d16" in name else value


def inputs(where: np.ndarray) -> np.ndarray:
    """Draws v10, v2 to v5, v20 to v39 and memory: a row of 64 each."""
    data = np.random.default_rng(3).integers(0, 2**32, (1 + 4 + 20 + SIZE // 4, 64), dtype=u32)
    data[0] = where
    return data


def names_of(names: dict[str, int], target: str, form: str, check: bool) -> dict[str, int]:
    """Returns the instructions that a row takes: checked ones, which take LLVM a second each, take turns with the target."""
    turn = [one for one, other in CASES if other == form].index(target) % 2
    return dict(list(names.items())[turn::2]) if check else names


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize("target, form", CASES)
def test_loads(target: str, form: str, check: bool) -> None:
    """Loads write registers of their own, from v20 on, and read from 4 bytes past the address."""
    loads = names_of(LOADS, target, form, check)
    firsts = np.cumsum([20, *(max(1, size // 4) for size in loads.values())])
    lines = [line(form, name, first, size, False, 4) for (name, size), first in zip(loads.items(), firsts, strict=False)]
    ready = kernel(target, lines, [f"v{n}" for n in range(20, firsts[-1])], check)
    for where in ADDRESSES:
        data = inputs(where)
        got = ready.run(data)
        memory = np.ascontiguousarray(data[25:].T).view(np.uint8)  # lane, byte
        for (name, size), first in zip(loads.items(), firsts, strict=False):
            count, old = max(1, size // 4), data[5 + first - 20 :]
            for lane in LANES:
                raw = memory[lane, where[lane] + 4 :][:size].copy()
                want = list(old[:count, lane])
                if lane != IDLE:
                    want = list(raw.view(u32) if size >= 4 else widened(raw, name))
                assert [got[f"v{first + n}"][lane] for n in range(count)] == want, (name, lane, where[lane])
        assert not got.run.findings, got.run.findings[0]


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize("target, form", CASES)
def test_stores(target: str, form: str, check: bool) -> None:
    """Stores write v2 to v5, each ROOM bytes past the previous one."""
    stores = names_of(STORES, target, form, check)
    lines = [line(form, name, 2, size, True, 4 + ROOM * number) for number, (name, size) in enumerate(stores.items())]
    rows = [f"v{n}" for n in range(MEMORY, MEMORY + SIZE // 4)]
    ready = kernel(target, lines, rows, check)
    for where in ADDRESSES:
        data = inputs(where)
        got = ready.run(data)
        memory = np.ascontiguousarray(data[25:].T).view(np.uint8)
        for number, (name, size) in enumerate(stores.items()):
            for lane in LANES[LANES != IDLE]:
                given = data[1:5, lane].copy().view(np.uint8)[2 if name.endswith("_hi") else 0 :][:size]
                memory[lane, where[lane] + 4 + ROOM * number :][:size] = given
        for n, row in enumerate(rows):
            np.testing.assert_array_equal(got[row], memory.view(u32)[:, n], err_msg=f"{where[:5]} dword {n}")
        assert not got.run.findings, got.run.findings[0]


@pytest.mark.parametrize("target, form", CASES)
def test_what_nothing_wrote(target: str, form: str) -> None:
    """Bytes 5 to 12 of private memory are written, crossing dwords; exactly those count as defined."""
    cases = [(at, width) for at in (0, 1, 4, 5, 6, 8) for width in ("dword", "ushort")]
    lines = ["s_mov_b64 s[30:31], src_private_base", "v_mov_b32 v11, s31", "v_mov_b32 v2, v0", "v_mov_b32 v3, v60",
             "v_mov_b32 v10, 1", line(form, "dwordx2", 2, 8, True, 4), "s_waitcnt vmcnt(0) lgkmcnt(0)"]  # fmt: skip
    for at, width in cases:
        load = line(form, width, 4, LOADS[width], False, 4)
        lines += [f"v_mov_b32 v10, {at}", load, "s_waitcnt vmcnt(0) lgkmcnt(0)", "global_store_dword v60, v4, s[4:5]"]
    run = Kernel(target, "\n".join(lines), check=True, **PRIVATE[target]).run().run
    assert {f.kind for f in run.findings} == {"uninitialized"}
    assert len({f.other_pc for f in run.findings}) == sum(not (at >= 1 and at + 4 + LOADS[width] <= 13) for at, width in cases)


@pytest.mark.parametrize("target", list(FORMS))
def test_the_last_byte(target: str) -> None:
    """An access up to the end of a lane's memory fits; a byte further is a fault."""
    for name in ("dword", "short"):
        ready = kernel(target, [line("flat", name, 2, STORES[name], True, 4)], [], False)
        fits = SIZE - 4 - STORES[name]
        ready.run(inputs(np.full(64, fits)))
        with pytest.raises(MemoryFault, match="private offset"):
            ready.run(inputs(np.full(64, fits + 1)))


def test_atomics_stay_aligned() -> None:
    for name, at in (("add", 2), ("add_x2", 4)):
        lines = f"s_mov_b64 s[30:31], src_private_base\nv_mov_b32 v11, s31\nv_mov_b32 v10, {at}\nflat_atomic_{name} v[10:11], "
        with pytest.raises(MemoryFault, match="multiple"):
            Kernel("gfx942", lines + ("v0" if name == "add" else "v[2:3]"), **PRIVATE["gfx942"]).run()


def test_a_load_to_lds() -> None:
    lines = """
    v_mov_b32 v3, v60
    v_mov_b32 v2, v0
    scratch_store_dwordx2 off, v[2:3], off offset:5
    s_mov_b32 m0, 0
    s_waitcnt vmcnt(0)
    scratch_load_lds_dword off, off offset:9
    s_waitcnt vmcnt(0)
    ds_read_b32 v4, v60 offset:9
    """
    got = Kernel("gfx942", lines, ["v4"], check=True, group_segment_fixed_size=1024, **PRIVATE["gfx942"]).run()
    np.testing.assert_array_equal(got["v4"], 4 * LANES)
    assert not got.run.findings


@pytest.mark.parametrize("target", list(FORMS))
def test_llvm_emits_them(target: str) -> None:
    """LLVM's compiler accesses the packed struct's fields at their places, on every target."""
    source = """
    typedef unsigned long ul; typedef struct __attribute__((packed)) { char c; ul a; unsigned b; } S;
    __attribute__((noinline)) void fill(__private S *s, int i, __global ul *o) { s[i].a = o[0]; s[i].b = o[1]; }
    """
    (tool, *_) = toolchain.candidates()
    options = "-x cl -cl-no-stdinc -cl-std=CL1.2 -target amdgcn-amd-amdhsa -nogpulib -O2 -S -o - -".split()
    done = subprocess.run([*tool.clang, f"-mcpu={target}", *options], input=source, capture_output=True, text=True, check=True)
    opcode = "buffer_store_dword" if target in ("gfx908", "gfx90a") else "scratch_store_dword"
    assert re.search(rf"{opcode}\w* .*offset:1$", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
def test_private_memory_in_a_buffer(check: bool) -> None:
    """A kernel may point FLAT_SCRATCH at any memory: a buffer's bytes are interleaved in the same way."""
    lines = ["s_mov_b64 s[30:31], flat_scratch", "s_mov_b64 flat_scratch, s[4:5]", "v_mov_b32 v10, 8",
             "scratch_store_dword v10, v60, off", "scratch_load_dword v2, v10, off offset:4", "s_waitcnt vmcnt(0)",
             "s_mov_b64 flat_scratch, s[30:31]", "global_load_dword v3, v60, s[4:5] offset:512",
             "s_waitcnt vmcnt(0)"]  # fmt: skip
    ready = Kernel("gfx908", "\n".join(lines), ["v2", "v3"], check=check, **PRIVATE["gfx908"])
    data = np.random.default_rng(4).integers(0, 2**32, (8, 64), dtype=u32)
    got = ready.run(data)
    np.testing.assert_array_equal(got["v2"], data[3])
    np.testing.assert_array_equal(got["v3"], 4 * LANES)


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize("lanes", [0, 1, -1], ids=["no lane", "one lane", "all lanes"])
@pytest.mark.parametrize("base", [0, 64, 1 << 47, 1 << 62, 0xFFFF_FFDF_0000_0000, 0xFFFF_FFFF_FFFF_FF00], ids=hex)
@pytest.mark.parametrize("access", ["load_dwordx4 v[2:5], v10, off", "store_dwordx2 v10, v[2:3], off offset:4"])
def test_private_memory_nowhere(access: str, base: int, lanes: int, check: bool) -> None:
    """Addresses below and above all memory end the launch, if a lane accesses them; FLAT_SCRATCH may be anything."""
    lines = ["v_mov_b32 v10, 8", "s_mov_b64 s[30:31], flat_scratch", f"s_mov_b32 flat_scratch_lo, {base & 0xFFFF_FFFF:#x}",
             f"s_mov_b32 flat_scratch_hi, {base >> 32:#x}", f"s_mov_b64 exec, {lanes}", f"scratch_{access}", "s_waitcnt vmcnt(0)",
             "s_mov_b64 exec, -1", "s_mov_b64 flat_scratch, s[30:31]"]  # fmt: skip
    ready = Kernel("gfx908", "\n".join(lines), ["v10"], check=check, **PRIVATE["gfx908"])
    if lanes:
        with pytest.raises(MemoryFault, match=f"scratch_{access.split()[0]}"):
            ready.run(np.zeros((8, 64), u32))
    else:
        assert (ready.run(np.zeros((8, 64), u32))["v10"] == 8).all()
