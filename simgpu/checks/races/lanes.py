"""Queries about an instruction and the lanes that it writes, for the walks of `expected` and `unused`.

The walks track active and inactive lanes separately: only active lanes of a vector register are overwritten.
"""

from __future__ import annotations

from simgpu.hardware.isa.code.text import UNUSED
from simgpu.hardware.isa.instruction import EXEC, Instruction, Reg
from simgpu.hardware.timing_rules.effects import Effect, registers_of
from simgpu.hardware.timing_rules.register_use import Register

ACROSS_LANES = frozenset(("dpp", "readlane", "writelane", "permlane_swap", "mfma", "movrel", "setreg"))  # instruction classes
PRESERVE = UNUSED.index("UNUSED_PRESERVE")  # what an SDWA instruction does with the rest of its result
NARROWING = ("s_and_saveexec_b64", "s_andn1_saveexec_b64", "v_cmpx")


def is_vector(register: Register) -> bool:
    """True if the register has lanes."""
    return isinstance(register, tuple) and register[0] in ("v", "a")


def overwritten_registers(inst: Instruction, effect: Effect) -> frozenset[Register]:
    """Returns the registers that an instruction overwrites completely, in active lanes."""
    partial = "partial_write" in effect.access.classes and not (inst.form == "sdwa" and inst.mods.get("dst_unused", 0) != PRESERVE)
    keeps = partial or "writelane" in effect.access.classes or "_d16" in inst.mnemonic
    return frozenset() if keeps else effect.access.writes - _half(inst)


def _half(inst: Instruction) -> frozenset[Register]:
    """Returns the mask register if a scalar instruction writes only one half of it."""
    target = inst.args.get("sdst")
    named = registers_of(target) if isinstance(target, Reg) and target.count == 1 else frozenset()
    return frozenset(register for register in named if register == "vcc")


def narrows(inst: Instruction) -> bool:
    """True if the instruction writes EXEC and can only switch lanes off."""
    if inst.mnemonic.startswith(NARROWING):
        return True
    mask = Reg("s", EXEC, 2)
    ands_mask = inst.mnemonic == "s_and_b64" and mask in (inst.args.get("src0"), inst.args.get("src1"))
    return inst.args.get("sdst") == mask and (ands_mask or (inst.mnemonic == "s_andn2_b64" and inst.args.get("src0") == mask))
