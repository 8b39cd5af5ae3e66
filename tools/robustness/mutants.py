"""Mutants of a kernel.

In the code, one wait, nop or barrier is weaker or missing, or one address has the largest offset that its field can hold. Or
fewer registers or less LDS are declared.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from simgpu.hardware.code_object.descriptor import VGPR_ENCODING_GRANULE
from simgpu.hardware.code_object.kernels import KernelInfo
from simgpu.hardware.isa import text
from simgpu.hardware.isa.code.flow import branch_target
from simgpu.hardware.isa.code.immediates import WAIT_COUNTERS
from simgpu.hardware.isa.instruction import Imm, Instruction
from simgpu.hardware.isa.kinds import CONDITIONAL_BRANCHES, ControlKind
from simgpu.hardware.timing_rules.waits import awaited_counters

S_NOP = 0xBF800000  # s_nop 0
S_WAITCNT = 0xBF8C0000
# Kinds of instructions that cannot change places with a nop.
MOVES = {
    ControlKind.BRANCH, *CONDITIONAL_BRANCHES, ControlKind.CALL, ControlKind.SETPC, ControlKind.SWAPPC, ControlKind.GETPC,
    ControlKind.ENDPGM, ControlKind.ENDPGM_SAVED, ControlKind.ENDPGM_ORDERED_PS_DONE, ControlKind.TRAP,
}  # fmt: skip
NOP_STATES = 16  # the most wait states of one s_nop
# Encoding and space: the largest offset of whole dwords, and the bits of its field.
FAR = {("flat", "global"): (4092, 13), ("mubuf", "buffer"): (4092, 12), ("ds", "ds"): (65532, 16)}


@dataclass(frozen=True)
class Mutant:
    """A change of a kernel: of its code's bytes, or of its declarations."""

    kind: str  # wait, nop, barrier, address, registers or LDS
    what: str  # in words
    offset: int  # byte of the code
    data: bytes  # the new bytes
    before: str  # the original instruction or declaration
    declared: tuple[tuple[str, int], ...] = ()  # fields of the kernel or its descriptor


def mutants(code: bytes, instructions: Mapping[int, Instruction], executed: set[int]) -> Iterator[Mutant]:
    """Yields all mutants of a kernel's code. instructions: by record (dword of the code); executed: the records that ran."""
    targets = {branch_target(inst, 4 * index) for index, inst in instructions.items()}
    for index in sorted(executed):
        inst = instructions[index]
        immediate = inst.args.get("simm16")
        value = immediate.value & 0xFFFF if isinstance(immediate, Imm) else 0
        if inst.spec.control is ControlKind.WAITCNT:
            yield from _waits(index, inst, value)
        elif inst.spec.control is ControlKind.BARRIER:
            yield Mutant("barrier", "dropped", 4 * index, _word(S_NOP), text(inst))
        elif inst.spec.control is ControlKind.NOP:
            yield from _nops(code, instructions, targets, index, value)
        elif inst.spec.memory is not None:
            yield from _addresses(code, index, inst)


def _word(value: int) -> bytes:
    return struct.pack("<I", value)


def _waits(index: int, inst: Instruction, value: int) -> Iterator[Mutant]:
    counts = awaited_counters(value)
    if not counts:
        return
    yield Mutant("wait", "removed", 4 * index, _word(S_NOP), text(inst))
    for name, count in counts.items():
        if name != "expcnt":
            weaker = S_WAITCNT | encode_wait(value, name, count + 1)
            yield Mutant("wait", f"{name}({count + 1})", 4 * index, _word(weaker), text(inst))


def encode_wait(simm16: int, counter: str, count: int) -> int:
    """Returns s_waitcnt's immediate with another count."""
    for shift, width in dict(WAIT_COUNTERS)[counter]:
        mask = (1 << width) - 1
        simm16 = simm16 & ~(mask << shift) | (count & mask) << shift
        count >>= width
    return simm16


def _nops(
    code: bytes, instructions: Mapping[int, Instruction], targets: set[int | None], index: int, value: int
) -> Iterator[Mutant]:
    inst = instructions[index]
    if value % NOP_STATES:
        yield Mutant("nop", f"s_nop {value - 1}", 4 * index, _word(S_NOP | value - 1), text(inst))
    following = instructions.get(index + 1)
    if following is None or 4 * index + 4 in targets or following.spec.control in MOVES:
        return
    # The number of bytes stays: the nop changes places with the instruction that it delays.
    later = code[4 * index + 4 : 4 * index + 4 + following.size]
    yield Mutant("nop", "removed", 4 * index, later + _word(S_NOP), text(inst))


def _addresses(code: bytes, index: int, inst: Instruction) -> Iterator[Mutant]:
    """Yields the mutant with the encoding's largest offset, in whole dwords."""
    largest = FAR.get((inst.spec.encoding, inst.spec.memory.space if inst.spec.memory else ""))
    if largest is None or "offset0" in inst.mods or "offset1" in inst.mods or "st64" in inst.mnemonic:
        return
    if inst.spec.memory is not None and inst.spec.memory.stride:
        return
    far, width = largest
    word = int.from_bytes(code[4 * index : 4 * index + 4], "little") & ~((1 << width) - 1)
    yield Mutant("address", f"offset:{far}", 4 * index, _word(word | far), text(inst))


def declarations(kernel: KernelInfo) -> Iterator[Mutant]:
    """Yields kernels that declare one granule of registers less, AccVGPRs that begin four earlier, or half of the LDS."""
    descriptor = kernel.descriptor
    granule = VGPR_ENCODING_GRANULE[kernel.target]
    if descriptor.vgprs > granule:
        fewer = descriptor.vgprs - granule
        yield Mutant("registers", f"{fewer}", 0, b"", f"{descriptor.vgprs} VGPRs", (("vgprs", fewer),))
    if descriptor.accum_offset > 4 and descriptor.vgprs > descriptor.accum_offset:
        start = descriptor.accum_offset - 4
        before = f"accum_offset {descriptor.accum_offset}"
        yield Mutant("registers", f"{start}", 0, b"", before, (("accum_offset", start),))
    if kernel.group_segment_size:
        half = kernel.group_segment_size // 2
        before = f"{kernel.group_segment_size} bytes of LDS"
        yield Mutant("LDS", f"{half}", 0, b"", before, (("group_segment_size", half),))
