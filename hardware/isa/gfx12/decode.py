"""Decoder of GFX12: bits of an instruction to its spec, operands and modifiers."""

from __future__ import annotations

from collections.abc import Callable

from simgpu.hardware.isa.gfx12 import formats, vector_formats
from simgpu.hardware.isa.gfx12.formats import Reading
from simgpu.hardware.isa.gfx12.operands import UndefinedField
from simgpu.hardware.isa.gfx12.rows import RowSpec, rows

MOST_BYTES = 24  # more than any instruction has
SEGMENTS = ("flat", "scratch", "global", "")
SOP = {0x17D: ("sop1", 8, 8), 0x17E: ("sopc", 16, 7), 0x17F: ("sopp", 16, 7)}
# Encoding, first bit and width of the opcode, by the top six bits.
WIDE = {
    0b110001: ("vbuffer", 14, 8), 0b110100: ("vimage", 14, 8), 0b110101: ("vop3", 16, 10), 0b110110: ("ds", 18, 8),
    0b111011: ("flat", 14, 8), 0b111101: ("smem", 13, 6),
}  # fmt: skip
VOPD, VOP3P, VOPD3 = 0b110010, 0xCC, 0xCF
READERS: dict[str, tuple[Callable[[RowSpec, Reading], None], int]] = {
    **{name: (formats.read_plain, 4) for name in ("sop1", "sop2", "sopc", "vop1", "vop2", "vopc")},
    "sopk": (formats.read_sopk, 4), "sopp": (formats.read_sopp, 4), "smem": (formats.read_smem, 8), "ds": (formats.read_ds, 8),
    "flat": (formats.read_flat, 12), "scratch": (formats.read_flat, 12), "global": (formats.read_flat, 12),
    "vbuffer": (formats.read_buffer, 12), "vimage": (formats.read_image, 12),
    "vop3": (vector_formats.read_vop3, 8), "vop3p": (vector_formats.read_vop3, 8),
}  # fmt: skip


def encoding_of(word: int) -> tuple[str, int]:
    """Returns the encoding and opcode of a 32-bit word; "" for none.

    >>> encoding_of(0xBFB00000)
    ('sopp', 48)
    """
    if word >> 31 == 0:
        top = word >> 25
        return ("vop1", word >> 9 & 0xFF) if top == 0x3F else ("vopc", word >> 17 & 0xFF) if top == 0x3E else ("vop2", top)
    if word >> 30 == 0b10:
        top = word >> 23
        if top in SOP:
            name, first, width = SOP[top]
            return name, word >> first & (1 << width) - 1
        return ("sopk", top & 0x1F) if top >= 0x160 else ("sop2", top & 0x7F)
    if word >> 24 == VOP3P:
        return "vop3p", word >> 16 & 0xFF
    name, first, width = WIDE.get(word >> 26, ("", 0, 0))
    opcode = word >> first & (1 << width) - 1
    return (SEGMENTS[word >> 24 & 3], opcode) if name == "flat" else (name, opcode)


def read(word: int) -> tuple[RowSpec, Reading]:
    """Returns spec and fields of the instruction that the bits begin with. Raises UndefinedField for bits of no instruction."""
    low = word & 0xFFFFFFFF
    if low >> 26 == VOPD or low >> 24 == VOPD3:
        it = Reading(word, 0)
        return vector_formats.read_dual(it, low >> 24 == VOPD3), it
    encoding, opcode = encoding_of(low)
    if encoding == "vop3p" and vector_formats.is_scale_load(word):
        it = Reading(word, 16)
        return vector_formats.read_scaled(it), it
    spec = rows().get((encoding, opcode))
    if spec is None:
        raise UndefinedField(f"{encoding.upper()}: no such opcode" if encoding else "no such encoding")
    reader, size = READERS[encoding]
    it = Reading(word, size)
    reader(spec, it)
    return spec, it
