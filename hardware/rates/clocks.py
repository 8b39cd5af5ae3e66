"""Engine clock under load, from published figures. No other figure affects a matrix kernel's time more.

Power management lowers the clock as the matrix units work. The amount depends on the board, the type, the number of working
CUs, and the data (low-toggle inputs run up to half again as fast). The model: the clock falls linearly with the matrix units'
duty, from the peak when they are idle. Over 30 runs of gfx950 at a duty of 0.25 to 1 it errs by 4 %
(`tools.validation.clock_fit`).

[MAF]    ROCm blog "Measuring max-achievable FLOPs": hipBLASLt, M 4096 N 4864 K 32896, average sustained clock. Its TFLOPS at
         that clock are a duty of 0.94 (f16, bf16) and 0.83 (f8), so the line is extrapolated to 1
[GLUON]  ROCm/gfx950-gluon-tutorials, thread traces and TFLOPS of its kernels in f16, f8 and fp4: `tools.validation.clock_fit`
[IPC]    rocprofiler-compute, sample/ipc.hip on one GCD of an MI250: v_mov 1.624 GHz, MFMA 1.590 GHz
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from simgpu.hardware.descriptor import HardwareDescriptor

# `Clock.band` of boards with and without published clocks: [MAF]'s spread by type is 10 %.
NARROW, WIDE = 0.12, 0.25


@dataclass(frozen=True)
class _Row:
    """Clocks of a board."""

    full: Mapping[str, int] = field(default_factory=dict)  # MHz at full matrix work, by type; "" for others
    idle: int = 0  # MHz with idle matrix units; 0 for the descriptor's peak
    source: str = "no published figure: the peak clock"


def _at_full(peak: int, measured: Mapping[str, tuple[int, float]]) -> dict[str, int]:
    """Returns MHz at full matrix work by type, from MHz at a duty."""
    return {dtype: round(peak - (peak - mhz) / duty) for dtype, (mhz, duty) in measured.items()}


_MI300X = _Row(
    _at_full(2100, {"f16": (1115, 0.942), "bf16": (1207, 0.942), "f8": (1230, 0.831), "": (1230, 0.831)}),
    source="ROCm's measurement of maximum achievable FLOPs; other types as f8",
)
_GFX950 = {"f16": 1477, "bf16": 1477, "f8": 1647, "f4": 1359, "": 1477}  # [GLUON]; other types as f16
_ROWS = {
    "mi100": _Row({"": 1502}, source="the peak clock: tuning pins it"),
    "mi210": _Row({"": 1590}, idle=1624, source="ROCm Compute Profiler's ipc.hip on an MI250"),
    "mi250x": _Row({"": 1590}, idle=1624, source="ROCm Compute Profiler's ipc.hip on an MI250"),
    "mi300x": _MI300X,
    "mi300a": _Row(_MI300X.full, source="ROCm's measurement of maximum achievable FLOPs, of MI300X"),
    "mi325x": _Row(
        _at_full(2100, {"f16": (1354, 0.942), "bf16": (1447, 0.936), "f8": (1464, 0.833), "": (1464, 0.833)}),
        source="ROCm's measurement of maximum achievable FLOPs; other types as f8",
    ),
    # No data sheet has its clock. A published record has 413.984 TFLOPS f8 on its 80 CUs, with AMD's limiter of peak TOPS on.
    # That is 1,263 MHz at full matrix work; the limiter is assumed to hold that clock for any work.
    "mi308x": _Row({"": 1263}, idle=1263, source="a record of 413.984 TFLOPS f8 on 80 CUs, under the limiter of peak TOPS"),
    "mi355x": _Row(_GFX950, source="thread traces and TFLOPS of the gfx950 Gluon tutorials"),
    "mi350x": _Row(
        {dtype: round(mhz * 2200 / 2400) for dtype, mhz in _GFX950.items()},
        source="thread traces and TFLOPS of the gfx950 Gluon tutorials, of MI355X, by the ratio of peak clocks",
    ),
}


@dataclass(frozen=True)
class Clock:
    """A clock that a board is assumed to hold."""

    mhz: float
    band: float  # relative error of a time at this clock
    source: str  # origin of the figure


NARROW_FORMATS = 2  # smallest value of cbsz and blgp for an operand of 6 or 4 bits [CDNA4 ISA]


def element(mnemonic: str, formats: Sequence[int] = (0, 0)) -> str:
    """Returns the type by which the clock of a matrix instruction is looked up: f16, bf16, f32, f64, i8, f8 or f4.

    formats: cbsz and blgp of an f8f6f4 instruction, which runs at the rate of f4 if both operands have 6 or 4 bits.

    >>> element("v_mfma_f32_16x16x32_f16")
    'f16'
    """
    tail = mnemonic.rsplit("x", 1)[-1].lstrip("0123456789_")
    if "f8f6f4" in tail:
        return "f4" if min(formats) >= NARROW_FORMATS else "f8"
    if "fp8" in tail or "bf8" in tail:
        return "f8"
    return next((name for name in ("bf16", "f16", "f32", "f64", "i8") if tail.startswith(name)), tail)


def clock_line(chip: HardwareDescriptor, dtype: str) -> tuple[float, float]:
    """Returns (MHz with idle matrix units, MHz at full matrix work of a type, as `element` names it).

    Between them the clock falls linearly with the duty. Both are the peak clock for a board without figures.
    """
    row = _ROWS.get(chip.name, _Row())
    idle = row.idle or chip.clock_mhz
    return idle, row.full.get(dtype, row.full.get("", idle))


def sustained_clock(chip: HardwareDescriptor, duty: float, active: float, dtype: str) -> Clock:
    """Returns the clock at matrix duty `duty` (0 to 1) of the working CUs, a fraction `active` of all; dtype: see `element`.

    >>> from simgpu.hardware import target
    >>> round(sustained_clock(target("mi300x"), 0.9, 1.0, "f16").mhz)
    1159
    """
    row = _ROWS.get(chip.name)
    if row is None:
        return Clock(chip.clock_mhz, WIDE, "no published figure of this board: its peak clock")
    idle, full = clock_line(chip, dtype)
    load = min(1.0, max(0.0, duty * active))
    return Clock(idle - (idle - full) * load, NARROW if row.full else WIDE, row.source)
