"""MUBUF and MTBUF: raw, formatted and typed accesses through a buffer resource, and cache control."""

from __future__ import annotations

from simgpu.hardware.architectures import BEFORE_GFX942, GFX90A, GFX950, SINCE_GFX90A, SINCE_GFX942, TARGETS
from simgpu.hardware.isa.instructions.flat import FLOAT_ATOMICS, PLAIN, cache_atomics
from simgpu.hardware.isa.kinds import ControlKind, Flag
from simgpu.hardware.isa.spec import Memory, row

COMPONENTS = ("x", "xy", "xyz", "xyzw")
# Loads that have the LDS bit; with it, they write to LDS at the address in M0 instead of vdata.
LDS_FORMS = ("load_ubyte", "load_sbyte", "load_ushort", "load_sshort", "load_dword", "load_format_x")
LDS_FORMS_GFX950 = ("load_dwordx3", "load_dwordx4")
ATOMIC_TARGETS = {77: TARGETS, 78: TARGETS, 82: GFX950}

for _space, _encoding in (("buffer", "mubuf"), ("tbuffer", "mtbuf")):
    for _i, _components in enumerate(COMPONENTS):
        for _base, _verb, _d16 in ((0, "load", ""), (4, "store", ""), (8, "load", "lo"), (12, "store", "lo")):
            row(
                _encoding,
                f"{_space}_{_verb}_format_{'d16_' if _d16 else ''}{_components}",
                _base + _i,
                Memory(_space, _verb, bits=16 if _d16 else 32, count=_i + 1, d16=_d16, format=_i + 1),
                flags=(Flag.LDS_FORM,) if _space == "buffer" and _base + _i == 0 else (),
            )

for _op, _name, _what in PLAIN:
    _flags = (Flag.LDS_FORM,) if _name in LDS_FORMS else ()
    if _name in LDS_FORMS_GFX950:
        _flags = (Flag.LDS_FORM_GFX950,)
    row("mubuf", f"buffer_{_name}", _op, Memory("buffer", **_what), flags=_flags)  # type: ignore[arg-type]
for _op, _verb in ((38, "load"), (39, "store")):
    _memory = Memory("buffer", _verb, bits=16, d16="hi", format=1)
    row("mubuf", f"buffer_{_verb}_format_d16_hi_x", _op, _memory)

row("mubuf", "buffer_wbl2", 40, None, control=ControlKind.CACHE, targets=SINCE_GFX90A)
row("mubuf", "buffer_invl2", 41, None, control=ControlKind.CACHE, targets=GFX90A)
row("mubuf", "buffer_inv", 41, None, control=ControlKind.CACHE, targets=SINCE_GFX942)
_memory = Memory("buffer", "store", lds=True)
row("mubuf", "buffer_store_lds_dword", 61, _memory, targets=BEFORE_GFX942)
row("mubuf", "buffer_wbinvl1", 62, None, control=ControlKind.CACHE, targets=BEFORE_GFX942)
row("mubuf", "buffer_wbinvl1_vol", 63, None, control=ControlKind.CACHE, targets=BEFORE_GFX942)

for _op, _name, _bits, _body in (*cache_atomics(), *FLOAT_ATOMICS):
    _where = ATOMIC_TARGETS.get(_op, SINCE_GFX90A if _op in (79, 80, 81) else TARGETS)
    _memory = Memory("buffer", "atomic", bits=_bits)
    row("mubuf", f"buffer_atomic_{_name}", _op, _memory, _body, targets=_where)
