"""Decoder: bytes to `Instruction`.

The top bits of a word give its encoding; `table(target)` maps encoding and opcode to a spec and the function that reads its
fields. FLAT's three segments are separate encodings here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache

from simgpu.hardware.architectures import GFX12, TARGETS
from simgpu.hardware.errors import DecodeError, ForeignInstruction, TargetError
from simgpu.hardware.isa.code import formats, vector_formats
from simgpu.hardware.isa.code.formats import DecodedFields
from simgpu.hardware.isa.code.operands import UndefinedBits
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.instructions.mai import LOAD_SCALE
from simgpu.hardware.isa.kinds import Encoding, Flag
from simgpu.hardware.isa.spec import REGISTRY, Spec

Reader = Callable[[Spec, int, str], DecodedFields]
Key = tuple[str, int]

READERS: dict[Encoding, Reader] = {
    "sop1": formats.read_sop1,
    "sop2": formats.read_sop2,
    "sopc": formats.read_sopc,
    "sopk": formats.read_sopk,
    "sopp": formats.read_sopp,
    "smem": formats.read_smem,
    "ds": formats.read_ds,
    "flat": formats.read_flat,
    "mubuf": formats.read_mubuf,
    "mtbuf": formats.read_mtbuf,
    "vop1": vector_formats.read_vop,
    "vop2": vector_formats.read_vop,
    "vopc": vector_formats.read_vop,
    "vop3": vector_formats.read_vop3,
    "vop3p": vector_formats.read_vop3p,
    "mai": vector_formats.read_mai,
}
# First opcode of the short vector encodings' e64 forms in VOP3.
E64_BASE: dict[Encoding, int] = {"vop1": 0x140, "vop2": 0x100, "vopc": 0}
SEGMENTS = ("flat", "scratch", "global", "")


@cache
def table(target: str) -> dict[Key, tuple[Spec, Reader]]:
    """Returns the target's specs and their readers, by encoding and opcode. Raises TargetError for an unknown target.

    >>> table("gfx942")["vop1", 1][0]
    <vop1 v_mov_b32>
    """
    if target not in TARGETS:
        raise TargetError(f"unknown target {target!r}; there are {', '.join(TARGETS)}")
    entries: dict[Key, tuple[Spec, Reader]] = {}
    for spec in REGISTRY.specs:
        if target not in spec.opcodes:
            continue
        for key, reader in _keys(spec, spec.opcodes[target]):
            if key in entries:
                other = entries[key][0].mnemonic
                raise ValueError(f"{target}: {key} is both {other} and {spec.mnemonic}")
            entries[key] = (spec, reader)
    return entries


def _keys(spec: Spec, opcode: int) -> Iterable[tuple[Key, Reader]]:
    encoding = spec.encoding
    reader = READERS[encoding]
    if encoding == "flat":
        assert spec.memory is not None
        yield (spec.memory.space, opcode), reader
    elif encoding == "mai":
        yield ("scaled" if Flag.SCALED in spec.flags else "vop3p", opcode), reader
    else:
        yield (encoding, opcode), reader
    if encoding in E64_BASE and Flag.NO_E64 not in spec.flags:
        yield ("vop3", E64_BASE[encoding] + opcode), vector_formats.read_vop3


@cache
def _prefix(high: int) -> tuple[str, int, int]:
    """Returns the encoding, opcode shift and opcode mask of words with these top nine bits."""
    if high < 0x100:
        op = high >> 2
        if op == 0x3F:
            return "vop1", 9, 0xFF
        return ("vopc", 17, 0xFF) if op == 0x3E else ("vop2", 25, 0x3F)
    if high < 0x180:
        if high in SOP_PREFIX:
            return SOP_PREFIX[high]
        return ("sopk", 23, 0x1F) if high >= 0x160 else ("sop2", 23, 0x7F)
    if high == 0x1A7:
        return "vop3p", 16, 0x7F
    return MEMORY_PREFIX.get(high >> 3, ("", 0, 0))


SOP_PREFIX = {0x17D: ("sop1", 8, 0xFF), 0x17E: ("sopc", 16, 0x7F), 0x17F: ("sopp", 16, 0x7F)}
MEMORY_PREFIX = {
    0b110000: ("smem", 18, 0xFF),
    0b110100: ("vop3", 16, 0x3FF),
    0b110110: ("ds", 17, 0xFF),
    0b110111: ("flat", 18, 0x7F),
    0b111000: ("mubuf", 18, 0x7F),
    0b111010: ("mtbuf", 15, 0xF),
}

# GFX9 encodings that compute kernels do not use: top six bits, then name and purpose.
FOREIGN = {
    0b110001: ("exp", "export"),
    0b110101: ("v_interp", "pixel attribute interpolation"),
    0b111100: ("image", "image access"),
}


def decode(code: bytes | memoryview, offset: int, target: str) -> Instruction:
    """Decodes the instruction at byte `offset`.

    Raises DecodeError, with the offset and the bytes, for bits that the target does not define and for code that ends
    within the instruction. Raises ForeignInstruction (a DecodeError and an UnsupportedInstruction) for graphics
    encodings, TargetError for an unknown target.

    >>> decode(bytes.fromhex("000081bf"), 0, "gfx942").mnemonic
    's_endpgm'
    """
    if target in GFX12:
        return _decode_gfx12(code, offset, target)
    word = int.from_bytes(code[offset : offset + 8], "little")
    encoding, shift, mask = _prefix(word >> 23 & 0x1FF)
    opcode = word >> shift & mask
    if encoding == "flat":
        encoding = SEGMENTS[word >> 14 & 3]
    found = table(target).get((encoding, opcode))
    try:
        if found is None:
            raise UndefinedBits("no such opcode")
        spec, reader = found
        if opcode == LOAD_SCALE and encoding == "vop3p":
            spec, read = _decode_scaled(code, offset, word, target, spec, reader)
        else:
            read = reader(spec, word, target)
        if offset < 0 or offset + read.size > len(code):
            raise UndefinedBits(f"the code ends within {spec.mnemonic}")
    except UndefinedBits as error:
        foreign = FOREIGN.get(word >> 26 & 63) if offset + 4 <= len(code) else None
        if foreign:
            name, what = foreign
            raise ForeignInstruction(
                f"{target}: {name} at offset 0x{offset:x}: {_hex_words(code, offset)} "
                f"({what} is not for compute kernels)"
            ) from None
        raise DecodeError(_complaint(code, offset, target, encoding, error)) from None
    return Instruction(
        spec=spec, target=target, form=read.form, args=read.args, mods=read.mods, src_mods=read.src_mods, size=read.size,
        offset=offset,
    )  # fmt: skip


def _decode_gfx12(code: bytes | memoryview, offset: int, target: str) -> Instruction:
    from simgpu.hardware.isa.gfx12 import decode as gfx12
    from simgpu.hardware.isa.gfx12.operands import UndefinedField

    word = int.from_bytes(code[offset : offset + gfx12.MOST_BYTES], "little")
    try:
        spec, read = gfx12.read(word)
        if offset < 0 or offset + read.size > len(code):
            raise UndefinedField(f"the code ends within {spec.mnemonic}")
    except UndefinedField as error:
        raise DecodeError(f"{target}: no instruction at offset 0x{offset:x}: {_hex_words(code, offset)} ({error})") from None
    return Instruction(
        spec=spec, target=target, form=read.form, args=read.args, mods=read.mods, src_mods=read.src_mods, size=read.size,
        offset=offset,
    )  # fmt: skip


def _decode_scaled(
    code: bytes | memoryview, offset: int, word: int, target: str, spec: Spec, reader: Reader
) -> tuple[Spec, DecodedFields]:
    """Returns spec and operands of a scale load together with the scaled matrix instruction behind it, or of the load alone."""
    second = int.from_bytes(code[offset + 8 : offset + 16], "little")
    if second >> 23 & 0x1FF == 0x1A7:
        found = table(target).get(("scaled", second >> 16 & 0x7F))
        if found:
            return found[0], vector_formats.read_scaled(found[0], word, second, target)
    return spec, reader(spec, word, target)


def _hex_words(code: bytes | memoryview, offset: int) -> str:
    return bytes(code[offset : offset + 8]).hex(" ", -4) or "nothing"


def _complaint(code: bytes | memoryview, offset: int, target: str, encoding: str, error: UndefinedBits) -> str:
    shown = _hex_words(code, offset)
    kind = f"{encoding.upper()}: " if encoding else ""
    return f"{target}: no instruction at offset 0x{offset:x}: {shown} ({kind}{error})"


def decode_around(code: bytes | memoryview, target: str) -> Iterator[tuple[int, Instruction | None]]:
    """Yields each offset and its instruction; None for four bytes that are not an instruction, such as data among code.

    >>> [(offset, inst and inst.mnemonic) for offset, inst in decode_around(bytes.fromhex("ffffffff000081bf"), "gfx942")]
    [(0, None), (4, 's_endpgm')]
    """
    offset = 0
    while offset < len(code):
        try:
            instruction = decode(code, offset, target)
        except DecodeError:
            yield offset, None
            offset += 4
        else:
            yield offset, instruction
            offset += instruction.size


def decode_all(code: bytes | memoryview, target: str) -> list[Instruction]:
    """Returns all instructions of `code`. Raises the exceptions of `decode`.

    >>> [inst.mnemonic for inst in decode_all(bytes.fromhex("0203047e000081bf"), "gfx942")]
    ['v_mov_b32', 's_endpgm']
    """
    instructions = []
    offset = 0
    while offset < len(code):
        instruction = decode(code, offset, target)
        instructions.append(instruction)
        offset += instruction.size
    return instructions
