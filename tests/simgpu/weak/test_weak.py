"""Weak mode: right programs give right bytes under every seed, weakened ones wrong bytes under some, the same ones every time."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np
import pytest

import simgpu
from simgpu.hardware.errors import LaunchError
from tests.simgpu.checks import test_split_workgroups as split_workgroups
from tests.simgpu.checks.test_device_scope import GROUPS, SOURCE
from tests.simgpu.checks.test_memory_model import BLOCKS, NEW, OLD, ORDERED, PASS_ON, TARGETS, WEAKENED, built, expected
from tests.support.device_library import compiled
from tests.support.exhaustive import examples, left_out
from tests.support.gemm_case import bytes_by_mode
from tests.support.kernels import KernelText, assemble

APART = ("gfx942", "gfx950")  # an L2 for each XCD


def results(kernel: str, target: str, seeds: Iterable[int], *changes: tuple[str, str]) -> Iterable[np.ndarray]:
    """Yields what a kernel of ordered.hip stores first in `out`, by seed."""
    values = np.arange(256 * BLOCKS, dtype="u4") % 97
    gpu = simgpu.Device(target, weak=0, max_instructions=20_000_000)
    launched = gpu.load(built("ordered", target, *changes))[kernel]
    buffers = [gpu.upload(values), *(gpu.upload(np.zeros_like(values)) for _ in range(3))]
    for gpu.weak in seeds:
        for buffer in buffers[1:]:
            buffer.write(np.zeros_like(values))
        launched.launch(grid=BLOCKS, block=256, args=buffers)
        yield buffers[2].download("u4")[: len(expected(kernel))]


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", ORDERED)
def test_right_programs_give_right_bytes_under_every_seed(kernel: str, target: str) -> None:
    for seed, out in enumerate(results(kernel, target, range(examples(40)))):
        assert np.array_equal(out, expected(kernel)), seed


QUICK = ("split-K only releases", "tickets do not release", "the grid does not acquire")


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.exhaustive) for name in WEAKENED]
)
def test_weakened_programs_give_wrong_bytes_under_some_seed(name: str, target: str) -> None:
    weak = WEAKENED[name]
    found = results(weak.kernel, target, range(600), (weak.old, weak.new))
    assert any(not np.array_equal(out, expected(weak.kernel)) for out in found)


def test_a_seed_gives_the_same_bytes_every_time() -> None:
    weak = WEAKENED["split-K only releases"]
    first, again = ([out.tobytes() for out in results(weak.kernel, "gfx942", range(8), (weak.old, weak.new))] for _ in range(2))
    assert first == again and len(set(first)) > 1


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
@pytest.mark.parametrize("kernel", split_workgroups.KERNELS)
def test_waves_of_split_workgroups_have_l1s_of_their_own(kernel: str, target: str) -> None:
    """Code that LLVM compiled for other workgroups gives wrong bytes in tgsplit mode."""
    def right(how: str, seed: int) -> bool:
        _, out = split_workgroups.launched(kernel, target, how, weak=seed)
        want = split_workgroups.expected(kernel)
        return np.array_equal(out[: len(want)], want)

    seeds = range(examples(20))
    assert all(right(how, seed) for how in ("plain", "split") for seed in seeds)
    assert not all(right("marked", seed) for seed in range(60))


@functools.cache
def of_cl(target: str) -> bytes:
    return compiled(target, SOURCE, library=False)


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["look_back", "beside", "add_float", "greatest"])
def test_scans_and_compare_and_swap_loops(name: str, target: str) -> None:
    rng = np.random.default_rng(1)
    numbers, floats = rng.integers(0, 100, 64 * GROUPS).astype("u4"), rng.integers(1, 100, 64 * GROUPS).astype("f4")
    zeros = [np.zeros(GROUPS, "u4"), np.zeros(GROUPS, "u8"), np.zeros(GROUPS, "u4"), np.zeros(1, "u4")]
    rows, places = floats.reshape(GROUPS, 64), [np.arange(64) % 7 == place for place in range(7)]
    given, which, want = {
        "look_back": ([numbers, zeros[0], zeros[1], zeros[3]], 1, numbers.reshape(GROUPS, 64).sum(1)),
        "beside": ([numbers, zeros[0], zeros[0], zeros[2], zeros[3]], 1, numbers.reshape(GROUPS, 64).sum(1)),
        "add_float": ([np.zeros(7, "f4"), floats], 0, [rows[:, at].sum() for at in places]),
        "greatest": ([np.zeros(7, "f4"), floats], 0, [rows[:, at].max() for at in places]),
    }[name]
    if which:
        want = np.concatenate([[0], np.cumsum(want)[:-1]])
    for seed in range(examples(20)):
        gpu = simgpu.Device(target, weak=seed)
        buffers = [gpu.upload(array) for array in given]
        gpu.load(of_cl(target))[name].launch(grid=GROUPS, args=buffers)
        assert np.array_equal(buffers[which].download(), want), seed


def passed_on(target: str, seeds: Iterable[int], **changes: str) -> set[int]:
    """Returns the values that the second workgroup of PASS_ON loads; 1 is what the first stored."""
    right = NEW if target in APART else OLD
    lines = (
        "s_load_dwordx4 s[4:7], s[0:1], 0x0\ns_load_dwordx2 s[8:9], s[0:1], 0x10\nv_lshlrev_b32 v10, 8, v0\nv_mov_b32 v11, 1\n"
        "v_mov_b32 v5, 1\ns_waitcnt lgkmcnt(0)\n" + PASS_ON.format(**(right | changes))
    )
    if changes.get("back") == "" and changes.get("wait") == "":
        lines = lines.replace("s_waitcnt vmcnt(0)  // back\n", "")
    lines += "global_store_dword v10, v5, s[8:9]\n"
    gpu = simgpu.Device(target, weak=0)
    kernel = gpu.load(assemble(target, KernelText("pass_on", lines, ("buffer", "buffer", "buffer"))))["pass_on"]
    found = set()
    for gpu.weak in seeds:
        buffers = [gpu.zeros(64, np.uint32), gpu.zeros(64, np.uint32), gpu.zeros(64, np.uint32)]
        kernel.launch(grid=2, args=buffers)
        found.add(int(buffers[2].download()[0]))
    return found


COPY = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_lshlrev_b32 v0, 2, v0
s_lshl_b32 s8, s2, 10
v_add_u32 v0, s8, v0
s_waitcnt lgkmcnt(0)
global_load_dword v1, v0, s[4:5]
s_waitcnt vmcnt(0)
global_store_dword v0, v1, s[6:7]
"""


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
def test_each_wave_has_late_loads_of_its_own(target: str) -> None:
    """A wave that pauses between its load and its wait loads from its own addresses, whatever others do meanwhile."""
    values, gpu = np.arange(1024, dtype="u4") + 7, simgpu.Device(target, weak=0)
    kernel = gpu.load(assemble(target, KernelText("copy", COPY, ("buffer", "buffer"))))["copy"]
    for gpu.weak in range(40):
        copied = gpu.zeros(values.size, np.uint32)
        kernel.launch(grid=4, block=256, args=[gpu.upload(values), copied])
        assert np.array_equal(copied.download(), values), gpu.weak


@pytest.mark.parametrize("target", [left_out("gfx90a"), "gfx942"])
def test_each_instruction_of_a_release_and_an_acquire_is_needed(target: str) -> None:
    assert passed_on(target, range(40)) == {1}
    assert passed_on(target, range(200), again="") == {0, 1}
    if target == "gfx942":
        assert passed_on(target, range(200), back="") == {0, 1}
        assert passed_on(target, range(200), again="buffer_inv sc0") == {0, 1}
        assert passed_on(target, range(40), again="", read="sc1") == {1}


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["mi210", "mi300x"])
@pytest.mark.parametrize("m, k, dtype", [(100, 70, "f32"), (130, 257, "f16")])
def test_our_kernels(m: int, k: int, dtype: str, target: str) -> None:
    found = bytes_by_mode(target, m, k, dtype, [{"weak": seed} for seed in (None, *range(examples(12)))])
    assert len(set(found)) == 1


def test_weak_mode_takes_a_seed_and_no_checks() -> None:
    with pytest.raises(LaunchError, match="seed of 0 or more"):
        simgpu.Device("mi300x", weak=-1)
    with pytest.raises(LaunchError, match="no findings"):
        simgpu.Device("mi300x", weak=1, check=True)


def test_the_debugger_replays_a_seed() -> None:
    weak = WEAKENED["split-K only releases"]
    (out,) = results(weak.kernel, "gfx942", [2], (weak.old, weak.new))
    assert not np.array_equal(out, expected(weak.kernel))
    gpu = simgpu.Device("gfx942", weak=2)
    kernel = gpu.load(built("ordered", "gfx942", (weak.old, weak.new)))["split_k"]
    values = np.arange(256 * BLOCKS, dtype="u4") % 97
    buffers = [gpu.upload(values), *(gpu.upload(np.zeros_like(values)) for _ in range(3))]
    seen: list[set[bytes]] = []
    for group in range(BLOCKS):
        with simgpu.debug(kernel, grid=BLOCKS, block=256, args=buffers, group=(group,)) as debugger:
            debugger.go_on()
            seen.append({row.tobytes() for row in debugger.snapshot(0).vgprs[:8]})
            debugger.reverse_go_on()
            debugger.go_on()
            assert {row.tobytes() for row in debugger.snapshot(0).vgprs[:8]} == seen[-1]
    assert any(out[:64].tobytes() in rows for rows in seen)
