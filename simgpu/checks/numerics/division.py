"""Finds LLVM's expansions of divisions. Their steps turn 0 and infinity into infinities and NaNs that v_div_fixup replaces.

In f32 and f64 the steps after v_div_scale are v_rcp and multiply-adds, in f16 also conversions (LLVM,
AMDGPULegalizerInfo::legalizeFDIV16, 32 and 64). The operands of v_div_fixup are their quotient, the denominator and the
numerator.
"""

from __future__ import annotations

import re

from simgpu.checks.numerics.definitions import Definitions
from simgpu.engine.program import Program
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.timing_rules.effects import registers_of
from simgpu.hardware.timing_rules.register_use import Register

END = re.compile(r"v_div_fixup_")
FIRST = re.compile(r"v_div_scale_")
STEP = re.compile(r"v_(rcp|fma|fmac|mad|mac|mul|add|sub|div_fmas|cvt_f32_f16|cvt_f16_f32|fma_mix|mad_mix|fma_mixlo|mad_mixlo)_?")
MOST = 64  # steps of a division


def steps(program: Program) -> set[int]:
    """Returns the records of the steps of all divisions, without v_div_scale and v_div_fixup."""
    definitions = Definitions(program)
    ends = [index for index, inst in program.instructions.items() if END.match(inst.mnemonic)]
    return set().union(*(_steps(definitions, index) for index in ends))


def _steps(definitions: Definitions, end: int) -> set[int]:
    program = definitions.program
    inst = program.instructions[end]
    given = registers_of(inst.args["src1"]) | registers_of(inst.args["src2"])
    found: set[int] = set()
    pending = [(end, register) for register in registers_of(inst.args["src0"])]
    seen = set(pending)
    while pending and len(found) < MOST:
        index, register = pending.pop()
        for writer in definitions.of(index, register) or ():
            step = program.instructions[writer]
            if FIRST.match(step.mnemonic) or not STEP.match(step.mnemonic):
                continue
            found.add(writer)
            more = {(writer, source) for source in _sources(step) - given} - seen
            seen |= more
            pending += more
    return found


def _sources(inst: Instruction) -> set[Register]:
    """Returns the vector registers that an instruction reads."""
    named = [registers_of(inst.args.get(name)) for name in ("src0", "src1", "src2")]
    if inst.mnemonic.startswith(("v_fmac", "v_mac")):
        named.append(registers_of(inst.args["vdst"]))
    return {register for one in named for register in one if isinstance(register, tuple) and register[0] != "s"}
