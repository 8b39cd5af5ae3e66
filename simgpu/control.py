"""Instructions that move the wave: branches, calls, barriers, and those that only take time."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from hardware.errors import UnsupportedInstruction
from hardware.isa import instruction as isa
from hardware.isa.instruction import Imm, Instruction, Reg
from simgpu import layout
from simgpu.frame import Frame
from simgpu.lane_llvm import I32, I64
from simgpu.layout import Fault, Status
from simgpu.operands import Plan

# What a functional model may skip: waits, priorities, caches, messages and hints.
NO_EFFECT = frozenset(
    "nop waitcnt sethalt setprio icache_inv incperflevel decperflevel ttracedata sendmsg "
    "dcache wakeup clause set_gpr_idx_off setkill endpgm_saved sched_barrier".split()
)


def branch_condition(frame: Frame, control: str) -> Any | None:
    """The i1 of a conditional branch, None where it is always taken."""
    build = frame.build
    zero64 = ir.Constant(I64, 0)
    name = control.removeprefix("cbranch_")
    if name in ("scc0", "scc1"):
        scc = frame.state(layout.SCC)
        return build.icmp_unsigned("!=" if name == "scc1" else "==", scc, ir.Constant(I32, 0))
    if name in ("vccz", "vccnz", "execz", "execnz"):
        register = isa.VCC if name.startswith("vcc") else isa.EXEC
        bits = frame.state(frame.scalar(register), I64)
        return build.icmp_unsigned("!=" if name.endswith("nz") else "==", bits, zero64)
    return None


class Control:
    """Plans and emits one control instruction.

    size: its dwords. Targets of direct branches are record indices, put into a slot; code
    addresses become indices by the context's code base.
    """

    def __init__(self, inst: Instruction, plan: Plan) -> None:
        self.inst = inst
        self.control = inst.spec.control
        self.size = inst.size // 4
        self.target = 0
        self.places: dict[str, Any] = {}
        if self.control == "branch" or self.control.startswith("cbranch_"):
            if "cdbg" in self.control:
                return
            self.target = plan.word(self.jump_target())
        elif self.control == "call":
            self.target = plan.word(self.jump_target())
            self._register(plan, "sdst")
        elif self.control in ("setpc", "swappc", "rfe"):
            self.places["src0"] = plan.register(self._reg("src0"), 64)
            if self.control == "swappc":
                self._register(plan, "sdst")
        elif self.control == "getpc":
            self._register(plan, "sdst")

    def _reg(self, name: str) -> Reg:
        register = self.inst.args[name]
        if not isinstance(register, Reg):
            raise UnsupportedInstruction(f"{self.inst.mnemonic} with a constant address")
        return register

    def _register(self, plan: Plan, name: str) -> None:
        self.places[name] = plan.register(self._reg(name), 64)

    def jump_target(self) -> int:
        """Record index of the target: the next instruction's plus simm16 dwords."""
        simm = self.inst.args["simm16"]
        assert isinstance(simm, Imm)
        distance = simm.value & 0xFFFF
        if distance & 0x8000:
            distance -= 0x10000
        return self.inst.offset // 4 + self.size + distance

    def successors(self) -> list[int]:
        """Record indices that may follow, where they are known."""
        following = self.inst.offset // 4 + self.size
        if self.control in ("endpgm", "endpgm_saved", "setpc", "swappc", "rfe", "trap"):
            return [following] if self.control == "swappc" else []
        if self.control == "branch":
            return [self.jump_target()]
        if self.control == "call" or (self.target and self.control.startswith("cbranch_")):
            return [following, self.jump_target()]
        return [following]

    def emit(self, frame: Frame) -> None:
        build = frame.build
        index = frame.slot(layout.SLOT_INDEX)
        if self.control in NO_EFFECT or "cdbg" in self.control:
            frame.next(self.size)
        elif self.control == "endpgm":
            frame.stop(Status.ENDED, index)
        elif self.control == "barrier":
            self._resumable(frame, index, Status.BARRIER)
        elif self.control in ("sleep",):
            self._resumable(frame, index, Status.YIELD)
        elif self.control == "trap":
            frame.fault(Fault.TRAP, ir.Constant(I64, 0), ir.Constant(I32, 0))
        elif self.control == "branch":
            self._jump(frame, frame.slot(self.target), index)
        elif self.control.startswith("cbranch_"):
            condition = branch_condition(frame, self.control)
            if condition is None:
                raise UnsupportedInstruction(f"{self.inst.mnemonic} is not modelled")
            with build.if_then(condition):
                self._jump(frame, frame.slot(self.target), index)
            frame.next(self.size)
        elif self.control == "getpc":
            self._link(frame)
            frame.next(self.size)
        elif self.control == "call":
            self._link(frame)
            self._jump(frame, frame.slot(self.target), index)
        elif self.control in ("setpc", "swappc"):
            self._indirect(frame, index)
        else:
            raise UnsupportedInstruction(f"{self.inst.mnemonic} is not modelled")

    def _resumable(self, frame: Frame, index: Any, status: int) -> None:
        following = frame.build.add(index, ir.Constant(I32, self.size))
        frame.leave_run(index)
        frame.enter_run(following)
        frame.exit(status, following)
        frame.build.ret_void()

    def _jump(self, frame: Frame, target: Any, index: Any) -> None:
        frame.transfer(target, index)

    def _address(self, frame: Frame, index: Any) -> Any:
        scaled = frame.build.mul(frame.build.zext(index, I64), ir.Constant(I64, 4))
        return frame.build.add(frame.context(layout.CTX_CODE_BASE), scaled)

    def _link(self, frame: Frame) -> None:
        """The address of the next instruction into sdst."""
        index = frame.slot(layout.SLOT_INDEX)
        following = frame.build.add(index, ir.Constant(I32, self.size))
        frame.store(self._address(frame, following), frame.operand(self.places["sdst"].slot))

    def _indirect(self, frame: Frame, index: Any) -> None:
        build = frame.build
        address = frame.load(frame.operand(self.places["src0"].slot), I64)
        distance = build.sub(address, frame.context(layout.CTX_CODE_BASE))
        target = build.lshr(distance, ir.Constant(I64, 2))
        outside = build.icmp_unsigned(">=", target, frame.context(layout.CTX_RECORD_COUNT))
        crooked = build.icmp_unsigned("!=", build.and_(distance, ir.Constant(I64, 3)), ir.Constant(I64, 0))
        with build.if_then(build.or_(outside, crooked), likely=False):
            frame.fault(Fault.JUMP, address, ir.Constant(I32, 0))
        if self.control == "swappc":
            self._link(frame)
        frame.transfer(build.trunc(target, I32), index)
