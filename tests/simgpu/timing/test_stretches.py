"""Clocks of straight code in a single wave, against the tables' figures added by hand."""

from __future__ import annotations

from simgpu.hardware.rates.pipelines import pipelines
from simgpu.hardware.timing_rules.issue import SLOT, Issue, Kind, Unit
from simgpu.timing.stretches import issue_clocks

VALU = Issue(Unit.VALU)
READ = Issue(Unit.LDS, Kind.LDS, lane_bytes=16, counts_lgkm=True)
LOAD = Issue(Unit.VMEM, Kind.VMEM, lane_bytes=4, counts_vm=True)
ALL = Issue(Unit.NONE, Kind.WAIT, vm=0, lgkm=0)


def test_one_after_the_other() -> None:
    matrix = Issue(Unit.MATRIX, Kind.MATRIX, clocks=32, shadow=4)
    valu, products = issue_clocks([[VALU] * 4, [matrix, matrix, VALU, matrix]], "gfx942")
    assert valu.tolist() == [[0, SLOT, 2 * SLOT, 3 * SLOT]]
    assert products.tolist() == [[0, 32, 36, 64]]


def test_a_read_takes_its_port_and_the_way_to_the_register() -> None:
    for arch in ("gfx90a", "gfx950"):
        row = pipelines(arch)
        port = 64 * 16 // row.lds_read_port
        ((times,),) = issue_clocks([[READ, ALL, VALU]], arch)
        assert times[-1] == port + row.lds_latency + SLOT
        ((times,),) = issue_clocks([[READ, READ, ALL, VALU]], arch)
        assert times[-1] == 2 * port + row.lds_latency + SLOT


def test_a_load_comes_from_l2() -> None:
    row = pipelines("gfx942")
    ((times,),) = issue_clocks([[LOAD, ALL, VALU]], "gfx942")
    assert row.l2_latency <= times[-1] <= row.l2_latency + 16


def test_stretches_do_not_see_each_other() -> None:
    alone = issue_clocks([[READ, ALL, VALU]], "gfx942")[0].tolist()
    several = issue_clocks([[READ] * 9, [READ, ALL, VALU], [Issue(Unit.NONE, Kind.BARRIER), VALU], [READ, ALL, VALU]], "gfx942")
    assert [several[1].tolist(), several[3].tolist()] == [alone, alone]
    assert several[2].tolist() == [[0, pipelines("gfx942").barrier]]


def test_waves_share_the_ports_of_lds() -> None:
    """Four waves are on four SIMDs, and two share a port: the later of two waits for the other's reads."""
    row = pipelines("gfx950")
    port = 64 * 16 // row.lds_read_port
    (times,) = issue_clocks([[READ, READ, ALL, VALU]], "gfx950", 4)
    assert times.shape == (4, 4)
    assert sorted(times[:, -1] - 2 * port - row.lds_latency - SLOT)[-1] >= port
    (one,), (other,) = (issue_clocks([[VALU] * 9], "gfx950", waves) for waves in (1, 4))
    assert other.tolist() == one.tolist() * 4
