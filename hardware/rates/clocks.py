"""Engine clock under load, from published figures. No other figure affects a matrix kernel's time more.

Power management lowers the clock as units work. The amount depends on the board, the type, the number of working CUs, and the
data (low-toggle inputs run up to half again as fast). The model: the clock falls linearly with the matrix units' duty, from the
peak when they are idle. The line is that of matrix products, so it contains what their LDS reads, L2 and memory draw. VALU, and
LDS reads beyond a product's, lower the clock further. Over 30 products of gfx950 at a duty of 0.25 to 1 the line errs by 4 %, over
12 attention kernels by 1.3 % (`tools.benchmarks.clock_fit`).

[MAF]    ROCm blog "Measuring max-achievable FLOPs": hipBLASLt, M 4096 N 4864 K 32896, average sustained clock. Its TFLOPS at
         that clock are a duty of 0.94 (f16, bf16) and 0.83 (f8), so the line is extrapolated to 1
[GLUON]  ROCm/gfx950-gluon-tutorials, thread traces and TFLOPS of its kernels in f16, f8 and fp4: `tools.benchmarks.clock_fit`
[HK]     HazyResearch/HipKittens, times of AITER's attention on MI355X: `tools.benchmarks.clock_fit`
[IPC]    rocprofiler-compute, sample/ipc.hip on one GCD of an MI250: v_mov 1.624 GHz, MFMA 1.590 GHz. The first is the clock of
         `idle`, so it contains what VALU draws
[WORK]   sarchlab/mgpusim, workloads/results: microbench/occupancy_sweep on an MI300A, 33,554,432 lanes with 4,096 FMAs each in
         4.7245 ms. One for each SIMD in 4 clocks, less 4 us of the launch: at least 1,995 of 2,100 MHz
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from simgpu.hardware.descriptor import HardwareDescriptor

# `Clock.band` of boards with and without published clocks: [MAF]'s spread by type is 10 %.
NARROW, WIDE = 0.12, 0.25
POWER_US = 10.0  # assumed: the least time after which a board's clock follows its load


@dataclass(frozen=True)
class _Row:
    """Clocks of a board."""

    full: Mapping[str, int] = field(default_factory=dict)  # MHz at full matrix work, by type; "" for others
    idle: int = 0  # MHz with idle matrix units; 0 for the descriptor's peak
    valu: int = 0  # MHz less if VALU is always busy
    lds: int = 0  # MHz less if LDS is always busy and the matrix units are idle
    source: str = "no published figure: the peak clock"


def _at_full(peak: int, measured: Mapping[str, tuple[int, float]]) -> dict[str, int]:
    """Returns MHz at full matrix work by type, from MHz at a duty."""
    return {dtype: round(peak - (peak - mhz) / duty) for dtype, (mhz, duty) in measured.items()}


_MI300X = _Row(
    _at_full(2100, {"f16": (1115, 0.942), "bf16": (1207, 0.942), "f8": (1230, 0.831), "": (1230, 0.831)}),
    valu=105,  # [WORK], of MI300A
    source="ROCm's measurement of maximum achievable FLOPs; other types as f8",
)
_GFX950 = {"f16": 1477, "bf16": 1477, "f8": 1647, "f4": 1359, "": 1477}  # [GLUON]; other types as f16
_ROWS = {
    "mi100": _Row({"": 1502}, source="the peak clock: tuning pins it"),
    "mi210": _Row({"": 1590}, idle=1624, source="ROCm Compute Profiler's ipc.hip on an MI250"),
    "mi250x": _Row({"": 1590}, idle=1624, source="ROCm Compute Profiler's ipc.hip on an MI250"),
    "mi300x": _MI300X,
    "mi300a": _Row(_MI300X.full, valu=105, source="ROCm's measurement of maximum achievable FLOPs, of MI300X"),
    "mi325x": _Row(
        _at_full(2100, {"f16": (1354, 0.942), "bf16": (1447, 0.936), "f8": (1464, 0.833), "": (1464, 0.833)}),
        valu=105,  # [WORK], of MI300A
        source="ROCm's measurement of maximum achievable FLOPs; other types as f8",
    ),
    # No data sheet has its clock. A published record has 413.984 TFLOPS f8 on its 80 CUs, with AMD's limiter of peak TOPS on.
    # That is 1,263 MHz at full matrix work; the limiter is assumed to hold that clock for any work.
    "mi308x": _Row({"": 1263}, idle=1263, source="a record of 413.984 TFLOPS f8 on 80 CUs, under the limiter of peak TOPS"),
    "mi355x": _Row(_GFX950, valu=181, lds=586, source="thread traces and TFLOPS of the gfx950 Gluon tutorials; HipKittens"),
    "mi350x": _Row(
        {dtype: round(mhz * 2200 / 2400) for dtype, mhz in _GFX950.items()},
        valu=166,
        lds=537,
        source="thread traces and TFLOPS of the gfx950 Gluon tutorials, of MI355X, by the ratio of peak clocks",
    ),
}


# LDS clocks for each clock of the matrix units in the products that `full` was measured on: a tile of 256 x 256 in four waves
# reads for 0.25, in eight for 0.375 of gfx950's rate; AITER's, modelled, for 0.31.
LDS_OF_PRODUCTS = 0.31


@dataclass(frozen=True)
class Busy:
    """Fractions of the clocks of the working CUs in which units are busy, 0 to 1."""

    matrix: float = 0.0
    valu: float = 0.0
    lds: float = 0.0

    @staticmethod
    def product(duty: float) -> Busy:
        """Returns what a matrix product keeps busy whose matrix units have this duty.

        >>> Busy.product(0.5).lds
        0.155
        """
        return Busy(duty, lds=LDS_OF_PRODUCTS * duty)


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


def has_clock_of(chip: HardwareDescriptor, dtype: str) -> bool:
    """Returns whether a clock at full matrix work of this type was published for the board, or its clock is pinned.

    >>> from simgpu.hardware import target
    >>> has_clock_of(target("mi300x"), "bf16"), has_clock_of(target("mi300x"), "i8")
    (True, False)
    """
    row = _ROWS.get(chip.name, _Row())
    return dtype in row.full or set(row.full) == {""}


def clock_falls(chip: HardwareDescriptor) -> tuple[int, int]:
    """Returns MHz by which the clock falls if VALU is always busy, and if LDS is and the matrix units are idle.

    >>> from simgpu.hardware import target
    >>> clock_falls(target("mi355x")), clock_falls(target("mi210"))
    ((181, 586), (0, 0))
    """
    row = _ROWS.get(chip.name, _Row())
    return row.valu, row.lds


def sustained_clock(chip: HardwareDescriptor, busy: Busy, active: float, dtype: str) -> Clock:
    """Returns the clock that a board holds if units of its working CUs, a fraction `active` of all, are that busy.

    dtype: of the matrix instructions, as `element` names it

    >>> from simgpu.hardware import target
    >>> product, attention = Busy(0.85, 0.02, 0.26), Busy(0.85, 0.72, 0.42)
    >>> [round(sustained_clock(target("mi355x"), busy, 1.0, "bf16").mhz) for busy in (product, attention)]
    [1612, 1393]
    """
    row = _ROWS.get(chip.name)
    if row is None:
        return Clock(chip.clock_mhz, WIDE, "no published figure of this board: its peak clock")
    idle, full = clock_line(chip, dtype)
    valu, lds = clock_falls(chip)
    fall = (idle - full) * _fraction(busy.matrix) + valu * _fraction(busy.valu)
    fall += lds * _fraction(busy.lds - LDS_OF_PRODUCTS * busy.matrix)
    return Clock(idle - fall * _fraction(active), NARROW if row.full else WIDE, row.source)


def _fraction(value: float) -> float:
    return min(1.0, max(0.0, value))
