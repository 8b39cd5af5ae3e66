"""Checked mode's infrastructure: hooks, events counted by place, findings that outlive a fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simgpu
from simgpu.asm.builder import toolchain
from simgpu.engine import events
from simgpu.engine.check import Check
from simgpu.engine.dispatch import Dispatch
from simgpu.engine.events import finding_of
from simgpu.engine.finding import Finding, lanes_of
from simgpu.engine.positions import location_of
from simgpu.hardware.errors import MemoryFault
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine.frame import Frame
from tests.support.engine_kernel import source

CODE = 1000


class Probe(Check):
    """Reports every v_not_b32 with the active lanes, and s_nop by its immediate."""

    def before(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        if inst.mnemonic == "v_not_b32":
            events.report(frame, CODE, frame.exec_bits(), 7, 0)


@finding_of(CODE)
def _probed(launch: Dispatch, event: events.Report) -> Finding:
    place = location_of(launch, event.record)
    return Finding(
        "performance", f"address {event.address}", place.pc, place.text, event.wave,
        lanes_of(event.lanes), event.count, workgroup=event.workgroup,
    )  # fmt: skip


LINES = """
s_mov_b32 s20, 3
s_mov_b64 exec, 0xff
again:
v_not_b32 v1, v1
s_sub_u32 s20, s20, 1
s_cmp_lg_u32 s20, 0
s_cbranch_scc1 again
v_not_b32 v2, v2
"""


def launched(lines: str, threads: int, grid: int, block: int) -> simgpu.Run:
    gpu = simgpu.Device("gfx90a", check=True, threads=threads)
    gpu.checks = (Probe(),)
    kernel = gpu.load(toolchain.assemble(source("gfx90a", lines, (), {}), "gfx90a"))["k"]
    data = gpu.upload(np.zeros(64, np.uint32))
    return kernel.launch(grid=grid, block=block, args=[data, data])


@pytest.mark.parametrize("threads", [1, 2])
def test_events_are_counted_by_place(threads: int) -> None:
    run = launched(LINES, threads, 5, 130)
    first, second = run.findings
    assert (first.text, first.count) == ("v_not_b32_e32 v1, v1", 3 * 3 * 5)
    assert (second.text, second.count) == ("v_not_b32_e32 v2, v2", 3 * 5)
    assert first.lanes == tuple(range(8))
    assert first.message == "address 7"
    assert second.pc > first.pc


def test_findings_before_a_fault_are_kept() -> None:
    with pytest.raises(MemoryFault) as caught:
        launched(LINES + "v_mov_b32 v3, -1\nglobal_load_dword v4, v3, s[2:3] offset:-8\n", 1, 1, 64)
    assert [finding.count for finding in caught.value.findings] == [3, 1]


def test_a_full_table_says_so() -> None:
    lines = "v_not_b32 v1, v1\n" * (events.LIMIT + 5)
    found = launched(lines, 1, 1, 64).findings
    assert len(found) == events.LIMIT + 1
    assert found[-1].severity == "note"
    assert found[-1].message.startswith("5 more events")


def test_results_are_those_of_plain_mode() -> None:
    values = np.arange(64, dtype=np.uint32)
    results = []
    for check in (False, True):
        gpu = simgpu.Device("gfx90a", check=check)
        lines = "global_load_dword v1, v60, s[4:5]\ns_waitcnt vmcnt(0)\n" + LINES
        kernel = gpu.load(toolchain.assemble(source("gfx90a", lines, ("v1", "v60"), {}), "gfx90a"))["k"]
        out = gpu.alloc(2048)
        run = kernel.launch(grid=1, block=64, args=[gpu.upload(values), out])
        results.append((out.download(np.uint32), run.instructions, run.profile))
        assert run.findings == []
    assert (results[0][0] == results[1][0]).all()
    assert results[0][1:] == results[1][1:]


def test_finding_as_text() -> None:
    finding = Finding(
        "hazard", "too early", 0x40, "v_mov_b32 v0, v1", 2, (0, 1, 2, 5), 3, source="k.s:7", kernel="k",
        other_pc=0x3C, other_text="v_mfma",
    )  # fmt: skip
    assert str(finding) == (
        "error: hazard: too early\n  at 0x40 `v_mov_b32 v0, v1` (k.s:7)\n  earlier 0x3c `v_mfma`\n"
        "  k: workgroup (0, 0, 0), wave 2, lanes 0-2,5; seen 3 times"
    )
    assert finding.document()["lanes"] == (0, 1, 2, 5)
