"""Replay of a workgroup: a place has the same state on any way to it, and stops change nothing."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import numpy as np
import pytest

import simgpu
from simgpu.debugger.debugger import Debugger
from simgpu.debugger.flow.nodes import leaves
from simgpu.debugger.flow.why import Why
from simgpu.debugger.place import WavePlace
from simgpu.hardware.errors import LaunchError
from simgpu.tools.robustness.flips import backward, digest, reversed_places
from tests.support.host_kernels import prepared
from tests.support.kernels import loaded_kernel
from tests.support.places import CORPUS

KERNELS, PLACES = 5, 20
# Waves race for a word, with slices of different lengths, sleeps and barriers: another order gives another sum.
RACE = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshrrev_b32 v1, 6, v0
v_readfirstlane_b32 s6, v1
s_mul_i32 s7, s6, 700
s_addk_i32 s7, 9000
v_mov_b32 v2, 0
s_waitcnt lgkmcnt(0)
loop:
s_sub_u32 s7, s7, 1
s_and_b32 s8, s7, 1023
s_cmp_lg_u32 s8, 0
s_cbranch_scc1 skip
global_load_dword v3, v2, s[4:5]
s_waitcnt vmcnt(0)
v_mul_u32_u24 v3, 3, v3
v_add_u32 v3, s6, v3
global_store_dword v2, v3, s[4:5]
s_sleep 1
skip:
s_cmp_lg_u32 s7, 0
s_cbranch_scc1 loop
s_barrier
global_load_dword v3, v2, s[4:5]
s_waitcnt vmcnt(0)
v_add_u32 v3, 1, v3
global_store_dword v2, v3, s[4:5]
s_endpgm
"""


@pytest.mark.parametrize("name", ["gemm f32", "gemm f16 gfx942", "gemm split", "conv2d", "softmax", "attention"])
def test_backward_is_forward_in_our_kernels(name: str) -> None:
    target, kernel, work = prepared(name)
    gpu = simgpu.Device(target, threads=1)
    buffers = [gpu.upload(array) for array in work.arrays]
    entry, call = simgpu.asm.Prepared(kernel, gpu).calls(*buffers)[0]
    last = [extent - 1 for extent in call["grid"]]
    with simgpu.debug(entry, **call, group=last) as debugger:
        assert not reversed_places(debugger, gpu, len(name), 6)
    assert all((buffer.download(array.dtype, array.shape).view(np.uint8) == array.view(np.uint8)).all()
               for buffer, array in zip(buffers, work.arrays, strict=True))  # fmt: skip


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.exists(), reason="../shared/corpus is not here")
def test_backward_is_forward_in_compilers_kernels() -> None:
    """A few kernels, since each has many handlers to compile; `simgpu.tools.robustness.flips` does 1,000 places of 20."""
    assert backward(str(CORPUS), KERNELS, PLACES, 25) == (KERNELS * PLACES, [])


def raced(act: Callable[[Debugger], None]) -> int:
    """Returns the racing waves' sum after a debugger ran them to the end in some way."""
    gpu = simgpu.Device("gfx90a", threads=1)
    out = gpu.upload(np.zeros(1, np.uint32))
    with simgpu.debug(loaded_kernel(gpu, RACE, "buffer"), grid=1, block=256, args=[out]) as debugger:
        act(debugger)
        while debugger.stop.kind != "ended":
            debugger.go_on()
        return int(out.download()[0])


def test_stops_do_not_change_what_runs() -> None:
    """Neither breakpoints inside a slice, false conditions nor steps of a wave change it."""
    gpu = simgpu.Device("gfx90a", threads=1)
    out = gpu.upload(np.zeros(1, np.uint32))
    loaded_kernel(gpu, RACE, "buffer").launch(grid=1, block=256, args=[out])
    alone = int(out.download()[0])
    assert alone == raced(lambda debugger: None)
    assert alone == raced(lambda debugger: debugger.breakpoint("0x54") and None)
    assert alone == raced(lambda debugger: debugger.breakpoint("loop", "s7 % 997 == 5") and None)

    def by_steps(debugger: Debugger) -> None:
        rng = random.Random(1)
        while debugger.stop.kind != "ended" and debugger.replay.waves_left == 4:
            debugger.step(rng.randrange(1, 20_000), rng.randrange(4))

    assert alone == raced(by_steps)


# Jumps of all kinds, modes that change programs, a barrier and a sleep.
WINDING = """
v_lshrrev_b32 v1, 6, v0
v_readfirstlane_b32 s6, v1
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshlrev_b32 v2, 2, v0
v_cvt_f32_u32 v3, v0
s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 1
v_mul_f32 v4, 0x3dcccccd, v3
s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 0
v_add_f32 v4, v4, v4
s_mov_b32 s7, 3
again:
s_call_b64 s[8:9], twice
s_sub_u32 s7, s7, 1
s_cmp_eq_u32 s7, s6
s_cbranch_scc1 odd
s_branch join
odd:
s_sleep 1
v_add_f32 v4, v4, v3
join:
s_barrier
s_set_gpr_idx_on s7, 1
v_mov_b32 v5, v3
s_set_gpr_idx_off
s_cmp_lg_u32 s7, 0
s_cbranch_scc1 again
s_waitcnt lgkmcnt(0)
global_store_dword v2, v4, s[4:5]
s_endpgm
twice:
v_add_f32 v4, v4, v4
s_setpc_b64 s[8:9]
"""


@pytest.mark.parametrize("order", [(0,), (1, 0), (0, 1)])
def test_single_steps_arrive_where_goto_does(order: tuple[int, ...]) -> None:
    """Steps of the waves in turn: from each stop, the state is that of another replay which ran there at once."""
    devices = [simgpu.Device("gfx90a", threads=1) for _ in range(2)]
    calls = [{"grid": 1, "block": 128, "args": [gpu.upload(np.zeros(128, np.float32))]} for gpu in devices]
    kernels = [loaded_kernel(gpu, WINDING, "buffer") for gpu in devices]
    with simgpu.debug(kernels[0], **calls[0]) as steps, simgpu.debug(kernels[1], **calls[1]) as jumps:
        for wave in itertools.cycle(order):
            before = steps.wave_place(wave).retired
            stop = steps.step(wave=wave)
            if steps.replay.waves_left < 2:
                break
            assert stop.place == WavePlace((0, 0, 0), wave, before + 1)
            jumps.goto(WavePlace((0, 0, 0), 0, 0))
            jumps.goto(stop.place)
            assert digest(steps, devices[0]) == digest(jumps, devices[1]), stop.place
        assert steps.wave_place(0).retired > 40


def test_which_memory_a_workgroup_begins_from() -> None:
    """Each workgroup adds its number to the previous one's result, or writes data that nobody reads."""
    chain = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    v_mov_b32 v1, 0
    s_waitcnt lgkmcnt(0)
    {read}
    s_waitcnt vmcnt(0)
    v_add_u32 v2, s2, v2
    v_mov_b32 v3, s2
    v_lshlrev_b32 v3, 2, v3
    {write}
    s_endpgm
    """
    reads = "global_load_dword v2, v1, s[4:5]", "global_store_dword v1, v2, s[4:5]"
    writes = "v_mov_b32 v2, 0", "global_store_dword v3, v2, s[4:5]"
    for (read, write), words in ((reads, "the 5 before it ran first"), (writes, "no workgroup reads data that another one writes")):
        gpu = simgpu.Device("gfx90a", threads=1)
        out = gpu.upload(np.zeros(8, np.uint32))
        kernel = loaded_kernel(gpu, chain.format(read=read, write=write), "buffer")
        with simgpu.debug(kernel, grid=8, args=[out], group=(5,)) as debugger:
            assert words in debugger.initial_memory
            debugger.finish()
            assert int(debugger.registers("v2[0]")[0]) == (15 if read.startswith("global") else 5)
            debugger.focus((0,))
            assert "first workgroup" in debugger.initial_memory and int(out.download()[0]) == 0
        assert (out.download() == 0).all()


def test_workgroups_that_wait_for_later_ones_run_together() -> None:
    """Workgroups 0 to 2 wait for 3: with each in focus the whole launch runs, and only the focused one stops."""
    wait = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    v_mov_b32 v1, 0
    s_waitcnt lgkmcnt(0)
    s_cmp_eq_u32 s2, 3
    s_cbranch_scc1 last
    spin:
    s_sleep 1
    global_load_dword v2, v1, s[4:5] glc
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s6, v2
    s_cmp_eq_u32 s6, 0
    s_cbranch_scc1 spin
    s_endpgm
    last:
    v_mov_b32 v2, 7
    global_store_dword v1, v2, s[4:5]
    s_endpgm
    """
    gpu = simgpu.Device("gfx90a", threads=1)
    out = gpu.upload(np.zeros(1, np.uint32))
    kernel = loaded_kernel(gpu, wait, "buffer")
    ends = []
    for group in range(4):
        with simgpu.debug(kernel, grid=4, block=128, args=[out], group=(group,)) as debugger:
            assert "wait for later ones" in debugger.initial_memory and debugger.place == WavePlace((group, 0, 0), 0, 0)
            debugger.breakpoint("last" if group == 3 else "0x2c", "s6 != 0" if group < 3 else "", wave=1)
            stop = debugger.go_on()
            assert stop.kind == "breakpoint" and stop.place.group == (group, 0, 0) and stop.place.wave == 1
            before, at = digest(debugger, gpu), stop.place
            assert group == 3 or debugger.registers("v2[0]")[0] == 7
            debugger.step(1, 1)
            debugger.reverse_step(1, 1)
            assert debugger.place == at and digest(debugger, gpu) == before
            assert debugger.go_on().kind == "ended"
            ends.append([debugger.wave_place(wave).retired for wave in range(2)])
            leaf = next(leaves(Why(debugger).register(("v", 2, 0), 0, ends[-1][0] - 1)))
            assert (leaf.kind == "memory" and "another workgroup" in leaf.text) if group < 3 else leaf.value == 7
        assert int(out.download()[0]) == 0
    assert ends[3] == [8, 8] and all(end[0] > 12 for end in ends[:3]), "12 if the loop runs once"


@pytest.mark.parametrize(("text", "place"), [
    ("wg(7,0,0) w0 #52311", WavePlace((7, 0, 0), 0, 52311)), ("wg(7) w3 #1", WavePlace((7, 0, 0), 3, 1)),
    ("w2 # 5", WavePlace((1, 2, 3), 2, 5)),
    ("#0", WavePlace((1, 2, 3), 9, 0)), ("wg 4,5 w1 #6", WavePlace((4, 5, 0), 1, 6)),
])  # fmt: skip
def test_places_are_typed_as_they_are_printed(text: str, place: WavePlace) -> None:
    assert WavePlace.parse(text, (1, 2, 3), 9) == place == WavePlace.parse(str(place))


@pytest.mark.parametrize("text", ["", "w0", "wg(1,2,3,4) #5", "#-1", "w0 #x", "wg() #1"])
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(LaunchError, match="is no place"):
        WavePlace.parse(text)


def test_data_among_the_code_is_passed_by() -> None:
    """A kernel jumps over words that are no instruction of the target, here an image access."""
    text = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    s_branch behind
    .long 0xf0460166, 0x0ac63c1f
behind:
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v0, s[4:5]
"""
    gpu = simgpu.Device("gfx90a", threads=1)
    out = gpu.upload(np.zeros(64, np.uint32))
    with simgpu.debug(loaded_kernel(gpu, text, "buffer"), grid=1, block=64, args=[out]) as debugger:
        assert debugger.go_on().kind == "ended"
        assert (out.download() == np.arange(64)).all()
