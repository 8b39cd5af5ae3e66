"""Every instruction with an inline constant in each source that accepts one, as encoded words."""

from __future__ import annotations

from collections.abc import Iterator

from simgpu.hardware.errors import DecodeError
from simgpu.hardware.isa import REGISTRY, Const, Instruction, Spec, decode

E64_OPCODES = {"vop1": 0x140, "vop2": 0x100, "vopc": 0}  # VOP3's opcodes for the e64 forms of the short encodings
VGPR, SGPR, LITTLE = 0x100, 0x20, "little"
LD_SCALE = 44


def _words(spec: Spec, opcode: int, sources: tuple[int, int, int]) -> Iterator[tuple[int, int]]:
    """Yields (word, bytes) of every form of an instruction whose source fields hold `sources`."""
    first, second, third = sources
    wide = first << 32 | second << 41 | third << 50
    match spec.encoding:
        case "sop1":
            yield 0x17D << 23 | 4 << 16 | opcode << 8 | first, 4
        case "sop2":
            yield 1 << 31 | opcode << 23 | 4 << 16 | second << 8 | first, 4
        case "sopc":
            yield 0x17E << 23 | opcode << 16 | second << 8 | first, 4
        case "vop1" | "vop2" | "vopc":
            short = {
                "vop1": 0x3F << 25 | 4 << 17 | opcode << 9,
                "vop2": opcode << 25 | 4 << 17 | (second & 255) << 9,
                "vopc": 0x3E << 25 | opcode << 17 | (second & 255) << 9,
            }[spec.encoding]
            if second >= VGPR:
                yield short | first, 4
            # SDWA, whole dwords selected: a source below 256 has its own bit.
            chosen = 6 << 40 | 6 << 48 | 6 << 56 if spec.encoding != "vopc" else 6 << 48 | 6 << 56
            scalar = (first < VGPR) << 55 | (second < VGPR) << 63
            fields = short & ~(255 << 9) | (second & 255) << 9 if spec.encoding != "vop1" else short
            yield fields | 0xF9 | (first & 255) << 32 | chosen | scalar, 8
            yield 0x34 << 26 | E64_OPCODES[spec.encoding] + opcode << 16 | 4 | wide, 8
        case "vop3":
            yield 0x34 << 26 | opcode << 16 | 4 | wide, 8
        case "vop3p":
            yield 0x1A7 << 23 | opcode << 16 | 4 | 3 << 59 | 1 << 14 | wide, 8
        case "mai" if "scaled" not in spec.flags:
            yield 0x1A7 << 23 | opcode << 16 | 4 | 3 << 59 | wide, 8


def constant_operands(target: str, code: int) -> Iterator[tuple[Instruction, str]]:
    """Yields (instruction, name of the source that is `Const(code)`), one source at a time, for every form of every
    instruction."""
    seen = set()
    for spec in REGISTRY.specs:
        if target not in spec.opcodes:
            continue
        for place in range(3):
            for other in (VGPR + 0x20, SGPR):
                sources = tuple(code if i == place else other + 8 * i for i in range(3))
                for word, size in _words(spec, spec.opcodes[target], sources):  # type: ignore[arg-type]
                    try:
                        found = decode(word.to_bytes(size, LITTLE), 0, target)
                    except DecodeError:
                        continue
                    if found.spec is not spec or found.size != size or (word, size) in seen:
                        continue
                    seen.add((word, size))
                    names = [name for name, operand in found.args.items() if operand == Const(code)]
                    if len(names) == 1:
                        yield found, names[0]
