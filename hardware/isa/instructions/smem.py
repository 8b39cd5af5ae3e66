"""SMEM: scalar loads, stores and atomics, cache control, clocks."""

from __future__ import annotations

from simgpu.hardware.isa.arithmetic.atomics import INTEGER, cache_atomic
from simgpu.hardware.isa.kinds import ControlKind, Flag
from simgpu.hardware.isa.spec import Memory, row

DWORDS = {0: 1, 1: 2, 2: 4, 3: 8, 4: 16}
# First opcode, name, space (an address, the wave's scratch or a buffer resource) and, for loads, number of widths.
LOADS = ((0, "s_load", "smem", 5), (5, "s_scratch_load", "scratch", 3), (8, "s_buffer_load", "buffer", 5))
STORES = ((16, "s_store", "smem"), (21, "s_scratch_store", "scratch"), (24, "s_buffer_store", "buffer"))
CACHE = {32: "inv", 33: "wb", 34: "inv_vol", 35: "wb_vol"}


def _dwords(count: int) -> str:
    return "dword" if count == 1 else f"dwordx{count}"


for _base, _name, _space, _widths in LOADS:
    for _i in range(_widths):
        _count = DWORDS[_i]
        row("smem", f"{_name}_{_dwords(_count)}", _base + _i, Memory(_space, "load", count=_count))
for _base, _name, _space in STORES:
    for _i in range(3):
        _count = DWORDS[_i]
        row("smem", f"{_name}_{_dwords(_count)}", _base + _i, Memory(_space, "store", count=_count))
for _op, _name in CACHE.items():
    row("smem", f"s_dcache_{_name}", _op, None, control=ControlKind.DCACHE, flags=(Flag.BARE,))
# The clocks write sdst and wait like loads; they touch no memory.
row("smem", "s_memtime", 36, None, flags=(Flag.CLOCK,))
row("smem", "s_memrealtime", 37, None, flags=(Flag.CLOCK,))
row("smem", "s_atc_probe", 38, None, control=ControlKind.DCACHE, flags=(Flag.PROBE,))
row("smem", "s_atc_probe_buffer", 39, None, control=ControlKind.DCACHE, flags=(Flag.PROBE, Flag.BUFFER))
row("smem", "s_dcache_discard", 40, None, control=ControlKind.DCACHE)
row("smem", "s_dcache_discard_x2", 41, None, control=ControlKind.DCACHE)
# All targets have all scalar atomics: AMD's machine-readable ISA of CDNA2 lists them, LLVM has FeatureScalarAtomics for GFX9.
for _base, _stem, _space in ((64, "s_buffer_atomic", "buffer"), (128, "s_atomic", "smem")):
    for _bits, _suffix in ((32, ""), (64, "_x2")):
        for _i, _name in enumerate(INTEGER):
            row(
                "smem",
                f"{_stem}_{_name}{_suffix}",
                _base + _bits - 32 + _i,
                Memory(_space, "atomic", bits=_bits),
                cache_atomic(_name, _bits),
            )
