"""Text of every oracle sample, and of instructions without samples, as printed by LLVM 22.

A sample is 8 bytes of hex and LLVM's text. Two kinds cannot be compared. If LLVM doubts an operand, the text has a comment. If
an inline float was in a VOP3 source of 16-bit integers, LLVM printed it as a literal and re-encoded it as one (field 255),
without the four bytes that GFX9's VOP3 does not have. The sample's bytes do not show which float it was.
"""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from typing import Any

import pytest

from simgpu.hardware.errors import DecodeError
from simgpu.hardware.isa import TARGETS, decode, disassemble, text
from tests.support.clang import assemble
from tests.support.places import SHARED

FOLDER = SHARED / "oracles" / "encodings"
FORMATS = [
    "SOP2",
    "SOPK",
    "SOP1",
    "SOPC",
    "SOPP",
    "SMEM",
    "VOP2",
    "VOP1",
    "VOPC",
    "VOP1_SDWA",
    "VOP2_SDWA",
    "VOPC_SDWA",
    "VOP1_DPP",
    "VOP2_DPP",
    "VOP3",
    "VOP3B",
    "VOP3P",
    "MAI",
    "DS",
    "DS_ACC",
    "MUBUF",
    "MTBUF",
    "FLAT",
    "GLOBAL",
    "SCRATCH",
    "GLOBAL_LDS",
]
COMMENT = re.compile(r" ?/\*.*?\*/")
LOST_LITERALS = {"gfx908": 52, "gfx90a": 52, "gfx942": 40, "gfx950": 53}

needs_oracle = pytest.mark.skipif(not FOLDER.is_dir(), reason="no ../shared/oracles")


@cache
def samples(target: str) -> dict[str, Any]:
    with gzip.open(FOLDER / f"{target}.json.gz") as file:
        return json.load(file)


def lost_literal(code: bytes) -> bool:
    """Returns True for a VOP3 word whose source field names a literal."""
    word = int.from_bytes(code, "little")
    vop3 = word >> 26 & 63 == 0b110100 and len(code) == 8
    return vop3 and 255 in (word >> 32 & 511, word >> 41 & 511, word >> 50 & 511)


@needs_oracle
@pytest.mark.parametrize("encoding", FORMATS)
@pytest.mark.parametrize("target", TARGETS)
def test_oracle_samples(target: str, encoding: str) -> None:
    wrong = []
    for entry in samples(target)[encoding].values():
        for code_hex, expected in entry["samples"]:
            code = bytes.fromhex(code_hex)
            if "/*" in expected or lost_literal(code):
                continue
            try:
                instruction = decode(code, 0, target)
                shown = text(instruction)
                if shown != expected or instruction.size != len(code):
                    wrong.append((code_hex, expected, shown))
            except DecodeError as error:
                wrong.append((code_hex, expected, str(error)))
    assert not wrong, f"{len(wrong)} samples, first: {wrong[:3]}"


@needs_oracle
@pytest.mark.parametrize("target", TARGETS)
def test_doubted_and_lost_samples(target: str) -> None:
    """Expects DecodeError, or the text without the comment.

    An operand that LLVM calls an invalid immediate is a constant where a register belongs. The sample's bytes, encoded from the
    text again, hold a register there.
    """
    lost = 0
    for entries in samples(target).values():
        for entry in entries.values():
            for code_hex, expected in entry["samples"]:
                code = bytes.fromhex(code_hex)
                doubted = "/*" in expected
                if not doubted and not lost_literal(code):
                    continue
                lost += not doubted
                try:
                    shown = text(decode(code, 0, target))
                except DecodeError:
                    continue
                assert doubted, (code_hex, expected, shown)
                if "Invalid immediate" not in expected:
                    assert shown == COMMENT.sub("", expected), code_hex
    assert lost == LOST_LITERALS[target]


# Assembled and printed by clang 22 (-cc1as -show-encoding), beyond what the oracle samples.
CLANG = {
    "gfx908": """
        0000007e v_nop
        000040d100000000 v_nop
        006a007e v_clrexcp
        050000b0 s_movk_i32 s0, 0x5
        7fc08cbf s_waitcnt lgkmcnt(0)
        ffff8cbf s_waitcnt vmcnt(63) expcnt(7) lgkmcnt(15)
        000090bf s_sendmsg sendmsg(0, 0, 0)
        040090bf s_sendmsg sendmsg(MSG_SAVEWAVE)
        080090bf s_sendmsg sendmsg(MSG_EARLY_PRIM_DEALLOC)
        0ff880b8 s_getreg_b32 s0, hwreg(HW_REG_SH_MEM_BASES)
        05e07ad801000000 ds_swizzle_b32 v0, v1 offset:swizzle(FFT,5)
        a5c07ad801000000 ds_swizzle_b32 v0, v1 offset:swizzle(ROTATE,0,5)
        e4807ad801000000 ds_swizzle_b32 v0, v1 offset:swizzle(QUAD_PERM,0,1,2,3)
        1f047ad801000000 ds_swizzle_b32 v0, v1 offset:swizzle(SWAP,1)
        1f007ad801000000 ds_swizzle_b32 v0, v1 offset:swizzle(BITMASK_PERM,"ppppp")
        00087ad801000000 ds_swizzle_b32 v0, v1 offset:swizzle(BITMASK_PERM,"00010")
        00817ad801000000 ds_swizzle_b32 v0, v1 offset:33024
        04007fd901000000 ds_ordered_count v0, v1 offset:4 gds
        040035d900000000 ds_gws_sema_v offset:4 gds
        08003ad800010000 ds_write_addtid_b32 v1 offset:8
        006050dc00000000 scratch_load_dword off, s0 lds
    """,
    "gfx942": """
        1091ffd304110e04 v_smfmac_f32_32x32x32_fp8_fp8 a[16:31], v[4:5], v[8:11], v3 cbsz:1 abid:2
        0000fdd314310e04 v_smfmac_f32_32x32x32_bf8_fp8 v[0:15], v[20:21], v[24:27], v3
        0000fed314310e04 v_smfmac_f32_32x32x32_fp8_bf8 v[0:15], v[20:21], v[24:27], v3
        000033d1a8f10100 v_ldexp_f16_e64 v0, v168, 0.15915494
        000026d100e10100 v_add_u16_e64 v0, v0, 0x3800
        010002c0fcff1f00 s_load_dword s0, s[2:3], -0x4
        014002c0fcff1f08 s_load_dword s0, s[2:3], s4 offset:-0x4
        14f880b8 s_getreg_b32 s0, hwreg(HW_REG_XCC_ID)
    """,
    "gfx950": """
        0000acd3183302000008add304195204 v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], \
v[12:19], v[20:23], v24, v25 op_sel_hi:[0,0,0]
        0010acd3183302000009add304195224 v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], \
v[12:19], v[20:23], v24, v25 op_sel:[0,1,0] op_sel_hi:[0,0,0] cbsz:1 blgp:1
        0048acd301050218 v_mfma_ld_scale_b32 v1, v2 op_sel:[1,0]
        00105de001000180 buffer_load_dwordx4 v1, s[4:7], 0 offen lds
    """,
}


def clang_lines() -> list[tuple[str, str, str]]:
    lines = []
    for target, block in CLANG.items():
        for line in block.split("\n"):
            if line.strip():
                code, shown = line.strip().split(" ", 1)
                lines.append((target, code, shown))
    return lines


@pytest.mark.parametrize(("target", "code", "expected"), clang_lines())
def test_clang_lines(target: str, code: str, expected: str) -> None:
    assert text(decode(bytes.fromhex(code), 0, target)) == expected


@pytest.mark.covering(1)
@pytest.mark.parametrize("mnemonic", ["s_sendmsg", "s_sendmsghalt", "s_waitcnt", "s_getreg_b32 s0,", "s_set_gpr_idx_mode"])
@pytest.mark.parametrize("target", TARGETS)
def test_every_immediate_with_a_syntax(target: str, mnemonic: str) -> None:
    """Messages, counters and hardware registers, known or not: all of 12 bits, and every seventh above."""
    lines = assemble([f"{mnemonic} {value}" for value in (*range(0x1000), *range(0x1000, 0x10000, 7), 46143)], target)
    taken = [line for line in lines if line]
    assert len(taken) >= 16
    wrong = [(line.text, shown) for line in taken if (shown := text(decode(line.code, 0, target))) != line.text]
    assert not wrong, f"{len(wrong)} of {len(taken)}, first: {wrong[:3]}"


SCALAR_NAMES = [
    "s0", "s101", "vcc_lo", "vcc_hi", "m0", "exec_lo", "exec_hi", "flat_scratch_lo", "xnack_mask_hi", "ttmp3", "src_scc",
    "src_vccz", "src_execz", "src_shared_base", "src_private_limit", "0", "64", "-16", "0.5", "-4.0", "0.15915494", "0x1234",
    "v7", "a7",
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_sources_of_accumulator_moves(target: str) -> None:
    """v_accvgpr_write_b32 accepts scalar registers from gfx90a on. Text that LLVM refuses gives a DecodeError."""
    lines = assemble([f"v_accvgpr_write_b32 a1, {name}" for name in SCALAR_NAMES], target)
    scalar = [name for name, line in zip(SCALAR_NAMES, lines, strict=True) if line]
    assert ("s101" in scalar) == (target != "gfx908") and "-4.0" in scalar and "v7" in scalar
    assert not {"0x1234", "a7"} & set(scalar)
    for line in filter(None, lines):
        assert text(decode(line.code, 0, target)) == line.text
    if target == "gfx908":
        for code in (*range(128), 235, 251, 253):
            word = 0x1A7 << 23 | 89 << 16 | 1 | code << 32
            with pytest.raises(DecodeError):
                decode(word.to_bytes(8, "little"), 0, target)


@pytest.mark.parametrize("target", TARGETS)
def test_every_scalar_atomic(target: str) -> None:
    """LLVM has FeatureScalarAtomics on all of GFX9, and AMD's machine-readable ISA lists them for CDNA2 like the others."""
    names = "swap cmpswap add sub smin umin smax umax and or xor inc dec".split()
    lines = [
        f"s_{space}atomic_{name}{wide} s[8:{7 + (1 + bool(wide)) * (1 + (name == 'cmpswap'))}], {base}, {offset}"
        for space, base in (("", "s[2:3]"), ("buffer_", "s[4:7]"))
        for name in names
        for wide in ("", "_x2")
        for offset in ("s1", "0x10", "0x1c glc")
    ]
    for line, got in zip(lines, assemble([line.replace("s[8:8]", "s8") for line in lines], target), strict=True):
        assert got, line
        assert text(decode(got.code, 0, target)) == got.text


def test_disassemble_lists_offsets_and_text() -> None:
    code = bytes.fromhex("0000007eff0080be7856341200008cbf000081bf")
    assert disassemble(code, "gfx90a") == [
        (0, "v_nop"),
        (4, "s_mov_b32 s0, 0x12345678"),
        (12, "s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)"),
        (16, "s_endpgm"),
    ]
