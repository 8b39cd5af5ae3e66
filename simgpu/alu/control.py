"""Instructions that move the wave: branches, calls, barriers, and those that only take time."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from simgpu.alu import hwreg, register_indexing
from simgpu.hardware.errors import UnsupportedInstruction
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.instruction import Imm, Instruction, Literal, Reg
from simgpu.hardware.isa.types import u32
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.lane_ops import I32, I64
from simgpu.machine.layout import Fault, Status
from simgpu.machine.operands import Plan, load_scalar
from simgpu.memory import lds_atomics

# What a functional model may skip: waits, priorities, caches, messages and hints.
NO_EFFECT = frozenset(
    "nop waitcnt sethalt setprio icache_inv incperflevel decperflevel ttracedata "
    "sendmsghalt dcache cache wakeup setkill".split()
)
RESUMED = ("barrier", "sleep")  # the wave goes on behind them, later
ENDS = ("endpgm", "endpgm_saved")
INDIRECT = ("setpc", "swappc")  # jumps whose target is data
# Not in a compute kernel: the branch stack, vector skipping, the trap handler's return, GDS.
UNSUPPORTED = frozenset(
    "cbranch_i_fork cbranch_g_fork cbranch_join setvskip rfe gws gds endpgm_ordered_ps_done unsupported".split()
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
        if self.control in UNSUPPORTED:
            raise UnsupportedInstruction(f"{inst.mnemonic}: not executable in a compute kernel")
        if self.control.startswith("set_gpr_idx") or self.control in ("getreg", "setreg"):
            self._sources(plan)
        elif self.control in ("movrels", "movreld"):
            bits = inst.spec.results[0].bits
            self.places["sdst"] = plan.register(self._reg("sdst"), bits)
            source = inst.args["src0"]
            if self.control == "movrels" and not isinstance(source, Reg):
                raise UnsupportedInstruction(f"{inst.mnemonic} of a constant")
            self.places["src0"] = plan.source(source, inst.spec.params[0].type)
        elif self.control in ("append", "consume"):
            self._counter(plan)
        elif self.control == "branch" or self.control.startswith("cbranch_"):
            if "cdbg" in self.control:
                return
            self.target = plan.word(self.jump_target())
        elif self.control == "call":
            self.target = plan.word(self.jump_target())
            self._register(plan, "sdst")
        elif self.control in ("setpc", "swappc"):
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

    def _sources(self, plan: Plan) -> None:
        """Operands of s_getreg, s_setreg and s_set_gpr_idx_*."""
        if self.control in ("getreg", "setreg"):
            plan.note(self._immediate("simm16"))
        for name, operand in self.inst.args.items():
            if name == "sdst" and isinstance(operand, Reg):
                self.places[name] = plan.register(operand, 32)
            elif name == "src0":
                self.places[name] = plan.source(operand, u32)
            elif isinstance(operand, Imm):
                self.places[name] = plan.immediate(operand.value)

    def _immediate(self, name: str) -> int:
        operand = self.inst.args[name]
        assert isinstance(operand, (Imm, Literal))
        return operand.value

    def _counter(self, plan: Plan) -> None:
        if self.inst.mods.get("gds"):
            raise UnsupportedInstruction(f"{self.inst.mnemonic} gds: global data share is not modelled")
        register = self.inst.args["vdst"]
        assert isinstance(register, Reg)
        self.places["vdst"] = plan.register(register, 32)
        self.places["offset"] = plan.immediate(int(self.inst.mods.get("offset", 0)))

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
        if self.control in (*ENDS, "setpc", "swappc", "trap"):
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
            if self.control == "waitcnt":
                # Waves on other host threads see what came before it first. No code on x86, where they always do.
                build.fence("acq_rel")
            frame.next(self.size)
        elif self.control in ENDS:
            for check in frame.hooks:
                check.end(frame, index)
            frame.stop(Status.ENDED, index)
        elif self.control == "barrier":
            self._resumable(frame, index, Status.BARRIER)
        elif self.control == "sleep":
            self._resumable(frame, index, Status.YIELD)
        elif self.control == "sendmsg":
            self._resumable(frame, index, Status.MESSAGE)
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
        elif self.control in ("append", "consume"):
            lds_atomics.count(frame, self.places, self.control)
            frame.next(self.size)
        else:
            self._machine_state(frame)

    def _machine_state(self, frame: Frame) -> None:
        """Hardware registers, and registers chosen by M0."""
        places = self.places
        if self.control == "getreg":
            frame.store(hwreg.read(frame, self._immediate("simm16")), frame.operand(places["sdst"].slot))
            frame.next(self.size)
        elif self.control == "setreg":
            source = places["sdst"] if "sdst" in places else places["src0"]
            hwreg.write(frame, self._immediate("simm16"), load_scalar(frame, source), self.size)
        elif self.control == "movrels":
            kind = I64 if places["src0"].bits == 64 else I32
            value = frame.load(register_indexing.moved_scalar(frame, places["src0"]), kind)
            frame.store(value, frame.operand(places["sdst"].slot))
        elif self.control == "movreld":
            value = load_scalar(frame, places["src0"])
            frame.store(value, register_indexing.moved_scalar(frame, places["sdst"]))
        elif self.control == "set_gpr_idx_on":
            register_indexing.set_index(frame, load_scalar(frame, places["src0"]))
            register_indexing.set_operands(frame, frame.slot(places["src1"].slot))
            register_indexing.switch(frame, True, self.size)
        elif self.control == "set_gpr_idx_off":
            register_indexing.switch(frame, False, self.size)
        elif self.control == "set_gpr_idx_mode":
            register_indexing.set_operands(frame, frame.slot(places["simm16"].slot))
        elif self.control == "set_gpr_idx_idx":
            register_indexing.set_index(frame, load_scalar(frame, places["src0"]))
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
        frame.transfer(build.trunc(target, I32), index, computed=True)
