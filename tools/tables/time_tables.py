"""Output of `simgpu time` on a kernel, within 80 columns."""

from __future__ import annotations

from typing import Any

from simgpu.advice.costs import line_costs
from simgpu.advice.counters import COMPARED, counters
from simgpu.timing.lines import TimedLine, lines
from simgpu.timing.predict import Prediction

WIDTH = 80


def time_document(name: str, one: Prediction, with_counters: bool = False) -> dict[str, Any]:
    """Returns a JSON document."""
    counted = {"counters": _counters(one)} if with_counters else {}
    return counted | {
        "kernel": name, "cycles": round(one.cycles), "seconds": one.seconds, "seconds_low": one.low, "seconds_high": one.high,
        "clock_mhz": one.clock.mhz, "clock_source": one.clock.source, "shares_of_peak": one.shares, "limit": one.limit,
        "workgroups": one.groups, "resident": one.resident, "workgroups_of_the_busiest_cu": one.per_cu, "cus": one.active,
        "notes": list(one.notes),
        "lines": [
            {"offset": line.offset, "at": line.at, "text": line.text, "hits": line.hits, "latency": line.latency,
             "stall": line.stall, "idle": line.idle, "reasons": line.reasons,
             "waits": [{"offset": wait.offset, "at": wait.at, "text": wait.text, "clocks": wait.clocks} for wait in line.waits]}
            for line in lines(one)
        ],
    }  # fmt: skip


def _counters(one: Prediction) -> dict[str, float]:
    return counters(one, line_costs(one, lambda offset: ""))


def counters_text(one: Prediction) -> list[str]:
    """Returns lines of text: each counter, and how far it is off published profiles."""
    said = ["", "  Counters of the launch, modelled", f"  {'counter':<28} {'value':>20}  off by"]
    return said + [f"  {name:<28} {value:>20,}  {COMPARED.get(name, 'not validated')}" for name, value in _counters(one).items()]


def time_text(name: str, one: Prediction, most: int) -> list[str]:
    """Returns lines of text: the time, the limit, and the `most` instructions that stall most."""
    chip = one.sampled.chip
    micro = [f"{1e6 * value:,.4g}" for value in (one.seconds, one.low, one.high)]
    shares = ", ".join(f"{unit} {share:.1%}" for unit, share in one.shares.items())
    said = [
        "", f"{name} on {chip.name}",
        f"  {one.cycles:,.0f} cycles",
        f"  {micro[0]} us at {one.clock.mhz:,.0f} MHz; {micro[1]} to {micro[2]} us",
        *wrap(f"clock: {one.clock.source}"),
        *wrap(f"limited by: {one.limit}"),
        *wrap(f"of the peaks: {shares}"),
        *wrap(f"{one.groups:,} workgroups on {one.active} CUs, {one.resident} at a time on each, {one.per_cu} on the busiest"),
    ]  # fmt: skip
    for note in one.notes:
        said += wrap(f"note: {note}")
    worst = sorted(lines(one), key=lambda line: (-line.stall - line.idle, line.offset))[: max(0, most)]
    if worst:
        width = max(7, *(len(line.at) for line in worst))
        head = f"  {'offset':>{width}} {'hits':>8} {'latency':>11} {'stall':>11} {'idle':>8}  reason"
        said += ["", "  Where waves of a CU stall (clocks, all its waves)", head]
        for line in sorted(worst, key=lambda line: (line.number in one.sampled.functions, line.offset)):
            said += _row(line, width)
    return said


def _row(line: TimedLine, width: int) -> list[str]:
    figures = f"  {line.at:>{width}} {line.hits:>8,} {line.latency:>11,} {line.stall:>11,} {line.idle:>8,}  {line.reason}"
    made = [figures, f"          {line.text}"[:WIDTH]]
    made += [f"          {wait.clocks:>11,} for {wait.at} {wait.text}"[:WIDTH] for wait in line.waits[:4]]
    return made


def wrap(text: str, indent: int = 2) -> list[str]:
    """Returns text in lines of WIDTH columns; later lines are indented by two more."""
    lines, now = [], " " * (indent - 1)
    for word in text.split():
        if len(now) + 1 + len(word) > WIDTH and now.strip():
            lines.append(now)
            now = " " * (indent + 1)
        now += f" {word}"
    return [*lines, now]
