"""Emits control instructions: branches, calls, barriers, waits, hardware registers, and those without an effect here."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from simgpu.alu import hwreg, register_indexing
from simgpu.hardware.errors import UnsupportedInstruction
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.code.flow import INDIRECT, branch_target
from simgpu.hardware.isa.instruction import Imm, Instruction, Literal, Reg
from simgpu.hardware.isa.kinds import DEBUGGER_BRANCHES, GPR_INDEXING, STATE_BRANCHES
from simgpu.hardware.isa.kinds import ControlKind as Kind
from simgpu.hardware.isa.types import u32
from simgpu.machine import layout, mode
from simgpu.machine.frame import Frame
from simgpu.machine.layout import Fault, Status
from simgpu.machine.operands import Plan
from simgpu.machine.sources import load_scalar
from simgpu.machine.values import I32, I64, IrValue
from simgpu.memory import lds_atomics

# Instructions without an effect in a functional model: waits, priorities, caches and hints.
NO_EFFECT = frozenset((
    Kind.NOP, Kind.WAITCNT, Kind.SETHALT, Kind.SETPRIO, Kind.ICACHE_INV, Kind.INCPERFLEVEL, Kind.DECPERFLEVEL, Kind.TTRACEDATA,
    Kind.SENDMSGHALT, Kind.DCACHE, Kind.CACHE, Kind.WAKEUP, Kind.SETKILL,
))  # fmt: skip
RESUMED = (Kind.BARRIER, Kind.SLEEP)  # the wave continues after them, later
ENDS = (Kind.ENDPGM, Kind.ENDPGM_SAVED)
# Not executable in a compute kernel: the branch stack, the trap handler's return, GDS.
UNSUPPORTED = frozenset((
    Kind.CBRANCH_I_FORK, Kind.CBRANCH_G_FORK, Kind.CBRANCH_JOIN, Kind.RFE, Kind.GDS,
    Kind.ENDPGM_ORDERED_PS_DONE, Kind.UNSUPPORTED,
))  # fmt: skip
COUNTERS = (Kind.APPEND, Kind.CONSUME)


def branch_condition(frame: Frame, control: Kind) -> IrValue:
    """Returns the i1 of a branch on machine state: True if it is taken."""
    state, where_set = STATE_BRANCHES[control]
    if state == "scc":
        bits = frame.state(layout.SCC)
    else:
        bits = frame.state(frame.scalar(isa.VCC if state == "vcc" else isa.EXEC), I64)
    return bits != 0 if where_set else bits == 0


class Control:
    """Plans and emits one control instruction.

    size: dwords of the instruction. turns: True if the workgroup's other waves may run after it (s_waitcnt). A slot holds the
    record index of a direct branch's target. A code address becomes a record index by the context's code base.
    """

    def __init__(self, inst: Instruction, plan: Plan, turns: bool = False) -> None:
        self.inst = inst
        self.control = inst.spec.control
        self.size = inst.size // 4
        self.target = 0
        self.outside = False  # True if a direct branch leads out of the code
        self.turns = turns
        self.places: dict[str, Any] = {}
        if self.control in UNSUPPORTED:
            raise UnsupportedInstruction(f"{inst.mnemonic}: not executable in a compute kernel")
        if self.control in GPR_INDEXING or self.control in (Kind.GETREG, Kind.SETREG):
            self._sources(plan)
        elif self.control is Kind.SETVSKIP:
            self.places |= {name: plan.source(inst.args[name], u32) for name in ("src0", "src1")}
        elif self.control in (Kind.MOVRELS, Kind.MOVRELD):
            bits = inst.spec.results[0].bits
            self.places["sdst"] = plan.register(self._reg("sdst"), bits)
            source = inst.args["src0"]
            if self.control is Kind.MOVRELS and not isinstance(source, Reg):
                raise UnsupportedInstruction(f"{inst.mnemonic} of a constant")
            self.places["src0"] = plan.source(source, inst.spec.params[0].type)
        elif self.control in COUNTERS:
            self._counter(plan)
        elif self.control is Kind.BRANCH or self.control in STATE_BRANCHES:
            self.target = plan.word(self.jump_target())
        elif self.control is Kind.CALL:
            self.target = plan.word(self.jump_target())
            self._register(plan, "sdst")
        elif self.control in INDIRECT:
            self.places["src0"] = plan.register(self._reg("src0"), 64)
            if self.control is Kind.SWAPPC:
                self._register(plan, "sdst")
        elif self.control is Kind.GETPC:
            self._register(plan, "sdst")
        elif turns:
            plan.note("turns")

    def _reg(self, name: str) -> Reg:
        register = self.inst.args[name]
        if not isinstance(register, Reg):
            raise UnsupportedInstruction(f"{self.inst.mnemonic} with a constant address")
        return register

    def _sources(self, plan: Plan) -> None:
        """Plans the operands of s_getreg, s_setreg and s_set_gpr_idx_*."""
        if self.control in (Kind.GETREG, Kind.SETREG):
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
        """Returns the record index of the target."""
        target = branch_target(self.inst, self.inst.offset)
        assert target is not None
        return target // 4

    def emit(self, frame: Frame) -> None:
        build = frame.build
        index = frame.slot(layout.SLOT_INDEX)
        if self.control in NO_EFFECT or self.control in DEBUGGER_BRANCHES:
            if self.control is Kind.WAITCNT:
                # Waves on other host threads see earlier accesses first. This emits no code on x86, which always keeps
                # that order.
                build.fence("acq_rel")
                if self.turns:
                    frame.let_others_on(self.size)
            frame.next(self.size)
        elif self.control in ENDS:
            for check in frame.hooks:
                check.end(frame, index)
            frame.stop(Status.ENDED, index)
        elif self.control is Kind.BARRIER:
            frame.pause(Status.BARRIER, self.size)
        elif self.control is Kind.SLEEP:
            frame.pause(Status.YIELD, self.size)
        elif self.control is Kind.SENDMSG:
            frame.pause(Status.MESSAGE, self.size)
        elif self.control is Kind.GWS:
            frame.pause(Status.GWS, self.size)
        elif self.control is Kind.TRAP:
            frame.fault(Fault.TRAP, ir.Constant(I64, 0), ir.Constant(I32, 0))
        elif self.control is Kind.BRANCH:
            self._branch(frame, index)
        elif self.control in STATE_BRANCHES:
            with build.if_then(branch_condition(frame, self.control)):
                self._branch(frame, index)
            frame.next(self.size)
        elif self.control is Kind.GETPC:
            self._link(frame)
            frame.next(self.size)
        elif self.control is Kind.CALL:
            self._link(frame)
            self._branch(frame, index)
        elif self.control in INDIRECT:
            self._indirect(frame, index)
        elif self.control in COUNTERS:
            lds_atomics.count(frame, self.places, self.control)
            frame.next(self.size)
        else:
            self._machine_state(frame)

    def _machine_state(self, frame: Frame) -> None:
        """Emits instructions on hardware registers, and on registers chosen by M0."""
        places = self.places
        if self.control is Kind.GETREG:
            frame.store(hwreg.read(frame, self._immediate("simm16")), frame.operand(places["sdst"].slot))
            frame.next(self.size)
        elif self.control is Kind.SETREG:
            source = places["sdst"] if "sdst" in places else places["src0"]
            hwreg.write(frame, self._immediate("simm16"), load_scalar(frame, source), self.size)
        elif self.control is Kind.SETVSKIP:
            skips = load_scalar(frame, places["src0"]) >> (load_scalar(frame, places["src1"]) & 31) & 1
            kept = frame.state(layout.MODE) & (~(1 << mode.VSKIP) & 0xFFFFFFFF)
            hwreg.change_mode(frame, kept | skips << mode.VSKIP, self.size)
        elif self.control is Kind.MOVRELS:
            kind = I64 if places["src0"].bits == 64 else I32
            value = frame.load(register_indexing.moved_scalar(frame, places["src0"]), kind)
            frame.store(value, frame.operand(places["sdst"].slot))
        elif self.control is Kind.MOVRELD:
            value = load_scalar(frame, places["src0"])
            frame.store(value, register_indexing.moved_scalar(frame, places["sdst"]))
        elif self.control is Kind.SET_GPR_IDX_ON:
            register_indexing.set_index(frame, load_scalar(frame, places["src0"]))
            register_indexing.set_operands(frame, frame.slot(places["src1"].slot))
            register_indexing.switch(frame, True, self.size)
        elif self.control is Kind.SET_GPR_IDX_OFF:
            register_indexing.switch(frame, False, self.size)
        elif self.control is Kind.SET_GPR_IDX_MODE:
            register_indexing.set_operands(frame, frame.slot(places["simm16"].slot))
        elif self.control is Kind.SET_GPR_IDX_IDX:
            register_indexing.set_index(frame, load_scalar(frame, places["src0"]))
        else:
            raise UnsupportedInstruction(f"{self.inst.mnemonic} is not modelled")

    def _branch(self, frame: Frame, index: IrValue) -> None:
        """Jumps to the slot's record. If the target is outside the code, faults at the branch, with the target's address."""
        target = frame.slot(self.target)
        if self.outside:
            address = frame.context(layout.CTX_CODE_BASE) + target.sext(I64) * 4
            frame.fault(Fault.JUMP, address, ir.Constant(I32, 0))
        else:
            frame.transfer(target, index)

    def _link(self, frame: Frame) -> None:
        """Stores the address of the next instruction in sdst."""
        following = (frame.slot(layout.SLOT_INDEX) + self.size).zext(I64) * 4
        address = frame.context(layout.CTX_CODE_BASE) + following
        frame.operand(self.places["sdst"].slot).store(address)

    def _indirect(self, frame: Frame, index: IrValue) -> None:
        address = frame.operand(self.places["src0"].slot).load(I64)
        distance = address - frame.context(layout.CTX_CODE_BASE)
        target = distance >> 2
        outside = target.unsigned >= frame.context(layout.CTX_RECORD_COUNT)
        crooked = (distance & 3) != 0
        with frame.build.if_then(outside | crooked, likely=False):
            frame.fault(Fault.JUMP, address, ir.Constant(I32, 0))
        if self.control is Kind.SWAPPC:
            self._link(frame)
        frame.transfer(target.trunc(I32), index, computed=True)
