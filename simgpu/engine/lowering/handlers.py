"""Keys, plans, emits and compiles handlers of instructions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from llvmlite import ir

from simgpu.alu import register_indexing, salu, valu
from simgpu.hardware.isa import decode
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.spec import Spec
from simgpu.machine import layout
from simgpu.machine.compiling.batch import Batch
from simgpu.machine.frame import Frame, Hooks
from simgpu.machine.jit import Compiler
from simgpu.machine.layout import Status
from simgpu.machine.mode import Mode, computes_floats
from simgpu.machine.operands import Plan
from simgpu.machine.values import I32, I64
from simgpu.matrix import element_registers, fma_tile, instruction
from simgpu.memory import lds, lds_atomics, smem, vmem

Emitter = Callable[[Frame], None]


def handler_of(inst: Instruction, mode: Mode, compiler: Compiler, checks: Sequence[Hooks] = ()) -> tuple[int, list[int]]:
    """Returns the address of the handler of an instruction that falls through, and its record's slots."""
    handler, slots = falling_through(inst, mode, checks)
    return handler.address(compiler), slots


def falling_through(
    inst: Instruction, mode: Mode, checks: Sequence[Hooks], turns: bool = False, releases: bool = False
) -> tuple[Handler, list[int]]:
    """Returns the uncompiled handler of an instruction that falls through, and its record's slots."""
    plan = Plan(inst)
    emitter = emitter_of(inst, plan, mode)
    plan.indexed = mode.indexed
    return Handler(inst, plan, emitter, checks, turns, releases), plan.slots


@functools.lru_cache(1 << 14)
def falling_through_of(
    code: bytes, target: str, mode: Mode, checks: tuple[Hooks, ...], turns: bool, releases: bool
) -> tuple[Handler, list[int]]:
    """Returns `falling_through` of an instruction's bytes. Kernels repeat most of their instructions, in unrolled steps and from
    kernel to kernel."""
    return falling_through(decode(code, 0, target), mode, checks, turns, releases)


@functools.cache
def skipping(spec: Spec, target: str, size: int) -> Handler:
    """Returns the handler that does nothing instead of an instruction. size: the instruction's, in bytes."""
    inst = Instruction(spec, target, "", {}, size=size)
    plan = Plan(inst)
    plan.note("skipped")
    return Handler(inst, plan, lambda frame: None)


def compile_handler(
    inst: Instruction, plan: Plan, emitter: Emitter, compiler: Compiler | Batch, checks: Sequence[Hooks] = (),
    releases: bool = False,
) -> int:  # fmt: skip
    """Returns the address of a handler, or a batch's placeholder for it. Compiles the handler if it is new.

    checks, releases: as for `Handler`
    """
    return Handler(inst, plan, emitter, checks, releases=releases).address(compiler)


class Handler:
    """An instruction's handler before it is compiled.

    checks: checks that concern the instruction emit code around its body. turns: True if the workgroup's other waves may run
    after it. releases: True if registers that hold elements of a ring become floats before it.
    """

    def __init__(
        self, inst: Instruction, plan: Plan, emitter: Emitter, checks: Sequence[Hooks] = (), turns: bool = False,
        releases: bool = False,
    ) -> None:  # fmt: skip
        self.inst, self.emitter, self.turns, self.releases = inst, emitter, turns, releases
        for name in ("turns",) * turns + ("releases",) * releases:
            plan.note(name)
        active = [check for check in checks if check.concerns(inst)]
        self.planned = [(check, check.plan(inst, plan)) for check in active]
        kinds = [check.kind.__name__ for check in active]
        self.operands = plan.operands
        self.key = "|".join((*kinds, inst.target, inst.mnemonic, str(inst.size // 4), *plan.parts))

    @property
    def leans(self) -> bool:
        """True if it has a lean version: the instruction's, or that of its first check. It returns before any effect."""
        if vmem.leans(self.inst):
            return True
        return bool(self.planned) and self.planned[0][0].leans(self.inst, self.planned[0][1])

    def address(self, compiler: Compiler | Batch, lean: bool = False) -> int:
        """Returns its address, or a batch's placeholder for it.

        lean: True for a short version for the usual case, which returns Status.WHOLE in all other cases
        """
        if lean:
            return compiler.address(f"{self.key}|lean", functools.partial(self._build, lean=True))
        return compiler.address(self.key, self._build)

    def _build(self, module: ir.Module, name: str, lean: bool = False) -> None:
        module.name = self.inst.mnemonic  # instructions do not share a handler: `simgpu.profile` counts them by its address
        dwords = self.inst.size // 4
        frame = Frame(module, name, [check for check, _ in self.planned], self.inst, self.emitter)
        frame.lean = lean
        frame.planned = {check.kind: data for check, data in self.planned}
        if self.releases:
            element_registers.release(frame)
        if lean and vmem.leans(self.inst):
            vmem.begin_lean(frame, self.inst, self.operands)
        for check, data in self.planned:
            check.before(frame, self.inst, data)
        self.emitter(frame)
        if not frame.build.block.is_terminated:
            for check, data in self.planned:
                check.after(frame, self.inst, data)
            if self.turns:
                frame.let_others_on(dwords)
            frame.next(dwords)


def mnemonic_of(key: str) -> str | None:
    """Returns the mnemonic in a key of `compile_handler`, None for other functions' keys."""
    parts = key.split("|")
    target = next((at for at, part in enumerate(parts) if part.startswith("gfx")), -1)
    return parts[target + 1] if target >= 0 else None


def emitter_of(inst: Instruction, plan: Plan, mode: Mode) -> Emitter:
    """Plans the operands of an instruction, and returns the emitter of its body."""
    emitter = _emitter_of(inst, plan, mode)
    if not mode.ring or not computes_floats(inst.spec):
        return emitter
    plan.note("ring")

    def emit_ring(frame: Frame) -> None:
        frame.ring = True
        emitter(frame)

    return emit_ring


def _emitter_of(inst: Instruction, plan: Plan, mode: Mode) -> Emitter:
    kind, encoding = inst.spec.kind, inst.spec.encoding
    if kind == "matrix":
        tiles = plan.operands = instruction.plan(inst, plan)
        return lambda frame: instruction.emit(frame, inst, tiles)
    if encoding == "smem":
        scalars = plan.operands = smem.plan(inst, plan)
        return lambda frame: smem.emit(frame, inst, scalars)
    if kind == "memory" and encoding == "ds":
        shared = plan.operands = lds.plan(inst, plan)
        if inst.spec.memory and inst.spec.memory.op == "atomic":
            return lambda frame: lds_atomics.emit(frame, inst, shared)
        return lambda frame: lds.emit(frame, inst, shared)
    if kind == "memory":
        places = plan.operands = vmem.plan(inst, plan)
        return lambda frame: vmem.emit(frame, inst, places)
    if encoding.startswith("sop"):
        operands, results = plan.operands = salu.plan(inst, plan)
        return lambda frame: salu.emit(frame, inst, operands, results)
    vector = plan.operands = valu.plan(inst, plan, mode)
    return lambda frame: _vector(frame, inst, vector, mode)


def _vector(frame: Frame, inst: Instruction, places: valu.SourcePlaces, mode: Mode) -> None:
    record = frame.record
    if mode.indexed:
        register_indexing.relocate(frame, places.roles())
    valu.emit(frame, inst, places, mode)
    frame.record = record


def leave(status: int) -> Callable[[ir.Module, str], None]:
    """Returns the builder of a handler that returns a status; the wave resumes at the same instruction."""

    def build(module: ir.Module, name: str) -> None:
        frame = Frame(module, name)
        index = frame.slot(layout.SLOT_INDEX)
        frame.exit(status, index)
        frame.build.ret_void()

    return build


def idle(module: ir.Module, name: str) -> None:
    """Builds the handler of an instruction whose work is done by another one of its tile."""
    fma_tile.pass_over(Frame(module, name))


def fence(module: ir.Module, name: str) -> None:
    """Builds a function `void ()` that is a release fence."""
    build = ir.IRBuilder(ir.Function(module, ir.FunctionType(ir.VoidType(), []), name).append_basic_block())
    build.fence("release")
    build.ret_void()


# Builders of functions that a program needs for any code, by their keys.
FIXED: Mapping[str, Callable[[ir.Module, str], None]] = {
    "lower": leave(Status.LOWER), "unsupported": leave(Status.UNSUPPORTED), "idle": idle, "fence": fence,
}  # fmt: skip


def fault(kind: int) -> Callable[[ir.Module, str], None]:
    def build(module: ir.Module, name: str) -> None:
        frame = Frame(module, name)
        frame.fault(kind, ir.Constant(I64, 0), ir.Constant(I32, -1))

    return build
