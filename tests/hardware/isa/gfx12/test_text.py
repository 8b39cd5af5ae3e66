"""GFX12's decoder and text against LLVM's assembler: random words of every row are printed, assembled and printed by LLVM."""

from __future__ import annotations

import random
import re

import pytest

from simgpu.hardware.errors import DecodeError, TargetError
from simgpu.hardware.isa import Instruction, decode, disassemble, text
from simgpu.hardware.isa.gfx12.decode import WIDE, encoding_of
from simgpu.hardware.isa.gfx12.rows import rows
from simgpu.hardware.targets import architecture, target
from tests.support.clang import assemble

TARGET = "gfx1250"
# First word of each encoding, and the first bit of its opcode.
FIRST = {
    "sop1": (0x17D << 23, 8), "sop2": (1 << 31, 23), "sopc": (0x17E << 23, 16), "sopp": (0x17F << 23, 16), "sopk": (0xB << 28, 23),
    "vop1": (0x3F << 25, 9), "vop2": (0, 25), "vopc": (0x3E << 25, 17), "vop3p": (0xCC << 24, 16),
    "scratch": (0x3B << 26 | 1 << 24, 14), "global": (0x3B << 26 | 2 << 24, 14),
    **{name: (top << 26, first) for top, (name, first, _) in WIDE.items()},
}  # fmt: skip
NULL = 0x7C
TRIES = 1000
# Rows that random bits do not reach: all bits of these are fixed, or two instructions are one.
ALONE = ("v_wmma_ld_scale_paired_b32", "v_wmma_ld_scale16_paired_b64")
# LLVM's assembler encodes or prints these otherwise than its disassembler: the high bits of a probe, a swizzle that has two
# masks, 64-bit constants, unknown versions.
QUIRKS = ("s_atc_probe", "ds_swizzle", "v_fmamk_f64", "v_fmaak_f64", "s_version")
LITERAL = re.compile(r"\blit\((\w+)\)")  # it also encodes some numbers as literals that need none
LINES = """
    tensor_load_to_lds s[32:35], s[36:43]
    tensor_load_to_lds s[0:3], s[4:11], s[12:15], s[16:19]
    tensor_store_from_lds s[0:3], s[4:11]
    v_dual_mul_f32 v0, v1, v2 :: v_dual_mov_b32 v3, v4
    v_dual_fmaak_f32 v0, v1, v2, 0x11 :: v_dual_add_f32 v3, v4, v5
    v_dual_fma_f32 v0, v1, v2, v3 :: v_dual_add_f32 v5, v6, v7
    v_dual_fma_f32 v0, -v1, v2, -v3 :: v_dual_add_f32 v5, v6, -v7
    s_mov_b64 s[0:1], 0x123456789abcdef0
    v_mov_b64_e32 v[0:1], 0x123456789abcdef0
    v_add_f32_dpp v0, v1, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf
    v_add_f32_dpp v0, v1, v2 dpp8:[1,0,3,2,4,5,6,7] fi:1
    v_add_f32_e64_dpp v0, |v1|, -v2 row_share:3 row_mask:0xf bank_mask:0xf bound_ctrl:1
    v_wmma_f32_16x16x128_f8f6f4 v[2:9], v[16:27], v[32:39], 0 matrix_a_fmt:MATRIX_FMT_FP6 matrix_b_fmt:MATRIX_FMT_FP4
    v_wmma_scale_f32_16x16x128_f8f6f4 v[2:9], v[210:225], v[194:209], 0, v246, v248
    v_wmma_scale16_f32_32x16x128_f4 v[0:15], v[16:31], v[32:39], v[0:15], v[40:41], v[42:43] matrix_a_reuse
    s_wait_alu depctr_va_vdst(0)
    s_wait_alu depctr_hold_cnt(0) depctr_va_vdst(3) depctr_vm_vsrc(2)
    s_delay_alu instid0(VALU_DEP_1) | instskip(NEXT) | instid1(TRANS32_DEP_2)
    s_setreg_imm32_b32 hwreg(HW_REG_WAVE_SCHED_MODE, 0, 2), 2
    s_barrier_signal -1
    ds_swizzle_b32 v8, v2 offset:swizzle(BITMASK_PERM,"010pi")
    global_load_async_to_lds_b128 v0, v[2:3], off offset:16 th:TH_LOAD_NT scope:SCOPE_SYS
    cluster_load_async_to_lds_b32 v0, v1, s[2:3]
    s_sendmsg_rtn_b32 s2, sendmsg(MSG_RTN_GET_REALTIME)
""".strip().split("\n")


def word_of(encoding: str, opcode: int, rng: random.Random) -> int:
    """Returns random bits of an opcode. Fields that need a certain value mostly get it, so that most words are instructions."""
    first, shift = FIRST[encoding]
    word = rng.getrandbits(192) & rng.getrandbits(192) & (rng.getrandbits(192) if rng.random() < 0.5 else -1)
    if encoding == "vop3p" or (encoding == "vop3" and rng.random() < 0.5):
        word &= ~(0xFF00 | 0x1F << 59) if rng.random() < 0.8 else -1
    if encoding == "vop3p":
        word |= 1 << 40 | 1 << 49 | 1 << 58
        word &= ~(1 << 32 | 1 << 41 | 1 << 50 | 1)
    if encoding in ("flat", "scratch", "global", "vbuffer"):
        word = word & ~0x7F & ~(1 << 49) | NULL
    if encoding == "smem" and rng.random() < 0.5:
        word = word & ~(0x7F << 57) | NULL << 57
    free = {"sop1": 0x7F00FF, "sop2": 0x7FFFFF, "sopc": 0xFFFF, "sopp": 0xFFFF, "sopk": 0x7FFFFF, "vop1": 0x1FE01FF}
    free |= {"vop2": 0x1FFFFFF, "vopc": 0x1FFFF, "vop3": 0xFFFF, "vop3p": 0xFFFF, "ds": 0xFFFF, "smem": 0x1FFF}
    return first | opcode << shift | word & free.get(encoding, 0xFF) | word >> 32 << 32


def instruction_of(encoding: str, opcode: int, rng: random.Random) -> Instruction | None:
    """Returns the instruction of random bits of an opcode, None if no bits tried are one."""
    for _ in range(TRIES):
        code = word_of(encoding, opcode, rng).to_bytes(24, "little")
        try:
            return decode(code, 0, TARGET)
        except DecodeError:
            continue
    return None


def _same(shown: str, again: str) -> bool:
    """True if two lines differ at most in the marks and base of literals."""
    return LITERAL.sub(r"\1", shown) == LITERAL.sub(r"\1", again) or LITERAL.sub(_decimal, again) == shown


def _decimal(number: re.Match[str]) -> str:
    return str(int(number[1], 16))


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(2, 12))])
def test_every_row_prints_as_llvm_does(seed: int) -> None:
    """LLVM refuses some random lines: modifiers of other forms, too many SGPRs, high halves. It prints the others as we do."""
    rng, lines, missing = random.Random(seed), {}, []
    for (encoding, opcode), spec in rows().items():
        if not encoding.startswith("vopd") and spec.mnemonic not in ALONE:
            inst = instruction_of(encoding, opcode, rng)
            if inst is None or inst.spec is not spec:
                missing.append(spec.shown)
            else:
                lines[spec] = text(inst)
    assert not missing
    taken = assemble(list(lines.values()), TARGET)
    read = [one and text(decode(one.code, 0, TARGET)) for one in taken]
    wrong = [
        (shown, one.text, again)
        for (spec, shown), one, again in zip(lines.items(), taken, read, strict=True)
        if one and again and not spec.mnemonic.startswith(QUIRKS) and not (one.text == shown and _same(shown, again))
    ]
    assert not wrong, f"{len(wrong)} lines, first: {wrong[:3]}"
    assert sum(one is not None for one in taken) > 0.85 * len(lines)


def test_lines() -> None:
    lines = [line.strip() for line in LINES]
    for line, one in zip(lines, assemble(lines, TARGET), strict=True):
        assert one is not None and one.text == line
        assert text(decode(one.code, 0, TARGET)) == line


def test_dual_instructions_print_as_llvm_does() -> None:
    rng, lines = random.Random(2), []
    while len(lines) < 300:
        word = rng.getrandbits(192)
        first = 0x32 << 26 | word & 0x3FFFFFF if rng.random() < 0.5 else 0xCF << 24 | word & 0xFFFFFF
        try:
            lines.append(text(decode((first | word >> 32 << 32).to_bytes(24, "little"), 0, TARGET)))
        except DecodeError:
            continue
    taken = [one for one in assemble(lines, TARGET) if one]
    assert len(taken) > 20
    assert [one.text for one in taken] == [text(decode(one.code, 0, TARGET)) for one in taken]


def test_bits_that_amd_leaves_at_0() -> None:
    """AMD's assembler leaves DIM, DMASK and VADDR4 of tensor loads at 0, and op_sel_hi of scaled products; LLVM sets them."""
    assert disassemble(bytes.fromhex("000031d00000200020247c7c"), TARGET) == [
        (0, "tensor_load_to_lds s[32:35], s[36:43] th:TH_LOAD_HT")
    ]
    code = bytes.fromhex("002035cc5ea9020cd40088cc2871021a")
    ((_, shown),) = disassemble(code, TARGET)
    assert shown.startswith("v_wmma_scale_f32_32x16x128_f4 v[212:227], v[40:55], v[56:63], 0, v94, v84 matrix_b_scale")


def test_errors_name_the_bits() -> None:
    with pytest.raises(DecodeError, match=r"gfx1250: no instruction at offset 0x0: 00000000 \(VOP2: no such opcode\)"):
        decode(bytes(4), 0, TARGET)
    with pytest.raises(DecodeError, match="the code ends within tensor_load_to_lds"):
        decode(bytes.fromhex("000031d000002000"), 0, TARGET)
    assert encoding_of(0xBFB00000) == ("sopp", 48)


def test_gfx1250_is_decoded_but_not_executed() -> None:
    assert architecture(TARGET) == TARGET
    with pytest.raises(TargetError, match="gfx1250 is not executed or timed: only `simgpu disasm` and `simgpu lint` read"):
        target(TARGET)
