"""An instruction to be emitted: its text for the assembler, its spec in the instruction set, and its effect."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from simgpu.asm.builder.registers import Operand, constant, operand_text
from simgpu.hardware import mfma
from simgpu.hardware.errors import TargetError, ToolchainError
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.code.formats import data_dwords, ds_operands, operand_types
from simgpu.hardware.isa.code.vector_formats import WHOLE_WAVE
from simgpu.hardware.isa.instruction import EXEC, M0, VCC, Imm, Instruction, Off, Reg
from simgpu.hardware.isa.instructions.mai import FORMAT_REGISTERS
from simgpu.hardware.isa.kinds import ControlKind, Flag
from simgpu.hardware.isa.spec import REGISTRY, Spec
from simgpu.hardware.timing_rules.effect import Effect
from simgpu.hardware.timing_rules.effects import effect_of

SUFFIXES = ("", "_e32", "_e64", "_sdwa", "_dpp")
NAMED: dict[str, isa.Operand] = {"vcc": Reg("s", VCC, 2), "exec": Reg("s", EXEC, 2), "m0": Reg("s", M0), "off": Off()}
ANY = 0  # register count of an operand that accepts several widths
# dpp_ctrl by name; the count of a row rotation or shift is added.
ROW_CONTROL = {"row_shl": 0x100, "row_shr": 0x110, "row_ror": 0x120}
WAVE_CONTROL = {name: code for code, name in WHOLE_WAVE.items()}


@dataclass
class Instr:
    """An instruction of the text: operands in LLVM's order, modifiers as `name` or `name:value`."""

    mnemonic: str
    operands: tuple[Operand, ...]
    modifiers: tuple[str, ...] = ()
    note: str = ""  # remark at the end of its line
    where: str = ""  # file:line of the Python that emitted it
    effect: Effect | None = field(default=None, repr=False)  # effect on registers and counters

    def text(self) -> str:
        """Returns the line for the assembler."""
        return _text(self.mnemonic, self.modifiers, *self.operands)

    def registers(self) -> Iterator[Reg]:
        """Yields the operands that are registers."""
        return (operand for operand in self.operands if isinstance(operand, Reg))

    @property
    def target(self) -> str:
        """Label that a branch jumps to; empty for every other instruction."""
        label = self.operands[-1] if self.mnemonic.startswith(("s_branch", "s_cbranch")) else ""
        return label if isinstance(label, str) else ""


@functools.cache
def by_mnemonic(target: str) -> Mapping[str, Spec]:
    """Returns the target's instructions by name, without encoding suffix."""
    return {spec.mnemonic: spec for spec in REGISTRY.specs if target in spec.opcodes}


@functools.cache
def find_spec(mnemonic: str, target: str) -> Spec:
    """Returns the spec of a mnemonic, with or without an encoding suffix. TargetError if the target lacks it."""
    specs = by_mnemonic(target)
    if mnemonic.startswith(("v_mfma", "v_smfmac")):
        return specs[mfma.find(mnemonic, target).mnemonic]
    for suffix in SUFFIXES:
        if mnemonic.endswith(suffix) and mnemonic.removesuffix(suffix) in specs:
            return specs[mnemonic.removesuffix(suffix)]
    raise TargetError(f"{target} has no instruction {mnemonic}")


@functools.cache
def fields(spec: Spec) -> tuple[tuple[str, int], ...]:
    """Returns the operands in LLVM's order: name of each field, and the number of its registers."""
    memory = spec.memory
    if spec.kind == "matrix":
        names = ("src0", "src1", "src2", "scale_src0", "scale_src1")
        sources = ((name, p.type.dwords) for name, p in zip(names, spec.params, strict=False))
        return ("vdst", spec.results[0].dwords), *sources
    if spec.encoding == "ds":
        return tuple((name, count) for name, _, count in ds_operands(spec))
    if spec.encoding in ("mubuf", "mtbuf"):
        if memory is None:
            return ()
        data = ("vdata", ANY if memory.format else data_dwords(spec, memory))
        return data, ("vaddr", ANY), ("srsrc", 4), ("soffset", 1)
    if spec.encoding == "flat":
        assert memory is not None
        address, base = ("vaddr", ANY), (("saddr", ANY),) if memory.space != "flat" else ()
        if memory.op == "load":
            return ("vdst", data_dwords(spec, memory)), address, *base
        return address, ("vdata", data_dwords(spec, memory)), *base
    if spec.encoding == "smem":
        if memory is None:
            return tuple(("sdst", result.dwords) for result in spec.results)
        return ("sdst", data_dwords(spec, memory)), ("sbase", 4 if memory.space == "buffer" else 2), ("soffset", 1)
    shape = operand_types(spec)
    results = [("sdst" if shape.result.state or spec.encoding[0] == "s" else "vdst", shape.result.dwords)] if shape.result else []
    if shape.mask:
        results.append(("sdst", 2))
    immediates = [("simm16", ANY) for p in spec.params if p.name == "simm16"]
    return *results, *((f"src{i}", type_.dwords) for i, type_ in enumerate(shape.sources)), *immediates


def set_instruction(instr: Instr, target: str) -> Instruction:
    """Returns the instruction as the decoder would read it from its bytes.

    Three things that the assembler chooses are missing: its size, a label's position, and e32 or e64. TargetError if the target
    lacks the mnemonic. ToolchainError for a wrong number or width of operands; the message names the Python line that emitted
    the instruction.
    """
    spec = find_spec(instr.mnemonic, target)
    if spec.encoding == "flat" and spec.memory is not None and spec.memory.op == "atomic":
        raise _wrong(instr, "flat atomics are not emitted here: use a buffer atomic")
    mods = _modifiers(instr) if instr.modifiers else {}
    wanted = fields(spec)
    if Flag.F8F6F4 in spec.flags:
        vdst, *sources, c = wanted[:4]
        formats = [FORMAT_REGISTERS.get(mods.get(code, 0), 8) for code in ("cbsz", "blgp")]
        wanted = (vdst, *((name, count) for (name, _), count in zip(sources, formats, strict=True)), c, *wanted[4:])
    operands = instr.operands or ((0,) if spec.control is ControlKind.ENDPGM else ())  # LLVM's syntax omits this operand
    if len(operands) != len(wanted):
        raise _wrong(instr, f"{len(operands)} operands, it takes {len(wanted)}")
    args: dict[str, isa.Operand] = {}
    for operand, (name, count) in zip(operands, wanted, strict=True):
        if isinstance(operand, Reg):
            if count != ANY and operand.count != count:
                raise _wrong(instr, f"{operand_text(operand)} has {operand.count} registers, it takes {count}")
            args[name] = operand
        elif name == "simm16" or (name == "soffset" and spec.encoding == "smem"):
            args[name] = Imm(operand if isinstance(operand, int) else 0)
        elif isinstance(operand, str):
            args[name] = NAMED[operand]
        else:
            args[name] = constant(operand)
    form = "dpp" if "dpp_ctrl" in mods else "sdwa" if instr.mnemonic.endswith("_sdwa") else "e32"
    return Instruction(spec, target, form, args, mods)


def _wrong(instr: Instr, message: str) -> ToolchainError:
    return ToolchainError(f"{instr.where}: {instr.text()}: {message}")


def _modifiers(instr: Instr) -> dict[str, Any]:
    """Returns the modifiers as the decoder represents them. A value that is not a number stays text."""
    mods: dict[str, Any] = {}
    for word in instr.modifiers:
        name, _, value = word.partition(":")
        if name == "quad_perm":
            mods["dpp_ctrl"] = sum(int(lane) << 2 * i for i, lane in enumerate(value.strip("[]").split(",")))
        elif name in ROW_CONTROL:
            mods["dpp_ctrl"] = ROW_CONTROL[name] + int(value)
        elif word in WAVE_CONTROL:
            mods["dpp_ctrl"] = WAVE_CONTROL[word]
        else:
            mods[name] = True if not value else int(value, 0) if value[0].isdigit() or value[0] == "-" else value
    return mods


def analyse(instr: Instr, target: str) -> Effect:
    """Returns an instruction's effect on registers and counters. Raises as `set_instruction`."""
    try:
        return _effect(target, instr.mnemonic, instr.modifiers, *instr.operands)
    except ToolchainError:
        set_instruction(instr, target)  # raises with the line that emitted it
        raise


# Kernels repeat most of their instructions, in unrolled steps and from kernel to kernel. `typed`: 1 is no 1.0.
@functools.lru_cache(1 << 14, typed=True)
def _text(mnemonic: str, modifiers: tuple[str, ...], *operands: Operand) -> str:
    words = ", ".join([operand_text(operand) for operand in operands])
    return " ".join([part for part in (mnemonic, words, *modifiers) if part])


@functools.lru_cache(1 << 14, typed=True)
def _effect(target: str, mnemonic: str, modifiers: tuple[str, ...], *operands: Operand) -> Effect:
    return effect_of(set_instruction(Instr(mnemonic, operands, modifiers), target))
