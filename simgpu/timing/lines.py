"""Attributes a launch's time to instructions: clocks, reasons of stalls, and loads that waits waited for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simgpu.hardware.isa import text
from simgpu.timing.native import state
from simgpu.timing.predict import Prediction


@dataclass(frozen=True)
class Wait:
    """A load that an s_waitcnt waited for."""

    offset: int  # bytes from the kernel's first instruction
    at: str  # the offset as users read it, or the address in a function that the kernel calls: `helper+0x98`
    text: str
    clocks: int


@dataclass(frozen=True)
class TimedLine:
    """An instruction, summed over all waves of the modelled CU."""

    offset: int  # bytes from the kernel's first instruction
    at: str  # see `Wait`
    number: int  # see `CodeColumns`
    text: str
    hits: int  # executions
    latency: int  # clocks from a wave's arrival at it until the wave went on
    stall: int  # clocks of the latency in which it did not issue, without `idle`
    idle: int  # clocks in which its wave had no instruction to issue
    reason: str  # the reason with most clocks, or ""
    reasons: dict[str, int]  # clocks by reason, see `state.Stall`
    waits: tuple[Wait, ...]  # the loads that it waited for, longest first


def lines(prediction: Prediction) -> list[TimedLine]:
    """Returns the instructions that the modelled CU executed, in the order of the code.

    >>> from simgpu import Device, asm, operators
    >>> gpu = Device("mi300x")
    >>> x, y = gpu.zeros((64, 64)), gpu.empty((64, 64))
    >>> (run,) = asm.launch(asm.emit(operators.TiledComputation(64, 64, 64, target="mi300x")), gpu, x, x, y)
    >>> slowest = max(lines(run.time()), key=lambda line: line.stall)
    >>> slowest.reason, slowest.waits[0].text.split()[0]   # it waits for this load
    ('WAITCNT', 'buffer_load_dwordx4')
    """
    result, sampled = prediction.result, prediction.sampled
    made = []
    for number in np.flatnonzero(result.hits).tolist():
        by_reason = result.stalls[number]
        reasons = {stall.name: int(clocks) for stall, clocks in zip(state.Stall, by_reason, strict=True) if clocks}
        idle = int(by_reason[state.Stall.NO_INSTRUCTION_AVAILABLE])
        waits = tuple(
            Wait(_offset(prediction, load), place_of(prediction, load), text(sampled.instructions[load]), int(clocks))
            for load, clocks in sorted(
                zip(result.producers[number].tolist(), result.waited[number].tolist(), strict=True), key=lambda pair: -pair[1]
            )
            if load >= 0 and clocks
        )
        worst = state.Stall(by_reason.argmax()).name if by_reason.any() else ""
        made.append(TimedLine(
            _offset(prediction, number), place_of(prediction, number), number, text(sampled.instructions[number]),
            int(result.hits[number]), int(result.latency[number]), int(by_reason.sum()) - idle, idle, worst, reasons, waits,
        ))  # fmt: skip
    return made


def _offset(prediction: Prediction, number: int) -> int:
    return 4 * (number - prediction.sampled.entry)


def place_of(prediction: Prediction, number: int) -> str:
    """Returns an instruction's place as users read it: see `Wait.at`."""
    return prediction.sampled.functions.get(number) or f"{_offset(prediction, number):#x}"
