"""Hazards: wait states that software must keep, as a table for emitter and checker.

One wait state is one issued instruction; `s_nop N` is N+1. A rule requires `states` of them between an earlier and a later
instruction of a wave. Distances: observed with LLVM 19 (gfx908, gfx90a, gfx942) and LLVM 24 (gfx950) on adjacent pairs, and
LLVM's GCNHazardRecognizer for pairs where both exist. Cells that were not observed have that in `source`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from simgpu.hardware.architectures import TARGETS
from simgpu.hardware.errors import TargetError
from simgpu.hardware.mfma import instructions
from simgpu.hardware.timing_rules.register_use import Register, RegisterUse

_FILES = {
    "vgpr": frozenset("va"),
    "sgpr": frozenset({"s", "vcc"}),
    "hwreg": frozenset({"hwreg"}),
}


@dataclass(frozen=True)
class ByPasses:
    """Wait states that depend on the passes P of a matrix instruction."""

    plus: int | None = None  # P + plus
    at: tuple[tuple[int, int], ...] = ()  # exceptions, (P, wait states)

    def __call__(self, passes: int) -> int:
        for p, states in self.at:
            if p == passes:
                return states
        return 0 if self.plus is None else max(0, passes + self.plus)


Cell = int | ByPasses
Relation = Literal[
    "raw", "waw", "war",  # they share a register; the reader reads it in one of `roles`
    "same_c",  # the later matrix instruction's C is exactly what the earlier wrote
    "overlap_c",  # the later one's C is only partly the earlier's result
    "writes",  # the earlier writes `registers`, whatever the later one does
    "order",  # they need not share anything
    # One's result is the other's address, and they are in one clause that XNACK may replay (`clauses`): an instruction of
    # another kind must break it.
    "clause",
]  # fmt: skip


@dataclass(frozen=True)
class HazardRule:
    """A row of the table: the wait states required between an earlier and a later instruction."""

    name: str
    earlier: str  # classes that must all hold: "a|b" is either, "-c" is not c
    later: str  # as `earlier`
    relation: Relation
    states: tuple[Cell, Cell, Cell, Cell]  # on each of `TARGETS`
    source: str
    roles: tuple[str, ...] = ()  # of the read register; any if empty
    registers: str = "vgpr"  # the file of the shared register ("vgpr", "sgpr", "hwreg"), or one register's name
    opcode: Literal["", "same", "different"] = ""  # restricts the rule to pairs of one mnemonic, or of different ones
    between: str = ""  # a class that must occur between the two
    tolerated: bool = False  # True if AMD's own kernels often violate it and run (docs/notes/2026-11-26-checked-mode.md)

    def applies(self, earlier: RegisterUse, later: RegisterUse, between: Sequence[RegisterUse] = ()) -> bool:
        """True if registers, opcodes and the instructions between match the rule; classes are not checked."""
        if self.opcode and (self.opcode == "same") != (earlier.mnemonic == later.mnemonic):
            return False
        if self.between and not any(_match(self.between, other.classes) for other in between):
            return False
        if self.relation == "order":
            return True
        shared = self.shared_registers(earlier, later)
        if self.relation in ("same_c", "overlap_c"):
            # A register that another matrix instruction wrote since holds that one's result: LLVM checks the latest that
            # overlaps (GCNHazardRecognizer::checkMAIHazards90A).
            shared -= frozenset().union(*(other.writes for other in between if "mfma" in other.classes))
            exact = later.read(("srcC",)) == earlier.writes == shared
            return bool(shared) and exact == (self.relation == "same_c")
        return bool(shared)

    def shared_registers(self, earlier: RegisterUse, later: RegisterUse) -> frozenset[Register]:
        """Returns the registers that both instructions use in the way that the rule is about."""
        if self.relation == "order":
            return frozenset()
        if self.relation == "clause":
            address = ("address",)
            return earlier.read(address) & later.writes | earlier.writes & later.read(address)
        if self.relation in ("same_c", "overlap_c"):
            return later.read(("srcC",)) & earlier.writes
        if self.relation == "writes":
            return earlier.writes & {self.registers}
        first = earlier.read(self.roles) if self.relation == "war" else earlier.writes
        second = later.read(self.roles) if self.relation == "raw" else later.writes
        return self._of_file(first & second)

    def concerns(self, earlier: RegisterUse) -> bool:
        """True if an earlier instruction uses registers of the rule; classes are not checked."""
        if self.relation == "writes":
            return self.registers in earlier.writes
        if self.relation in ("raw", "waw", "war"):
            return bool(self._of_file(earlier.read(self.roles) if self.relation == "war" else earlier.writes))
        return self.relation != "clause"

    def _of_file(self, registers: frozenset[Register]) -> frozenset[Register]:
        files = _FILES.get(self.registers, frozenset({self.registers}))
        return frozenset(r for r in registers if (r if isinstance(r, str) else r[0]) in files)


def source_of(name: str) -> str:
    """Returns the source of the rule called `name`, and the file that has it, for messages."""
    return next(f"{rule.source}; table timing_rules/hazards.py" for rule in RULES if rule.name == name)


P = ByPasses
_READ_90A, _READ_942, _READ_XDL = P(3), P(2), P(3)
_READ_950_XDL = P(4, at=((2, 5),))
_F64_READ = P(at=((4, 6), (8, 11), (16, 19)))
_F64_OVERWRITE = P(at=((4, 6), (8, 11), (16, 11)))
_F64_STORE = P(at=((4, 9), (8, 18), (16, 18)))
_F64_C = P(at=((4, 4), (8, 9), (16, 17)))
_F64_SAME_C = P(at=((4, 4),))
_P2 = P(at=((2, 2),))

_D = "observed D distances by passes, LLVM 19/24; gfx950 XDL: llvm-project PR 126132"
_F64 = "observed f64 D distances, LLVM 19/24; gfx950: llvm-project PR 117262"
_SEEN = "observed, LLVM 19 and 24"
_SLOW = "mfma -xdl -dgemm"  # gfx942's f32; on other targets all except f64 is XDL

RULES: tuple[HazardRule, ...] = (
    # Results of matrix instructions.
    HazardRule("XDL D, VALU reads", "xdl", "valu", "raw", (P(2), _READ_90A, _READ_XDL, _READ_950_XDL), _D),
    HazardRule("non-XDL D, VALU reads", _SLOW, "valu", "raw", (0, 0, _READ_942, _READ_942), _D),
    HazardRule("f64 D, VALU reads", "dgemm", "valu", "raw", (0, _F64_READ, _F64_READ, _F64_READ), _F64),
    HazardRule("XDL D, VALU overwrites", "xdl", "valu", "waw", (P(-1), _READ_90A, _READ_XDL, _READ_950_XDL),
               _D),
    HazardRule("non-XDL D, VALU overwrites", _SLOW, "valu", "waw", (0, 0, _READ_942, _READ_942), _D),
    HazardRule("f64 D, VALU overwrites", "dgemm", "valu", "waw",
               (0, _F64_OVERWRITE, _F64_OVERWRITE, _F64_OVERWRITE), _F64),
    HazardRule("XDL D, memory reads", "xdl", "vmem|ds", "raw", (0, _READ_90A, _READ_XDL, _READ_950_XDL),
               _D + "; gfx908 cannot store an AccVGPR"),
    HazardRule("non-XDL D, memory reads", _SLOW, "vmem|ds", "raw", (0, 0, _READ_942, _READ_942), _D),
    HazardRule("f64 D, memory reads", "dgemm", "vmem|ds", "raw", (0, _F64_STORE, _F64_STORE, _F64_STORE),
               _F64),
    HazardRule("XDL D, load overwrites", "xdl", "vmem|ds", "waw", (0, _READ_90A, _READ_XDL, _READ_950_XDL),
               _D),
    HazardRule("non-XDL D, load overwrites", _SLOW, "vmem|ds", "waw", (0, 0, _READ_942, _READ_942), _D),
    HazardRule("f64 D, load overwrites", "dgemm", "vmem|ds", "waw",
               (0, _F64_OVERWRITE, _F64_OVERWRITE, _F64_OVERWRITE), _F64),
    HazardRule("XDL C, VALU overwrites", "xdl", "valu", "war", (P(-3), P(-1), P(-1), P(-1)),
               _D + "; gfx950 with 16 passes by formula", roles=("srcC",)),
    HazardRule("D, same opcode's identical C", "mfma -dgemm", "mfma", "same_c", (0, 0, _P2, _P2), _D,
               opcode="same"),
    HazardRule("XDL D, another opcode's identical C", "xdl", "xdl", "same_c", (0, 0, _P2, P(2)),
               "gfx950: llvm-project PR 218363, the overlap distance (LLVM emits none)", opcode="different"),
    HazardRule("XDL D, another non-XDL opcode's identical C", "xdl", "mfma -xdl", "same_c",
               (0, 0, _P2, P(2, at=((2, 3),))),
               "gfx950: llvm-project PR 218363, the overlap distance (LLVM emits none)", opcode="different"),
    HazardRule("non-XDL D, another non-XDL opcode's identical C", _SLOW, "mfma -xdl", "same_c",
               (0, 0, _P2, P(0)), "gfx950: llvm-project PR 218363, the overlap distance (LLVM emits none)",
               opcode="different"),
    HazardRule("non-XDL D, another XDL opcode's identical C", _SLOW, "xdl", "same_c", (0, 0, _P2, _P2), _D,
               opcode="different"),
    HazardRule("f64 D, identical C", "dgemm", "dgemm", "same_c", (0, _F64_SAME_C, _F64_SAME_C, _F64_SAME_C),
               _F64),
    HazardRule("XDL D, overlapping C", "xdl", "xdl", "overlap_c", (2, P(0), P(1), P(2)), _D),
    HazardRule("XDL D, overlapping C of non-XDL", "xdl", "mfma -xdl -dgemm", "overlap_c",
               (0, 0, P(1), P(2, at=((2, 3),))), _D),
    HazardRule("XDL D, overlapping C of f64", "xdl", "dgemm", "overlap_c",
               (0, P(1), P(1), P(2, at=((2, 3),))), _D + "; gfx942: LLVM 22"),
    HazardRule("non-XDL D, overlapping C of non-XDL", _SLOW, "mfma -xdl", "overlap_c", (0, 0, P(0), P(0)),
               _D),
    HazardRule("f64 D, overlapping C of f64", "dgemm", "dgemm", "overlap_c", (0, _F64_C, _F64_C, _F64_C),
               _F64),
    HazardRule("f64 D, overlapping C of f32", "dgemm", _SLOW, "overlap_c", (0, 0, _F64_C, _F64_C), _F64),
    HazardRule("XDL D, A or B", "xdl", "mfma", "raw", (4, _READ_90A, _READ_XDL, _READ_950_XDL), _D,
               roles=("srcA", "srcB", "index")),
    HazardRule("non-XDL D, A or B", _SLOW, "mfma", "raw", (0, 0, _READ_942, _READ_942), _D,
               roles=("srcA", "srcB", "index")),
    HazardRule("f64 D, A or B", "dgemm", "mfma", "raw", (0, _F64_READ, _F64_READ, _F64_READ), _F64,
               roles=("srcA", "srcB", "index")),
    HazardRule("f64 MFMA, v_fma_f64", "dgemm", "fma_f64", "order", (0, 2, 2, 2), _F64),
    # Operands of matrix instructions and AccVGPR moves.
    HazardRule("VALU result, MFMA operand", "valu -accvgpr_write", "mfma", "raw", (2, 2, 2, 2), _SEEN),
    HazardRule("VALU result, v_accvgpr_write", "valu", "accvgpr_write", "raw", (2, 0, 0, 0), _SEEN),
    HazardRule("v_accvgpr_write, C", "accvgpr_write", "mfma", "raw", (1, 2, 2, 2), _SEEN, roles=("srcC",)),
    HazardRule("v_accvgpr_write, A or B", "accvgpr_write", "mfma", "raw", (3, 2, 2, 2), _SEEN,
               roles=("srcA", "srcB", "index")),
    HazardRule("v_accvgpr_write, v_accvgpr_read", "accvgpr_write", "accvgpr_read", "raw", (3, 0, 0, 0),
               "observed, LLVM 19"),
    HazardRule("v_accvgpr_read, memory reads", "accvgpr_read", "vmem|ds", "raw", (2, 0, 0, 0),
               "observed, LLVM 19"),
    HazardRule("VALU result, accvgpr move, memory reads", "valu", "vmem|ds", "raw", (2, 0, 0, 0),
               "observed, LLVM 19 and 22: 2 from the VALU, so 1 behind the move",
               between="accvgpr_read|accvgpr_write"),
    HazardRule("VALU result, f64 MFMA, memory reads", "valu", "vmem|ds", "raw", (0, 2, 0, 0),
               "silicon bug; observed, LLVM 19 and 22: 2 from the VALU", between="dgemm"),
    # EXEC, VCC and SGPRs that VALU writes.
    HazardRule("EXEC by VALU, MFMA", "valu", "mfma", "writes", (4, 4, 4, 4), _SEEN, registers="exec"),
    HazardRule("EXEC by VALU, DPP", "valu", "dpp", "writes", (5, 5, 5, 5), _SEEN, registers="exec"),
    HazardRule("EXEC by VALU, lane access", "valu", "readlane|writelane", "writes", (0, 0, 4, 4), _SEEN,
               registers="exec"),
    HazardRule("EXEC by VALU, permlane swap", "valu", "permlane_swap", "writes", (0, 0, 0, 4),
               "llvm-project PR 117286", registers="exec"),
    HazardRule("VCC by VALU, v_div_fmas", "valu", "div_fmas", "writes", (4, 4, 4, 4), _SEEN, registers="vcc"),
    HazardRule("SGPR by VALU, memory reads", "valu", "vmem", "raw", (5, 5, 5, 5), _SEEN, registers="sgpr"),
    HazardRule("SGPR by VALU, lane select", "valu", "readlane|writelane", "raw", (4, 4, 4, 4), _SEEN,
               roles=("lane_select",), registers="sgpr"),
    HazardRule("SGPR by VALU, VALU reads", "valu", "valu", "raw", (0, 0, 2, 2), _SEEN, registers="sgpr", tolerated=True),
    # VGPRs from VALU to VALU.
    HazardRule("VALU result, DPP", "valu", "dpp", "raw", (2, 2, 2, 2), _SEEN),
    HazardRule("VALU result, v_readlane", "valu", "readlane", "raw", (0, 0, 1, 1), _SEEN),
    HazardRule("transcendental result, VALU reads", "trans", "valu -trans", "raw", (0, 0, 1, 1), _SEEN),
    HazardRule("partial write, VALU reads", "partial_write", "valu", "raw", (0, 0, 1, 1), _SEEN),
    HazardRule("v_dot result, another reads", "dot", "valu|mfma|vmem|ds", "raw", (0, 3, 3, 3),
               "observed, LLVM 19; memory and gfx950: LLVM 22", opcode="different"),
    HazardRule("v_dot result, another overwrites", "dot", "valu", "waw", (0, 3, 3, 3),
               "observed, LLVM 19; gfx950 by formula", opcode="different"),
    HazardRule("v_dot result, same opcode's A or B", "dot", "dot", "raw", (0, 3, 3, 3),
               "observed, LLVM 19; gfx950 by formula", roles=("srcA", "srcB"), opcode="same"),
    # As the same opcode's C a v_dot result is forwarded: clang 19 and 22 emit consecutive v_dot4c_i32_i8 on gfx90a and
    # gfx942.
    HazardRule("VALU result, permlane swap", "valu", "permlane_swap", "raw", (0, 0, 0, 2),
               "llvm-project PR 117287"),
    # Scalar state and memory.
    HazardRule("s_setreg, same hwreg read", "setreg", "getreg", "raw", (2, 2, 2, 2), _SEEN,
               registers="hwreg"),
    HazardRule("s_setreg, same hwreg set", "setreg", "setreg", "waw", (2, 2, 2, 2), _SEEN, registers="hwreg"),
    HazardRule("M0 by SALU, its implicit readers", "salu", "sendmsg|gds|ds_addtid|movrel|lds_dma|lds_direct",
               "writes", (1, 1, 1, 1), "observed, LLVM 19; gfx950's LDS DMA by formula", registers="m0", tolerated=True),
    HazardRule("wide store data, overwritten", "store_gt8", "valu|mfma", "war", (1, 1, 2, 2), _SEEN,
               roles=("data",)),
    HazardRule("wide buffer store data with SGPR offset, overwritten", "store_gt8_soffset", "valu|mfma",
               "war", (0, 0, 1, 1), "LLVM 24; llvm-project PR 197267", roles=("data",)),
    HazardRule("SMEM clause, address overwritten", "smem", "smem", "clause", (1, 1, 1, 0),
               "XNACK replay; observed, LLVM 19"),
    HazardRule("VMEM clause, address overwritten", "vmem", "vmem", "clause", (1, 1, 1, 0),
               "XNACK replay; observed, LLVM 19"),
)  # fmt: skip


def _wait_states(cell: Cell, passes: int) -> int:
    """Returns the wait states of a cell after an instruction of `passes` passes."""
    return cell(passes) if isinstance(cell, ByPasses) else cell


@functools.cache
def _terms(expression: str) -> tuple[tuple[frozenset[str], ...], frozenset[str]]:
    words = expression.split()
    needed = tuple(frozenset(word.split("|")) for word in words if not word.startswith("-"))
    barred = frozenset(word[1:] for word in words if word.startswith("-"))
    return needed, barred


def _match(expression: str, classes: frozenset[str]) -> bool:
    needed, barred = _terms(expression)
    return all(group & classes for group in needed) and not barred & classes


@dataclass(frozen=True)
class Clash:
    """A distance that is too short."""

    rule: HazardRule
    index: int  # of the earlier instruction in the window that was searched
    needed: int  # wait states required between the two
    found: int  # wait states between the two


@functools.cache
def _candidates(
    earlier: frozenset[str], later: frozenset[str], target: str
) -> tuple[tuple[HazardRule, Cell], ...]:
    """Returns the rules whose classes match and that require wait states on the target."""
    if target not in TARGETS:
        raise TargetError(f"no hazard rules for {target!r}; there are {', '.join(TARGETS)}")
    column = TARGETS.index(target)
    return tuple(
        (rule, rule.states[column])
        for rule in RULES
        if rule.states[column] != 0 and _match(rule.earlier, earlier) and _match(rule.later, later)
    )


def clash(
    earlier: RegisterUse, later: RegisterUse, target: str, between: Sequence[RegisterUse] = ()
) -> tuple[HazardRule | None, int]:
    """Returns (the rule that requires the most wait states between this pair, their number); (None, 0) if none applies.

    Rules about clauses are not included: see `clause_rule`. between: the instructions between the two, in order, for rules about
    three instructions. TargetError for an unknown gfx name.
    """
    worst: tuple[HazardRule | None, int] = (None, 0)
    for rule, cell in _candidates(earlier.classes, later.classes, target):
        if rule.relation != "clause" and rule.applies(earlier, later, between):
            states = _wait_states(cell, earlier.passes)
            if states > worst[1]:
                worst = rule, states
    return worst


def clause_rule(earlier: RegisterUse, later: RegisterUse, target: str) -> HazardRule | None:
    """Returns the rule that forbids two instructions in one clause, if there is one. Raises TargetError for an unknown gfx name."""
    rules = (rule for rule, _ in _candidates(earlier.classes, later.classes, target) if rule.relation == "clause")
    return next((rule for rule in rules if rule.applies(earlier, later)), None)


def wait_states(earlier: RegisterUse, later: RegisterUse, target: str, between: Sequence[RegisterUse] = ()) -> int:
    """Returns the wait states required between the two, 0 if none: see `clash`.

    >>> from simgpu.hardware.timing_rules.register_use import register_use
    >>> valu = register_use("v_mov_b32_e32", ["valu"], writes=[("v", 0)])
    >>> mfma = register_use("v_mfma_f32_16x16x4f32", ["mfma", "xdl"], {"srcA": [("v", 0)]})
    >>> wait_states(valu, mfma, "gfx942")
    2
    """
    return clash(earlier, later, target, between)[1]


@functools.cache
def most_states(earlier: frozenset[str], passes: int, later: frozenset[str], target: str) -> int:
    """Returns the most wait states that a rule, except those about clauses, requires of two instructions of these classes.

    passes: those of the earlier one.
    """
    cells = [cell for rule, cell in _candidates(earlier, later, target) if rule.relation != "clause"]
    return max((_wait_states(cell, passes) for cell in cells), default=0)


def clashes(window: Sequence[RegisterUse], later: RegisterUse, target: str) -> tuple[Clash, ...]:
    """Returns a Clash for every instruction of `window` (oldest first) that `later` would follow too closely.

    The s_nop to insert before `later` has max(needed - found) wait states. The window needs to reach back only
    `max_states(target)` wait states.
    """
    found, result = 0, []
    for index in reversed(range(len(window))):
        rule, needed = clash(window[index], later, target, window[index + 1 :])
        if rule is not None and needed > found:
            result.append(Clash(rule, index, needed, found))
        found += window[index].states
    return tuple(result)


@functools.cache
def max_states(target: str) -> int:
    """Returns the longest distance of any rule on the target, in wait states.

    >>> max_states("gfx942")
    19
    """
    if target not in TARGETS:
        raise TargetError(f"no hazard rules for {target!r}; there are {', '.join(TARGETS)}")
    passes = {row.passes for row in instructions(target)}
    cells = [rule.states[TARGETS.index(target)] for rule in RULES]
    return max(_wait_states(cell, p) for cell in cells for p in passes)


@functools.cache
def _rules_after(earlier: frozenset[str], target: str) -> tuple[tuple[HazardRule, Cell], ...]:
    """Returns the rules that require wait states after instructions of these classes on the target, without those about clauses."""
    column = TARGETS.index(target)
    rules = (rule for rule in RULES if rule.relation != "clause" and rule.states[column] != 0)
    return tuple((rule, rule.states[column]) for rule in rules if _match(rule.earlier, earlier))


@functools.lru_cache(maxsize=4096)
def reach(earlier: RegisterUse, target: str) -> int:
    """Returns the most wait states that a rule, except those about clauses, can require after this instruction."""
    most = 0
    for rule, cell in _rules_after(earlier.classes, target):
        states = _wait_states(cell, earlier.passes)
        if states > most and rule.concerns(earlier):
            most = states
    return most
