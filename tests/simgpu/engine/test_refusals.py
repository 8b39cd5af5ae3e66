"""Refusals of the engine: every opcode of every target is planned, and exactly these are refused."""

from __future__ import annotations

import pytest

from simgpu.alu.control import Control
from simgpu.engine.lowering.handlers import emitter_of
from simgpu.hardware.errors import DecodeError, UnsupportedInstruction
from simgpu.hardware.isa import TARGETS, decode, table
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine.mode import Mode
from simgpu.machine.operands import Plan

# Encoding: its fixed bits, the opcode's position, and operand bits that name vector registers where required.
V0 = 0x100
THREE = (V0 | V0 << 9 | V0 << 18) << 32
ENCODINGS = {
    "vop1": (0x7E << 24, 9, V0), "vop2": (0, 25, V0), "vopc": (0x7C << 24, 17, V0), "sop1": (0xBE8 << 20, 8, 0),
    "sop2": (1 << 31, 23, 0), "sopk": (0xB << 28, 23, 0), "sopc": (0xBF << 24, 16, 0), "sopp": (0xBF8 << 20, 16, 0),
    "smem": (0xC0 << 24, 18, 0), "vop3": (0xD0 << 24, 16, (V0 | V0 << 9) << 32), "vop3p": (0xD38 << 20, 16, THREE),
    "ds": (0xD8 << 24, 17, 0), "flat": (0xDC << 24, 18, 0), "scratch": (0xDC << 24 | 1 << 14, 18, 0),
    "global": (0xDC << 24 | 2 << 14, 18, 0), "mubuf": (0xE0 << 24, 18, 0), "mtbuf": (0xE8 << 24, 15, 0),
}  # fmt: skip
GRAPHICS = {f"v_interp_{name}" for name in "p1_f32_e64 p2_f32_e64 mov_f32_e64 p1ll_f16 p1lv_f16 p2_legacy_f16 p2_f16".split()}
REFUSED = GRAPHICS | {
    "ds_ordered_count", "s_cbranch_i_fork", "s_cbranch_g_fork", "s_cbranch_join", "s_rfe_b64",
    "s_rfe_restore_b64", "s_endpgm_ordered_ps_done",
}  # fmt: skip


def instances(target: str) -> list[Instruction]:
    """Returns an instance of every opcode; the scaled matrix instructions follow their load of scales."""
    found = []
    for encoding, opcode in table(target):
        scaled = encoding == "scaled"
        base, shift, operands = ENCODINGS["vop3p" if scaled else encoding]
        prefix = (0x1A7 << 23 | 44 << 16 | (V0 | V0 << 9) << 32).to_bytes(8, "little") if scaled else b""
        for bits in (operands, THREE, V0 << 32, 0):  # sources that must be vectors, or scalars, differ
            code = (base | opcode << shift | bits).to_bytes(8, "little") + bytes(8)
            try:
                found.append(decode(prefix + code, 0, target))
                break
            except DecodeError:
                continue
        else:
            raise AssertionError(f"{target}: no instance of {encoding} {opcode}")
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_only_these_are_refused(target: str) -> None:
    refused = set()
    for inst in instances(target):
        try:
            if inst.spec.kind == "control":
                Control(inst, Plan(inst))
            else:
                emitter_of(inst, Plan(inst), Mode())
        except UnsupportedInstruction as error:
            assert inst.mnemonic in str(error)
            refused.add(inst.mnemonic)
    assert refused == {spec.mnemonic for spec, _ in table(target).values()} & REFUSED
