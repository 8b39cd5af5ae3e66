"""Memory instructions that clang makes of each thread of a litmus test."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.isa import decode_all, text
from simgpu.hardware.isa.instruction import Imm, Instruction, Reg
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.memory_model import BITS, Kind, Scope, cache_operation, scope_of
from simgpu.hardware.timing_rules.waits import VM, awaited_counters, queue_of
from simgpu.tools.litmus.form import LitmusStep, LitmusTest
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.hiprtc import compiler, link

MACHINE = ("-x", "ir", "-target", "amdgcn-amd-amdhsa", "-nogpulib", "-O2", "-mcode-object-version=5", "-Wno-override-module")
RESULTS = "results"  # name of the argument after the locations


class MachineStep(NamedTuple):
    """A memory instruction, a wait or a cache operation of a thread."""

    kind: str  # load, store, atomic, wait, or the kind of a CacheOperation
    text: str
    location: str = ""
    value: int = 0
    register: str = ""  # the test's register
    scope: Scope = Scope.WAVEFRONT
    left: int = 0  # of a wait: operations that may be outstanding
    counted: bool = False  # True if vmcnt counts it
    bits: tuple[str, ...] = ()
    asked: Scope | None = None  # the scope of the source's atomic; None: it is plain


def intermediate(test: LitmusTest) -> str:
    """Returns the test as LLVM IR: a kernel for each thread. Addresses depend on the lane, so that loads are not scalar."""
    arguments = ", ".join(f"ptr addrspace(1) %{name}" for name in (*test.locations, RESULTS))
    made = []
    for number, thread in enumerate(test.threads):
        lines = ["%lane = call i32 @llvm.amdgcn.workitem.id.x()"]
        lines += [f"%at.{name} = getelementptr i32, ptr addrspace(1) %{name}, i32 %lane" for name in (*test.locations, RESULTS)]
        lines += [statement(step) for step in thread]
        loads = [step.register for step in thread if step.register]
        for place, register in enumerate(loads):
            lines.append(f"%to.{register} = getelementptr i32, ptr addrspace(1) %at.{RESULTS}, i32 {64 * place}")
            lines.append(f"store i32 %{register}, ptr addrspace(1) %to.{register}")
        made.append(f"define amdgpu_kernel void @thread{number}({arguments}) {{\n  " + "\n  ".join([*lines, "ret void"]) + "\n}\n")
    return "".join(made) + "declare i32 @llvm.amdgcn.workitem.id.x()\n"


def statement(step: LitmusStep) -> str:
    """Returns a step as LLVM IR."""
    scope = "" if step.scope == Scope.SYSTEM else f' syncscope("{step.scope.words}")'
    place, atomic, order = f"ptr addrspace(1) %at.{step.location}", "", ""
    if step.order is not None:
        atomic, order = "atomic ", f"{scope} {step.order}"
    if step.kind == "fence":
        return f"fence{scope} {step.order}"
    if step.kind == "load":
        return f"%{step.register} = load {atomic}i32, {place}{order}, align 4"
    if step.kind == "store":
        return f"store {atomic}i32 {step.value}, {place}{order}, align 4"
    return f"%{step.register} = atomicrmw add {place}, i32 {step.value}{order}"


def code_object(name: str, source: str, target: str) -> bytes:
    """Compiles LLVM IR. Raises ToolchainError without a compiler, UsageError with its message. name: of the test, for messages."""
    tool = compiler()
    with tempfile.TemporaryDirectory(prefix="simgpu-litmus-") as scratch:
        Path(scratch, "test.ll").write_text(source)
        made = [*tool.clang, *MACHINE, f"-mcpu={target}", "-c", "test.ll", "-o", "test.o"]
        data, said = link((made, [*tool.lld, "-shared", "test.o", "-o", "test.co"]), Path(scratch, "test.co"))
    if data is None:
        raise UsageError(f"{name}: {said}")
    return data


def compile_test(test: LitmusTest, target: str) -> list[list[MachineStep]]:
    """Compiles each thread into its steps. Raises ToolchainError without a compiler, UsageError for unexpected code."""
    code = CodeObject.parse(code_object(test.name, intermediate(test), target), target)
    return [_steps(test, thread, code, f"thread{number}", target) for number, thread in enumerate(test.threads)]


def _steps(test: LitmusTest, thread: tuple[LitmusStep, ...], code: CodeObject, name: str, target: str) -> list[MachineStep]:
    info = code.kernels[name]
    instructions = decode_all(code.read(info.start, info.code_size), target)
    pointers: dict[int, str] = {}
    left = {location: [step for step in thread if step.location == location] for location in test.locations}
    steps = []
    for inst in instructions:
        if inst.spec.control is ControlKind.ENDPGM:
            break
        if inst.spec.encoding == "smem" and inst.spec.memory is not None:
            _note_pointers(inst, pointers, (*test.locations, RESULTS))
        else:
            step = _machine_step(inst, target, pointers, left)
            if step is not None:
                steps.append(step)
    if any(left.values()):
        raise UsageError(f"{test.name}, {name}: the compiler left out {next(str(one) for rest in left.values() for one in rest)}")
    return steps


def _note_pointers(inst: Instruction, pointers: dict[int, str], names: tuple[str, ...]) -> None:
    """Notes the registers that hold the locations' addresses, when kernel arguments are loaded."""
    target, offset = inst.args["sdst"], inst.args["soffset"]
    assert isinstance(target, Reg) and isinstance(offset, Imm)
    for word in range(0, target.count, 2):
        place = (offset.value + 4 * word) // 8
        if place < len(names):
            pointers[target.index + word] = names[place]


def _machine_step(
    inst: Instruction, target: str, pointers: dict[int, str], left: dict[str, list[LitmusStep]]
) -> MachineStep | None:
    bits = tuple(bit for bit in BITS if inst.mods.get(bit))
    immediate = inst.args.get("simm16")
    if inst.spec.control is ControlKind.WAITCNT and isinstance(immediate, Imm):
        counts = awaited_counters(immediate.value)
        return MachineStep("wait", text(inst), left=counts["vmcnt"]) if "vmcnt" in counts else None
    if inst.spec.control is ControlKind.CACHE:
        row = cache_operation(target, inst.mnemonic, bits)
        counted = queue_of(inst.spec) is VM
        return MachineStep(row.kind, text(inst), scope=row.scope, counted=counted, bits=bits) if row else None
    if inst.spec.memory is None:
        return None
    base = inst.args.get("saddr")
    location = pointers.get(base.index) if isinstance(base, Reg) else None
    if location is None:
        raise UsageError(f"the address of `{text(inst)}` is not understood")
    kind: Kind = inst.spec.memory.op
    scope = scope_of(target, kind, bits)
    if location == RESULTS:
        return MachineStep(kind, text(inst), RESULTS, scope=scope, counted=True, bits=bits)
    source = left[location].pop(0)
    asked = source.scope if source.order else None
    return MachineStep(kind, text(inst), location, source.value, source.register, scope, counted=True, bits=bits, asked=asked)


