"""Each cell of the measured hazard tables, typed anew as numbers, compared with the rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgpu.hardware.architectures import TARGETS
from simgpu.hardware.errors import TargetError
from simgpu.hardware.mfma import find, instructions
from simgpu.hardware.timing_rules.hazards import RULES, clashes, clause_rule, max_states, wait_states
from simgpu.hardware.timing_rules.register_use import CLASSES, ROLES, RegisterUse, matrix_classes, register_use
from tests.support.sweeps import swept


def v(*indices: int) -> list[tuple[str, int]]:
    return [("v", i) for i in indices]


D, OTHER = v(0, 1, 2, 3), v(100, 101)


def mfma(kind: str, passes: int, *, name: str = "", a=OTHER, b=OTHER, c=OTHER, d=D) -> RegisterUse:
    """Returns a matrix instruction. kind: xdl, slow (f32 on gfx942, gfx950) or dgemm."""
    classes = {"mfma"} | ({kind} if kind != "slow" else set())
    return register_use(name or f"mfma_{kind}_{passes}", classes, {"srcA": a, "srcB": b, "srcC": c}, d, passes)


def valu(*classes: str, reads=OTHER, writes=OTHER, name: str = "v_other") -> RegisterUse:
    return register_use(name, {"valu", *classes}, {"src": reads}, writes)


STORE = register_use("global_store", {"vmem", "vmem_store"}, {"data": D, "address": OTHER})
DS_WRITE = register_use("ds_write_b128", {"ds", "ds_write"}, {"data": D, "address": OTHER})
LOAD = register_use("global_load", {"vmem"}, {"address": OTHER}, D)
DS_READ = register_use("ds_read", {"ds"}, {"address": OTHER}, D)
READ, WRITE = valu(reads=D), valu(writes=D)

# Columns of 4a: (target, kind, passes). Rows: the later instruction and its cells in that order.
COLUMNS = [
    ("gfx908", "xdl", (2, 8, 16)),
    ("gfx90a", "xdl", (2, 8, 16)),
    ("gfx942", "slow", (2, 8, 16)),
    ("gfx942", "xdl", (2, 4, 8)),
    ("gfx950", "xdl", (2, 4, 8, 16)),
    ("gfx950", "slow", (2, 8, 16)),
]
READS = ["4/10/18", "5/11/19", "4/10/18", "5/7/11", "5/8/12/20", "4/10/18"]
NOT_908 = ["0/0/0", *READS[1:]]
TABLE_4A = {
    "VALU read": (lambda kind: READ, READS),
    "VALU overwrite": (lambda kind: WRITE, ["1/7/15", *READS[1:]]),
    "store": (lambda kind: STORE, NOT_908),
    "ds_write": (lambda kind: DS_WRITE, NOT_908),
    "load": (lambda kind: LOAD, NOT_908),
    "ds_read": (lambda kind: DS_READ, NOT_908),
    "identical C, same opcode": (
        lambda kind: "same",
        ["0/0/0", "0/0/0", "2/0/0", "2/0/0", "2/0/0/0", "2/0/0"],
    ),
    "overlapping C": (
        lambda kind: mfma(kind, 8, name="other", c=v(2, 3, 4, 5), d=OTHER),
        ["2/2/2", "2/8/16", "2/8/16", "3/5/9", "4/6/10/18", "2/8/16"],
    ),
    "overlapping C of f64": (
        lambda kind: mfma("dgemm", 4, c=v(2, 3), d=OTHER),
        [None, "3/9/17", "2/8/16", "3/5/9", "3/6/10/18", "2/8/16"],
    ),
    "overlapping C of XDL": (
        lambda kind: mfma("xdl", 8, name="other", c=v(2, 3, 4, 5), d=OTHER),
        ["2/2/2", "2/8/16", "0/0/0", "3/5/9", "4/6/10/18", "0/0/0"],
    ),
    "overlapping C of non-XDL f32": (
        lambda kind: mfma("slow", 8, name="other", c=v(2, 3, 4, 5), d=OTHER),
        [None, None, "2/8/16", "3/5/9", "3/6/10/18", "2/8/16"],
    ),
    "identical C, other opcode": (
        lambda kind: mfma("xdl", 8, name="other", c=D),
        ["0/0/0", "0/0/0", "2/0/0", "2/0/0", "4/6/10/18", "2/0/0"],
    ),
    "A": (lambda kind: mfma("xdl", 8, a=D, d=OTHER), ["4/4/4", *READS[1:]]),
    "B": (lambda kind: mfma("xdl", 8, b=v(3), d=OTHER), ["4/4/4", *READS[1:]]),
}
CELLS_4A = [
    (row, target, kind, p, later(kind), int(cell))
    for row, (later, cells) in TABLE_4A.items()
    for (target, kind, passes), line in zip(COLUMNS, cells)
    if line is not None
    for p, cell in zip(passes, line.split("/"), strict=True)
]


@swept("row, target, kind, passes, later, needed", CELLS_4A)
def test_matrix_results(row, target, kind, passes, later, needed):
    first = mfma(kind, passes)
    later = mfma(kind, passes, c=D) if later == "same" else later
    assert wait_states(first, later, target) == needed


@pytest.mark.parametrize(
    "target, kind, passes, needed",
    [
        *(("gfx908", "xdl", p, n) for p, n in ((2, 0), (8, 5), (16, 13))),
        *(("gfx90a", "xdl", p, n) for p, n in ((2, 1), (8, 7), (16, 15))),
        *(("gfx942", "slow", p, 0) for p in (2, 8, 16)),
        *(("gfx942", "xdl", p, n) for p, n in ((2, 1), (4, 3), (8, 7))),
        *(("gfx950", "xdl", p, n) for p, n in ((2, 1), (4, 3), (8, 7), (16, 15))),
    ],
)
def test_matrix_sources_overwritten(target, kind, passes, needed):
    assert wait_states(mfma(kind, passes, c=D, d=v(9)), WRITE, target) == needed
    assert wait_states(mfma(kind, passes, a=D, d=v(9)), WRITE, target) == 0
    assert wait_states(mfma(kind, passes, b=D, d=v(9)), WRITE, target) == 0


F64 = {  # later: (4x4x4, 16x16x4, 16x16x4 on gfx950)
    "VALU read": (READ, 6, 11, 19),
    "VALU write": (WRITE, 6, 11, 11),
    "load": (LOAD, 6, 11, 11),
    "store": (STORE, 9, 18, 18),
    "ds_write": (DS_WRITE, 9, 18, 18),
    "overlap": (mfma("dgemm", 4, name="other", c=v(2, 3), d=OTHER), 4, 9, 17),
    "A": (mfma("dgemm", 8, a=D, d=OTHER), 6, 11, 19),
    "B of f16": (mfma("xdl", 8, b=D, d=OTHER), 6, 11, 19),
    "v_fma_f64": (valu("fma_f64"), 2, 2, 2),
    "overlap of f16": (mfma("xdl", 8, c=v(3, 4), d=OTHER), 0, 0, 0),
}


@pytest.mark.parametrize("row", F64)
def test_f64_results(row):
    later, small, large, cdna4 = F64[row]
    for target in ("gfx90a", "gfx942", "gfx950"):
        assert wait_states(mfma("dgemm", 4), later, target) == small
        assert wait_states(mfma("dgemm", 16 if target == "gfx950" else 8), later, target) == (
            cdna4 if target == "gfx950" else large
        )


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("kind", ["xdl", "slow"])
def test_what_another_matrix_instruction_wrote_since_is_its_result(target: str, kind: str) -> None:
    """LLVM chains them so: D moves down by two registers, and the next instruction uses it as its C."""
    first, moved = mfma(kind, 8, d=v(2, 3, 4, 5)), mfma(kind, 8, c=v(2, 3, 4, 5), d=v(0, 1, 2, 3))
    last = mfma(kind, 8, c=v(0, 1, 2, 3), d=v(0, 1, 2, 3))
    overlapping = wait_states(first, last, target)
    assert overlapping == wait_states(first, last, target, [valu()]) >= (0 if (target, kind) == ("gfx90a", "slow") else 8)
    assert wait_states(first, last, target, [moved]) == 0
    partly = mfma(kind, 8, d=v(0, 1, 2))  # leaves v3 to the first one
    assert wait_states(first, last, target, [partly]) == overlapping
    same = mfma(kind, 8, d=v(0, 1, 2, 3))  # identical C, except for the overwritten registers
    assert wait_states(same, last, target, [mfma(kind, 8, d=v(3, 4))]) == overlapping


def test_f64_accumulators():
    for target in ("gfx90a", "gfx942", "gfx950"):
        for passes, needed in ((4, 4), (8, 0), (16, 0)):
            assert wait_states(mfma("dgemm", passes), mfma("dgemm", passes, c=D), target) == needed
    overlap = mfma("slow", 8, c=v(3, 4), d=OTHER)
    assert [wait_states(mfma("dgemm", p), overlap, "gfx942") for p in (4, 8)] == [4, 9]
    assert [wait_states(mfma("dgemm", p), overlap, "gfx950") for p in (4, 16)] == [4, 17]
    assert wait_states(mfma("dgemm", 8), mfma("xdl", 8, c=v(3, 4), d=OTHER), "gfx90a") == 0


VCC, EXEC, M0 = ["vcc"], ["exec"], ["m0"]
S4 = [("s", 4)]
AGPR = [("a", 0), ("a", 1)]
ACC_WRITE = register_use("v_accvgpr_write_b32", {"valu", "accvgpr_write"}, {"src": OTHER}, AGPR)
ACC_READ = register_use("v_accvgpr_read_b32", {"valu", "accvgpr_read"}, {"src": AGPR}, D)
MODE = [("hwreg", 1)]
SETREG = register_use("s_setreg_b32", {"salu", "setreg"}, {}, MODE)
DOT = register_use("v_dot4_i32_i8", {"valu", "dot"}, {"srcA": OTHER, "srcB": OTHER, "srcC": v(99)}, v(0))
SALU_M0 = register_use("s_mov_b32", {"salu"}, {}, M0)
WIDE = register_use("global_store_dwordx4", {"vmem", "vmem_store", "store_gt8"}, {"data": D, "address": OTHER})
CMPX = valu(writes=EXEC, name="v_cmpx_eq_u32")

# 4b: (earlier, later, cells of gfx908, gfx90a, gfx942, gfx950); "-" does not exist there.
TABLE_4B = {
    "VALU, MFMA A": (WRITE, mfma("xdl", 8, a=v(0)), "2 2 2 2"),
    "VALU, MFMA B": (WRITE, mfma("xdl", 8, b=v(0)), "2 2 2 2"),
    "VALU, MFMA C": (WRITE, mfma("xdl", 8, c=D), "2 2 2 2"),
    "VALU, v_accvgpr_write": (valu(writes=OTHER), ACC_WRITE, "2 0 0 0"),
    "v_accvgpr_write, C": (ACC_WRITE, mfma("xdl", 8, c=AGPR), "1 2 2 2"),
    "v_accvgpr_write, A": (ACC_WRITE, mfma("xdl", 8, a=AGPR), "3 2 2 2"),
    "v_accvgpr_write, B": (ACC_WRITE, mfma("xdl", 8, b=AGPR), "3 2 2 2"),
    "v_accvgpr_write, read": (ACC_WRITE, ACC_READ, "3 0 0 0"),
    "v_accvgpr_read, store": (ACC_READ, STORE, "2 0 0 0"),
    "v_accvgpr_read, ds_write": (ACC_READ, DS_WRITE, "2 0 0 0"),
    "v_accvgpr_read, address": (
        ACC_READ,
        register_use("global_load", {"vmem"}, {"address": v(0, 1)}, OTHER),
        "2 0 0 0",
    ),
    "v_cmpx, MFMA": (CMPX, mfma("xdl", 8), "4 4 4 4"),
    "v_cmpx, DPP": (CMPX, valu("dpp"), "5 5 5 5"),
    "VALU, DPP": (WRITE, valu("dpp", reads=D), "2 2 2 2"),
    "SGPR, VMEM": (valu(writes=S4), register_use("buffer_load", {"vmem"}, {"soffset": S4}), "5 5 5 5"),
    "VCC, VMEM": (valu(writes=VCC), register_use("global_load", {"vmem"}, {"soffset": VCC}), "5 5 5 5"),
    "VCC, v_div_fmas": (valu(writes=VCC), valu("div_fmas"), "4 4 4 4"),
    "SGPR, lane select": (
        valu(writes=S4),
        register_use("v_readlane", {"valu", "readlane"}, {"lane_select": S4}, ["vcc"]),
        "4 4 4 4",
    ),
    "SGPR, v_writelane": (
        valu(writes=S4),
        register_use("v_writelane", {"valu", "writelane"}, {"lane_select": S4}, D),
        "4 4 4 4",
    ),
    "SGPR, VALU": (valu(writes=S4), valu(reads=S4), "0 0 2 2"),
    "VCC, VALU": (valu(writes=VCC), valu(reads=VCC), "0 0 2 2"),
    "VALU, v_readlane": (WRITE, valu("readlane", reads=D), "0 0 1 1"),
    "v_cmpx, v_readlane": (CMPX, valu("readlane"), "0 0 4 4"),
    "v_cmpx, v_writelane": (CMPX, valu("writelane"), "0 0 4 4"),
    "trans, VALU": (valu("trans", writes=D), READ, "0 0 1 1"),
    "trans, trans": (valu("trans", writes=D), valu("trans", reads=D), "0 0 0 0"),
    "partial write, VALU": (valu("partial_write", writes=D), READ, "0 0 1 1"),
    "v_dot, another reads": (DOT, valu(reads=v(0)), "0 3 3 3"),
    "v_dot, another overwrites": (DOT, valu(writes=v(0)), "0 3 3 3"),
    "v_dot, same A": (DOT, register_use(DOT.mnemonic, {"valu", "dot"}, {"srcA": v(0)}, v(9)), "0 3 3 3"),
    "v_dot, same B": (DOT, register_use(DOT.mnemonic, {"valu", "dot"}, {"srcB": v(0)}, v(9)), "0 3 3 3"),
    "v_dot, same C": (DOT, register_use(DOT.mnemonic, {"valu", "dot"}, {"srcC": v(0)}, v(9)), "0 0 0 0"),
    "SALU, VALU": (register_use("s_mov", {"salu"}, {}, S4), valu(reads=S4), "0 0 0 0"),
    "SALU, VMEM": (
        register_use("s_mov", {"salu"}, {}, S4),
        register_use("buffer_load", {"vmem"}, {"soffset": S4}),
        "0 0 0 0",
    ),
    "SALU EXEC, VALU": (register_use("s_mov", {"salu"}, {}, EXEC), valu("dpp"), "0 0 0 0"),
    "s_setreg, s_getreg": (SETREG, register_use("s_getreg_b32", {"salu", "getreg"}, {"src": MODE}, S4), "2 2 2 2"),
    "s_setreg, s_setreg": (SETREG, SETREG, "2 2 2 2"),
    "s_setreg, another": (
        SETREG,
        register_use("s_getreg_b32", {"salu", "getreg"}, {"src": [("hwreg", 2)]}, S4),
        "0 0 0 0",
    ),
    "s_setreg, VALU": (SETREG, READ, "0 0 0 0"),
    "wide store, VALU": (WIDE, WRITE, "1 1 2 2"),
    "wide soffset store, VALU": (
        register_use("buffer_store_dwordx4", {"vmem", "vmem_store", "store_gt8_soffset"}, {"data": D}),
        WRITE,
        "0 0 1 1",
    ),
    "narrow store, VALU": (STORE, WRITE, "0 0 0 0"),
    "ds_write_b128, VALU": (DS_WRITE, WRITE, "0 0 0 0"),
    "VALU, permlane swap": (WRITE, valu("permlane_swap", reads=D), "- - - 2"),
    "v_cmpx, permlane swap": (CMPX, valu("permlane_swap"), "- - - 4"),
    "permlane swap, VALU": (valu("permlane_swap", writes=D), READ, "- - - 0"),
    "v_cmpx, VALU": (CMPX, READ, "0 0 0 0"),
    "VALU, VALU": (WRITE, READ, "0 0 0 0"),
    "VALU, store": (WRITE, STORE, "0 0 0 0"),
    "VALU SGPR, SALU": (valu(writes=S4), register_use("s_add_u32", {"salu"}, {"src": S4}, S4), "0 0 0 0"),
    "VALU SGPR, SMEM": (valu(writes=S4), register_use("s_load_dword", {"smem"}, {"address": S4}, S4), "0 0 0 0"),
    **{
        f"M0, {kind}": (SALU_M0, register_use(kind, {kind}, {"src": M0}), "1 1 1 1")
        for kind in ("sendmsg", "gds", "ds_addtid", "movrel", "lds_dma", "lds_direct")
    },
}
CELLS_4B = [
    (row, target, earlier, later, int(cell))
    for row, (earlier, later, cells) in TABLE_4B.items()
    for target, cell in zip(TARGETS, cells.split(), strict=True)
    if cell != "-"
]


@swept("row, target, earlier, later, needed", CELLS_4B)
def test_everything_else(row, target, earlier, later, needed):
    assert wait_states(earlier, later, target) == needed


def apart(access_: RegisterUse) -> RegisterUse:
    """Returns the same instruction on registers that no other case uses."""

    def move(regs):
        return frozenset((reg[0], reg[1] + 1000) if isinstance(reg, tuple) else f"{reg}'" for reg in regs)

    return RegisterUse(
        access_.mnemonic,
        access_.classes,
        tuple((role, move(regs)) for role, regs in access_.reads),
        move(access_.writes),
        access_.passes,
    )


@pytest.mark.parametrize("target", TARGETS)
def test_registers_must_be_shared(target):
    for row, (earlier, later, _) in TABLE_4B.items():
        if not earlier.writes & {"exec", "vcc", "m0"}:
            assert wait_states(earlier, apart(later), target) == 0, row


def test_three_instructions():
    for target, needed in (("gfx908", 2), ("gfx90a", 0), ("gfx942", 0), ("gfx950", 0)):
        assert wait_states(WRITE, STORE, target, [ACC_WRITE]) == needed
        found = clashes([WRITE, apart(ACC_WRITE)], STORE, target)
        assert [c.needed - c.found for c in found] == [1] * (target == "gfx908")
    for target, needed in (("gfx908", 0), ("gfx90a", 2), ("gfx942", 0), ("gfx950", 0)):
        assert wait_states(WRITE, STORE, target, [mfma("dgemm", 4, d=v(50))]) == needed


def test_xnack_clauses():
    first = register_use("s_load_dword", {"smem"}, {"address": S4}, [("s", 8)])
    second = register_use("s_load_dword", {"smem"}, {"address": [("s", 6)]}, S4)
    other = register_use("s_load_dword", {"smem"}, {"address": [("s", 20)]}, [("s", 22)])
    for target, needed in zip(TARGETS, (1, 1, 1, 0), strict=True):
        assert (clause_rule(first, second, target) is not None) == needed
        assert clause_rule(first, other, target) is None
        assert wait_states(first, second, target) == 0


@given(st.integers(0, 25), st.sampled_from(TARGETS))
def test_distance_is_counted_in_wait_states(distance, target):
    nop = [register_use("s_nop", {"salu"}, states=distance)] if distance else []
    needed = wait_states(mfma("xdl", 16), READ, target)
    found = clashes([mfma("xdl", 16), *nop], READ, target)
    assert [(c.needed, c.found, c.index) for c in found] == (
        [(needed, distance, 0)] if distance < needed else []
    )


def test_the_longest_distance_bounds_every_cell():
    for cells in ([(c[1], c[-1]) for c in CELLS_4A], [(c[1], c[-1]) for c in CELLS_4B]):
        assert all(needed <= max_states(target) for target, needed in cells)
    assert {target: max_states(target) for target in TARGETS} == {
        "gfx908": 18,
        "gfx90a": 19,
        "gfx942": 19,
        "gfx950": 20,
    }


def test_every_rule_names_known_classes_and_a_source():
    words = {
        w
        for rule in RULES
        for e in (rule.earlier, rule.later, rule.between)
        for w in e.replace("|", " ").replace("-", "").split()
    }
    assert words <= CLASSES
    assert {role for rule in RULES for role in rule.roles} <= ROLES
    assert all(rule.source for rule in RULES) and len({rule.name for rule in RULES}) == len(RULES)
    assert matrix_classes(find("v_mfma_f32_16x16x4f32", "gfx908")) == {"mfma", "xdl"}
    assert matrix_classes(find("v_mfma_f32_16x16x4f32", "gfx942")) == {"mfma"}
    assert all(
        ("dgemm" in matrix_classes(row)) == (row.cd_type == "f64") for t in TARGETS for row in instructions(t)
    )


def test_unknown_names_are_refused():
    with pytest.raises(TargetError):
        wait_states(READ, WRITE, "gfx1100")
    with pytest.raises(ValueError, match="vector"):
        register_use("v_mov_b32", {"vector"})
