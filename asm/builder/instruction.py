"""An instruction to be emitted, and what `schedule` must know of it: what it reads and writes.

The syntax of an encoding says which operand is which; `simgpu.hardware.isa` says what the instruction is.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from simgpu.asm.builder.registers import Operand, operand_text
from simgpu.hardware import mfma
from simgpu.hardware.errors import TargetError, ToolchainError
from simgpu.hardware.isa.instruction import EXEC, M0, VCC, Reg
from simgpu.hardware.isa.spec import REGISTRY, Spec
from simgpu.hardware.mfma import MatrixInstruction
from simgpu.hardware.timing_rules.effects import CLASSES_BY_PREFIX, STORE_WORDS_SAFE
from simgpu.hardware.timing_rules.hazards import Register, RegisterUse, matrix_classes, register_use
from simgpu.hardware.timing_rules.waits import DS, SMEM, VM, Queue

SCALAR_STATES = ("scc", "vcc", "exec", "m0")


@dataclass
class Instr:
    """One instruction of the text: operands in LLVM's order, modifiers as `name` or `name:value`.

    where: file:line of the Python that emitted it.
    """

    mnemonic: str
    operands: tuple[Operand, ...]
    modifiers: tuple[str, ...] = ()
    note: str = ""
    where: str = ""
    effect: Effect | None = field(default=None, repr=False)

    def text(self) -> str:
        operands = ", ".join(operand_text(operand) for operand in self.operands)
        return " ".join(part for part in (self.mnemonic, operands, *self.modifiers) if part)

    def registers(self) -> Iterator[Reg]:
        return (operand for operand in self.operands if isinstance(operand, Reg))


@dataclass(frozen=True)
class Effect:
    """How an instruction touches registers and counters.

    access: as the hazard rules see it; pending: registers that a load writes when its counter says
    so; queue: where its operation waits to complete; control: what it does to the flow, by
    `Spec.control`; target: label of a branch.
    """

    access: RegisterUse
    queue: Queue | None = None
    pending: frozenset[Register] = frozenset()
    control: str = ""
    target: str = ""

    @functools.cached_property
    def touched(self) -> frozenset[Register]:
        """Registers read or written: none may be pending."""
        return self.access.read() | self.access.writes

    @functools.cached_property
    def ordered(self) -> bool:
        """Whether a hazard rule may bind a later instruction that shares no register."""
        named = any(isinstance(register, str) for register in self.access.writes)
        return named or not self.access.classes.isdisjoint(("dgemm", "setreg"))


def registers_of(operand: Operand) -> frozenset[Register]:
    """The single registers of an operand, as the hazard rules name them."""
    if isinstance(operand, str):
        return frozenset({operand}) if operand in SCALAR_STATES else frozenset()
    if not isinstance(operand, Reg):
        return frozenset()
    if operand.file == "s":
        special = {VCC: "vcc", VCC + 1: "vcc", EXEC: "exec", EXEC + 1: "exec", M0: "m0"}
        names = (special.get(i, ("s", i)) for i in range(operand.index, operand.index + operand.count))
        return frozenset(names)
    return frozenset((operand.file, i) for i in range(operand.index, operand.index + operand.count))


@functools.cache
def by_mnemonic(target: str) -> Mapping[str, Spec]:
    """The target's instructions by name, without encoding suffix."""
    return {spec.mnemonic: spec for spec in REGISTRY.specs if target in spec.opcodes}


def find_spec(mnemonic: str, target: str) -> Spec | MatrixInstruction:
    """What the mnemonic (with or without an encoding suffix) is; TargetError if the target lacks it."""
    if mnemonic.startswith(("v_mfma", "v_smfmac")):
        return mfma.find(mnemonic, target)
    for suffix in ("", "_e32", "_e64", "_sdwa", "_dpp"):
        if mnemonic.endswith(suffix):
            spec = by_mnemonic(target).get(mnemonic.removesuffix(suffix))
            if spec is not None:
                return spec
    raise TargetError(f"{target} has no instruction {mnemonic}")


def analyse(instr: Instr, target: str) -> Effect:
    """The effect of an instruction, its operands checked against its specification.

    Raises TargetError for a mnemonic that the target lacks and ToolchainError for operands whose
    number or width is wrong, naming the Python line that emitted it.
    """
    spec = find_spec(instr.mnemonic, target)
    if isinstance(spec, MatrixInstruction):
        return _matrix(instr, spec)
    if spec.encoding in ("mubuf", "mtbuf"):
        return _buffer(instr, spec)
    if spec.encoding == "ds":
        return _ds(instr, spec)
    if spec.encoding == "flat":
        return _flat(instr, spec)
    if spec.encoding == "smem":
        return _smem(instr, spec)
    if spec.control:
        return _control(instr, spec)
    return _alu(instr, spec)


def _wrong(instr: Instr, message: str) -> ToolchainError:
    return ToolchainError(f"{instr.where}: {instr.text()}: {message}")


def _width(instr: Instr, operand: Operand, dwords: int) -> None:
    if isinstance(operand, Reg) and operand.count != dwords:
        raise _wrong(instr, f"{operand_text(operand)} has {operand.count} registers, it takes {dwords}")


def _expect(instr: Instr, count: int) -> None:
    if len(instr.operands) != count:
        raise _wrong(instr, f"{len(instr.operands)} operands, it takes {count}")


def _matrix(instr: Instr, row: MatrixInstruction) -> Effect:
    _expect(instr, 4)
    for operand, name in zip(instr.operands, "DABC", strict=True):
        _width(instr, operand, row.registers(name))
    d, a, b, c = (registers_of(operand) for operand in instr.operands)
    reads = {"srcA": a, "srcB": b, "srcC": c}
    return Effect(register_use(instr.mnemonic, matrix_classes(row), reads, d, passes=row.passes))


def _memory_words(spec: Spec) -> int:
    memory = spec.memory
    assert memory is not None
    return max(1, memory.bits // 32) * memory.count


def _buffer(instr: Instr, spec: Spec) -> Effect:
    _expect(instr, 4)
    data, address, resource, offset = instr.operands
    _width(instr, resource, 4)
    memory = spec.memory
    if memory is None:
        return Effect(register_use(instr.mnemonic, {"vmem"}), queue=VM)
    if not memory.format:
        _width(instr, data, _memory_words(spec))
    reads = {
        "address": registers_of(address),
        "soffset": registers_of(resource) | registers_of(offset),
    }
    if memory.op == "load":
        loaded = registers_of(data)
        return Effect(register_use(instr.mnemonic, {"vmem"}, reads, loaded), VM, loaded)
    returned = registers_of(data) if {"glc", "sc0"} & set(instr.modifiers) else frozenset()
    classes = {"vmem", "vmem_store"}
    if _memory_words(spec) > STORE_WORDS_SAFE:
        classes.add("store_gt8_soffset" if isinstance(offset, Reg) else "store_gt8")
    reads["data"] = registers_of(data)
    return Effect(register_use(instr.mnemonic, classes, reads, returned), VM, returned)


def _flat(instr: Instr, spec: Spec) -> Effect:
    memory = spec.memory
    assert memory is not None
    if memory.op == "load":
        data, *rest = instr.operands
        loaded = registers_of(data)
        reads = {"address": frozenset().union(*map(registers_of, rest))}
        return Effect(register_use(instr.mnemonic, {"vmem"}, reads, loaded), VM, loaded)
    if memory.op == "atomic":
        raise _wrong(instr, "flat atomics are not emitted here: use a buffer atomic")
    address, data, *rest = instr.operands
    _width(instr, data, _memory_words(spec))
    classes = {"vmem", "vmem_store"} | ({"store_gt8"} if _memory_words(spec) > STORE_WORDS_SAFE else set())
    reads = {
        "address": registers_of(address).union(*map(registers_of, rest)),
        "data": registers_of(data),
    }
    return Effect(register_use(instr.mnemonic, classes, reads), VM)


def _ds(instr: Instr, spec: Spec) -> Effect:
    memory = spec.memory
    if memory is None or memory.op == "load":
        data, *rest = instr.operands
        if memory is not None:
            _width(instr, data, _memory_words(spec))
        loaded = registers_of(data)
        reads = {"address": frozenset().union(*map(registers_of, rest))}
        return Effect(register_use(instr.mnemonic, {"ds"}, reads, loaded), DS, loaded)
    returned: frozenset[Register] = frozenset()
    operands = instr.operands
    if memory.returns:
        returned, operands = registers_of(operands[0]), operands[1:]
    address, *data_operands = operands
    if memory.op == "store" and len(data_operands) == 1:
        _width(instr, data_operands[0], _memory_words(spec))
    reads = {
        "address": registers_of(address),
        "data": frozenset().union(*map(registers_of, data_operands)),
    }
    return Effect(register_use(instr.mnemonic, {"ds", "ds_write"}, reads, returned), DS, returned)


def _smem(instr: Instr, spec: Spec) -> Effect:
    if spec.memory is None or spec.memory.op != "load":
        return Effect(register_use(instr.mnemonic, {"smem"}), SMEM)
    data, base, *rest = instr.operands
    _width(instr, data, _memory_words(spec))
    loaded = registers_of(data)
    reads = {"address": registers_of(base).union(*map(registers_of, rest))}
    return Effect(register_use(instr.mnemonic, {"smem"}, reads, loaded), SMEM, loaded)


def _control(instr: Instr, spec: Spec) -> Effect:
    states = 1
    if spec.control == "nop" and isinstance(instr.operands[0], int):
        states = instr.operands[0] + 1
    reads = {"src": frozenset(name for name in ("scc", "vcc", "exec") if name in spec.control)}
    target = next((o for o in reversed(instr.operands) if isinstance(o, str)), "")
    branches = "branch" in spec.control
    effect = register_use(instr.mnemonic, {"salu"} if branches else (), reads, states=states)
    return Effect(effect, control=spec.control, target=target if branches else "")


def _classes(instr: Instr, spec: Spec) -> set[str]:
    classes = {"salu" if spec.encoding.startswith("sop") else "valu"}
    classes |= {name for prefix, name in CLASSES_BY_PREFIX.items() if instr.mnemonic.startswith(prefix)}
    if "trans" in spec.flags:
        classes.add("trans")
    if any(modifier.startswith(("quad_perm", "row_", "wave_")) for modifier in instr.modifiers):
        classes.add("dpp")
    return classes


def _alu(instr: Instr, spec: Spec) -> Effect:
    """SALU and VALU: results first, then sources; state that is no operand by its type."""
    results = [t for t in spec.results if t.state in ("", "sgpr")]
    sources = [p for p in spec.params if p.type.state in ("", "sgpr") and p.name not in ("vdst", "sdst")]
    _expect(instr, len(results) + len(sources))
    destinations, operands = instr.operands[: len(results)], instr.operands[len(results) :]
    for operand, type_ in zip(destinations, results, strict=True):
        _width(instr, operand, type_.dwords)
    for operand, param in zip(operands, sources, strict=True):
        _width(instr, operand, param.type.dwords)
    writes = frozenset().union(*map(registers_of, destinations))
    writes |= {t.state for t in spec.results if t.state in SCALAR_STATES}
    if "cmpx" in spec.flags:
        writes |= {"exec"}
    read = frozenset().union(*map(registers_of, operands))
    read |= {p.type.state for p in spec.params if p.type.state in SCALAR_STATES}
    if any(p.name in ("vdst", "sdst") for p in spec.params):
        read |= frozenset().union(*map(registers_of, destinations))
    return Effect(register_use(instr.mnemonic, _classes(instr, spec), {"src": read}, writes))
