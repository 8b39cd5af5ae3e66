"""Shape of a register-chained attention kernel: its plan in loads, fragments and matrix instructions.

Letters: i, g are a lane's place in the instruction (lane % 16, lane // 16); e bytes of an element. A score atom is S^T: its D
register r holds key 4g + r of query i. That is the operand that O^T = V^T P^T needs, if V's rows are in the same order
(hardware.mfma.chain).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simgpu.hardware import mfma
from simgpu.hardware.errors import UnsupportedInstruction
from simgpu.hardware.mfma import MatrixInstruction
from simgpu.hardware.mfma.chain import chain
from simgpu.operators.attention.problem import ATOM
from simgpu.operators.attention.registers import column_blocks, key_spans
from simgpu.operators.attention.shared_registers import padded_columns
from simgpu.operators.attention.tiles import AttentionTiles
from simgpu.operators.attention.tree import FusedAttention

DTYPES = ("f32", "f16", "bf16")
GROUPS = 4  # lane groups of a 16-wide instruction
QUAD = 4  # D registers of a score atom: consecutive keys


def matrix_instructions(plan: AttentionTiles) -> list[MatrixInstruction]:
    """Returns the 16x16 matrix instructions of the plan's type. UnsupportedInstruction for a type that has no kernel."""
    kind, d = plan.problem.dtype, plan.descriptor
    if kind not in DTYPES:
        raise UnsupportedInstruction(f"attention kernels are emitted for {', '.join(DTYPES)}, not for {kind}")
    return [mfma.find(atom.mnemonic, d.arch) for atom in d.atoms if atom.dtype_in == kind and atom.m == ATOM]


def widest(rows: Sequence[MatrixInstruction], k: int) -> MatrixInstruction:
    """Returns the instruction with most k, at most `k`."""
    return max((row for row in rows if row.k <= k), key=lambda row: row.k)


@dataclass(frozen=True)
class AttentionShape:
    """Loads, fragments and matrix instructions of a wave."""

    d: int  # of Q and K, in whole atoms
    dv: int  # of V and R, in whole atoms
    e: int  # bytes of an element of Q
    half: str  # type of Q and P
    kind_kv: str  # 8-bit type of K and V in memory; "": the same as Q's
    nq: int  # query atoms of a wave
    na: int  # key atoms of a wave in a step
    spans: tuple[tuple[int, int], ...]  # (first column, elements of a lane's load) of the loads of a row of Q or K
    blocks: tuple[tuple[int, int], ...]  # (first column, column atoms) of V's loads
    scores: dict[int, MatrixInstruction]  # matrix instruction of S^T by the elements of a lane's load
    value: MatrixInstruction  # matrix instruction of O^T

    @classmethod
    def of(cls, root: FusedAttention) -> AttentionShape:
        """Returns the shape of a tree's waves. UnsupportedInstruction for a type that has no kernel."""
        plan, p, block = root.plan, root.problem, next(root.children())
        e, rows = p.element.bytes, matrix_instructions(plan)
        if plan.shared:
            d, dv = padded_columns(p.d), padded_columns(p.dv)
        else:
            d, dv = p.padded_d, p.padded_dv
        spans = key_spans(d, e)
        _, queries, keys = block.loops
        nq, na = queries.tile * plan.row_slots // ATOM, keys.tile // ATOM
        scores, value = {vec: widest(rows, GROUPS * vec) for _, vec in spans}, widest(rows, GROUPS * QUAD * na)
        assert all(chain(score, value).free for score in scores.values())
        return cls(d, dv, e, p.dtype, p.dtype_kv if p.narrow_kv else "", nq, na, spans, column_blocks(dv, e), scores, value)

    @property
    def e_kv(self) -> int:
        """Bytes of an element of K and V in memory."""
        return 1 if self.kind_kv else self.e

    @property
    def vec(self) -> int:
        """Elements of a lane's load of Q or K in all spans but the last."""
        return self.spans[0][1]

    @property
    def score(self) -> MatrixInstruction:
        """Matrix instruction of S^T in all spans but the last."""
        return self.scores[self.vec]

    @property
    def column_atoms(self) -> int:
        """Number of atoms of O^T's rows, the columns of V."""
        return self.dv // ATOM

    @property
    def narrow(self) -> bool:
        """True if P is rounded to 2 bytes and V's rows are interleaved."""
        return self.e < 4

    def steps(self, row: MatrixInstruction, elements: int) -> int:
        """Returns the number of instructions that multiply `elements` of a lane."""
        return elements * GROUPS // row.k

    def block_registers(self, wide: int) -> int:
        """Returns the registers of a lane's load of one row in a block of `wide` column atoms."""
        return max(1, wide * self.e_kv // 4)

    @property
    def widths(self) -> tuple[int, ...]:
        """Distinct numbers of column atoms in a block."""
        return tuple(dict.fromkeys(wide for _, wide in self.blocks))

    def atoms_of(self, block: int) -> range:
        """Returns the column atoms of a block. Its atom w holds columns first + wide·i + w."""
        first = sum(wide for _, wide in self.blocks[:block])
        return range(first, first + self.blocks[block][1])

    @property
    def halves(self) -> tuple[range, ...]:
        """Query atoms in two halves: products of one half hide the other's softmax."""
        middle = -(-self.nq // 2)
        return tuple(part for part in (range(middle), range(middle, self.nq)) if part)
