"""`--profile`: the time of launches by opcode, as a table (simgpu.profile explains the method)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from simgpu.profile import Profiler
from simgpu.tools.shared.console import show, table

if TYPE_CHECKING:
    from simgpu import Device
    from simgpu.profile import Profile

ENOUGH = 2.0  # seconds of the workers' processor time, some 7,000 samples: fractions to half a percentage point


def profile_launches(device: Device, launch: Callable[[], object], enough: float = ENOUGH) -> Profile:
    """Launches repeatedly until the workers have used `enough` seconds of processor time.

    Compile the kernel by a launch before, as the time of compiling would be counted.
    """
    with Profiler() as profiler:
        profiler.watch(device)
        while profiler.seconds < enough:
            launch()
    device.profiler = None
    return profiler.profile()


def profile_document(profile: Profile) -> dict[str, Any]:
    """Returns a JSON document."""
    return {
        "samples": profile.samples, "worker_seconds": profile.seconds, "launches": profile.launches, "even": profile.is_fair,
        "opcodes": [
            {**asdict(row), "share": row.samples / max(profile.samples, 1), "nanoseconds": row.nanoseconds}
            for row in profile.opcodes
        ],
        "others": profile.others,
    }  # fmt: skip


def show_profile(document: dict[str, Any], what: str) -> None:
    """Prints the opcodes by their time, then the workers' other activities."""
    seconds, samples = document["worker_seconds"], document["samples"]
    rows: list[tuple[object, ...]] = [
        (row["mnemonic"], row["executions"], *_share(row["share"], samples), f"{row['nanoseconds']:.2f}")
        for row in document["opcodes"]
    ]
    rows += [(f"({name})", "", *_share(took / max(seconds, 1e-9), samples), "") for name, took in document["others"].items()]
    show("", f"{what}: {seconds:.2f} s of the workers' processor time, {samples:,} samples")
    if not document["even"]:
        each = f"{document['launches']:,} launches of {1e6 * seconds / document['launches']:.0f} us"
        show(f"{each}: too short for even samples, choose a larger grid")
    show(table("Time by opcode", ("opcode", "executions", "% of time", "+-", "ns each"), rows))


def _share(share: float, samples: int) -> tuple[str, str]:
    """Returns a percentage and its standard error, which is sqrt(p (1 - p) / n) for n samples."""
    return f"{100 * share:.1f}", f"{100 * math.sqrt(max(share * (1 - share), 0.0) / max(samples, 1)):.1f}"
