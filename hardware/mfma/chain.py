"""Chains of two matrix instructions: conditions under which D's registers are the next A or B unchanged.

Lane l holds column j = l % n of D[i][j]; i varies over registers and lane groups. For A and B, a lane holds one outer index, and k
varies over elements and lane groups. So D can be used as the operand whose k is D's row i: as B of X·D, or as A of Dᵀ·X. The order
of k is free if both operands have the same, so only the meaning of each lane *bit* matters. If these agree, element e of step s is
D's register r = s·elements + e, and the other operand's k is `Chain.row`. A bit that does not agree is exchanged with a bit of the
register number, as the swap instructions do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.errors import TargetError
from simgpu.hardware.mfma.instruction import BITS, MatrixInstruction

LANE_BITS = 6

# Instructions that exchange lanes whose numbers differ in one bit (CDNA ISA guides: DS_SWIZZLE_B32, DPP row_ror,
# DS_BPERMUTE_B32; CDNA4: V_PERMLANE16_SWAP_B32, V_PERMLANE32_SWAP_B32, which exchange the bit with the choice between two
# registers in one instruction).
EXCHANGES = {
    0: ("v_mov_b32_dpp", "quad_perm:[1,0,3,2]"),
    1: ("v_mov_b32_dpp", "quad_perm:[2,3,0,1]"),
    2: ("ds_swizzle_b32", "offset:swizzle(SWAP,4)"),
    3: ("v_mov_b32_dpp", "row_ror:8"),
    4: ("ds_swizzle_b32", "offset:swizzle(SWAP,16)"),
    5: ("ds_bpermute_b32", "with address 4·(lane ^ 32)"),
}
SWAPS = {4: "v_permlane16_swap_b32", 5: "v_permlane32_swap_b32"}  # gfx950

MEANING = {
    "row": "a row of D", "column": "a column of D", "D block": "D's block", "k": "k",
    "outer": "the outer index", "block": "the operand's block",
}  # fmt: skip


@dataclass(frozen=True)
class Move:
    """A lane bit that must be exchanged with a bit of the register number."""

    bit: int  # of the lane number
    held: str  # its meaning in D, of `MEANING`
    wanted: str  # the operand's meaning
    partner: str  # meaning of the register bit
    instruction: str  # the exchange

    def __str__(self) -> str:
        return (
            f"lane bit {self.bit} (lanes {1 << self.bit} apart) holds {MEANING[self.held]} where the operand wants "
            f"{MEANING[self.wanted]}: exchange it with registers that hold {self.partner}, by {self.instruction}"
        )


@dataclass(frozen=True)
class Chain:
    """D of one matrix instruction as an operand of another."""

    first: MatrixInstruction
    second: MatrixInstruction
    operand: str  # of `second`: "A" takes Dᵀ, "B" takes D
    moves: tuple[Move, ...] = ()  # exchanges needed first; empty if the registers can be used unchanged
    reason: str = ""  # why a chain is impossible; empty if it is possible
    row_blocks: int = 0  # bits of second's block number that select rows of D: see `parts`

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """Groups of blocks of second's D that are partial sums of one product and must be added, register by register.

        Blocks whose numbers differ only in `row_blocks` get disjoint parts of the reduction.
        """
        heads = [block for block in range(self.second.blocks) if not block & self.row_blocks]
        every = range(self.second.blocks)
        return tuple(tuple(b for b in every if b & ~self.row_blocks == head) for head in heads)

    @property
    def free(self) -> bool:
        """True if no data has to change lanes."""
        return not self.moves and not self.reason

    @property
    def elements(self) -> int:
        """Number of elements that a lane gives to one instruction."""
        size = self.second.m if self.operand == "A" else self.second.n
        return self.second.k * size * self.second.blocks // WAVEFRONT

    @property
    def rows(self) -> int:
        """Number of elements of one block of D that a lane holds."""
        return self.first.m * self.first.n * lane_blocks(self.first) // WAVEFRONT

    @property
    def steps(self) -> int:
        """Number of instructions of `second` that consume one set of tiles."""
        return max(1, self.rows // self.elements)

    @property
    def tiles(self) -> int:
        """Number of D tiles in a set, stacked along the rows; more than 1 if an instruction's k exceeds the rows of one tile."""
        return max(1, self.elements // self.rows)

    @property
    def natural(self) -> bool:
        """True if k in order is D's rows in order, so that the other operand is loaded as usual."""
        ks = range(self.second.k)
        rows = [self.row(step, k, block) for step in range(self.steps) for block in self.parts[0] for k in ks]
        return rows == list(range(len(rows)))

    def row(self, step: int, k: int, block: int = 0) -> int:
        """Returns the row of the stacked D tiles that is reduction index k of a step, in `block` of second.

        The other operand must have the same k there. `formula` returns the closed form as text.
        """
        group, element = self._slot(k)
        first = self.first
        size = self.second.m if self.operand == "A" else self.second.n
        lane = (group * self.second.blocks + block) * size
        lanes = lane // (first.n * lane_blocks(first))
        tile, register = divmod(step * self.elements + element, self.rows)
        groups = WAVEFRONT // (first.n * lane_blocks(first))
        if first.cd_type == "f64":
            return first.m * tile + groups * register + lanes
        return first.m * tile + 4 * groups * (register // 4) + 4 * lanes + register % 4

    def _slot(self, k: int) -> tuple[int, int]:
        """Returns the (lane group, element) of reduction index k."""
        run = self._run()
        groups = self.second.k // self.elements
        if run:
            return k // run % groups, k // (run * groups) * run + k % run
        return k // self.elements, k % self.elements

    def _run(self) -> int:
        form = self.second._formats()._input(self.operand)
        return form["run"] if form["run"] and form["run"] < self.elements else 0

    def formula(self) -> str:
        """Returns the permutation of a free chain in words and symbols."""
        first = self.first
        groups = WAVEFRONT // (first.n * lane_blocks(first))
        where = f"r = {self.elements}·s + e" if self.elements > 1 else "r = s"
        if self.steps == 1:
            where = "r = e" if self.elements > 1 else "r = 0"
        parts = []
        if self.tiles > 1:
            where += f"; tile, r = divmod(r, {self.rows})"
            parts.append(f"{first.m}·tile")
        if first.cd_type == "f64":
            parts += [f"{groups}·r" if groups > 1 else "r"] if self.rows > 1 else []
            parts += ["g"] if groups > 1 else []
        else:
            many = groups > 1 and self.rows > 4
            parts += [f"{4 * groups}·(r//4)"] if many else []
            parts += ["4g"] if groups > 1 else []
            parts += ["r%4" if many else "r"] if self.rows > 1 else []
        group = f"g = lane//{first.n * lane_blocks(first)}, " if groups > 1 else ""
        return f"{group}{where}: row = {' + '.join(parts)}"

    def conversion(self) -> str:
        """Returns the instructions with which each lane converts its own registers; "" if the types are equal."""
        second = self.second._formats()
        kind = second.a_type if self.operand == "A" else second.b_type
        return conversion(self.first.cd_type, kind, self.first.target)


def conversion(source: str, kind: str, target: str) -> str:
    """Returns the lane-local instructions that convert an accumulator type to an operand type.

    >>> conversion("f32", "f16", "gfx942")
    'v_cvt_f16_f32 and v_pack_b32_f16'
    """
    if source == kind or (source, kind) == ("f32", "xf32"):
        return ""
    to_f32 = {"f64": "v_cvt_f32_f64", "i32": "v_cvt_f32_i32"}.get(source, "")
    if kind == "i8":
        steps = [] if source == "i32" else ["v_cvt_i32_f64" if source == "f64" else "v_cvt_i32_f32"]
        return ", ".join([*steps, "v_perm_b32 to pack four (after your scaling)"])
    if kind == "f64":
        return "v_cvt_f64_i32" if source == "i32" else "v_cvt_f64_f32"
    if kind in ("f32", "xf32"):
        return to_f32
    if kind == "bf16":
        last = "v_cvt_pk_bf16_f32" if target == "gfx950" else "v_perm_b32 of the high halves (after your rounding)"
    elif kind == "f16":
        last = "v_cvt_f16_f32 and v_pack_b32_f16"
    elif BITS[kind] == 8:
        last = "v_cvt_pk_fp8_f32" if kind.startswith("fp8") else "v_cvt_pk_bf8_f32"
    else:
        last = {
            "fp6": "v_cvt_scalef32_2xpk16_fp6_f32", "bf6": "v_cvt_scalef32_2xpk16_bf6_f32",
            "fp4": "v_cvt_scalef32_pk_fp4_f32",
        }[kind]  # fmt: skip
    return f"{to_f32}, {last}" if to_f32 else last


def lane_blocks(row: MatrixInstruction) -> int:
    """Returns the number of blocks of D in different lanes; the others are in further registers."""
    return row.blocks if row.m * row.n <= 16 else 1


def held_by_lanes(row: MatrixInstruction) -> Iterator[str]:
    """Yields the meaning of each lane bit of D, from bit 0: column, D block or row."""
    for bit in range(LANE_BITS):
        i, j, block = row.element("D", 0, 1 << bit)
        yield "column" if j else "D block" if block else "row" if i else "none"


def wanted_of_lanes(row: MatrixInstruction, operand: str) -> Iterator[str]:
    """Yields the meaning of each lane bit of A or B, from bit 0: outer, block or k."""
    for bit in range(LANE_BITS):
        x, y, block = row.element(operand, 0, 1 << bit)
        outer, k = (x, y) if operand == "A" else (y, x)
        yield "outer" if outer else "block" if block else "k" if k else "none"


def chain(first: MatrixInstruction, second: MatrixInstruction, operand: str = "B") -> Chain:
    """Returns the `Chain` by which D of `first` becomes `operand` ("A" or "B") of `second`; both are of one target.

    Raises TargetError for another operand or for instructions of different targets.

    >>> from simgpu.hardware import mfma
    >>> row = mfma.find("v_mfma_f32_16x16x16_f16", "mi300x")
    >>> chain(row, row).free
    True
    """
    if operand not in ("A", "B"):
        raise TargetError(f"D feeds A or B, not {operand!r}")
    if first.target != second.target:
        raise TargetError(f"{first.mnemonic} is of {first.target}, {second.mnemonic} of {second.target}")
    if second.sparse and operand == "A":
        reason = "A of an smfmac holds two of every four k and the indices say which: prune D first"
        return Chain(first, second, operand, reason=reason)
    moves, row_blocks = [], 0
    adds_in_registers = lane_blocks(second) == 1
    for bit, (held, wanted) in enumerate(
        zip(held_by_lanes(first), wanted_of_lanes(second, operand), strict=True)
    ):
        if (held, wanted) in (("column", "outer"), ("row", "k"), ("D block", "block"), ("column", "block")):
            continue
        if (held, wanted) == ("row", "block") and adds_in_registers:
            row_blocks |= second.element(operand, 0, 1 << bit)[2]
            continue
        partner = "other rows" if wanted == "k" else "other columns (the next tile to the right)"
        moves.append(Move(bit, held, wanted, partner, exchange(bit, first.target)))
    return Chain(first, second, operand, tuple(moves), row_blocks=0 if moves else row_blocks)


def exchange(bit: int, target: str) -> str:
    """Returns the instruction that exchanges a lane bit with a choice of registers, or with lanes at that distance."""
    if target == "gfx950" and bit in SWAPS:
        return SWAPS[bit]
    name, options = EXCHANGES[bit]
    return f"{name} {options}, and v_cndmask_b32 to choose"
