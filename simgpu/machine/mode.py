"""MODE register: the bits that change arithmetic, as handlers are compiled for them.

Bits (ISA guides, "MODE register"): round f32 [1:0], round f16/f64 [3:2], denorm f32 [5:4], denorm f16/f64 [7:6],
DX10_CLAMP 8, IEEE 9, FP16_OVFL 23, GPR_IDX_EN 27, VSKIP 28. Handlers are compiled for one `Mode`. A wave that changes
these bits continues in the records of another.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from simgpu.hardware.isa.kinds import Flag
from simgpu.hardware.isa.spec import Spec
from simgpu.hardware.isa.types import Type

NEAREST, UP, DOWN, TO_ZERO = range(4)
FP16_OVFL, GPR_IDX_EN, VSKIP = 23, 27, 28
ROUNDINGS = ("v_add3_u32", "v_add_u32")  # integer additions by which code rounds an f32 to bf16, see `hardware.isa.ring`
ARITHMETIC = 0x3FF | 1 << FP16_OVFL | 1 << GPR_IDX_EN | 1 << VSKIP
NUMBERS = 1 << 13  # number of values of `number`
HIGH = ((FP16_OVFL, 10), (GPR_IDX_EN, 11), (VSKIP, 12))  # bits above the tenth, and their places in a number

# Conversions that do not round by MODE: they have their own rounding, or are exact.
_OWN_ROUNDING = tuple(f"v_cvt_{name}" for name in "rpi flr off norm pknorm pkrtz pkaccum".split())


@dataclass(frozen=True)
class Mode:
    """MODE bits that change the results of instructions."""

    flush32: tuple[bool, bool] = (False, False)  # (input, output) denormals are flushed to 0
    flush16_64: tuple[bool, bool] = (False, False)  # (input, output)
    ieee: bool = True  # as in the kernel descriptor
    dx10_clamp: bool = True  # as in the kernel descriptor
    fp16_ovfl: bool = False
    round32: int = NEAREST  # NEAREST (even), UP, DOWN or TO_ZERO
    round16_64: int = NEAREST  # the same four
    indexed: bool = False  # VGPR operands are relative to M0 (s_set_gpr_idx_on)
    skips: bool = False  # vector instructions are not executed (s_setvskip)
    ring: bool = False  # floats are elements of a ring (`hardware.isa.ring`); no bit of MODE, but the device's choice

    @classmethod
    def of_register(cls, word: int, ring: bool = False) -> Mode:
        """Returns the view of a MODE register's value."""
        return cls(
            flush32=_flush(word >> 4),
            flush16_64=_flush(word >> 6),
            dx10_clamp=bool(word >> 8 & 1),
            ieee=bool(word >> 9 & 1),
            fp16_ovfl=bool(word >> FP16_OVFL & 1),
            round32=word & 3,
            round16_64=word >> 2 & 3,
            indexed=bool(word >> GPR_IDX_EN & 1),
            skips=bool(word >> VSKIP & 1),
            ring=ring,
        )

    @property
    def key(self) -> str:
        flags = (*self.flush32, *self.flush16_64, self.ieee, self.dx10_clamp, self.fp16_ovfl)
        return "".join("01"[bit] for bit in flags) + f"{self.round32}{self.round16_64}" + "ring" * self.ring

    def key_for(self, spec: Spec) -> str:
        """Returns MODE's part of a handler's key: "" for instructions without floats, unless operands are indexed or
        the addition may round (`ROUNDINGS`)."""
        indexed = "indexed" if self.indexed else ""
        asks = any(p.name in ("ieee", "fp16_ovfl") for p in spec.params)
        if computes_floats(spec) or asks or Flag.MIX in spec.flags:
            return self.key + indexed
        return "ring" * (self.ring and spec.mnemonic in ROUNDINGS) + indexed

    def flush(self, type_: Type) -> tuple[bool, bool]:
        return self.flush32 if type_.bits == 32 else self.flush16_64

    def rounding(self, type_: Type) -> int:
        """Returns the rounding of a float type's results; bf16 always rounds to nearest even."""
        if type_.kind != "float":
            return NEAREST
        return self.round32 if type_.bits == 32 else self.round16_64

    def rounds(self, spec: Spec) -> bool:
        """True if a rounding mode other than to nearest even can change the instruction's result."""
        if not self.round32 and not self.round16_64:
            return False
        return Flag.TRANS not in spec.flags and not spec.mnemonic.startswith(_OWN_ROUNDING)


def computes_floats(spec: Spec) -> bool:
    """True for a matrix instruction and if the body's operands or results are floats."""
    types = [*(p.type for p in spec.params), *spec.results]
    return spec.kind == "matrix" or any(type_.is_float or (type_.element and type_.element.is_float) for type_ in types)


def _flush(denorm: int) -> tuple[bool, bool]:
    """Returns (input, output) flush from a denormal field: bit 0 keeps inputs, bit 1 outputs."""
    return (not denorm & 1, not denorm & 2)


@functools.lru_cache(maxsize=256)
def number(word: int) -> int:
    """Returns a small number for the arithmetic bits of a MODE register (below `NUMBERS`)."""
    return word & 0x3FF | sum((word >> bit & 1) << at for bit, at in HIGH)
