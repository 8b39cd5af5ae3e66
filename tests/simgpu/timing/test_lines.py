"""Distribution of the time: lines, waves, timelines, thread traces."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import pytest

from simgpu.hardware.errors import LaunchError
from simgpu.timing.lines import lines
from simgpu.timing.native import state
from simgpu.timing.perfetto import timeline
from simgpu.timing.thread_trace import documents, write_trace
from tests.support.timed_kernels import LOOP, kernel_on_words


def test_waits_are_told_by_the_load() -> None:
    kernel, buffer = kernel_on_words(LOOP, 256 * 8)
    found = {line.text: line for line in lines(kernel.time(8, 64, [buffer]))}
    wait = found["s_waitcnt vmcnt(0)"]
    assert wait.reason == "WAITCNT" and wait.waits[0].text.startswith("global_")


# Waves of different lengths, LDS, a barrier in a loop, stores, scalar and vector loads.
MIXED = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
v_lshrrev_b32 v5, 6, v0
v_readfirstlane_b32 s8, v5
s_and_b32 s9, s2, 3
s_add_u32 s9, s9, 2
s_waitcnt lgkmcnt(0)
again:
s_mov_b32 s10, s8
v_mov_b32 v3, 0
uneven:
v_exp_f32 v3, v3
s_sub_u32 s10, s10, 1
s_cbranch_scc0 uneven
global_load_dword v2, v1, s[4:5]
ds_write_b32 v1, v3
s_waitcnt lgkmcnt(0)
s_barrier
ds_read_b32 v3, v1
s_waitcnt vmcnt(0) lgkmcnt(0)
v_add_u32 v2, v2, v3
global_store_dword v1, v2, s[4:5]
s_sub_u32 s9, s9, 1
s_cbranch_scc0 again
"""


@pytest.mark.parametrize("groups, block", [(1, 64), (5, 256), (300, 512), (1000, 192)])
def test_lines_waves_and_timelines_add_up(groups: int, block: int) -> None:
    """Hits, latency, stall and idle are the same clocks by line, by wave and in the timeline; waits name their loads."""
    kernel, buffer = kernel_on_words(MIXED, 4096, group_segment_fixed_size=2048)
    one = kernel.time(groups, block, [buffer], events=1_000_000)
    found = lines(one)
    assert sum(line.hits for line in found) == int(one.result.tally[state.Tally.ISSUED]) == len(one.result.log)
    steps = documents("k", one)
    waves = [document["wave"] for name, document in steps.items() if name.startswith("se0_sm")]
    by_line: dict[int, list[int]] = {}
    for wave in waves:
        assert sum(clocks for _, clocks in wave["timeline"]) == wave["end"] - wave["begin"]
        for _, _, stall, latency, number in wave["instructions"]:
            entry = by_line.setdefault(number, [0, 0, 0])
            entry[0], entry[1], entry[2] = entry[0] + 1, entry[1] + latency, entry[2] + stall
    for number, line in enumerate(found, start=1):
        assert by_line[number] == [line.hits, line.latency, line.stall + line.idle], line.text
        assert 0 <= line.stall + line.idle <= line.latency
        assert sum(line.reasons.values()) == line.stall + line.idle
        assert sum(wait.clocks for wait in line.waits) == line.reasons.get("WAITCNT", 0)
    assert any(line.reason == "BARRIER_WAIT" for line in found) == (block > 64)
    shown = [event for event in timeline([("k", one)])["traceEvents"] if event["ph"] == "X"]
    assert sum(event["args"]["cycles"] for event in shown) == sum(line.latency for line in found)


def test_timelines_show_each_instruction_once(tmp_path: Path) -> None:
    kernel, buffer = kernel_on_words(LOOP, 256 * 8)
    one = kernel.time(8, 64, [buffer], events=10_000)
    issued = int(one.result.tally[state.Tally.ISSUED])
    events = [event for event in timeline([("k", one)])["traceEvents"] if event["ph"] == "X"]
    assert len(events) == issued and all(event["dur"] > 0 for event in events)
    (place,) = write_trace([("k", one)], tmp_path / "att", force=False)
    files = json.loads((place / "filenames.json").read_text())["wave_filenames"]["0"]
    named = [entry[0] for simd in files.values() for slot in simd.values() for entry in slot.values()]
    waves = [json.loads((place / name).read_text()) for name in named]
    code = json.loads((place / "code.json").read_text())["code"]
    hits = Counter(step[4] for wave in waves for step in wave["wave"]["instructions"])
    assert {row[2]: row[6] for row in code[1:]} == dict(hits)
    for wave in waves:
        assert sum(clocks for _, clocks in wave["wave"]["timeline"]) == wave["duration"]
    with open(place.parent / f"stats_{place.name}.csv") as file:
        assert sum(int(row["Hitcount"]) for row in csv.DictReader(file)) == issued
    with pytest.raises(LaunchError, match="--force"):
        write_trace([("k", one)], tmp_path / "att", force=False)
