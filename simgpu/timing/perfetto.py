"""Writes a timeline of the modelled CU as Chrome's trace events, which ui.perfetto.dev opens.

Each kernel is a process, and each wave slot of a SIMD is a thread. Each executed instruction is an event, from its wave's arrival
at it until the wave went on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simgpu.hardware.isa import text
from simgpu.timing.lines import place_of
from simgpu.timing.native.state import SIMDS
from simgpu.timing.predict import Prediction

BIN = 64  # clocks between two points of a counter


def timeline(kernels: Sequence[tuple[str, Prediction]]) -> dict[str, Any]:
    """Returns the JSON document of named kernels; times are microseconds from each kernel's first dispatch."""
    events: list[dict[str, Any]] = []
    for process, (name, one) in enumerate(kernels, start=1):
        scale = 1 / one.clock.mhz  # microseconds a clock
        events.append({"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": f"{name}, a CU"}})
        places = sorted({int(row[0]) for row in one.result.log})
        for place in places:
            thread = {"name": f"SIMD {place % SIMDS} slot {place // SIMDS}"}
            events.append({"ph": "M", "name": "thread_name", "pid": process, "tid": place, "args": thread})
        texts = {number: text(inst) for number, inst in one.sampled.instructions.items()}
        matrix: dict[int, int] = {}
        for place, number, came, issue, until, group in one.result.log.tolist():
            events.append({
                "ph": "X", "name": texts[number], "pid": process, "tid": place, "ts": came * scale, "dur": (until - came) * scale,
                "args": {"cycles": until - came, "stall": issue - came, "at": place_of(one, number), "workgroup": group},
            })  # fmt: skip
            if one.sampled.instructions[number].spec.kind == "matrix":
                matrix[issue // BIN] = matrix.get(issue // BIN, 0) + int(one.code.clocks[number])
        for at in sorted({*matrix, *(at + 1 for at in matrix)}):
            busy = {"share": matrix.get(at, 0) / (BIN * SIMDS)}
            events.append({"ph": "C", "name": "matrix units", "pid": process, "tid": 0, "ts": at * BIN * scale, "args": busy})
    return {"traceEvents": events, "displayTimeUnit": "ns"}
