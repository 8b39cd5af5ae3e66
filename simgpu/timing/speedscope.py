"""Writes the clocks of a kernel as a profile for speedscope.app and other readers of its format.

Each kernel is a profile. A sample is an instruction with a reason to wait, or without one, weighted by the clocks of all waves
of the modelled CU. Its stack: the kernel, the source lines of the calls, the instruction, and the reason, if any.
Format: github.com/jlfwong/speedscope, src/lib/file-format-spec.ts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from simgpu.timing.lines import lines
from simgpu.timing.predict import Prediction

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
Places = Callable[[int], Sequence[str]]  # returns a code offset's `file:line`s, the outermost call first


def profiles(kernels: Sequence[tuple[str, Prediction, Places]], title: str) -> dict[str, Any]:
    """Returns the JSON document of kernels, each with name, prediction and source lines. title: the document's name."""
    numbers: dict[str, int] = {}  # index of each frame, by name
    made = []
    for name, one, places in kernels:
        samples: list[list[int]] = []
        weights: list[int] = []
        for line in lines(one):
            stack = [name, *places(line.offset), f"{line.at} {line.text}"]
            issuing = line.latency - sum(line.reasons.values())
            for reason, clocks in (("", issuing), *line.reasons.items()):
                if clocks > 0:
                    frames = [*stack, f"waits: {reason}"] if reason else stack
                    samples.append([numbers.setdefault(frame, len(numbers)) for frame in frames])
                    weights.append(clocks)
        made.append({
            "type": "sampled", "name": f"{name}, clocks of a CU's waves", "unit": "none", "startValue": 0, "endValue": sum(weights),
            "samples": samples, "weights": weights,
        })  # fmt: skip
    shared = {"frames": [_frame(name) for name in numbers]}
    return {"$schema": SCHEMA, "name": title, "exporter": "simgpu", "shared": shared, "profiles": made}


def _frame(name: str) -> dict[str, Any]:
    file, _, line = name.rpartition(":")
    return {"name": name, "file": file, "line": int(line)} if file and line.isdecimal() else {"name": name}
