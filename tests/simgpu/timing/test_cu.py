"""A compute unit's model against published clocks, and rules that any model must obey."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from simgpu.hardware.rates.pipelines import Pipelines, pipelines
from simgpu.hardware.timing_rules.issue import Issue, Kind, Unit
from simgpu.timing import cu
from simgpu.timing.caches import Shares
from simgpu.timing.code import columns
from simgpu.timing.gpu import Mechanisms, quiet_config
from simgpu.timing.native import state

VALU, END = Issue(Unit.VALU), Issue(Unit.NONE, Kind.END)
MATRIX = Issue(Unit.MATRIX, Kind.MATRIX, 32, shadow=8)
READ = Issue(Unit.LDS, Kind.LDS, lane_bytes=16, counts_lgkm=True)
LOAD = Issue(Unit.VMEM, Kind.VMEM, lane_bytes=16, counts_vm=True)
BARRIER = Issue(Unit.NONE, Kind.BARRIER)
MHZ = 2000.0


def wait(vm: int = -1, lgkm: int = -1) -> Issue:
    return Issue(Unit.NONE, Kind.WAIT, vm=vm, lgkm=lgkm)


def run(
    body: Sequence[Issue], times: int, waves: int = 4, arch: str = "gfx950", access: tuple[int, int, int] = (4, 0, 0),
    groups: int = 1, resident: int = 1, row: Pipelines | None = None, beyond: float = 0.0, late: float | None = None,
    rate: float = 1e9, misses: float = 1e9, room: float = 0.0,
) -> state.CuResult:  # fmt: skip
    """Sends every wave of a workgroup `times` times through the instructions; all accesses are alike."""
    row = replace(row or pipelines(arch), code_stream=0, start=0)
    code = columns({number: (issue, 1) for number, issue in enumerate((*body, END))}, len(body) + 1, row)
    steps = np.array([*(number for _ in range(times) for number in range(len(body))), len(body)], np.int64)
    count = int(code.accesses[steps].sum())
    starts = np.zeros(waves, np.int64)
    work = state.Work(
        steps, starts, starts + len(steps), np.full((count, 3), access, np.int32), starts, waves, np.zeros(groups, np.int64)
    )
    past, waiting = (np.full((2, len(body) + 1), share, np.float64) for share in (beyond, beyond if late is None else late))
    config = quiet_config(row, Mechanisms(), MHZ, (0.0, 0.0))
    config["rate"] = config["store_rate"] = config["burst"] = rate
    config["miss_rate"], config["room"] = misses, room
    return cu.run_cu(code, work, resident, np.zeros(resident, np.int64), Shares(past, waiting, np.zeros(len(body) + 1)), config)


def each(body: Sequence[Issue], **options: object) -> float:
    """Returns the clocks of a pass in steady state."""
    long, short = run(body, 96, **options), run(body, 32, **options)  # type: ignore[arg-type]
    return (long.clocks - short.clocks) / 64


@pytest.mark.parametrize(
    "banks, one, four", [(4, 8, 16), (8, 8, 32), (16, 16, 64), (32, 32, 128), (64, 64, 256)],
    ids=["free", "2-way", "4-way", "8-way", "misaligned"],
)  # fmt: skip
def test_lds_reads_take_the_published_clocks(banks: int, one: int, four: int) -> None:
    """ROCm/gfx950-gluon-tutorials, LDS throughput: clocks a ds_read_b128 of one wave and of four."""
    body, loose = [READ] * 16, [Issue(Unit.BRANCH)]
    found = [each(body, waves=waves, access=(banks, 0, 0)) / 16 for waves in (1, 4)]
    assert found == pytest.approx([one, four], rel=0.01)
    assert each(loose, waves=1) < 8


@pytest.mark.parametrize("arch", ["gfx908", "gfx90a", "gfx942"])
@pytest.mark.parametrize("nbytes, store, clocks", [(4, True, 8), (16, True, 20), (4, False, 4), (16, False, 16)])
def test_lds_ports_of_older_chips(arch: str, nbytes: int, store: bool, clocks: int) -> None:
    """ROCm Compute Profiler: a 4-byte store takes 8 clocks of a port, a 16-byte one 20; loads return 64 bytes a clock.

    Its roofline on an MI100 loads 21,579 GB/s in 256 bytes an access: 4.3 clocks of each of 240 ports at 1,502 MHz.
    """
    access = replace(READ, lane_bytes=nbytes, store=store)
    assert each([access] * 8, waves=1, arch=arch, access=(2, 0, 0)) / 8 == pytest.approx(clocks, rel=0.07)


@pytest.mark.parametrize("waves, clocks", [(4, 44), (12, 48), (20, 80), (32, 128)], ids=["1", "3", "5", "8"])
def test_waves_take_turns_at_the_valu(waves: int, clocks: int) -> None:
    """Four VALU instructions, two of SALU and a jump of 20 clocks: from three waves a SIMD on, VALU is always busy to the end.

    If older waves went first, the last two of five would run on by themselves. An MI300A takes 41 ns a pass with five waves a SIMD
    (sarchlab/mgpusim, workloads, occupancy_sweep of 262,144 lanes).
    """
    body = [*[VALU] * 4, Issue(Unit.SCALAR), Issue(Unit.SCALAR), Issue(Unit.BRANCH, Kind.BRANCH)]
    whole = run(body, 400, waves=waves, arch="gfx942").clocks / 400
    assert 0.99 * clocks < whole < 1.1 * clocks


def test_a_simd_issues_a_vector_instruction_every_four_clocks() -> None:
    for waves in (1, 4, 8, 32):
        per_simd = -(-waves // 4)
        assert each([VALU] * 8, waves=waves) / 8 == pytest.approx(4 * per_simd)


def test_matrix_instructions_hide_what_fits_their_shadow() -> None:
    """gfx950-gluon-tutorials, attention: the first 8 of a matrix instruction's 32 clocks take no VALU, six fit after."""
    for count, clocks in ((0, 32), (6, 32), (7, 36), (10, 48)):
        assert each([MATRIX, *[VALU] * count], waves=4) == pytest.approx(clocks, abs=0.5)
    assert each([replace(MATRIX, shadow=32), *[VALU] * 6], waves=4) == pytest.approx(56, abs=0.5)


def test_a_loop_of_matrix_instructions_is_bound_by_their_passes() -> None:
    body = [READ, LOAD, *[MATRIX] * 16, wait(lgkm=0), Issue(Unit.SCALAR)]
    found = run(body, 200, access=(4, 8, 0))
    assert found.tally[state.Tally.MATRIX_CLOCKS] / found.clocks / 4 > 0.95


def test_more_waves_never_take_longer_each_than_one_behind_the_other() -> None:
    body = [LOAD, wait(vm=0), *[VALU] * 6, READ, wait(lgkm=0), MATRIX]
    alone = run(body, 50, waves=1, access=(16, 8, 8)).clocks
    before = 0
    for waves in (1, 2, 4, 8, 16, 32):
        clocks = run(body, 50, waves=waves, access=(16, 8, 8)).clocks
        assert before <= clocks <= alone * waves
        before = clocks


def test_every_clock_of_a_wave_is_told() -> None:
    """Latency by line adds up to each wave's life; stalls are part of it."""
    body = [LOAD, READ, wait(vm=0, lgkm=0), VALU, BARRIER, MATRIX, Issue(Unit.SCALAR)]
    found = run(body, 40, waves=8, access=(16, 8, 8))
    assert (found.stalls.sum(1) <= found.latency).all()
    assert found.hits.tolist() == [8 * 40] * len(body) + [8]
    assert int(found.latency.sum()) <= 8 * (found.clocks + 4)
    assert int(found.latency.sum()) >= 7.5 * found.clocks


def test_a_wait_names_the_load_that_it_waits_for() -> None:
    body = [READ, LOAD, wait(vm=0, lgkm=0), VALU]
    found = run(body, 10, waves=1, access=(4, 8, 8), beyond=1.0)
    assert found.producers[2, 0] == 1 and found.producers[2, 1] == -1
    assert found.waited[2, 0] == found.stalls[2, state.Stall.WAITCNT] > 9 * 500


def test_a_wait_for_all_but_some_leaves_those_in_flight() -> None:
    row = pipelines("gfx942")
    last = run([LOAD, wait(vm=0)], 40, waves=1, access=(16, 8, 8), row=row).clocks
    ahead = run([LOAD, wait(vm=8)], 40, waves=1, access=(16, 8, 8), row=row).clocks
    assert 40 * row.l2_latency < last and ahead < last / 4


def test_waves_of_a_workgroup_meet_at_barriers() -> None:
    found = run([VALU, BARRIER, VALU], 30, waves=8)
    assert (found.stalls[:, state.Stall.BARRIER_WAIT] > 0).tolist() == [False, True, False, False]


def test_bytes_in_flight_bound_a_cu() -> None:
    """Little's law: bytes in flight over latency."""
    row = pipelines("gfx950")
    body = [LOAD] * 8 + [wait(vm=8)]
    clocks = each(body, waves=16, access=(16, 8, 8), beyond=1.0, row=row)
    assert 8 * 16 * 1024 / clocks == pytest.approx(row.in_flight / (row.memory_ns * MHZ / 1000), rel=0.1)
    free = each(body, waves=16, access=(16, 8, 8), beyond=1.0, row=replace(row, in_flight=1 << 30))
    assert free < clocks


def test_a_line_on_its_way_for_another_is_waited_for_and_not_drawn_again() -> None:
    body = [LOAD, wait(vm=0)]
    alone, shared, near = (run(body, 40, waves=1, access=(16, 8, 8), beyond=b, late=late) for b, late in ((1, 1), (0, 1), (0, 0)))
    assert alone.clocks == shared.clocks > 1.5 * near.clocks
    assert shared.tally[state.Tally.HBM_BYTES] == 0 and alone.tally[state.Tally.HBM_BYTES] == 40 * 1024
    # A share of the instructions waits, each with all its lines.
    quarter = run(body, 40, waves=1, access=(16, 8, 8), beyond=0, late=0.5).clocks
    rare, memory = near.clocks / 40, alone.clocks / 40
    mall = (quarter / 40 - 0.5 * rare - 0.25 * memory) / 0.25
    assert rare < mall < memory


def test_a_cu_draws_no_more_from_memory_than_its_misses_allow() -> None:
    body = [LOAD] * 8
    clocks = each(body, waves=8, access=(16, 8, 8), beyond=0.0, late=1.0, misses=16.0)
    assert 8 * 8 * 1024 / clocks == pytest.approx(16.0, rel=0.02)
    assert each(body, waves=8, access=(16, 8, 8), beyond=0.0, late=0.0, misses=16.0) < clocks / 2


def test_a_store_waits_for_l2_until_that_is_full() -> None:
    """With a slow memory, stores below L2's room take L2's latency, and more of them take the rate of memory."""
    body = [replace(LOAD, store=True)] * 8 + [wait(vm=0)]
    few, many = (run(body, times, waves=1, access=(16, 16, 16), beyond=1.0, rate=16.0, room=1 << 16).clocks for times in (4, 64))
    full = run(body, 4, waves=1, access=(16, 16, 16), beyond=1.0, rate=16.0, room=0.0).clocks
    assert few <= full and many >= (64 * 8 * 1024 - (1 << 16)) / 16.0


def test_memory_gives_no_more_than_its_rate() -> None:
    clocks = each([LOAD] * 8, waves=8, access=(16, 8, 8), beyond=1.0, rate=20.0)
    assert 8 * 8 * 1024 / clocks == pytest.approx(20.0, rel=0.02)


def test_workgroups_take_turns() -> None:
    one, two, four = (run([MATRIX] * 8, 50, groups=count, resident=1).clocks for count in (1, 2, 4))
    assert two == pytest.approx(2 * one, rel=0.02) and four == pytest.approx(4 * one, rel=0.02)
    assert run([wait(vm=0), VALU], 50, groups=4, resident=4).clocks < 2.1 * run([wait(vm=0), VALU], 50).clocks * 4


def test_the_answer_is_the_same_every_time() -> None:
    body = [LOAD, READ, wait(vm=1, lgkm=0), VALU, BARRIER, MATRIX]
    first, second = (run(body, 60, waves=12, groups=5, resident=2, access=(9, 8, 3), beyond=0.3, rate=30.0) for _ in range(2))
    for name in state.CuResult._fields:
        assert np.array_equal(getattr(first, name), getattr(second, name))
    assert first.clocks == second.clocks


@pytest.mark.parametrize("resident", [1, 2])
def test_a_place_is_free_when_l2_has_the_workgroups_stores(resident: int) -> None:
    """gpu-stream on MI210, two workgroups a CU: one with stores holds its place 435 clocks longer than one that only loads."""
    row = pipelines("gfx90a")
    store = Issue(Unit.VMEM, Kind.VMEM, lane_bytes=8, counts_vm=True, store=True)
    ends = run([store], 1, waves=1, arch="gfx90a", access=(16, 8, 8), groups=6, resident=resident).ends
    assert (np.diff(ends[::resident]) >= row.l2_latency).all()
    quick = run([replace(store, store=False)], 1, waves=1, arch="gfx90a", access=(16, 8, 0), groups=6, resident=resident).ends
    assert ends[-1] > quick[-1]


def test_valu_goes_on_beside_a_transcendental() -> None:
    """Four VALU instructions fit beside one on gfx942; a second transcendental waits for the first one."""
    valu = Issue(Unit.VALU)
    beside = Issue(Unit.TRANS, clocks=16, shadow=4)
    alone, mixed, both = (run(body, 50).clocks for body in ([valu] * 4, [beside, *[valu] * 3], [beside, beside]))
    assert mixed == pytest.approx(alone, rel=0.05)
    assert both == pytest.approx(2 * alone, rel=0.05)
    assert run([Issue(Unit.VALU, clocks=16), *[valu] * 3], 50).clocks == pytest.approx(alone * 28 / 16, rel=0.05)


def test_only_the_first_round_waits_for_what_it_finds_nowhere_else() -> None:
    """Three workgroups follow each other on a CU. All loads of the first wait for memory, those of later ones for L2."""
    row = replace(pipelines("gfx942"), code_stream=0, start=0)
    code = columns({0: (LOAD, 1), 1: (wait(vm=0), 1), 2: (END, 1)}, 3, row)
    steps, starts = np.array([0, 1] * 8 + [2]), np.zeros(1, np.int64)
    work = state.Work(steps, starts, starts + len(steps), np.full((8, 3), (4, 1, 1), np.int32), starts, 1, np.zeros(3, np.int64))
    config, nothing = quiet_config(row, Mechanisms(), MHZ, (0.0, 0.0)), np.zeros((2, 3))
    rounds = np.zeros((2, 2, 3)), np.stack([np.ones((2, 3)), nothing])

    def ends(late: np.ndarray, rounds: tuple[np.ndarray, np.ndarray] | None) -> list[int]:
        traffic = Shares(nothing, late, nothing[0], rounds)
        return np.diff(cu.run_cu(code, work, 1, np.zeros(1, np.int64), traffic, config).ends, prepend=0).tolist()

    (far, *_), (near, *_) = ends(np.ones((2, 3)), None), ends(nothing, None)
    assert far > 2 * near
    assert ends(nothing, rounds) == [far, near, near]
