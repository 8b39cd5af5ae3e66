"""Steps, breakpoints, watchpoints and views on a small kernel with known states."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import simgpu
from simgpu.debugger.debugger import Debugger
from simgpu.debugger.named import NamedArray
from simgpu.debugger.place import WavePlace
from simgpu.hardware.errors import LaunchError
from tests.support.kernels import loaded_kernel

# Each wave counts s20 to 6 + its number, adds to v3, stores v3 to LDS and out[item] at every count; the last wave divides by zero.
LOOP = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshrrev_b32 v1, 6, v0
v_readfirstlane_b32 s21, v1
s_add_u32 s21, s21, 6
s_mov_b32 s20, 0
v_lshlrev_b32 v2, 2, v0
v_mov_b32 v3, 0
s_waitcnt lgkmcnt(0)
loop:
s_add_u32 s20, s20, 1
v_add_u32 v3, s20, v3
ds_write_b32 v2, v3
global_store_dword v2, v3, s[4:5]
s_cmp_lt_u32 s20, s21
s_cbranch_scc1 loop
after:
s_barrier
v_cvt_f32_u32 v4, v1
v_sub_f32 v4, v4, v4
v_rcp_f32 v5, v4
v_mul_f32 v5, v5, v4
s_endpgm
"""


@pytest.fixture
def debugger() -> Iterator[Debugger]:
    gpu = simgpu.Device("gfx90a", threads=1)
    out = gpu.upload(np.zeros(128, np.uint32))
    kernel = loaded_kernel(gpu, LOOP, "buffer", group_segment_fixed_size=512)
    names = {"out": NamedArray.row_major(out.address, np.dtype("u4"), (2, 64))}
    with simgpu.debug(kernel, grid=2, block=128, args=[out], names=names) as made:
        yield made


def test_steps(debugger: Debugger) -> None:
    assert debugger.place == WavePlace((0, 0, 0), 0, 0) and debugger.code.text(debugger.record()).startswith("s_load_dwordx2")
    for retired in range(1, 20):
        stop = debugger.step()
        assert stop.kind == "step" and stop.place == WavePlace((0, 0, 0), 0, retired)
    assert int(debugger.registers("s20")[0]) == 2
    assert debugger.step(6).place.retired == 25 and int(debugger.registers("s20")[0]) == 3
    other = debugger.step(3, wave=1)  # it ran up to its eighth instruction, s_waitcnt, while the first waited at its own
    assert other.place == WavePlace((0, 0, 0), 1, 11) and debugger.wave == 1
    assert debugger.reverse_step(2).place == WavePlace((0, 0, 0), 1, 9)
    with pytest.raises(LaunchError, match="at least 1"):
        debugger.step(0)
    line = debugger.code.line(debugger.record())
    assert debugger.next().place == WavePlace((0, 0, 0), 1, 10) and debugger.code.line(debugger.record()) != line


def test_breakpoints_forward_and_backward(debugger: Debugger) -> None:
    made = debugger.breakpoint("loop", "s20 == 4 and wave == 1")
    debugger.breakpoint("after")
    found = []
    while (stop := debugger.go_on()).kind == "breakpoint":
        found.append((stop.breakpoints[0].number, str(stop.place)))
    retired = [8 + 6 * count for count in (6, 4, 7)]
    assert found == [(2, f"wg(0,0,0) w0 #{retired[0]}"), (1, f"wg(0,0,0) w1 #{retired[1]}"), (2, f"wg(0,0,0) w1 #{retired[2]}")]
    assert stop.kind == "ended"
    back = []
    while (stop := debugger.reverse_go_on()).kind == "breakpoint":
        back.append((stop.breakpoints[0].number, str(stop.place)))
    assert back == found[::-1] and stop.kind == "beginning"
    debugger.delete(made.number)
    with pytest.raises(LaunchError, match="no breakpoint 1: there are 2"):
        debugger.delete(made.number)


def test_conditions_of_a_million_visits_stop_at_the_right_one() -> None:
    body = "s_mov_b32 s4, 0\nagain:\ns_add_u32 s4, s4, 1\ns_cmp_lt_u32 s4, 0x100000\ns_cbranch_scc1 again\ns_endpgm"
    gpu = simgpu.Device("gfx90a", threads=1)
    with simgpu.debug(loaded_kernel(gpu, body), grid=1) as debugger:
        debugger.breakpoint("again", "s4 == 1000000")
        assert debugger.go_on().place.retired == 1 + 3 * 1000000
        assert debugger.reverse_step(5).place.retired == 3000001 - 5
        assert debugger.go_on().place.retired == 3000001


def test_watchpoints(debugger: Debugger) -> None:
    watched = debugger.watch("v3[5]")
    debugger.watch("out[0,5]")
    debugger.watch("lds[20:4]")
    sums = [1, 3, 6]
    for total in sums:
        for what in ("v3[5]", "lds[20:4]", "out[0,5]"):
            stop = debugger.go_on()
            assert stop.kind == "watchpoint" and stop.breakpoints[0].what == what and f"-> {total:#010x}" in stop.message
    assert debugger.reverse_go_on().breakpoints[0].what == "lds[20:4]"
    assert int(debugger.element("out[0,5]")[1]) == 3 and int(debugger.lds(20, "u4", 1)[0]) == 6
    assert debugger.reverse_go_on().message.endswith("0x00000003 -> 0x00000006") and debugger.stop.breakpoints == (watched,)


def test_nan_and_places(debugger: Debugger) -> None:
    debugger.breakpoint("nan")
    stop = debugger.go_on()
    assert "v_mul_f32_e32 v5, v5, v4" in stop.message and "lanes 0-63" in stop.message
    debugger.delete(1)
    where = str(WavePlace((0, 0, 0), 1, 33))
    debugger.breakpoint(where)
    assert debugger.place == stop.place
    assert str(debugger.reverse_go_on().place) == where
    debugger.goto(WavePlace((0, 0, 0), 0, 3))
    assert str(debugger.go_on().place) == where and debugger.go_on().kind == "ended"


def test_what_there_is_to_see(debugger: Debugger) -> None:
    debugger.goto(WavePlace((0, 0, 0), 1, 20))
    assert debugger.registers("v0").tolist() == [list(range(64, 128))] and debugger.registers("v0[9]").tolist() == [73]
    assert debugger.value("v0[9] + s20 * 2") == 73 + 2 * int(debugger.registers("s20")[0])
    assert debugger.registers("exec").tolist() == [0xFFFFFFFF] * 2 and debugger.wave_place(0).retired > 0
    logged: list[tuple[int, int]] = []
    assert debugger.log("loop", ["s20"], lambda place, values: logged.append((place.wave, int(values[0])))) == 6 + 2
    assert [count for wave, count in logged if wave == 1] == [0, 1] and debugger.place == WavePlace((0, 0, 0), 1, 20)


def test_another_workgroup_and_memory_afterwards() -> None:
    gpu = simgpu.Device("gfx90a", threads=1)
    out = gpu.upload(np.arange(128, dtype=np.uint32))
    kernel = loaded_kernel(gpu, LOOP, "buffer", group_segment_fixed_size=512)
    with simgpu.debug(kernel, grid=2, block=128, args=[out]) as debugger:
        debugger.breakpoint("after")
        debugger.go_on()
        debugger.focus((1,))
        assert debugger.place == WavePlace((1, 0, 0), 0, 0) and (out.download() == np.arange(128)).all()
        assert debugger.go_on().kind == "breakpoint" and debugger.place.group == (1, 0, 0)
        debugger.goto(WavePlace((0, 0, 0), 1, 2))
        assert debugger.place.group == (0, 0, 0)
    assert (out.download() == np.arange(128)).all()


def test_a_kernel_that_fails() -> None:
    body = "s_load_dwordx2 s[4:5], s[0:1], 0x0\nv_mov_b32 v1, 0\ns_waitcnt lgkmcnt(0)\nglobal_load_dword v2, v1, s[4:5]\ns_endpgm"
    gpu = simgpu.Device("gfx90a", threads=1)
    with simgpu.debug(loaded_kernel(gpu, body, "buffer"), grid=2, args=[0], group=(1,)) as debugger:
        stop = debugger.go_on()
        assert stop.kind == "fault" and "MemoryFault" in stop.message and stop.place.retired == 3
        for act in (debugger.go_on, debugger.step, debugger.finish):
            with pytest.raises(LaunchError, match="failed here"):
                act()
        assert debugger.reverse_step().place.retired == 2
        with pytest.raises(LaunchError, match=r"never reached.*MemoryFault"):
            debugger.goto(WavePlace((1, 0, 0), 0, 4))
        assert debugger.place.retired == 2


@pytest.mark.parametrize(("where", "words"), [
    ("nowhere", "no such label; there are"), ("0x3", "give a multiple of 4"), ("0x100000", "bytes of code"),
    ("99", "its lines are 10 to 33"),
    ("w0 #99999", r"never reached: w0 ends at wg\(0,0,0\) w0 #5"), ("w7 #1", "wave 7 of a workgroup that has 2"),
    ("wg(1,0,0) w0 #1", "another workgroup"), ("wg(9,0,0) #1", "another workgroup"),
])  # fmt: skip
def test_places_that_there_are_not(debugger: Debugger, where: str, words: str) -> None:
    debugger.step(5)
    with pytest.raises(LaunchError, match=words):
        debugger.breakpoint(where)
    assert not debugger.breakpoints and debugger.place.retired == 5


@pytest.mark.parametrize("what", ["v256", "s102", "v3[64]", "s4[1]", "lds[512]", "lds[x]", "out[2,0]", "out[0]", "what", "v[7:3]"])
def test_watches_that_there_are_not(debugger: Debugger, what: str) -> None:
    with pytest.raises(LaunchError) as error:
        debugger.watch(what)
    assert "\n" not in str(error.value)
