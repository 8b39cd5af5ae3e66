"""The in-order model: loops whose answer is known by hand, the emitters' goals, and its report."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from simgpu import asm
from simgpu.asm.builder.instruction import Instr
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.hardware import target as board
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.timing_rules import lds_banks
from simgpu.operators.gemm.tree import TiledComputation
from simgpu.tools.cli import main
from simgpu.tools.tables.loop_conflicts import lost_clocks
from simgpu.tools.tables.schedule_model import MEMORY_LATENCY, SLOT, loop_body, model, steps_of
from simgpu.tools.tables.schedule_report import schedules

MI100 = board("mi100")
MFMA = "v_mfma_f32_16x16x4f32"  # 8 passes, 32 clocks


def looped(write, target="gfx908"):
    """Steps of a loop whose body `write(k)` emits."""
    k = KernelBuilder("loop", target, 256)
    left = k.s.alloc("left")
    k.s_mov_b32(left, 9)
    with k.loop("body", left):
        write(k)
    k.s_endpgm()
    return steps_of(loop_body(k.finish().items), target)


def mfmas(k, count):
    a = k.a[0:63]
    for number in range(count):
        c = a[4 * (number % 16) : 4 * (number % 16) + 4]
        k.emit(MFMA, c, k.v[100], k.v[101], c)


def test_matrix_instructions_alone_fill_the_unit():
    steps = looped(lambda k: mfmas(k, 32))
    answer = model(steps, MI100, 2, 4)
    assert answer.utilisation == pytest.approx(1) and answer.issue_bound == 1
    assert answer.clocks == pytest.approx(2 * 32 * 32)
    # One wave alone: its branch and its two scalar instructions hide behind the last MFMA's passes but for a few slots.
    assert 0.95 < model(steps, MI100, 1, 4).utilisation < 1


def test_a_load_that_is_waited_for_at_once_costs_its_latency():
    def write(k):
        k.buffer_load_dword(k.v[10], k.v[11], k.s[20:23], 0, offen=True)
        k.v_mov_b32(k.v[12], k.v[10])
        mfmas(k, 4)

    answer = model(looped(write), MI100, 1, 4)
    assert answer.stalls["waits for memory"] > 0.6
    assert MEMORY_LATENCY < answer.clocks < MEMORY_LATENCY + 4 * 32 + 100
    longer = model(looped(write), MI100, 1, 4, memory_latency=2 * MEMORY_LATENCY)
    assert longer.clocks - answer.clocks == pytest.approx(MEMORY_LATENCY, abs=2 * SLOT)


def test_lds_is_shared_and_conflicts_cost():
    def body(k):
        for number in range(8):
            first = 20 + 4 * number
            k.ds_read_b128(k.v[first : first + 3], k.v[11])
        mfmas(k, 4)

    steps = looped(body)
    answer = model(steps, MI100, 2, 4)
    # 8 waves x 8 reads x 1024 bytes at 128 bytes a clock.
    assert answer.limit == "LDS" and answer.issue_bound == pytest.approx(2 * 4 * 32 / (8 * 8 * 8))
    assert answer.utilisation < answer.issue_bound + 0.01
    worse = [replace(step, lost=8) if step.kind == "lds" else step for step in steps]
    assert model(worse, MI100, 2, 4).utilisation < 0.7 * answer.utilisation


def test_barriers_hold_a_whole_workgroup():
    def write(k):
        mfmas(k, 4)
        k.s_barrier()

    one, two = (model(looped(write), MI100, waves, 4) for waves in (1, 2))
    assert one.utilisation < two.utilisation <= 1
    with pytest.raises(LaunchError, match="no whole workgroups of 8 waves"):
        model(looped(write), MI100, 1, 8)


def test_valu_runs_in_the_shadow_of_matrix_instructions_where_the_unit_lets_it():
    def write(k):
        mfmas(k, 8)
        for number in range(12):
            k.v_mov_b32(k.v[30 + number], 0)

    shadow = model(looped(write), MI100, 2, 4)
    assert shadow.issue_bound == 1 and shadow.utilisation > 0.9
    alone = model(looped(write, "gfx942"), board("mi300x"), 2, 4)  # f32 lets nothing co-execute there
    assert alone.utilisation == pytest.approx(8 * 8 / (8 * 8 + 12), abs=0.02)
    assert alone.issue_bound == pytest.approx(8 * 8 / (8 * 8 + 12))


def test_a_kernel_without_a_loop_is_refused():
    k = KernelBuilder("straight", "gfx908", 64)
    k.s_endpgm()
    with pytest.raises(LaunchError, match="no loop"):
        loop_body(k.finish().items)


@pytest.mark.parametrize(("target", "name", "goal"), [("mi100", "f32", 0.9), ("mi300x", "f16", 0.8)])
def test_the_main_loops_reach_their_goals(target, name, goal):
    (answer,) = schedules(TiledComputation(4096, 4096, 4096, target=target, dtype=name)).values()
    assert goal <= answer.utilisation <= answer.issue_bound <= 1
    assert answer.lds_counted == answer.lds_accesses > 0 == answer.lds_lost


@pytest.mark.parametrize("stride", [16, 32, 64])
def test_bank_conflicts_are_those_of_the_addresses_in_the_loop(stride):
    """A read of 16 bytes a lane, whose address is right only behind the prologue, and one that half of the lanes take part in."""
    k = KernelBuilder("strided", "gfx942", 128)
    k.region("tile", 128 * 64 + 1024)
    k.argument("out", 8, "global_buffer")
    k.load_arguments()
    left, address, data = k.s.alloc("left"), k.v.alloc("address"), k.v.alloc("data", 4)
    k.v_and_b32(k.work_item, 0x3FF, k.work_item)
    k.v_mul_u32_u24(address, stride, k.work_item)
    k.s_mov_b32(left, 3)
    with k.loop("body", left):
        k.ds_read_b128(data, address, offset=1024)
        k.s_mov_b64("exec", 0xF)
        k.ds_read_b128(data, address)
        k.s_mov_b64("exec", -1)
    never = k.new_label("never")
    k.s_branch(never)
    k.ds_write_b128(address, data)
    k.label(never)
    k.s_endpgm()
    kernel = k.finish()
    body = loop_body(kernel.items)
    lost = lost_clocks(kernel, kernel, body)
    lanes = stride * np.arange(64)
    want = [lds_banks.conflicts("gfx942", "read", 16, lanes, active) for active in (None, np.arange(64) < 4)]
    assert [lost[id(instr)] for instr in body if id(instr) in lost] == want and (want[0] > 0) == (stride > 16)
    assert not lost_clocks(kernel, kernel, [i for i in kernel.items if isinstance(i, Instr) and i.mnemonic == "ds_write_b128"])


def test_waits_of_the_main_loop_are_exact():
    """No wait for all of memory; the f32 loop on MI100 waits for each load alone."""
    body = loop_body(asm.emit(TiledComputation(4096, 4096, 4096)).items)
    waits = [str(instr.operands[0]) for instr in body if instr.mnemonic == "s_waitcnt"]
    loads = [n for n, instr in enumerate(body) if instr.mnemonic.startswith("buffer_load")]
    assert [w for w in waits if "vmcnt" in w] == [f"vmcnt({n})" for n in reversed(range(len(loads)))] and len(loads) > 3
    assert sum(instr.mnemonic == "s_barrier" for instr in body) == 1
    writes = [n for n, instr in enumerate(body) if instr.mnemonic.startswith("ds_write")]
    assert max(writes) < min(loads), "the loads of the tile after next follow the writes that free their registers"


def test_report_schedule(capsys):
    assert main(["report", "gemm", "-m", "300", "-n", "300", "-k", "300", "--schedule"]) == 0
    out = capsys.readouterr().out
    assert "issue-bound" in out and "modelled" in out and "gemm_f32_nn" in out and "latencies: LDS 128, memory 500" in out
    assert main(["report", "gemm", "-m", "300", "-n", "300", "-k", "300", "--schedule", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["kernels"].values()
    assert 0 < row["utilisation"] <= row["issue_bound"] <= 1 and set(row) >= {"stalls", "limit", "clocks"}
    assert f"0 of {row['lds_accesses']}" in out and row["lds_counted"] == row["lds_accesses"] > 0 == row["lds_lost"]
