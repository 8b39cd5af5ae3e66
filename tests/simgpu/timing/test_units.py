"""Units of a compute unit one by one: each against its source, or against a rule for any input."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgpu.hardware.rates.pipelines import pipelines
from simgpu.hardware.targets import architectures
from simgpu.hardware.timing_rules.issue import MOST_LGKM, MOST_VM, SLOT, Issue, Kind, Unit
from simgpu.timing.caches import Shares
from simgpu.timing.code import columns
from simgpu.timing.cu import idle as idle_cu
from simgpu.timing.gpu import Mechanisms, quiet_config
from simgpu.timing.native import state, units, waves
from simgpu.timing.native.state import NEVER, SIMDS, UNITS, Stall, Tally
from simgpu.timing.native.waves import begin_groups

GFX90A = pipelines("gfx90a")
ALU = Issue(Unit.VALU)


def idle(*body: Issue, waves: int = 4, groups: int = 1, arch: str = "gfx90a", **config: float) -> tuple[state.Cu, state.Work]:
    """Makes a CU with places for `groups` workgroups; their waves are at the body's first instruction."""
    code = columns({number: (issue, 1) for number, issue in enumerate(body)}, len(body), pipelines(arch))
    steps, zeros = np.arange(len(body), dtype=np.int64), np.zeros(waves, np.int64)
    accesses = np.full((len(body), 3), (4, 4, 4), np.int32)
    work = state.Work(steps, zeros, zeros + len(body), accesses, zeros, waves, np.zeros(groups, np.int64))
    settings = quiet_config(dataclasses.replace(pipelines(arch), start=0), Mechanisms(), 1700.0, (0.0, 0.0))
    for name, value in config.items():
        settings[name] = value
    shares = np.zeros((2, len(body)))
    cu = idle_cu(settings, code, Shares(shares, shares, np.zeros(len(body))), work, groups, np.zeros(groups, np.int64))
    cu = state.Cu(*[array.view(np.recarray) if array.dtype.names else array for array in cu])  # fields by name, as in machine code
    begin_groups(cu, work, np.zeros(groups, np.int64))
    return cu, work


# -- LDS -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes, clocks", [(4, 8), (16, 20)])
def test_an_access_holds_its_lds_port(nbytes: int, clocks: int) -> None:
    """ROCm Compute Profiler, "Pipeline descriptions": a 4-byte store takes 8 clocks of a port, a 16-byte one 20."""
    lds, config = np.zeros(1, state.LDS).view(np.recarray), quiet_config(GFX90A, Mechanisms(), 1700.0, (0.0, 0.0)).view(np.recarray)
    port = GFX90A.lds_port_overhead + 64 * nbytes // GFX90A.lds_write_port
    done = [int(units.lds_access(lds[0:1][0], config[0], 0, 2, port, 0)[0]) for _ in range(5)]
    assert np.diff([0, *done]).tolist() == [clocks] * 5


def test_ports_run_side_by_side_and_banks_one_access_at_a_time() -> None:
    """gfx950-gluon-tutorials, LDS study: two ports reach banks that both share."""
    lds, config = np.zeros(1, state.LDS).view(np.recarray), quiet_config(GFX90A, Mechanisms(), 1700.0, (0.0, 0.0)).view(np.recarray)
    free = [int(units.lds_access(lds[0], config[0], pair, 4, 8, 0)[0]) for pair in (0, 1)]
    assert free == [8, 8]
    lds = np.zeros(1, state.LDS).view(np.recarray)
    conflicts = [int(units.lds_access(lds[0], config[0], pair, 64, 8, 0)[0]) for pair in (0, 1)]
    assert conflicts == [64, 128]


def test_a_port_queues_so_many_accesses() -> None:
    lds, config = np.zeros(1, state.LDS).view(np.recarray), quiet_config(GFX90A, Mechanisms(), 1700.0, (0.0, 0.0)).view(np.recarray)
    room = [int(units.lds_access(lds[0], config[0], 0, 8, 8, 0)[1]) for _ in range(GFX90A.lds_fifo + 3)]
    assert room == [0] * GFX90A.lds_fifo + [8, 16, 24]


# -- vector memory -------------------------------------------------------------------------------


def test_loads_wait_for_room_among_those_in_flight() -> None:
    """Loads make room in order of age, only as many as needed."""
    vmem, config = np.zeros(1, state.VMEM).view(np.recarray), np.zeros(1, state.CONFIG).view(np.recarray)
    config["in_flight"] = 1000
    vmem["flight_end"][0, :3], vmem["flight_bytes"][0, :3] = (50, 70, 90), (400, 400, 200)
    vmem["last"], vmem["flying"] = 3, 1000
    assert units.wait_for_room(vmem[0], config[0], 100, 10) == 50 and vmem["flying"] == 600
    assert units.wait_for_room(vmem[0], config[0], 900, 10) == 90 and vmem["flying"] == 0


def test_the_coalescer_takes_one_instruction_at_a_time_and_queues_few() -> None:
    cu, _ = idle(ALU)
    for at in range(GFX90A.vmem_queue):
        units.coalesce(cu.vmem[0], cu.issue[0], cu.config[0], 16 * at, 16)
    assert cu.vmem["coalescer_free"] == 16 * GFX90A.vmem_queue
    free = cu.issue["free"][0].reshape(SIMDS, UNITS)[:, Unit.VMEM]
    assert (free == 0).all()
    units.coalesce(cu.vmem[0], cu.issue[0], cu.config[0], 16 * GFX90A.vmem_queue, 16)
    assert (cu.issue["free"][0].reshape(SIMDS, UNITS)[:, Unit.VMEM] == 0).all()
    units.coalesce(cu.vmem[0], cu.issue[0], cu.config[0], 16 * GFX90A.vmem_queue + 16, 16)
    assert (cu.issue["free"][0].reshape(SIMDS, UNITS)[:, Unit.VMEM] == 16).all()


def test_bytes_take_the_rate_of_each_level_and_of_what_it_passes_on() -> None:
    cu, _ = idle(ALU, rate=(64.0, 16.0, 4.0), burst=0.0)
    cu.past[:] = ((0.5,), (0.25,))
    tally = np.zeros(len(Tally))
    for _ in range(8):
        units.move(cu, 0, 0, 0, 0, 256, False, tally)
    assert tally[Tally.L2_BYTES] == 2048 and tally[Tally.MALL_BYTES] == 1024 and tally[Tally.HBM_BYTES] == 256
    assert cu.vmem["level_free"][0].tolist() == [2048 / 64, 1024 / 16, 256 / 4]


def test_a_store_leaves_l2_when_another_line_needs_its_place() -> None:
    cu, _ = idle(ALU, rate=(64.0, 16.0, 4.0), burst=0.0, room=1024.0)
    cu.past[:] = ((1.0,), (0.5,))
    tally = np.zeros(len(Tally))
    assert max(units.move(cu, 0, 0, 0, 0, 256, True, tally) for _ in range(4)) < 1e-3
    assert cu.vmem["level_free"][0].tolist()[1:] == [0, 0] and cu.vmem["changed"][0].tolist() == [0, 1024, 512]
    assert units.move(cu, 0, 0, 0, 0, 1024, True, tally) == 512 / 4  # half of all lines leave, and half of these bytes go to memory
    assert cu.vmem["level_free"][0].tolist()[1:] == [1024 / 16, 512 / 4]
    assert units.move(cu, 0, 0, 0, 0, 1024, False, tally) == (512 + 512 + 256) / 4  # a load's lines also replace changed ones
    assert cu.vmem["changed"][0].tolist() == [0, 512, 256]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 4000)), max_size=40), st.sampled_from([0.0, 1000.0, 1e18]))
def test_each_byte_is_served_or_still_in_l2(moves: list[tuple[bool, int]], room: float) -> None:
    cu, _ = idle(ALU, rate=(64.0, 16.0, 4.0), burst=0.0, room=room, line=1)
    cu.past[:] = ((1.0,), (0.25,))
    tally = np.zeros(len(Tally))
    for is_store, nbytes in moves:
        units.move(cu, 0, 0, 0, 0, 4 * nbytes, is_store, tally)
    served = cu.vmem["level_free"][0] * [64, 16, 4]
    asked = tally[Tally.L2_BYTES : Tally.L2_BYTES + 3]
    assert served[1:] + cu.vmem["changed"][0][1:] == pytest.approx(asked[1:])
    assert cu.vmem["held"][0] <= room and (cu.vmem["changed"][0] <= room).all()
    if room == 0:
        assert not cu.vmem["changed"].any()
    if room == 1e18:
        assert served[1] == pytest.approx(4 * sum(nbytes for is_store, nbytes in moves if not is_store))


@pytest.mark.parametrize("late, level", [((0.0, 0.0), 0), ((1.0, 0.0), 1), ((1.0, 1.0), 2)])
def test_a_load_waits_for_the_level_that_serves_it(late: tuple[float, float], level: int) -> None:
    cu, _ = idle(ALU)
    cu.late[:] = np.array(late)[:, None]
    assert [units.level_of(cu, 0, 0, 4) for _ in range(3)] == [level] * 3


def test_half_of_the_loads_wait_where_half_of_the_requests_do() -> None:
    cu, _ = idle(ALU)
    cu.late[:, 0], cu.late[:, 1] = 0.5, 0.0
    assert [units.level_of(cu, 0, 0, 4) for _ in range(4)] == [0, 1, 0, 1]


# -- counters ------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 10_000), max_size=80), st.integers(0, MOST_VM - 1))
def test_a_wait_lasts_until_few_enough_are_in_flight(times: list[int], left: int) -> None:
    """Operations complete in order: each no sooner than the previous one."""
    cu, _ = idle(ALU, Issue(Unit.NONE, Kind.WAIT, vm=left))
    wave, out = cu.waves[0], cu.outstanding[0]
    for number, end in enumerate(times):
        units.count(out["vm"], end, number)
    wave["ready"] = 5
    units.hold_for_counters(wave, out, cu.code[1])
    ordered = np.maximum.accumulate(np.array(times, np.int64)) if times else np.zeros(0, np.int64)
    want = int(ordered[len(times) - left - 1]) if len(times) > left else 0
    assert wave["ready"] == max(5, want)
    assert wave["why"] == (Stall.WAITCNT if want > 5 else Stall.OTHER_WAIT)


@pytest.mark.parametrize("kind, ring, most", [(Kind.VMEM, "vm", MOST_VM), (Kind.LDS, "lds", MOST_LGKM)])
def test_a_full_counter_holds_the_next_operation_back(kind: Kind, ring: str, most: int) -> None:
    """ROCm/rocm-systems 11202: if a counter is full, the next operation waits for the oldest."""
    unit = Unit.VMEM if kind is Kind.VMEM else Unit.LDS
    cu, _ = idle(ALU, Issue(unit, kind, lane_bytes=4))
    for number in range(most - 1):
        units.count(cu.outstanding[0][ring], 100 + number, number)
    units.hold_for_counters(cu.waves[0], cu.outstanding[0], cu.code[1])
    assert cu.waves["ready"][0] == 0
    units.count(cu.outstanding[0][ring], 500, most)
    units.hold_for_counters(cu.waves[0], cu.outstanding[0], cu.code[1])
    assert cu.waves["ready"][0] == 100


# -- instruction fetch ---------------------------------------------------------------------------


def test_straight_code_streams_and_a_jump_waits_for_l2() -> None:
    cu, _ = idle(*[ALU] * 256, code_line=64, code_stream=20)
    wave, latency = cu.waves[0], int(cu.config["latency"][0][0])
    there = []
    for line in (0, 1, 2, 9):
        wave["ready"] = 0
        waves.fetch(cu, wave, line, 0)
        there.append(int(wave["ready"]))
    assert np.diff(there).tolist() == [20, 20, max(20, latency - 20 - there[2])]
    wave["ready"] = 10_000
    waves.fetch(cu, wave, 0, 10_000)
    assert wave["ready"] == 10_000  # the cache has it


@pytest.mark.parametrize(("lines", "fetched"), [(4, 4), (5, 15)])
def test_a_loop_larger_than_the_instruction_cache_is_fetched_in_each_pass(lines: int, fetched: int) -> None:
    cu, _ = idle(*[ALU] * 256, code_line=64, code_stream=20, code_lines=4)
    for line in [*range(lines)] * 3:
        waves.fetch(cu, cu.waves[0], line, int(cu.waves[0]["ready"]))
    assert cu.progress["fetched"][0] == fetched


# -- issue ---------------------------------------------------------------------------------------


def test_simds_take_turns() -> None:
    """ROCm Compute Profiler: each SIMD issues once in four clocks."""
    cu, _ = idle(ALU, waves=4)
    turns = []
    for _ in range(4):
        simd, key = waves.arbitrate(cu)
        turns.append((int(simd), int(key) >> state.KEY_TIME))
        cu.waves["ready"][cu.issue["best_wave"][0][simd]] = NEVER
        cu.issue["dirty"][0][simd] = 1
    assert turns == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert waves.arbitrate(cu)[0] == -1


@pytest.mark.parametrize("unit, expected", [(Unit.VALU, [0, 4, 8, 0]), (Unit.SCALAR, [0, 0, 0, 0])])
def test_turns_at_the_valu_and_age_at_other_units(unit: Unit, expected: list[int]) -> None:
    cu, _ = idle(Issue(unit), waves=12)
    found = []
    for _ in expected:
        cu.issue["dirty"][0][:] = 1
        waves.arbitrate(cu)
        found.append(int(cu.issue["best_wave"][0][0]))
        cu.issue["last"][0][unit] = found[-1]
    assert found == expected


def test_priority_decides_then_age() -> None:
    cu, _ = idle(ALU, waves=12)  # waves 0, 4 and 8 are SIMD 0's

    def first() -> int:
        cu.issue["dirty"][0][:] = 1
        waves.arbitrate(cu)
        return int(cu.issue["best_wave"][0][0])

    assert first() == 0
    cu.waves["rank"][8] = units.rank(2, 8)
    assert first() == 8
    cu.waves["ready"][[0, 8]] = 4  # earlier is earlier, at any priority
    assert first() == 4


def test_a_matrix_instruction_blocks_the_valu_for_its_shadow_only() -> None:
    """AMD Matrix Instruction Calculator: it issues through the VALU's port."""
    cu, work = idle(Issue(Unit.MATRIX, Kind.MATRIX, 32, shadow=8))
    units.execute(cu, work, cu.code[0], 1, 0, 100, 1, np.zeros(len(Tally)))
    free = cu.issue["free"][0].reshape(SIMDS, UNITS)
    assert (free[1, Unit.VALU], free[1, Unit.MATRIX], free[1, Unit.ALONE]) == (108, 132, 132)
    assert not free[[0, 2, 3]].any()


# -- workgroups and barriers ---------------------------------------------------------------------


def test_a_barrier_lets_its_own_workgroup_go() -> None:
    cu, work = idle(Issue(Unit.NONE, Kind.BARRIER), ALU, waves=2, groups=2, code_stream=0)
    result = state.CuResult(
        *(np.zeros(2, np.int64) for _ in range(2)), np.zeros((2, len(Stall)), np.int64), np.full((2, 8), -1, np.int32),
        np.zeros((2, 8), np.int64), np.zeros(len(Tally)), np.zeros(2, np.int64), np.zeros((0, state.LOG), np.int64),
    )  # fmt: skip
    for index, time in ((0, 10), (1, 50), (2, 20)):
        cu.waves["at"][index] += 1
        waves.go_on(cu, work, index, cu.code[0], time, time + SLOT, result.ends, 16)
    assert (cu.waves["ready"][:3] >= NEVER).all() and cu.groups["arrived"].tolist() == [2, 1]
    waves.release_barrier(cu, work, result, 0, 50)
    assert cu.waves["ready"][:2].tolist() == [50 + GFX90A.barrier] * 2 and cu.waves["ready"][2] >= NEVER
    assert result.stalls[0, Stall.BARRIER_WAIT] == 40


def test_a_place_is_free_when_the_last_wave_and_its_memory_operations_ended() -> None:
    cu, work = idle(Issue(Unit.NONE, Kind.END), waves=2, groups=1)
    ends = np.zeros(1, np.int64)
    units.count(cu.outstanding[0]["vm"], 900, 0)
    for index, time in ((0, 30), (1, 40)):
        waves.end_wave(cu, work, cu.waves[index], cu.outstanding[index], cu.groups[0], time, ends)
    assert ends[0] == 900 and cu.groups["live"][0] == 0 and cu.progress["left"][0] == 0


@pytest.mark.parametrize("arch", architectures())
def test_queues_fit(arch: str) -> None:
    assert max(pipelines(arch).lds_fifo, pipelines(arch).vmem_queue) < state.DEEPEST


def test_lines_that_move_between_xcds_hold_the_infinity_cache() -> None:
    """Each byte takes a clock of its own and, of the half that moves, three more."""
    cu, _ = idle(ALU, rate=(1e9, 1.0, 1e9), burst=0.0, line_move=6.0)
    cu.past[0], tally = 1.0, np.zeros(len(Tally))
    assert units.move(cu, 0, 0, 0, 0, 64, False, tally) == pytest.approx(64)
    cu.moved[0] = 0.5
    assert units.move(cu, 0, 0, 0, 0, 64, False, tally) == pytest.approx(64 + 64 * 4)
