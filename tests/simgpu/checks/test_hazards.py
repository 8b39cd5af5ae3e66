"""Every row of the hazard tables: a pair of instructions too close is one finding, apart it is none.

Cells are typed again as numbers, in the order gfx908, gfx90a, gfx942, gfx950; "-" does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from simgpu.engine.finding import Finding
from tests.support.checked import findings, line_of

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
SETTLE = ["s_waitcnt vmcnt(0) lgkmcnt(0)", "s_nop 15", "s_nop 15"]
PREPARE = [
    "v_lshlrev_b32 v61, 4, v0", "v_mov_b32 v62, 0", "v_mov_b32 v1, 0", "v_mov_b32 v70, s4",
    "s_mov_b32 s20, 0", "s_mov_b32 s28, 0", "s_mov_b32 vcc_hi, s5",
    "s_mov_b32 s24, s4", "s_mov_b32 s25, s5", "s_movk_i32 s26, 0x4000", "s_mov_b32 s27, 0x27000",
]  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """Two instructions and the wait states required between them; between: instructions that are always there."""

    row: str
    earlier: str
    later: str
    needed: int
    between: tuple[str, ...] = ()


def nops(states: int) -> list[str]:
    return [f"s_nop {min(16, states - at) - 1}" for at in range(0, states, 16)]


# By target and kind: passes -> mnemonic, registers of D, registers of A.
F32 = {2: ("v_mfma_f32_4x4x1f32", 4, 1), 8: ("v_mfma_f32_16x16x4f32", 4, 1),
       16: ("v_mfma_f32_32x32x2f32", 16, 1)}  # fmt: skip
F16 = {2: ("v_mfma_f32_4x4x4f16", 4, 2), 4: ("v_mfma_f32_16x16x16f16", 4, 2),
       8: ("v_mfma_f32_32x32x8f16", 16, 2)}  # fmt: skip
WIDE = {2: F16[2], 4: ("v_mfma_f32_16x16x32_f16", 4, 4), 8: ("v_mfma_f32_32x32x16_f16", 16, 4),
        16: ("v_mfma_f32_32x32x64_f8f6f4", 16, 8)}  # fmt: skip
F64 = {4: ("v_mfma_f64_4x4x4f64", 2, 2), 8: ("v_mfma_f64_16x16x4f64", 8, 2)}
F64_950 = {4: F64[4], 16: F64[8]}
KINDS = {
    ("gfx908", "xdl"): F32, ("gfx90a", "xdl"): F32, ("gfx942", "slow"): F32, ("gfx942", "xdl"): F16,
    ("gfx950", "xdl"): WIDE, ("gfx950", "slow"): F32,
    ("gfx90a", "f64"): F64, ("gfx942", "f64"): F64, ("gfx950", "f64"): F64_950,
}  # fmt: skip
COLUMNS = [column for column in KINDS if column[1] != "f64"]


def tuple_of(file: str, first: int, count: int) -> str:
    return f"{file}{first}" if count == 1 else f"{file}[{first}:{first + count - 1}]"


def mfma(op: tuple[str, int, int], file: str, d: int = 0, a: str = "", b: str = "", c: int = 32) -> str:
    """Returns D, C and a matching A and B at registers that nothing else uses, if not given."""
    name, words, narrow = op
    operands = (tuple_of(file, d, words), a or tuple_of("v", 72, narrow), b or tuple_of("v", 80, narrow),
                tuple_of(file, c, words))  # fmt: skip
    return f"{name} {', '.join(operands)}"


READS = ["4/10/18", "5/11/19", "4/10/18", "5/7/11", "5/8/12/20", "4/10/18"]
SAME = ["0/0/0", "0/0/0", "2/0/0", "2/0/0", "2/0/0/0", "2/0/0"]
OVERLAP = ["2/2/2", "2/8/16", "2/8/16", "3/5/9", "4/6/10/18", "2/8/16"]
C_OVERWRITTEN = ["0/5/13", "1/7/15", "0/0/0", "1/3/7", "1/3/7/15", "0/0/0"]


def matrix_pairs(target: str) -> list[Pair]:
    pairs = []
    columns = [(number, kind) for number, (name, kind) in enumerate(COLUMNS) if name == target]
    for number, kind in columns:
        for index, (passes, op) in enumerate(KINDS[target, kind].items()):
            for row, cells, later, earlier in matrix_rows(target, op):
                needed = int(cells[number].split("/")[index])
                pairs.append(Pair(f"{kind} P={passes}: {row}", earlier, later, needed))
    return pairs


def matrix_rows(target: str, op: tuple[str, int, int]) -> list[tuple[str, list[str], str, str]]:
    """Returns a row, its cells by column, the later instruction and the earlier one."""
    file = "a" if target == "gfx908" else "v"
    d, c = mfma(op, file), mfma(op, file, 32, c=0)
    whole = tuple_of(file, 0, op[2])
    into_a = mfma(op, file, 32, a=whole, c=48)
    into_b = mfma(op, file, 32, b=whole, c=48)
    operand = READS if file == "v" else ["4/4/4"]
    rows = [
        ("same C", SAME, mfma(op, file, c=0), d),
        ("overlapping C", OVERLAP, mfma(op, file, 32, c=2), d),
        ("A", operand, into_a, d),
        ("B", operand, into_b, d),
    ]
    if target == "gfx908":
        return [
            *rows,
            ("read", READS, "v_accvgpr_read_b32 v20, a0", d),
            ("overwritten", ["1/7/15"], "v_accvgpr_write_b32 a0, v20", d),
            ("C overwritten", C_OVERWRITTEN, "v_accvgpr_write_b32 a0, v20", c),
        ]
    return [
        *rows,
        ("read", READS, "v_mov_b32 v50, v0", d),
        ("overwritten", READS, "v_mov_b32 v0, v50", d),
        ("C overwritten", C_OVERWRITTEN, "v_mov_b32 v0, v50", c),
        ("stored", READS, "global_store_dword v60, v0, s[6:7]", d),
        ("ds_write", READS, "ds_write_b32 v60, v0", d),
        ("loaded", READS, "global_load_dword v0, v60, s[4:5]", d),
        ("ds_read", READS, "ds_read_b32 v0, v60", d),
        ("A overwritten", ["0/0/0/0"] * 6, "v_mov_b32 v0, v50", into_a),
    ]


F64_ROWS = {  # cells: 4x4x4, 16x16x4, 16x16x4 on gfx950
    "read": ("v_mov_b32 v50, v0", (6, 11, 19)),
    "overwritten": ("v_mov_b32 v0, v50", (6, 11, 11)),
    "stored": ("global_store_dwordx2 v60, v[0:1], s[6:7]", (9, 18, 18)),
    "ds_write": ("ds_write_b64 v61, v[0:1]", (9, 18, 18)),
    "loaded": ("global_load_dword v0, v60, s[4:5]", (6, 11, 11)),
    "v_fma_f64": ("v_fma_f64 v[50:51], v[52:53], v[52:53], v[52:53]", (2, 2, 2)),
}


def double_rows(target: str, op: tuple[str, int, int]) -> list[tuple[str, str, tuple[int, ...]]]:
    """Returns a row, the later instruction, its cells."""
    part = op[1] - 2
    slow = (0, 0, 0) if target == "gfx90a" else (4, 9, 17)
    return [
        *((row, later, cells) for row, (later, cells) in F64_ROWS.items()),
        ("same C", mfma(op, "v", c=0), (4, 0, 0)),
        ("overlapping C", mfma(F64[8], "v", 32, c=part), (4, 9, 17)),
        ("A", mfma(op, "v", 32, a="v[0:1]", c=48), (6, 11, 19)),
        ("overlapping C of XDL", mfma(KINDS[target, "xdl"][8], "v", 32, c=part), (0, 0, 0)),
        ("overlapping C of f32", mfma(F32[8], "v", 32, c=part), slow),
    ]


def double_pairs(target: str) -> list[Pair]:
    if target == "gfx908":
        return []
    pairs = []
    for index, (passes, op) in enumerate(KINDS[target, "f64"].items()):
        column = index + (passes == 16)
        for row, later, cells in double_rows(target, op):
            pairs.append(Pair(f"f64 P={passes}: {row}", mfma(op, "v"), later, cells[column]))
    into_f64 = {"gfx90a": F32[8], "gfx942": F16[8], "gfx950": WIDE[8]}[target]
    needed = {"gfx90a": 9, "gfx942": 9, "gfx950": 10}[target]
    pairs.append(Pair("XDL, overlapping C of f64", mfma(into_f64, "v"), mfma(F64[4], "v", 32, c=2), needed))
    if target == "gfx950":  # llvm-project PR 218363: two opcodes, one accumulator
        shared = mfma(F16[4], "v", c=0)
        pairs.append(Pair("another opcode's identical C", mfma(WIDE[4], "v"), shared, 6))
    return pairs


FIRSTLANE, CMPX = "v_readfirstlane_b32 s20, v1", "v_cmpx_eq_u32 s[22:23], v1, v1"
DPP = "v_mov_b32_dpp v50, v51 quad_perm:[0,1,2,3] row_mask:0xf bank_mask:0xf"
STORE4 = "global_store_dwordx4 v61, v[52:55], s[6:7]"
DOT = "v_dot4_i32_i8 v50, v51, v52, v53"
SETREG = "s_setreg_imm32_b32 hwreg(HW_REG_TRAPSTS), 0"
M0 = "s_mov_b32 m0, s20"
MOVE, COPY = "v_mov_b32 v51, v1", "v_mov_b32 v54, v51"
MFMA_C = "{mfma_c}"  # reads v0 or a0 as C
ROWS: list[tuple[str, str, str, str]] = [
    ("VALU, MFMA A", "v_mov_b32 v72, v1", "{mfma}", "2 2 2 2"),
    ("VALU, MFMA B", "v_mov_b32 v80, v1", "{mfma}", "2 2 2 2"),
    ("VALU, MFMA C", "v_mov_b32 v0, v1", MFMA_C, "- 2 2 2"),
    ("VALU, v_accvgpr_write", "v_mov_b32 v51, v1", "v_accvgpr_write_b32 a9, v51", "2 0 0 0"),
    ("v_accvgpr_write, C", "v_accvgpr_write_b32 a0, v50", "{mfma_acc}", "1 2 2 2"),
    ("v_accvgpr_write, A", "v_accvgpr_write_b32 a20, v50", "{mfma_acc}", "3 2 2 2"),
    ("v_accvgpr_write, v_accvgpr_read", "v_accvgpr_write_b32 a9, v50", "v_accvgpr_read_b32 v51, a9", "3 0 0 0"),
    ("v_accvgpr_read, store", "v_accvgpr_read_b32 v51, a9", "global_store_dword v60, v51, s[6:7]", "2 0 0 0"),
    ("v_accvgpr_read, ds_write", "v_accvgpr_read_b32 v51, a9", "ds_write_b32 v60, v51", "2 0 0 0"),
    ("v_accvgpr_read, address", "v_accvgpr_read_b32 v51, a9", "global_load_dword v52, v51, s[4:5]", "2 0 0 0"),
    ("v_cmpx, MFMA", CMPX, "{mfma}", "4 4 4 4"),
    ("v_cmpx, DPP", CMPX, DPP, "5 5 5 5"),
    ("VALU, DPP", MOVE, DPP, "2 2 2 2"),
    ("SGPR, VMEM", "v_readfirstlane_b32 s4, v70", "global_load_dword v50, v60, s[4:5]", "5 5 5 5"),
    ("SGPR, buffer", "v_readfirstlane_b32 s28, v1", "buffer_load_dword v50, v60, s[24:27], s28 offen", "5 5 5 5"),
    ("VCC, VMEM", "v_readfirstlane_b32 vcc_lo, v70", "global_load_dword v50, v60, vcc", "5 5 5 5"),
    ("VCC, v_div_fmas", "v_cmp_eq_u32 vcc, v1, v1", "v_div_fmas_f32 v50, v51, v52, v53", "4 4 4 4"),
    ("SGPR, lane select", FIRSTLANE, "v_readlane_b32 s21, v50, s20", "4 4 4 4"),
    ("SGPR, v_writelane", FIRSTLANE, "v_writelane_b32 v50, 0, s20", "4 4 4 4"),
    ("SGPR, VALU", FIRSTLANE, "v_mov_b32 v50, s20", "0 0 2 2"),
    ("VCC, v_cndmask", "v_cmp_eq_u32 s[22:23], v1, v1", "v_cndmask_b32 v50, v51, v52, s[22:23]", "0 0 2 2"),
    ("carry", "v_add_co_u32 v50, vcc, v51, v52", "v_addc_co_u32 v53, vcc, v54, v55, vcc", "0 0 2 2"),
    ("VALU, v_readfirstlane", MOVE, "v_readfirstlane_b32 s21, v51", "0 0 1 1"),
    ("VALU, v_readlane", MOVE, "v_readlane_b32 s21, v51, 3", "0 0 1 1"),
    ("v_cmpx, v_readfirstlane", CMPX, "v_readfirstlane_b32 s21, v51", "0 0 4 4"),
    ("v_cmpx, v_writelane", CMPX, "v_writelane_b32 v50, 0, 3", "0 0 4 4"),
    ("trans, VALU", "v_rcp_f32 v51, v52", COPY, "0 0 1 1"),
    ("trans f64, VALU", "v_rcp_f64 v[50:51], v[52:53]", COPY, "0 0 1 1"),
    ("trans, trans", "v_rcp_f32 v51, v52", "v_sqrt_f32 v54, v51", "0 0 0 0"),
    ("SDWA, VALU", "v_mov_b32_sdwa v51, v50 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:DWORD", COPY, "0 0 1 1"),
    ("SDWA of a dword, VALU", "v_mov_b32_sdwa v51, v50 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1", COPY, "0 0 0 0"),
    ("op_sel, VALU", "v_mad_u16 v51, v50, v50, v50 op_sel:[0,0,0,1]", COPY, "0 0 1 1"),
    ("v_dot, reads", DOT, "v_mov_b32 v54, v50", "0 3 3 3"),
    ("v_dot, overwrites", DOT, "v_mov_b32 v50, v54", "0 3 3 3"),
    ("v_dot, store", DOT, "global_store_dword v60, v50, s[6:7]", "0 3 3 3"),
    ("v_dot, same A", DOT, "v_dot4_i32_i8 v54, v50, v52, v53", "0 3 3 3"),
    ("v_dot, same B", DOT, "v_dot4_i32_i8 v54, v51, v50, v53", "0 3 3 3"),
    ("v_dot, same C", DOT, "v_dot4_i32_i8 v54, v51, v52, v50", "0 0 0 0"),
    ("SALU, VALU", M0.replace("m0", "s29"), "v_mov_b32 v50, s29", "0 0 0 0"),
    ("SALU, VMEM", "s_mov_b32 s28, 0", "buffer_load_dword v50, v60, s[24:27], s28 offen", "0 0 0 0"),
    ("SALU EXEC, DPP", "s_mov_b64 exec, -1", DPP, "0 0 0 0"),
    ("s_setreg, s_getreg", SETREG, "s_getreg_b32 s21, hwreg(HW_REG_TRAPSTS)", "2 2 2 2"),
    ("s_setreg, s_setreg", SETREG, SETREG, "2 2 2 2"),
    ("s_setreg, another", SETREG, "s_getreg_b32 s21, hwreg(HW_REG_GPR_ALLOC)", "0 0 0 0"),
    ("M0, s_sendmsg", M0, "s_sendmsg sendmsg(MSG_INTERRUPT)", "1 1 1 1"),
    ("M0, ds_addtid", M0, "ds_read_addtid_b32 v50", "1 1 1 1"),
    ("M0, s_movrel", M0, "s_movrels_b32 s21, s22", "1 1 1 1"),
    ("M0, LDS DMA", M0, "buffer_load_dword v60, s[24:27], 0 offen lds", "1 1 1 1"),
    ("wide store", STORE4, "v_mov_b32 v52, v50", "1 1 2 2"),
    ("store of three", "global_store_dwordx3 v61, v[52:54], s[6:7]", "v_mov_b32 v54, v50", "1 1 2 2"),
    ("wide buffer store", "buffer_store_dwordx4 v[52:55], v61, s[24:27], 0 offen", "v_mov_b32 v52, v50", "1 1 2 2"),
    ("wide store, SGPR offset", "buffer_store_dwordx4 v[52:55], v61, s[24:27], s28 offen", "v_mov_b32 v52, v50",
     "0 0 1 1"),
    ("narrow store", "global_store_dwordx2 v61, v[52:53], s[6:7]", "v_mov_b32 v52, v50", "0 0 0 0"),
    ("ds_write_b128", "ds_write_b128 v61, v[52:55]", "v_mov_b32 v52, v50", "0 0 0 0"),
    ("VALU, permlane swap", MOVE, "v_permlane16_swap_b32 v51, v54", "- - - 2"),
    ("v_cmpx, permlane swap", CMPX, "v_permlane32_swap_b32 v51, v54", "- - - 4"),
    ("permlane swap, VALU", "v_permlane32_swap_b32 v51, v54", "v_mov_b32 v50, v51", "- - - 0"),
    ("v_cmpx, VALU", CMPX, COPY, "0 0 0 0"),
    ("VALU, VALU", MOVE, COPY, "0 0 0 0"),
    ("VALU, store", MOVE, "global_store_dword v60, v51, s[6:7]", "0 0 0 0"),
    ("VALU SGPR, SALU", FIRSTLANE, "s_add_u32 s21, s20, s20", "0 0 0 0"),
    ("VALU SGPR, SMEM", "v_readfirstlane_b32 s4, v70", "s_load_dword s21, s[4:5], 0x0", "0 0 0 0"),
]  # fmt: skip
THREE = [  # the earliest, those between, the latest
    Pair("VALU, accvgpr move, store", MOVE, "global_store_dword v60, v51, s[6:7]", 2, ("v_accvgpr_write_b32 a9, v50",)),
    Pair("VALU, f64 MFMA, store", MOVE, "global_store_dword v60, v51, s[6:7]", 2,
         ("v_mfma_f64_4x4x4f64 v[0:1], v[72:73], v[80:81], v[0:1]",)),
]  # fmt: skip


def other_pairs(target: str) -> list[Pair]:
    op = F32[8]
    file = "a" if target == "gfx908" else "v"
    forms = {
        "mfma": mfma(op, file), "mfma_c": mfma(op, file, 32, c=0),
        "mfma_acc": mfma(op, "a", 8, a="a20", c=0),
    }  # fmt: skip
    pairs = []
    for row, earlier, later, cells in ROWS:
        cell = cells.split()[TARGETS.index(target)]
        if cell != "-":
            pairs.append(Pair(row, earlier, later.format(**forms), int(cell)))
    return pairs + {"gfx908": THREE[:1], "gfx90a": THREE[1:]}.get(target, [])


def all_pairs(target: str) -> list[Pair]:
    return matrix_pairs(target) + double_pairs(target) + other_pairs(target)


def listing(pairs: list[Pair], less: int) -> tuple[list[str], list[tuple[int, int]]]:
    """Returns the lines of all pairs, each `less` wait states closer than required; (earlier, later) of each."""
    lines, places = list(PREPARE), []
    for pair in pairs:
        lines += SETTLE
        gap = [*pair.between, *nops(max(0, pair.needed - less - len(pair.between)))]
        places.append((len(lines), len(lines) + 1 + len(gap)))
        lines += [pair.earlier, *gap, pair.later]
    return lines + SETTLE, places


def require_every_row(find: Callable[[str, list[str]], list[Finding]], target: str, pairs: list[Pair]) -> None:
    """Asserts that `find` reports exactly the pairs that need wait states, when each is one short."""
    lines, places = listing(pairs, less=1)
    seen = {finding.source: finding for finding in find(target, lines)}
    for pair, (earlier, later) in zip(pairs, places, strict=True):
        finding = seen.pop(line_of(target, lines, later), None)
        if pair.needed == 0:
            assert finding is None, pair
            continue
        assert finding is not None, pair
        assert (finding.kind, finding.needed, finding.found) == ("hazard", pair.needed, pair.needed - 1), pair
        assert finding.other_source == line_of(target, lines, earlier), pair
        assert finding.severity == "error"
        assert "insert `s_nop 0`" in finding.message
    assert not seen


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("table", [matrix_pairs, double_pairs, other_pairs])
def test_every_row(table, target: str) -> None:
    require_every_row(findings, target, table(target))


@pytest.mark.parametrize("target", TARGETS)
def test_repaired(target: str) -> None:
    assert findings(target, listing(all_pairs(target), less=0)[0]) == []


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_sums_that_move_through_registers(target: str) -> None:
    """In LLVM's chain, the second instruction overwrote the part of the first one's result that the last one reads."""
    name = "v_mfma_f32_16x16x4f32" if target == "gfx90a" else "v_mfma_f32_16x16x4_f32"
    moved = [f"{name} v[34:37], v72, v80, v[34:37]", f"{name} v[32:35], v72, v80, v[34:37]", f"{name} v[32:35], v72, v80, v[32:35]"]
    assert findings(target, [*PREPARE, *SETTLE, *moved, *SETTLE]) == []
    (found,) = findings(target, [*PREPARE, *SETTLE, moved[0], moved[2], *SETTLE])
    assert (found.kind, found.place) == ("hazard", "v34")


def test_the_distance_that_is_missing() -> None:
    lines = ["v_mfma_f32_32x32x2f32 a[0:15], v72, v80, a[0:15]", "s_nop 4", "v_accvgpr_read_b32 v20, a15"]
    (finding,) = findings("gfx908", lines)
    assert (finding.needed, finding.found, finding.place) == (18, 5, "a15")
    assert re.search(r"18 required \(observed .*\): insert `s_nop 7` and `s_nop 4`$", finding.message)
    assert "(a15): 5 wait states after `v_mfma_f32_32x32x2f32" in finding.message
    assert finding.other_text == "v_mfma_f32_32x32x2f32 a[0:15], v72, v80, a[0:15]"
    (finding,) = findings("gfx908", [*lines[:1], "s_nop 0", lines[2]])
    assert "(a15): 1 wait state after `v_mfma" in finding.message


def test_along_the_path() -> None:
    """Distances count executed instructions, through branches, calls and loops, not those in the text between."""
    around = [
        "s_mov_b32 s30, 3", "loop:", "v_mfma_f32_16x16x4f32 a[0:3], v72, v80, a[0:3]", "s_sub_u32 s30, s30, 1",
        "s_cmp_lg_u32 s30, 0", "s_cbranch_scc0 out", "s_nop 15", "s_branch loop", "out:",
        "v_accvgpr_read_b32 v20, a0", "s_nop 15",
    ]  # fmt: skip
    (finding,) = findings("gfx908", around)
    assert (finding.needed, finding.found, finding.count) == (10, 3, 1)
    call = [
        "s_getpc_b64 s[30:31]", "s_add_u32 s30, s30, callee-.", "s_addc_u32 s31, s31, 0",
        "v_mov_b32 v50, v1", "s_mov_b32 s34, 2", "again:", "v_cmpx_eq_u32 s[22:23], v1, v1",
        "s_nop 1", "s_swappc_b64 s[36:37], s[30:31]",
        "s_nop 7", "s_sub_u32 s34, s34, 1", "s_cmp_lg_u32 s34, 0", "s_cbranch_scc1 again", "s_branch past",
        "callee:", DPP, "s_setpc_b64 s[36:37]", "past:",
    ]  # fmt: skip
    (finding,) = findings("gfx90a", call)
    assert (finding.needed, finding.found, finding.count) == (5, 3, 2)
    assert finding.text.startswith("v_mov_b32_dpp")
    assert finding.other_text.startswith("v_cmpx")


def test_xnack_clause() -> None:
    lines = ["s_mov_b64 s[20:21], s[4:5]", "s_load_dword s22, s[20:21], 0x0", "s_load_dword s20, s[4:5], 0x4"]
    assert findings("gfx90a:xnack-", lines) == []
    assert len(findings("gfx90a", lines)) == 1  # it may run with XNACK
    (finding,) = findings("gfx90a:xnack+", lines)
    assert (finding.kind, finding.place, finding.needed, finding.found) == ("hazard", "s20", 1, 0)
    assert findings("gfx90a:xnack+", [*lines[:2], "s_nop 0", lines[2]]) == []
    vector = ["global_load_dword v50, v60, s[4:5]", "global_load_dword v60, v61, s[4:5]"]
    assert [f.kind for f in findings("gfx90a:xnack+", vector)] == ["hazard"]
    assert findings("gfx90a:xnack+", [vector[0], "v_nop", vector[1]]) == []
    far = [vector[0], *(f"global_load_dword v{i}, v61, s[4:5]" for i in range(50, 55)), vector[1]]
    assert len(findings("gfx90a:xnack+", far)) >= 1
    assert findings("gfx90a", far) == []  # farther apart than LLVM looks
    store = ["global_store_dword v60, v50, s[4:5]", vector[1]]
    assert len(findings("gfx90a:xnack+", store)) == 1
    assert findings("gfx90a", store) == []
