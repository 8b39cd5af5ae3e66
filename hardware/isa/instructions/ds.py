"""DS: loads, stores and atomics on LDS, lane permutations, counters and GDS."""

from __future__ import annotations

from simgpu.hardware.architectures import GFX908, GFX950, SINCE_GFX90A, SINCE_GFX942, TARGETS
from simgpu.hardware.isa.arithmetic.atomics import (
    FLOAT,
    PACKED,
    SIGNED,
    UNSIGNED,
    Body,
    compare_store,
    conditional_exchange,
    masked_or,
    operation,
    wrap,
)
from simgpu.hardware.isa.arithmetic.vectors import modifier
from simgpu.hardware.isa.encodings import ds
from simgpu.hardware.isa.kinds import ControlKind, Flag
from simgpu.hardware.isa.lane import Value, const, gather, lane_id, lshr, scatter, shl, splat, where
from simgpu.hardware.isa.spec import Memory, row
from simgpu.hardware.isa.types import EXEC, u32, u64

RETURNING = 32  # opcode distance of the forms that return the old value


def _atomic(
    opcode: int, stem: str, suffix: str, width: int, body: Body, targets: tuple[str, ...] = TARGETS
) -> None:
    """Registers an atomic in its forms without and with return."""
    plain = Memory("ds", "atomic", bits=width)
    returning = Memory("ds", "atomic", bits=width, returns=True)
    row("ds", f"ds_{stem}_{suffix}", opcode, plain, body, targets=targets)
    row("ds", f"ds_{stem}_rtn_{suffix}", opcode + RETURNING, returning, body, targets=targets)


# Opcode (relative to that of the 32- or 64-bit forms), name, suffix letter, operation.
INTEGER: tuple[tuple[int, str, str, str], ...] = (
    (0, "add", "u", "add"),
    (1, "sub", "u", "sub"),
    (2, "rsub", "u", "rsub"),
    (3, "inc", "u", "inc"),
    (4, "dec", "u", "dec"),
    (5, "min", "i", "smin"),
    (6, "max", "i", "smax"),
    (7, "min", "u", "umin"),
    (8, "max", "u", "umax"),
    (9, "and", "b", "and"),
    (10, "or", "b", "or"),
    (11, "xor", "b", "xor"),
)

for _width, _base in ((32, 0), (64, 64)):
    _unsigned, _float = UNSIGNED[_width], FLOAT[_width]
    for _op, _name, _letter, _operation in INTEGER:
        _kind = (SIGNED if _letter == "i" else UNSIGNED)[_width]
        _body = operation(_operation, _kind)
        _atomic(_base + _op, _name, f"{_letter}{_width}", _width, _body)
        # LDS to LDS: the second operand is at the address plus the offset.
        _memory = Memory("ds", "atomic", bits=_width)
        _flags = (Flag.SRC2,)
        _source2 = f"ds_{_name}_src2_{_letter}{_width}"
        row("ds", _source2, 128 + _base + _op, _memory, _body, targets=GFX908, flags=_flags)
    _memory = Memory("ds", "atomic", bits=_width)
    _swap = operation("swap", _unsigned)
    row("ds", f"ds_write_src2_b{_width}", 141 + _base, _memory, _swap, targets=GFX908, flags=_flags)
    for _op, _name in ((18, "min"), (19, "max")):
        _body = operation(f"f{_name}", _float)
        _source2 = f"ds_{_name}_src2_f{_width}"
        _atomic(_base + _op, _name, f"f{_width}", _width, _body)
        row("ds", _source2, 128 + _base + _op, _memory, _body, targets=GFX908, flags=_flags)
    _atomic(_base + 12, "mskor", f"b{_width}", _width, masked_or(_width))
    _atomic(_base + 16, "cmpst", f"b{_width}", _width, compare_store(_unsigned))
    _atomic(_base + 17, "cmpst", f"f{_width}", _width, compare_store(_float))
    # Stores, exchanges and loads at one address, or at two, of offset0 and offset1.
    _suffix = f"b{_width}"
    row("ds", f"ds_write_{_suffix}", _base + 13, Memory("ds", "store", _width))
    row("ds", f"ds_wrxchg_rtn_{_suffix}", _base + 45, Memory("ds", "atomic", _width, returns=True), _swap)
    row("ds", f"ds_read_{_suffix}", _base + 54, Memory("ds", "load", _width))
    for _i, _form, _stride in ((0, "2", 1), (1, "2st64", 64)):
        _store = Memory("ds", "store", _width, 2, stride=_stride)
        row("ds", f"ds_write{_form}_{_suffix}", _base + 14 + _i, _store)
        _exchange = Memory("ds", "atomic", _width, 2, stride=_stride, returns=True)
        row("ds", f"ds_wrxchg{_form}_rtn_{_suffix}", _base + 46 + _i, _exchange, _swap)
        _load = Memory("ds", "load", _width, 2, stride=_stride)
        row("ds", f"ds_read{_form}_{_suffix}", _base + 55 + _i, _load)

_add32, _add64 = operation("add", FLOAT[32]), operation("add", FLOAT[64])
_atomic(21, "add", "f32", 32, _add32)
row("ds", "ds_add_src2_f32", 149, Memory("ds", "atomic"), _add32, targets=GFX908, flags=(Flag.SRC2,))
_atomic(92, "add", "f64", 64, _add64, SINCE_GFX90A)
for _op, _suffix in ((23, "f16"), (24, "bf16")):
    _body = PACKED[f"pk_add_{_suffix}"]
    row("ds", f"ds_pk_add_{_suffix}", _op, Memory("ds", "atomic"), _body, targets=SINCE_GFX942)
    _returning = Memory("ds", "atomic", returns=True)
    row("ds", f"ds_pk_add_rtn_{_suffix}", _op + 160, _returning, _body, targets=SINCE_GFX942)
row("ds", "ds_wrap_rtn_b32", 52, Memory("ds", "atomic", returns=True), wrap)
row("ds", "ds_condxchg32_rtn_b64", 126, Memory("ds", "atomic", 64, returns=True), conditional_exchange)

for _op, _name, _memory in (
    (30, "ds_write_b8", Memory("ds", "store", 8)),
    (31, "ds_write_b16", Memory("ds", "store", 16)),
    (57, "ds_read_i8", Memory("ds", "load", 8, sign=True)),
    (58, "ds_read_u8", Memory("ds", "load", 8)),
    (59, "ds_read_i16", Memory("ds", "load", 16, sign=True)),
    (60, "ds_read_u16", Memory("ds", "load", 16)),
    (84, "ds_write_b8_d16_hi", Memory("ds", "store", 8, d16="hi")),
    (85, "ds_write_b16_d16_hi", Memory("ds", "store", 16, d16="hi")),
    (86, "ds_read_u8_d16", Memory("ds", "load", 8, d16="lo")),
    (87, "ds_read_u8_d16_hi", Memory("ds", "load", 8, d16="hi")),
    (88, "ds_read_i8_d16", Memory("ds", "load", 8, sign=True, d16="lo")),
    (89, "ds_read_i8_d16_hi", Memory("ds", "load", 8, sign=True, d16="hi")),
    (90, "ds_read_u16_d16", Memory("ds", "load", 16, d16="lo")),
    (91, "ds_read_u16_d16_hi", Memory("ds", "load", 16, d16="hi")),
    (222, "ds_write_b96", Memory("ds", "store", 96)),
    (223, "ds_write_b128", Memory("ds", "store", 128)),
    (254, "ds_read_b96", Memory("ds", "load", 96)),
    (255, "ds_read_b128", Memory("ds", "load", 128)),
):
    row("ds", _name, _op, _memory)

# At LDS address M0 + offset + 4·lane, without an address operand.
row("ds", "ds_write_addtid_b32", 29, Memory("ds", "store"), flags=(Flag.ADDTID,))
row("ds", "ds_read_addtid_b32", 182, Memory("ds", "load"), flags=(Flag.ADDTID,))
# Transposing loads. The order of elements is confirmed by compilers' kernels for 8 and 16 bits only.
for _op, _name, _width, _element, _flags in (
    (224, "ds_read_b64_tr_b4", 64, 4, (Flag.UNVERIFIED,)),
    (225, "ds_read_b96_tr_b6", 96, 6, (Flag.UNVERIFIED,)),
    (226, "ds_read_b64_tr_b8", 64, 8, ()),
    (227, "ds_read_b64_tr_b16", 64, 16, ()),
):
    row("ds", _name, _op, Memory("ds", "load", _width, transpose=_element), targets=GFX950, flags=_flags)

# Counters shared by the workgroup or the device.
row("ds", "ds_nop", 20, None, control=ControlKind.NOP)
row("ds", "ds_consume", 189, None, control=ControlKind.CONSUME, flags=(Flag.COUNTER,))
row("ds", "ds_append", 190, None, control=ControlKind.APPEND, flags=(Flag.COUNTER,))
row("ds", "ds_ordered_count", 191, None, control=ControlKind.GDS, targets=GFX908, flags=(Flag.ORDERED,))
for _op, _name, _flags in (
    (152, "sema_release_all", ()),
    (153, "init", (Flag.ONE_DATA,)),
    (154, "sema_v", ()),
    (155, "sema_br", (Flag.ONE_DATA,)),
    (156, "sema_p", ()),
    (157, "barrier", (Flag.ONE_DATA,)),
):
    row("ds", f"ds_gws_{_name}", _op, None, control=ControlKind.GWS, flags=_flags)


def _active(row_: Value, exec_mask: Value) -> Value:
    """True in the lanes that EXEC enables."""
    return (lshr(splat(exec_mask, u64), lane_id(row_)) & 1) != 0


@ds(62, kind="wave")
def ds_permute_b32(addr: u32, data0: u32, active: EXEC, offset: modifier = 0) -> u32:
    """Lane (addr + offset) / 4 mod 64 gets data0; 0 where no active lane sends."""
    return scatter(data0, lshr(addr + offset, 2) & 63, _active(data0, active))


@ds(63, kind="wave")
def ds_bpermute_b32(addr: u32, data0: u32, active: EXEC, offset: modifier = 0) -> u32:
    """data0 of lane (addr + offset) / 4 mod 64; 0 from an inactive lane."""
    sent = where(_active(data0, active), data0, 0)
    return gather(sent, lshr(addr + offset, 2) & 63)


@ds(61, kind="wave")
def ds_swizzle_b32(addr: u32, active: EXEC, offset: modifier = 0) -> u32:
    """Reads addr's register of the lane that the pattern `offset` selects; 0 from an inactive lane.

    Patterns of the Vega ISA guide, within groups of 32 lanes: and/or/xor of the lane number, rotation, FFT order; with
    only bit 15 set, a permutation of each quad.
    """
    lane = lane_id(addr)
    if offset >= 0xE000:
        source = _fft(lane, offset & 31)
    elif offset >= 0xC000:
        turn = -(offset >> 5 & 31) if offset >> 10 & 1 else offset >> 5 & 31
        keep = offset & 31
        source = lane & keep | (lane + (turn & 31)) & (31 & ~keep)
    elif offset & 0x8000:
        pattern = const(lane, offset & 0xFF)
        source = lane & 28 | lshr(pattern, shl(lane & 3, 1)) & 3
    else:
        source = (lane & (offset & 31) | offset >> 5 & 31) ^ (offset >> 10 & 31)
    sent = where(_active(addr, active), addr, 0)
    return gather(sent, source | lane & 32)


def _fft(lane: Value, keep: int) -> Value:
    """Returns the lane's five bits reversed and shifted right by the number of bits in `keep`, with the kept bits unchanged."""
    order = const(lane, 0)
    for i in range(5):
        order = order | shl(lshr(lane, i) & 1, 4 - i)
    return lshr(order, keep.bit_count()) | lane & keep
