"""The engine clock that a board holds while it works, from published figures: the largest single term of a matrix kernel's time.

Power management lowers the clock as the matrix units work; how far depends on the board, the type, how many CUs work, and the
data (low-toggle inputs run up to half again as fast). A row says what was measured with the whole GPU at matrix work; between
that and idle matrix units the clock is taken to fall in a line.

  [MAF]    ROCm blog "Measuring max-achievable FLOPs": hipBLASLt, M 4096 N 4864 K 32896, average sustained clock
  [GLUON]  ROCm/gfx950-gluon-tutorials: 98.2 % in-loop efficiency at 1,505 TFLOPS f16 is 1.46 GHz
  [IPC]    rocprofiler-compute, sample/ipc.hip on one GCD of an MI250: v_mov 1.624 GHz, MFMA 1.590 GHz
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from simgpu.hardware.descriptor import HardwareDescriptor

NARROW, WIDE = 0.12, 0.25  # of the time's band, for boards with and without published clocks: [MAF]'s spread by type is 10 %


@dataclass(frozen=True)
class _Row:
    """idle: MHz with idle matrix units, 0 for the descriptor's peak; full: MHz at full matrix work, by type, "" for others."""

    full: Mapping[str, int] = field(default_factory=dict)
    idle: int = 0
    source: str = "no published figure: the peak clock"


_MI300X = _Row({"f16": 1115, "bf16": 1207, "f8": 1230, "": 1230}, source="[MAF]; other types as f8")
_ROWS = {
    "mi100": _Row({"": 1502}, source="the peak clock: tuning pins it"),
    "mi210": _Row({"": 1590}, idle=1624, source="[IPC], of an MI250"),
    "mi250x": _Row({"": 1590}, idle=1624, source="[IPC], of an MI250"),
    "mi300x": _MI300X,
    "mi300a": _Row(_MI300X.full, source="[MAF], of MI300X"),
    "mi325x": _Row({"f16": 1354, "bf16": 1447, "f8": 1464, "": 1464}, source="[MAF]; other types as f8"),
    # No data sheet tells its clock. A published record of 413.984 TFLOPS f8 on its 80 CUs, with AMD's limiter of peak TOPS on, is
    # 1,263 MHz at full matrix work; the limiter is taken to hold that clock whatever the work.
    "mi308x": _Row({"": 1263}, idle=1263, source="a record of 413.984 TFLOPS f8 on 80 CUs, under the limiter of peak TOPS"),
    "mi355x": _Row({"": 1460}, source="[GLUON], f16; other types as f16"),
    "mi350x": _Row({"": 1340}, source="[GLUON], of MI355X, by the ratio of peak clocks"),
}


@dataclass(frozen=True)
class Clock:
    """mhz: that the board is taken to hold; band: relative error of a time at it; source: whose figure."""

    mhz: float
    band: float
    source: str


def element(mnemonic: str) -> str:
    """The type by which clocks are told apart, of a matrix instruction: f16, bf16, f8 or another's last letters."""
    tail = mnemonic.rsplit("x", 1)[-1].lstrip("0123456789_")
    if "f8f6f4" in tail or "fp8" in tail or "bf8" in tail:
        return "f8"
    return next((name for name in ("bf16", "f16", "f32", "f64", "i8") if tail.startswith(name)), tail)


def sustained_clock(chip: HardwareDescriptor, duty: float, active: float, dtype: str) -> Clock:
    """The clock at matrix duty `duty` (0 to 1) of the CUs that work, a share `active` of all; dtype: see `element`."""
    row = _ROWS.get(chip.name)
    if row is None:
        return Clock(chip.clock_mhz, WIDE, "no published figure of this board: its peak clock")
    idle = row.idle or chip.clock_mhz
    full = row.full.get(dtype, row.full.get("", idle))
    load = min(1.0, max(0.0, duty * active))
    return Clock(idle - (idle - full) * load, NARROW if row.full else WIDE, row.source)
