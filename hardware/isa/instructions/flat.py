"""FLAT, GLOBAL and SCRATCH: loads, stores and atomics on 64-bit, global and private addresses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from simgpu.hardware.architectures import GFX950, SINCE_GFX90A, SINCE_GFX942, TARGETS
from simgpu.hardware.isa.arithmetic.atomics import FLOAT, INTEGER, PACKED, Body, cache_atomic, operation
from simgpu.hardware.isa.kinds import Flag
from simgpu.hardware.isa.spec import Memory, row

SPACES = ("flat", "global", "scratch")

# Opcode, name after the space, and fields of `Memory`; MUBUF has the same opcodes.
PLAIN: tuple[tuple[int, str, dict[str, object]], ...] = (
    (16, "load_ubyte", {"op": "load", "bits": 8}),
    (17, "load_sbyte", {"op": "load", "bits": 8, "sign": True}),
    (18, "load_ushort", {"op": "load", "bits": 16}),
    (19, "load_sshort", {"op": "load", "bits": 16, "sign": True}),
    (20, "load_dword", {"op": "load"}),
    (21, "load_dwordx2", {"op": "load", "count": 2}),
    (22, "load_dwordx3", {"op": "load", "count": 3}),
    (23, "load_dwordx4", {"op": "load", "count": 4}),
    (24, "store_byte", {"op": "store", "bits": 8}),
    (25, "store_byte_d16_hi", {"op": "store", "bits": 8, "d16": "hi"}),
    (26, "store_short", {"op": "store", "bits": 16}),
    (27, "store_short_d16_hi", {"op": "store", "bits": 16, "d16": "hi"}),
    (28, "store_dword", {"op": "store"}),
    (29, "store_dwordx2", {"op": "store", "count": 2}),
    (30, "store_dwordx3", {"op": "store", "count": 3}),
    (31, "store_dwordx4", {"op": "store", "count": 4}),
    (32, "load_ubyte_d16", {"op": "load", "bits": 8, "d16": "lo"}),
    (33, "load_ubyte_d16_hi", {"op": "load", "bits": 8, "d16": "hi"}),
    (34, "load_sbyte_d16", {"op": "load", "bits": 8, "sign": True, "d16": "lo"}),
    (35, "load_sbyte_d16_hi", {"op": "load", "bits": 8, "sign": True, "d16": "hi"}),
    (36, "load_short_d16", {"op": "load", "bits": 16, "d16": "lo"}),
    (37, "load_short_d16_hi", {"op": "load", "bits": 16, "d16": "hi"}),
)
# Before gfx942, the LDS bit of these sends the data to LDS; from gfx942 on, `TO_LDS` has separate opcodes.
LDS_FORMS = ("load_ubyte", "load_sbyte", "load_ushort", "load_sshort", "load_dword")
TO_LDS: tuple[tuple[int, str, dict[str, object]], ...] = (
    (38, "load_lds_ubyte", {"bits": 8}),
    (39, "load_lds_sbyte", {"bits": 8, "sign": True}),
    (40, "load_lds_ushort", {"bits": 16}),
    (41, "load_lds_sshort", {"bits": 16, "sign": True}),
    (42, "load_lds_dword", {}),
)


def cache_atomics() -> Iterator[tuple[int, str, int, Body]]:
    """Yields opcode, name after `atomic_`, bits and body of the integer atomics, which FLAT and MUBUF have on all targets."""
    for bits, suffix in ((32, ""), (64, "_x2")):
        for i, name in enumerate(INTEGER):
            yield 32 + bits + i, name + suffix, bits, cache_atomic(name, bits)


# Opcode, name, bits and body of the float atomics; their targets depend on the encoding.
FLOAT_ATOMICS: tuple[tuple[int, str, int, Body], ...] = (
    (77, "add_f32", 32, operation("add", FLOAT[32])),
    (78, "pk_add_f16", 32, PACKED["pk_add_f16"]),
    (79, "add_f64", 64, operation("add", FLOAT[64])),
    (80, "min_f64", 64, operation("fmin", FLOAT[64])),
    (81, "max_f64", 64, operation("fmax", FLOAT[64])),
    (82, "pk_add_bf16", 32, PACKED["pk_add_bf16"]),
)


def _float_targets(space: str, opcode: int) -> Iterable[str]:
    """Returns the targets of a float atomic in a space.

    gfx908 has only the global add_f32 and pk_add_f16, gfx90a also those of f64; the others come with gfx942.
    """
    if opcode in (77, 78):
        return TARGETS if space == "global" else SINCE_GFX942
    return SINCE_GFX942 if opcode == 82 else SINCE_GFX90A


for _space in SPACES:
    for _op, _name, _what in PLAIN:
        _flags = (Flag.LDS_FORM,) if _space != "flat" and _name in LDS_FORMS else ()
        row("flat", f"{_space}_{_name}", _op, Memory(_space, **_what), flags=_flags)  # type: ignore[arg-type]
for _space in SPACES[1:]:
    for _op, _name, _what in TO_LDS:
        _memory = Memory(_space, "load", lds=True, **_what)  # type: ignore[arg-type]
        row("flat", f"{_space}_{_name}", _op, _memory, targets=SINCE_GFX942)
for _op, _name, _count in ((125, "dwordx4", 4), (126, "dwordx3", 3)):
    _memory = Memory("global", "load", count=_count, lds=True)
    row("flat", f"global_load_lds_{_name}", _op, _memory, targets=GFX950)
for _space in SPACES[:2]:
    for _op, _name, _bits, _body in cache_atomics():
        row("flat", f"{_space}_atomic_{_name}", _op, Memory(_space, "atomic", bits=_bits), _body)
    for _op, _name, _bits, _body in FLOAT_ATOMICS:
        _memory = Memory(_space, "atomic", bits=_bits)
        _where = _float_targets(_space, _op)
        row("flat", f"{_space}_atomic_{_name}", _op, _memory, _body, targets=_where)
