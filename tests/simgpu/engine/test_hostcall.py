"""Calls of the host: printf's text against libc's, the packets of hand-written kernels, traps that say why."""

from __future__ import annotations

import ctypes
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simgpu
from simgpu.engine.hostcall.printf import formatted
from simgpu.hardware.errors import KernelTrap, UnsupportedInstruction
from tests.support.kernels import KernelText, assemble

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")


def words_of(text: str) -> list[int]:
    raw = text.encode() + b"\0"
    raw += bytes(-len(raw) % 8)
    return list(struct.unpack(f"<{len(raw) // 8}Q", raw))


def libc_printf(text: str, *args: Any) -> str:
    """What the C library makes of it: an oracle that shares nothing with ours."""
    libc = ctypes.CDLL(None)
    buffer = ctypes.create_string_buffer(4096)
    libc.snprintf(buffer, ctypes.c_size_t(4096), text.encode(), *args)
    return buffer.value.decode()


def shown(spec: str, value: int | float | str) -> tuple[str, str]:
    """Ours and libc's for one conversion between other text."""
    text = f"<{spec}> 100%%\n"
    if isinstance(value, str):
        return formatted([*words_of(text), *words_of(value)]), libc_printf(text, value.encode())
    if isinstance(value, float):
        (word,) = struct.unpack("<Q", struct.pack("<d", value))
        return formatted([*words_of(text), word]), libc_printf(text, ctypes.c_double(value))
    word = value & (1 << 64) - 1
    return formatted([*words_of(text), word]), libc_printf(text, ctypes.c_uint64(word))


FLAGS = st.sampled_from(["", "-", "+", " ", "0", "-+"])
WIDTHS = st.sampled_from(["", "1", "12"])


@settings(max_examples=150, deadline=None)
@given(
    FLAGS, WIDTHS, st.sampled_from(["", "hh", "h", "l", "ll", "z"]), st.sampled_from("diuxX"),
    st.integers(-(1 << 63), (1 << 63) - 1),
)  # fmt: skip
def test_integers_are_libc_s(flags: str, width: str, length: str, kind: str, value: int) -> None:
    if kind not in "di":
        flags = flags.replace("+", "").replace(" ", "")  # of signed conversions only; C leaves others undefined
    ours, wanted = shown(f"%{flags}{width}{length}{kind}", value)
    assert ours == wanted


@settings(max_examples=100, deadline=None)
@given(FLAGS, WIDTHS, st.sampled_from(["", ".0", ".3", ".12"]), st.sampled_from("fFeEgG"), st.floats(width=32))
def test_floats_are_libc_s(flags: str, width: str, precision: str, kind: str, value: float) -> None:
    if math.isnan(value):
        value = math.nan  # a NaN's sign is shown by libc, not by Python
    if math.isinf(value) or math.isnan(value):
        flags = flags.replace("0", "")  # C pads these with blanks
    ours, wanted = shown(f"%{flags}{width}{precision}{kind}", value)
    assert ours == wanted


@pytest.mark.parametrize(
    ("spec", "value"),
    [("%s", "text"), ("%10s|", "ab"), ("%-6.2s|", "abcdef"), ("%s", ""), ("%s", "exactly8"), ("%c", 65), ("%p", 0x1234), ("%p", 0)],
)
def test_strings_and_pointers_are_libc_s(spec: str, value: Any) -> None:
    ours, wanted = shown(spec, value)
    assert ours == wanted


def test_stars_take_arguments_and_missing_ones_end_the_text() -> None:
    assert formatted([*words_of("%*d|%.*f|"), 5, 7, 2, struct.unpack("<Q", struct.pack("<d", 1.5))[0]]) == "    7|1.50|"
    assert formatted([*words_of("a %d b %d c"), 1]) == "a 1 b "
    assert formatted([]) == ""


# As device code does it, for waves that come one after the other: lanes 0 and 2 of each print "n %3d\n".
CALL = """
s_load_dwordx2 s[6:7], s[0:1], 0x0
s_load_dwordx2 s[8:9], s[0:1], 0x8
s_waitcnt lgkmcnt(0)
s_load_dwordx4 s[12:15], s[8:9], 0x0
s_load_dwordx2 s[18:19], s[8:9], 0x18
s_load_dwordx2 s[20:21], s[8:9], 0x28
s_waitcnt lgkmcnt(0)
s_and_b32 s22, s18, s20
s_mul_i32 s24, s22, 24
s_add_u32 s12, s12, s24
s_addc_u32 s13, s13, 0
s_lshl_b32 s24, s22, 12
s_add_u32 s14, s14, s24
s_addc_u32 s15, s15, 0
v_mov_b32 v9, 0
global_load_dwordx2 v[20:21], v9, s[12:13]
s_waitcnt vmcnt(0)
global_store_dwordx2 v9, v[20:21], s[8:9] offset:24
v_mov_b32 v10, 0
v_mov_b32 v11, 0
v_mov_b32 v12, 5
v_mov_b32 v13, 0
v_mov_b32 v14, {service}
v_mov_b32 v15, 1
global_store_dwordx2 v9, v[10:11], s[12:13]
global_store_dwordx4 v9, v[12:15], s[12:13] offset:8
s_nop 1
s_mov_b64 exec, 5
v_lshlrev_b32 v1, 6, v0
v_mov_b32 v2, 0x63
v_mov_b32 v3, 0
v_mov_b32 v4, {stream}
v_mov_b32 v5, 0
global_store_dwordx4 v1, v[2:5], s[14:15]
s_nop 1
v_mov_b32 v2, 0x6433256e ; n%3d
v_mov_b32 v3, 10
v_mad_u32_u24 v4, s2, 10, v0
v_mov_b32 v5, 0
global_store_dwordx4 v1, v[2:5], s[14:15] offset:16
s_nop 1
v_mov_b32 v22, s18
v_mov_b32 v23, s19
global_store_dwordx2 v9, v[22:23], s[8:9] offset:32
s_waitcnt vmcnt(0)
s_sendmsg sendmsg(MSG_INTERRUPT)
global_load_dword v24, v9, s[12:13] offset:20
global_load_dword v25, v1, s[14:15]
s_waitcnt vmcnt(0)
v_lshlrev_b32 v6, 3, v0
s_lshl_b32 s25, s2, 5
v_add_u32 v6, s25, v6
global_store_dwordx2 v6, v[24:25], s[6:7]
global_load_dwordx2 v[20:21], v9, s[8:9] offset:24
s_waitcnt vmcnt(0)
global_store_dwordx2 v9, v[20:21], s[12:13]
global_store_dwordx2 v9, v[22:23], s[8:9] offset:24
{end}
"""


def run_calls(target: str, groups: int, service: int = 2, stream: int = 0, end: str = "s_nop 0", check: bool = False) -> np.ndarray:
    text = CALL.format(service=service, stream=stream, end=end)
    kernel = KernelText("k", text, ("buffer", "hidden_hostcall_buffer:8"))
    gpu = simgpu.Device(target, threads=2, check=check)
    out = gpu.upload(np.full(groups * 8, -1, np.int32))
    run = gpu.load(assemble(target, kernel))["k"].launch(grid=groups, args=[out])
    assert not run.findings
    return out.download(np.int32, (groups, 4, 2))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("check", [False, True])
def test_a_kernel_prints_lane_by_lane_and_goes_on(target: str, check: bool, capfd: Any) -> None:
    got = run_calls(target, 70, check=check)  # more workgroups than are resident at once
    printed = capfd.readouterr()
    assert printed.out == "".join(f"n{10 * group + lane:3}\n" for group in range(70) for lane in (0, 2))
    assert printed.err == ""
    assert np.array_equal(got[:, 0, 0], np.zeros(70)) and np.array_equal(got[:, 1], np.full((70, 2), -1))
    assert np.array_equal(got[:, 2, 1], [len(f"n{10 * group + 2:3}\n") for group in range(70)])  # what printf returns


def test_stderr_is_written_at_the_end(capfd: Any) -> None:
    run_calls("gfx942", 1, stream=1)
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "n  0\nn  2\n")


def test_a_trap_says_what_the_kernel_had_said(capfd: Any) -> None:
    with pytest.raises(KernelTrap, match=r"`s_trap 2`.*the kernel trapped.*wave 0\)\nn  0\nn  2$"):
        run_calls("gfx942", 1, stream=1, end="s_trap 2")
    assert capfd.readouterr().err == ""


def test_other_services_are_refused_by_number() -> None:
    with pytest.raises(UnsupportedInstruction, match=r"calls the host for service 3; only printf's, 2, is modelled"):
        run_calls("gfx942", 1, service=3)


def test_a_message_without_the_buffer_only_passes_time() -> None:
    gpu = simgpu.Device("gfx90a")
    kernel = KernelText("k", "s_sendmsg sendmsg(MSG_INTERRUPT)\ns_sendmsg sendmsg(MSG_INTERRUPT)")
    run = gpu.load(assemble("gfx90a", kernel))["k"].launch(grid=3)
    assert run.instructions == 9
