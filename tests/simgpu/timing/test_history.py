"""Lines that launches of a chain left in L2s: against counts by hand, for copies whose workgroups are shifted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import simgpu
from simgpu.device import Kernel
from simgpu.engine.device import Buffer
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.timing.gpu import Mechanisms
from simgpu.timing.history import LaunchHistory, Lines, TracedLaunch, lines_by_xcd
from simgpu.timing.native.replay import UNKNOWN
from simgpu.timing.predict import Prediction, SampledLaunch, predict
from simgpu.tools.cases.sources import compile

BOARD, XCDS, GROUPS, LANES = "mi300a", 6, 48, 64  # lanes of a workgroup: 2 lines of L2
COPY = """__global__ void shifted(float *to, const float *from, int by, int count) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    to[i] = from[(i + by) % count];
}"""
UPDATE = """__global__ void update(float *data, int by) {
    data[threadIdx.x + blockIdx.x * blockDim.x + by] += 1;
}"""
WITHOUT_GAP = Mechanisms(launch=False)  # lines do not move between launches


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return simgpu.Device(BOARD, threads=1).load(compile(COPY, BOARD))["_Z7shiftedPfPKfii"]


def chain(kernel: Kernel, shifts: list[int], groups: int = GROUPS, lanes: int = LANES) -> list[Prediction]:
    """Copies between two arrays by turns. shifts: of each copy, in workgroups."""
    gpu, count, made = kernel.module.device, groups * lanes, list[Prediction]()
    arrays: list[Buffer] = [gpu.zeros(count) for _ in range(2)]
    for at, shift in enumerate(shifts):
        to, source = arrays[(at + 1) % 2], arrays[at % 2]
        left = made[-1].left if made else False
        made.append(kernel.time(grid=groups, block=lanes, args=[to, source, shift * lanes, count], warm=left))
    return made


def moved(sampled: SampledLaunch, before: LaunchHistory) -> tuple[float, float]:
    """Returns the fraction of the load's bytes that L2s pass on, and the fraction of these that other XCDs hold."""
    found = predict(sampled, warm=before, on=WITHOUT_GAP).traffic
    (load,) = (n for n, inst in sampled.instructions.items() if inst.mnemonic.startswith("global_load"))
    return float(found.past[0, load]), float(found.moved[load])


@pytest.mark.parametrize("shift", range(XCDS + 1))
def test_a_line_moves_if_another_xcd_stored_it(kernel: Kernel, shift: int) -> None:
    """Workgroup g runs on XCD g mod 6, and loads what g + shift stored."""
    _, second = chain(kernel, [0, shift])
    past, foreign = moved(second.sampled, second.before)
    expected = np.mean([(group + shift) % GROUPS % XCDS != group % XCDS for group in range(GROUPS)])
    assert (past, foreign * past) == pytest.approx((expected, expected), abs=1e-6)


def test_an_xcd_keeps_what_it_loaded_until_another_one_stores(kernel: Kernel) -> None:
    """A third launch finds the lines of the second one, which loads the same. Stores of a fourth invalidate them."""
    gpu, count = kernel.module.device, GROUPS * LANES
    a, b, c = (gpu.zeros(count) for _ in range(3))
    left, found = False, list[float]()
    for to, source, shift in ((b, a, 0), (c, b, 1), (a, b, 1), (b, a, 0), (c, b, 1)):
        one = kernel.time(grid=GROUPS, block=LANES, args=[to, source, shift * LANES, count], warm=left)
        found.append(moved(one.sampled, one.before)[1] if left else 0.0)
        left = one.left
    assert found == pytest.approx([0, 1, 0, 0, 1], abs=1e-6)


def test_lines_move_while_the_next_launch_is_prepared(kernel: Kernel) -> None:
    """Lines move between launches as far as there is time. Each of 456 workgroups loads 32 lines that another XCD stored."""
    groups, lanes = 456, 1024
    _, second = chain(kernel, [0, 1], groups, lanes)
    row = pipelines("gfx942")
    seconds = groups * lanes * 4 * row.line_move_seconds
    (load,) = (n for n, inst in second.sampled.instructions.items() if inst.mnemonic.startswith("global_load"))
    assert moved(second.sampled, second.before) == pytest.approx((1.0, 1.0), abs=1e-5)  # L2s lose few lines
    assert second.traffic.moved[load] == pytest.approx(1 - row.profiled_us * 1e-6 / seconds, rel=1e-3)
    _, short = chain(kernel, [0, 1])
    assert not short.traffic.moved.any()


@pytest.mark.parametrize("by, shared", [(0, 0), (16, 0), (3, GROUPS - 1), (24, GROUPS - 1)])
def test_a_store_takes_a_half_that_a_neighbour_loaded(by: int, shared: int) -> None:
    """Workgroups update consecutive kilobytes in place. If they begin within 64 bytes, neighbours on two XCDs share these."""
    gpu, lanes = simgpu.Device(BOARD, threads=1), 1024
    kernel = gpu.load(compile(UPDATE, BOARD))["_Z6updatePfi"]
    timed = kernel.time(grid=GROUPS, block=lanes, args=[gpu.zeros(GROUPS * lanes + by), by])
    (store,) = (n for n, inst in timed.sampled.instructions.items() if inst.mnemonic.startswith("global_store"))
    requests = sum(len({(64 * wave + lane + by) // 16 for lane in range(64)}) for wave in range(lanes // 64))
    past = GROUPS * requests * 64 * timed.traffic.past[0, store]  # bytes
    assert past * timed.traffic.moved[store] == pytest.approx(shared * 128, rel=1e-6)
    assert not np.delete(timed.traffic.moved, store).any()


@pytest.mark.parametrize("traced", [0, 1, GROUPS // 2, GROUPS])
@pytest.mark.parametrize("shift", [0, 1])
def test_workgroups_that_were_traced_represent_the_others(kernel: Kernel, shift: int, traced: int) -> None:
    """Without any, each XCD may have stored a line that one of six loads."""
    first, second = chain(kernel, [0, shift])
    groups = sorted(first.sampled.beginnings, key=lambda trace: trace.group)
    before = LaunchHistory().after(replace(first.sampled, all_traced=False, whole=[], beginnings=groups[:traced]))
    expected = float(shift) if traced else 1 - 1 / XCDS
    assert not before.exact and before.stores == set(first.sampled.stores)
    assert np.prod(moved(second.sampled, before)) == pytest.approx(expected, abs=1e-6 if traced else 0.05)


def test_a_line_that_an_untraced_workgroup_may_have_stored_has_no_known_owner(kernel: Kernel) -> None:
    """Another launch stores to the array again, and a quarter of it was traced. These workgroups are as before."""
    first, second = chain(kernel, [0, 1])
    groups = sorted(first.sampled.beginnings, key=lambda trace: trace.group)
    again = LaunchHistory().after(first.sampled).after(replace(first.sampled, all_traced=False, whole=[], beginnings=groups[:12]))
    owners, _, _ = again.state(again.lines, second.sampled)
    assert np.count_nonzero(owners >= 0) == 12 * 4 and np.count_nonzero(owners == UNKNOWN) == (GROUPS - 12) * 4
    left = LaunchHistory().after(replace(first.sampled, all_traced=False))
    assert moved(replace(first.sampled, replays={}), left) == pytest.approx((0.0, 0.0), abs=1e-6)  # it loaded these lines before
    assert moved(replace(first.sampled, replays={}), LaunchHistory())[0] == pytest.approx(1.0)


def test_l2s_that_keep_a_copy_of_what_they_write_back_move_no_line_to_a_load() -> None:
    """On MI355X, a line that another XCD stored comes from the Infinity Cache."""
    kernel = simgpu.Device("mi355x", threads=1).load(compile(COPY, "mi355x"))["_Z7shiftedPfPKfii"]
    _, second = chain(kernel, [0, 1])
    assert moved(second.sampled, second.before) == pytest.approx((1.0, 0.0), abs=1e-6) and second.traffic.hbm_bytes == 0


def test_a_launchs_lines_are_found_once(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch's time needs them, and so does the chain that it joins."""
    found = list[object]()

    def spy(sampled: TracedLaunch) -> tuple[Lines, Lines]:
        found.append(sampled)
        return lines_by_xcd(sampled)

    monkeypatch.setattr("simgpu.timing.predict.lines_by_xcd", spy)
    one, two = chain(kernel, [0, 1])
    assert two.left.accessed and two.left.accessed and found == [one.sampled, two.sampled]


def test_new_lines_come_from_memory(kernel: Kernel) -> None:
    """A second launch loads an array that the first one did not access, and a third one what both accessed."""
    gpu, count = kernel.module.device, GROUPS * LANES
    a, b, c = (gpu.zeros(count) for _ in range(3))
    first = kernel.time(grid=GROUPS, block=LANES, args=[b, a, 0, count])
    second = kernel.time(grid=GROUPS, block=LANES, args=[b, c, 0, count], warm=first.left)
    third = kernel.time(grid=GROUPS, block=LANES, args=[c, b, 0, count], warm=second.left)
    assert first.traffic.hbm_bytes > second.traffic.hbm_bytes == 4 * count and third.traffic.hbm_bytes == 0


def test_one_l2_needs_no_lines() -> None:
    """With one XCD it counts whether the chain accessed what a launch loads from."""
    gpu = simgpu.Device("mi210", threads=1)
    kernel = gpu.load(compile(COPY, "mi210"))["_Z7shiftedPfPKfii"]
    first, second = chain(kernel, [0, 1])
    assert first.left.warm(second.sampled) is True and LaunchHistory().warm(second.sampled) is False
    other = kernel.time(grid=GROUPS, block=LANES, args=[gpu.zeros(GROUPS * LANES), gpu.zeros(GROUPS * LANES), 0, GROUPS * LANES])
    assert first.left.warm(other.sampled) is False
