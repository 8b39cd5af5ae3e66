"""Calls of the host: printf's text against libc's, packets of hand-written kernels, traps with their reasons."""

from __future__ import annotations

import ctypes
import io
import struct
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simgpu
from simgpu.engine.allocations import DeviceMemory
from simgpu.engine.hostcall.output import HELD_LIMIT, Output
from simgpu.engine.hostcall.packets import HostCalls
from simgpu.engine.hostcall.printf import format_message
from simgpu.hardware.errors import HostCallError, KernelTrap, UnsupportedInstruction
from tests.support.exhaustive import examples
from tests.support.kernels import KernelText, assemble

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")


def words_of(text: str) -> list[int]:
    raw = text.encode() + b"\0"
    raw += bytes(-len(raw) % 8)
    return list(struct.unpack(f"<{len(raw) // 8}Q", raw))


def libc_printf(text: str, *args: Any) -> str:
    """Returns the C library's text, from an oracle that shares nothing with ours."""
    libc = ctypes.CDLL(None)
    buffer = ctypes.create_string_buffer(4096)
    libc.snprintf(buffer, ctypes.c_size_t(4096), text.encode(), *args)
    return buffer.value.decode(errors="replace")


def shown(spec: str, value: int | float | str) -> tuple[str, str]:
    """Returns our text and libc's for a conversion between other text."""
    text = f"<{spec}> 100%%\n"
    if isinstance(value, str):
        return format_message([*words_of(text), *words_of(value)]), libc_printf(text, value.encode())
    if isinstance(value, float):
        (word,) = struct.unpack("<Q", struct.pack("<d", value))
        return format_message([*words_of(text), word]), libc_printf(text, ctypes.c_double(value))
    word = value & (1 << 64) - 1
    return format_message([*words_of(text), word]), libc_printf(text, ctypes.c_uint64(word))


FLAGS = st.lists(st.sampled_from("-+ #0"), unique=True).map("".join)
WIDTHS = st.sampled_from(["", "1", "3", "12", "40"])
PRECISIONS = st.sampled_from(["", ".", ".0", ".1", ".3", ".12", ".25"])
LENGTHS = st.sampled_from(["", "hh", "h", "l", "ll", "j", "z", "t"])
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=9)
EDGES = st.sampled_from([0, 1, 8, 0x7F, 0x80, 0x8000, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1])


@settings(max_examples=examples(1000))
@given(FLAGS, WIDTHS, PRECISIONS, LENGTHS, st.sampled_from("diuxXo"), EDGES | st.integers(0, (1 << 64) - 1))
def test_integers_are_libc_s(flags: str, width: str, precision: str, length: str, kind: str, value: int) -> None:
    ours, wanted = shown(f"%{flags}{width}{precision}{length}{kind}", value)
    assert ours == wanted


@settings(max_examples=examples(1000))
@given(FLAGS, WIDTHS, PRECISIONS, st.sampled_from("fFeEgGaA"), st.floats() | st.floats(width=16) | st.integers(-99, 99).map(float))
def test_floats_are_libc_s(flags: str, width: str, precision: str, kind: str, value: float) -> None:
    ours, wanted = shown(f"%{flags}{width}{precision}{kind}", value)
    assert ours == wanted


@settings(max_examples=examples(200))
@given(st.sampled_from(["", "-"]), WIDTHS, PRECISIONS, TEXTS)
def test_strings_are_libc_s(flags: str, width: str, precision: str, value: str) -> None:
    ours, wanted = shown(f"%{flags}{width}{precision}s", value)
    assert ours == wanted


@pytest.mark.covering(2)
@pytest.mark.parametrize("bits", [0x7FF << 52, 0xFFF << 52, 0x7FF8 << 48, 0xFFF8 << 48, 1, 1 << 63])
@pytest.mark.parametrize("kind", "fFeEgGaA")
@pytest.mark.parametrize("flags", ["", "0", "+", " ", "-0", "#"])
def test_special_floats_are_libc_s(flags: str, kind: str, bits: int) -> None:
    (value,) = struct.unpack("<d", struct.pack("<Q", bits))
    ours, wanted = shown(f"%{flags}12{kind}", value)
    assert ours == wanted


@pytest.mark.parametrize(
    ("spec", "value"),
    [("%s", "text"), ("%10s|", "ab"), ("%-6.2s|", "abcdef"), ("%s", ""), ("%s", "exactly8"),
     ("%c", 65), ("%-3c", 65), ("%3c", 65), ("%p", 0x1234), ("%p", 0), ("%20p", 0x1234), ("%-20p", 0)],
)
def test_strings_and_pointers_are_libc_s(spec: str, value: Any) -> None:
    ours, wanted = shown(spec, value)
    assert ours == wanted


def test_stars_take_arguments_and_missing_ones_end_the_text() -> None:
    assert format_message([*words_of("%*d|%.*f|"), 5, 7, 2, struct.unpack("<Q", struct.pack("<d", 1.5))[0]]) == "    7|1.50|"
    assert format_message([*words_of("a %d b %d c"), 1]) == "a 1 b "
    assert format_message([]) == ""


@pytest.mark.parametrize(
    ("text", "words", "told"),
    [
        ("%2000000000d", [1], "a width of 2,000,000,000; the limit is 65,536"), ("%.70000f", [0], "a precision of 70,000"),
        ("%*d", [70_000, 1], "a width of 70,000"), ("%*d", [-70_000 & (1 << 64) - 1, 1], "a width of 70,000"),
        ("%.*d", [70_000, 1], "a precision of 70,000"), ("%" + "9" * 5000 + "d", [1], "5000 digits"),
        ("%60000d" * 20, [1] * 20, "a text of more than 1,048,576 bytes"),
    ],
)  # fmt: skip
def test_what_printf_may_ask_for_is_limited(text: str, words: list[int], told: str) -> None:
    with pytest.raises(HostCallError, match=told):
        format_message([*words_of(text), *words])


def packet(host: HostCalls, number: int, following: int, text: str = "", flags: int = 3, stream: int = 0, more: Any = ()) -> None:
    """Writes a packet of printf with a message; its header points to `following`."""
    words = host.allocation.data.view(np.uint64)
    header = 24 + 3 * number
    words[header : header + 3] = following, 1, 2 | 1 << 32
    message = [stream, *words_of(text), *more]
    at = int(words[1] - np.uint64(host.address)) // 8 + number * 64 * 8
    words[at : at + 1 + len(message)] = [flags | len(message) << 5, *message]


def damaged(packets: int = 5) -> tuple[HostCalls, np.ndarray]:
    host = HostCalls(DeviceMemory(), packets)
    return host, host.allocation.data.view(np.uint64)


def test_the_stack_of_free_packets_has_each_once_and_ends() -> None:
    _, words = damaged()
    pointer, found = int(words[3]), []
    while pointer and len(found) <= 5:
        found.append(pointer & 7)
        pointer = int(words[24 + 3 * found[-1]])
    assert sorted(found) == [0, 1, 2, 3, 4] and pointer == 0


def test_a_circle_of_packets_is_told() -> None:
    host, words = damaged()
    packet(host, 1, 8 | 2, "a")
    packet(host, 2, 8 | 1, "b")
    words[4] = 8 | 1
    with pytest.raises(HostCallError, match="comes back to packet 1; the kernel wrote over the buffer"):
        host.serve()


def test_a_packet_that_there_is_not_is_told() -> None:
    host, words = damaged()
    words[4] = 8 | 7
    with pytest.raises(HostCallError, match="names packet 7, there are 5"):
        host.serve()
    host, words = damaged()
    packet(host, 1, 6, "a")
    words[4] = 8 | 1
    with pytest.raises(HostCallError, match="0x6 on the stack of ready packets names packet 6"):
        host.serve()


def test_the_mask_is_the_host_s(capsys: Any) -> None:
    host, words = damaged()
    packet(host, 1, 0, "fine")
    words[4], words[5] = 8 | 1, (1 << 64) - 1
    host.serve()
    host.output.flush()
    assert capsys.readouterr().out == "fine"


@pytest.mark.slow
def test_messages_that_never_end_are_limited() -> None:
    host, words = damaged()
    with pytest.raises(HostCallError, match="have begun and not ended"):
        for _ in range(1 << 18):
            packet(host, 1, 0, "abc", flags=1)
            words[4] = 8 | 1
            host.serve()


def test_what_goes_to_stderr_is_limited() -> None:
    host, words = damaged()
    with pytest.raises(HostCallError, match="characters to stderr"):
        for number in range(400):
            packet(host, 1, 0, "%60000d", stream=1, more=[number])
            words[4] = 8 | 1
            host.serve()


@pytest.mark.slow
def test_a_message_that_ended_makes_room_for_the_next() -> None:
    host, words = damaged()
    for _ in range(1 << 16):
        packet(host, 1, 0, "")
        words[4] = 8 | 1
        host.serve()


def test_text_is_in_dispatch_order_up_to_the_limit() -> None:
    """Workgroups say their texts in the order in which host threads reach them. Past the limit, only each part is in order."""
    def written(groups: tuple[int, ...], each: int) -> list[int]:
        stream = io.StringIO()
        output = Output(stream)
        for group in groups:
            output.say(group, f"{group}{' ' * each}\n")
        output.flush()
        return [int(line) for line in stream.getvalue().split()]

    few, many = HELD_LIMIT // 5, HELD_LIMIT // 2
    assert written((0, 1, 2, 3), few) == written((3, 1, 2, 0), few) == [0, 1, 2, 3]
    assert written((0, 1, 2, 3), many) == [0, 1, 2, 3]
    assert written((3, 1, 2, 0), many) == [1, 3, 0, 2]


def test_a_terminal_without_the_character_gets_it_escaped(monkeypatch: Any) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    host, words = damaged()
    packet(host, 1, 0, "é!")
    words[4] = 8 | 1
    host.serve()
    host.output.flush()
    sys.stdout.flush()
    assert raw.getvalue() == b"\\xe9!"


# Device code for waves in sequence: lanes 0 and 2 of each print "n %3d\n".
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
    assert np.array_equal(got[:, 2, 1], [len(f"n{10 * group + 2:3}\n") for group in range(70)])  # printf's results


def test_stderr_is_written_at_the_end(capfd: Any) -> None:
    run_calls("gfx942", 1, stream=1)
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "n  0\nn  2\n")


def test_a_trap_says_what_the_kernel_had_said(capfd: Any) -> None:
    with pytest.raises(KernelTrap, match=r"`s_trap 2`.*the kernel trapped.*wave 0\)\nn  0\nn  2$"):
        run_calls("gfx942", 1, stream=1, end="s_trap 2")
    assert capfd.readouterr().err == ""


def test_other_services_are_refused_by_number() -> None:
    with pytest.raises(UnsupportedInstruction, match=r"calls the host for service 4; modelled are printf's, 2, and malloc's, 3"):
        run_calls("gfx942", 1, service=4)


def test_a_message_without_the_buffer_only_passes_time() -> None:
    gpu = simgpu.Device("gfx90a")
    kernel = KernelText("k", "s_sendmsg sendmsg(MSG_INTERRUPT)\ns_sendmsg sendmsg(MSG_INTERRUPT)")
    run = gpu.load(assemble("gfx90a", kernel))["k"].launch(grid=3)
    assert run.instructions == 9
