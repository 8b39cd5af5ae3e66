"""Writes a thread trace of the modelled CU in the files that rocprofv3 writes and ROCprof Compute Viewer opens.

Format: rocm-systems, rocprofiler-sdk/source/lib/att-tool (writer) and rocprof-compute-viewer, src/data/json_emitter.cpp (reader).
Times are clocks. The modelled CU is CU 0 of shader engine 0.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simgpu.hardware.errors import LaunchError
from simgpu.hardware.timing_rules.issue import VECTOR_UNITS, Kind, Unit
from simgpu.timing.lines import TimedLine, lines
from simgpu.timing.native.state import SIMDS
from simgpu.timing.predict import Prediction

# Categories of instructions and states of waves (trace_decoder_types.h).
NONE, SMEM, SALU, VMEM, FLAT, LDS, VALU, JUMP, NEXT, IMMEDIATE, CONTEXT, MESSAGE = range(12)
STATES = ("EMPTY", "IDLE", "EXEC", "WAIT", "STALL")
EMPTY, IDLE, EXEC, WAIT, STALL = range(len(STATES))
VERSION = "3.0.0"
Documents = dict[str, Any]


def write_trace(kernels: Sequence[tuple[str, Prediction]], folder: Path, force: bool) -> list[Path]:
    """Writes ui_output_agent_0_dispatch_N for each kernel below the folder, and stats_*.csv; returns the directories.

    Raises LaunchError if a directory exists and not `force`.
    """
    made = []
    for dispatch, (name, one) in enumerate(kernels, start=1):
        place = folder / f"ui_output_agent_0_dispatch_{dispatch}"
        if place.exists() and not force:
            raise LaunchError(f"{place} exists: give --force to overwrite it")
        place.mkdir(parents=True, exist_ok=True)
        for file, document in documents(name, one).items():
            (place / file).write_text(json.dumps(document, separators=(",", ":")))
        (folder / f"stats_ui_output_agent_0_dispatch_{dispatch}.csv").write_text(stats(one))
        made.append(place)
    return made


def documents(name: str, one: Prediction) -> Documents:
    """Returns the JSON files of a kernel by name."""
    rows = lines(one)
    line_of = {row.number: at + 1 for at, row in enumerate(rows)}  # line 0 is the kernel's name
    waves: dict[tuple[int, int], list[list[int]]] = {}
    for place, number, came, issue, until, group in one.result.log.tolist():
        waves.setdefault((place, group), []).append([number, came, issue, until])
    found: Documents = {}
    names: dict[str, dict[str, dict[str, Any]]] = {}
    occupancy: list[list[int]] = []
    begin, end = 0, one.result.clocks
    waits = {line_of[row.number]: [[line_of[_number(one, wait.offset)], 0] for wait in row.waits] for row in rows if row.waits}
    for count, ((place, _group), steps) in enumerate(sorted(waves.items(), key=lambda item: item[1][0][1])):
        simd, slot = place % SIMDS, place // SIMDS
        file = f"se0_sm{simd}_sl{slot}_wv{count}.json"
        first, last = steps[0][1], steps[-1][3]
        instructions = [
            [came, _category(one, number), issue - came, until - came, line_of[number]] for number, came, issue, until in steps
        ]
        found[file] = {
            "name": f"SE0 CU0 SIMD{simd} slot{slot}", "duration": last - first, "num_stitched": len(steps), "num_insts": len(steps),
            "wave": {
                "cu": 0, "id": count, "simd": simd, "slot": slot, "begin": first, "end": last, "instructions": instructions,
                "timeline": _timeline(one, steps), "waitcnt": [[line, loads] for line, loads in waits.items()],
            },
        }  # fmt: skip
        names.setdefault(str(simd), {}).setdefault(str(slot), {})[str(count)] = [file, first, last]
        occupancy += [[first, 0, simd, slot, 1, 0], [last, 0, simd, slot, 0, 0]]
    found["filenames.json"] = {
        "global_begin_time": begin, "gfxv": "vega", "gfxip": 9, "version": VERSION, "counter_names": [],
        "wave_filenames": {"0": names},
    }  # fmt: skip
    found["code.json"] = {
        "version": VERSION, "header": "ISA, _, LineNumber, Source, Codeobj, Vaddr, Hit, Latency, Stall, Idle",
        "code": [[f"; {name}", 100, 0, "", 1, 0, 0, 0, 0, 0], *([
            row.text, 0, line_of[row.number], "", 1, _address(one, row), row.hits, row.latency, row.stall, row.idle
        ] for row in rows)],
    }  # fmt: skip
    found["occupancy.json"] = {"0": sorted(occupancy), "dispatches": {"0": name}, "version": VERSION}
    for state in range(len(STATES)):
        found[f"wstates{state}.json"] = {"name": STATES[state], "data": _state(found, state, end)}
    found["realtime.json"] = {"0": [[begin, 0], [end, round(1e3 * end / one.clock.mhz)]], "metadata": {"frequency": 10**9}}
    found["snapshots.json"] = {}
    return found


def stats(one: Prediction) -> str:
    """Returns the text of stats_*.csv."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["CodeObj", "Vaddr", "Instruction", "Hitcount", "Latency", "Stall", "Idle", "Source"])
    for row in lines(one):
        writer.writerow([1, _address(one, row), row.text, row.hits, row.latency, row.stall, row.idle, ""])
    return file.getvalue()


def _address(one: Prediction, row: TimedLine) -> int:
    """Returns an instruction's address in the code object, as rocprofv3 has it. A called function may precede the kernel."""
    return one.sampled.base + 4 * row.number


def _number(one: Prediction, offset: int) -> int:
    return offset // 4 + one.sampled.entry


def _category(one: Prediction, number: int) -> int:
    kind, unit = one.code.kind[number], one.code.unit[number]
    if kind == Kind.SMEM:
        return SMEM
    if kind == Kind.BRANCH:
        return JUMP if one.code.unit[number] == Unit.BRANCH else NEXT
    by_unit = {Unit.SCALAR: SALU, Unit.VMEM: VMEM, Unit.LDS: LDS, **dict.fromkeys((*VECTOR_UNITS, Unit.MATRIX), VALU)}
    return by_unit.get(Unit(unit), IMMEDIATE)


def _timeline(one: Prediction, steps: list[list[int]]) -> list[list[int]]:
    """Returns consecutive states of a wave with their clocks."""
    made: list[list[int]] = []

    def add(state: int, clocks: int) -> None:
        if clocks <= 0:
            return
        if made and made[-1][0] == state:
            made[-1][1] += clocks
        else:
            made.append([state, clocks])

    now = steps[0][1]
    for number, came, issue, until in steps:
        add(IDLE, came - now)
        waits = one.code.kind[number] in (Kind.WAIT, Kind.BARRIER)
        add(WAIT if waits else STALL, issue - came)
        add(EXEC, until - issue)
        now = max(now, until)
    return made


def _state(found: Documents, state: int, end: int) -> list[list[int]]:
    """Returns (clock, number of waves in a state) at each change."""
    changes: dict[int, int] = {}
    for file, document in found.items():
        if not file.startswith("se0_sm"):
            continue
        at = document["wave"]["begin"]
        for kind, clocks in document["wave"]["timeline"]:
            if kind == state:
                changes[at] = changes.get(at, 0) + 1
                changes[at + clocks] = changes.get(at + clocks, 0) - 1
            at += clocks
    count, made = 0, []
    for at in sorted(changes):
        count += changes[at]
        made.append([min(at, end), count])
    return made
