"""`MatrixInstruction`, a table row with derived properties, and look-ups by name and opcode."""

from __future__ import annotations

import difflib
import functools
from dataclasses import dataclass, replace

import numpy as np

from simgpu.hardware.architectures import TARGETS
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.errors import TargetError
from simgpu.hardware.matrix_table import FORMATS, Entry, entries
from simgpu.hardware.mfma import layout
from simgpu.hardware.targets import target as board

BITS = {
    "f64": 64, "f32": 32, "xf32": 32, "i32": 32, "f16": 16, "bf16": 16, "i8": 8, "fp8": 8, "bf8": 8,
    "fp8_fnuz": 8, "bf8_fnuz": 8, "fp6": 6, "bf6": 6, "fp4": 4,
}  # fmt: skip
SCALE_BLOCK = 32  # consecutive k that share one E8M0 scale (OCP microscaling formats 1.0, 5.1)


@dataclass(frozen=True)
class MatrixInstruction(Entry):
    """An MFMA or SMFMAC on one target; see `Entry` for the fields.

    Operands are "A", "B", "C", "D"; "IDX" of an smfmac; "SCALE_A", "SCALE_B" of a scaled instruction. Rows and columns are
    [i][k] for A, IDX and SCALE_A, [k][j] for B and SCALE_B, [i][j] for C and D. An smfmac stores two of every four consecutive k
    of A: the four k have one place, whose `width` is two elements, and one 4-bit field of IDX. Likewise, the 32 k that share a
    scale have one place in SCALE_A or SCALE_B.

    >>> row = find("v_mfma_f32_16x16x16_f16", "mi300x")
    >>> row.owner("D", 5, 3)
    (1, 19, 0)
    """

    @property
    def flexible(self) -> bool:
        """True if CBSZ and BLGP select the formats of A and B (the f8f6f4 instructions)."""
        return "f8f6f4" in self.mnemonic

    def with_formats(self, cbsz: int = 0, blgp: int = 0) -> MatrixInstruction:
        """Returns the row with the formats that CBSZ and BLGP select, and their passes; the row itself if not `flexible`.

        Pairs of 4- and 6-bit formats take half the passes (LLVM's hazard distances). TargetError for a reserved format.
        """
        if not self.flexible:
            return self
        for name, value in (("cbsz", cbsz), ("blgp", blgp)):
            if not 0 <= value < len(FORMATS):
                known = ", ".join(f"{i} {f}" for i, f in enumerate(FORMATS))
                raise TargetError(f"{self.mnemonic}: {name}:{value} is no format; there are {known}")
        base = _table(self.target)[self.mnemonic]
        fast = cbsz > 1 and blgp > 1
        return replace(base, a_type=FORMATS[cbsz], b_type=FORMATS[blgp], passes=base.passes // (1 + fast))

    def shape(self, operand: str) -> tuple[int, int]:
        """Returns (rows, columns) of the operand, as `owner` and `map` index it."""
        return {
            "A": (self.m, self.k), "IDX": (self.m, self.k), "SCALE_A": (self.m, self.k),
            "B": (self.k, self.n), "SCALE_B": (self.k, self.n),
        }.get(operand, (self.m, self.n))  # fmt: skip

    def width(self, operand: str) -> int:
        """Returns the bits of one place: one element or, in a sparse A, the two stored of four."""
        self._check_operand(operand)
        if operand == "IDX":
            return 4
        if operand.startswith("SCALE"):
            return 8
        if operand in "CD":
            return BITS[self.cd_type]
        if operand == "B":
            return BITS[self._formats().b_type]
        return BITS[self._formats().a_type] * (2 if self.sparse else 1)

    def registers(self, operand: str) -> int:
        """Returns the number of 32-bit registers per lane of the operand."""
        self._check_operand(operand)
        if operand in ("IDX", "SCALE_A", "SCALE_B"):
            return 1
        rows, columns = self.shape(operand)
        per_place = 4 if operand == "A" and self.sparse else 1
        return max(1, rows * columns * self.blocks // per_place * self.width(operand) // 32 // 64)

    def owner(
        self, operand: str, i: int, j: int, block: int = 0, cbsz: int = 0, abid: int = 0, blgp: int = 0
    ) -> tuple[int, int, int]:
        """Returns the place (register, lane, low_bit) from which element [i][j] of `block` is read.

        cbsz and abid select A's block (broadcast) and the index set of IDX, blgp the lanes of B; on f8f6f4 cbsz and
        blgp select the formats. Raises TargetError for an operand, index or modifier that the instruction does not
        have.
        """
        rows, columns = self.shape(operand)
        for name, value, limit in (("row", i, rows), ("column", j, columns), ("block", block, self.blocks)):
            if not 0 <= value < limit:
                raise TargetError(
                    f"{self.mnemonic}: {operand} has no {name} {value}; it must be 0 to {limit - 1}"
                )
        register, lane, low = self._place(operand, i, j, block, cbsz, abid, blgp)
        return int(register), int(lane), int(low)

    def element(self, operand: str, register: int, lane: int, low_bit: int = 0) -> tuple[int, int, int]:
        """Returns the element (i, j, block) of which this bit is a part; for a place of several k, the first.

        Raises TargetError for a place that the operand does not have.
        """
        self._check_operand(operand)
        limits = (("register", register, self.registers(operand)), ("lane", lane, 64), ("bit", low_bit, 32))
        for name, value, limit in limits:
            if not 0 <= value < limit:
                raise TargetError(
                    f"{self.mnemonic}: {operand} has no {name} {value}; it must be 0 to {limit - 1}"
                )
        row = self._formats()
        if operand in "CD" and self.cd_type == "f64":
            return layout.output_element_f64(register, lane, n=self.n, blocks=self.blocks)
        if operand in "CD":
            return layout.output_element(register, lane, m=self.m, n=self.n)
        bits = low_bit + 32 * register
        used = row._lane_bits(operand)
        if bits >= used:
            raise TargetError(
                f"{self.mnemonic}: {operand} uses the low {used} bits of each lane, not bit {bits}"
            )
        outer, kk, block = layout.input_element(bits, lane, **row._input(operand))
        kk *= row._stride(operand)
        return (outer, kk, block) if operand != "B" and operand != "SCALE_B" else (kk, outer, block)

    def map(self, operand: str, cbsz: int = 0, abid: int = 0, blgp: int = 0) -> np.ndarray:
        """Returns the `owner` of every element, as int32 of shape (blocks, rows, columns, 3)."""
        block, i, j = layout.grid(self.blocks, *self.shape(operand))
        return np.stack(self._place(operand, i, j, block, cbsz, abid, blgp), axis=-1).astype(np.int32)

    def readers(
        self,
        operand: str,
        register: int,
        lane: int,
        low_bit: int = 0,
        *,
        cbsz: int = 0,
        abid: int = 0,
        blgp: int = 0,
    ) -> tuple[tuple[int, int, int], ...]:
        """Returns every element (i, j, block) that is read from this place under the modifiers; there may be none."""
        hit = (self.map(operand, cbsz, abid, blgp) == (register, lane, low_bit)).all(axis=-1)
        return tuple((int(i), int(j), int(block)) for block, i, j in np.argwhere(hit))

    @property
    def _wide_sparse(self) -> bool:
        """True for gfx950's sparse instructions of twice the k."""
        return self.sparse and self.registers("B") == 8

    def is_verified(self, operand: str) -> bool:
        """True if AMD has published evidence for the operand's layout; `doubt` has the gap otherwise."""
        return not self.doubt(operand)

    def doubt(self, operand: str) -> str:
        """Returns the reason why the operand's layout is unverified, or "" if it is verified.

        C and D of gfx950 follow the output shape, which did not change. AMD's blog "Matrix Core Programming on CDNA3
        and CDNA4" has 8- and 4-bit 32x32x64 of its inputs.
        """
        self._check_operand(operand)
        if self.target != "gfx950" or operand in "CD":
            return ""
        if operand.startswith("SCALE"):
            return "no public source gives the lane of each E8M0 scale"
        if self._wide_sparse:
            return "gfx950's wider smfmac has no public layout; inferred from hipSPARSELt's kernels"
        if not self.flexible:
            return ""
        row = self._formats()
        if {row.a_type, row.b_type} & {"fp6", "bf6"}:
            return "the packing of 6-bit elements is assumed: little-endian, 32 consecutive k a lane"
        if BITS[row.a_type] != BITS[row.b_type]:
            return "operands of different widths hold k in different order; no public source says which"
        return "" if self.m == 32 else "16x16x128 is extrapolated from 32x32x64"

    def _repr_html_(self) -> str:
        """Returns, for Jupyter, lane and register of each element of D's first block; `simgpu.page` shows every operand."""
        def cell(i: int, j: int) -> str:
            register, lane, _ = self.owner("D", i, j)
            return f"<td title='D[{i},{j}]'>{lane}<br><small>v{register}</small></td>"

        rows = "".join(f"<tr>{''.join(cell(i, j) for j in range(self.n))}</tr>" for i in range(self.m))
        what = f"{self.mnemonic} on {self.target}: D ({self.m}, {self.n}), lane over register"
        return f"<p>{what}</p><div style='overflow-x:auto'><table>{rows}</table></div>"

    def fidelity(self) -> str:
        """Returns "exact" if `multiply` gives the bits of the hardware-validated model, else "unverified".

        gfx950 has no public bit-accurate model and follows gfx942; smfmac sums have none either. Integers are exact
        everywhere.
        """
        if self.cd_type == "i32":
            return "exact"
        return "unverified" if self.target == "gfx950" or self.sparse else "exact"

    def _formats(self) -> MatrixInstruction:
        """Returns the row itself, or the f8f6f4 row with its default formats (both fp8) filled in."""
        return self.with_formats() if self.a_type == "f8f6f4" else self

    def _check_operand(self, operand: str) -> None:
        names = ["A", "B", "C", "D"] + ["IDX"] * self.sparse + ["SCALE_A", "SCALE_B"] * self.scaled
        if operand not in names:
            raise TargetError(f"{self.mnemonic} has no operand {operand!r}; it has {', '.join(names)}")

    def _check_modifiers(self, cbsz: int, abid: int, blgp: int) -> None:
        if (cbsz or abid) and "cbsz" not in self.modifiers:
            raise TargetError(f"{self.mnemonic} on {self.target} takes no cbsz or abid")
        if blgp and "blgp" not in self.modifiers:
            raise TargetError(f"{self.mnemonic} on {self.target} takes no blgp")
        if not self.sparse and not (1 << cbsz <= self.blocks and 0 <= abid < 1 << cbsz):
            raise TargetError(
                f"{self.mnemonic}: cbsz:{cbsz} abid:{abid} names no block of {self.blocks};"
                " need 2^cbsz <= blocks and abid < 2^cbsz"
            )
        if self.sparse and cbsz == 0 and not 0 <= abid < self.index_sets:
            raise TargetError(f"{self.mnemonic}: abid:{abid}, but there are {self.index_sets} index sets")
        if not 0 <= blgp < 8:
            raise TargetError(f"{self.mnemonic}: blgp:{blgp} is not 0 to 7")

    @property
    def index_sets(self) -> int:
        """Number of sets of smfmac indices that one VGPR holds; ABID selects one (ISA guides, SMFMAC)."""
        return 32 // self._lane_bits("IDX") if self.sparse else 0

    def _stride(self, operand: str) -> int:
        """Returns the number of consecutive k of one place."""
        if operand.startswith("SCALE"):
            return SCALE_BLOCK
        return 4 if self.sparse and operand != "B" else 1

    def _input(self, operand: str) -> dict[str, int]:
        """Returns the arguments of `layout.input_place`, in units of places."""
        size = self.n if operand in ("B", "SCALE_B") else self.m
        bits = self.width(operand)
        run = 16 if self.flexible and bits == 8 and not operand.startswith("SCALE") else 0
        if operand == "B" and self._wide_sparse:
            run = 128 // bits  # as the kernels of hipSPARSELt 7.2 for gfx950 load it: its tests are right
        k = self.k // self._stride(operand)
        return {"size": size, "k": k, "blocks": self.blocks, "bits": bits, "run": run}

    def _lane_bits(self, operand: str) -> int:
        """Returns the number of bits of a lane that one set of the operand fills."""
        form = self._input(operand)
        return form["k"] * form["size"] * form["blocks"] * form["bits"] // WAVEFRONT

    def _place(
        self,
        operand: str,
        i: layout.Index,
        j: layout.Index,
        block: layout.Index,
        cbsz: int,
        abid: int,
        blgp: int,
    ) -> layout.RegisterBits:
        self._check_operand(operand)
        if self.flexible:
            row = self.with_formats(cbsz, blgp) if cbsz or blgp else self._formats()
            cbsz = abid = blgp = 0
        else:
            row = self
            self._check_modifiers(cbsz, abid, blgp)
        if operand in "CD" and self.cd_type == "f64":
            return layout.output_place_f64(i, j, block, n=self.n, blocks=self.blocks)
        if operand in "CD":
            return layout.output_place(i, j, block, m=self.m, n=self.n)
        outer, kk = (j, i) if operand in ("B", "SCALE_B") else (i, j)
        if operand == "A" and not self.sparse:
            block = layout.broadcast_block(block, cbsz, abid)
        register, lane, low = layout.input_place(
            outer, kk // row._stride(operand), block, **row._input(operand)
        )
        if operand == "B":
            lane = layout.blgp_lane(lane, blgp)
        if operand == "IDX" and cbsz == 0:
            low = low + abid * row._lane_bits("IDX")
        return register, lane, low


def _gfx(name: str) -> str:
    """Returns the gfx name of a target or board. Raises TargetError."""
    return board(name).arch


@functools.cache
def _table(target: str) -> dict[str, MatrixInstruction]:
    """Returns rows of a gfx target in opcode order, by the mnemonic that it prints."""
    in_order = sorted(entries(target), key=lambda entry: entry.opcode)
    return {entry.mnemonic: MatrixInstruction(**vars(entry)) for entry in in_order}


def instructions(target: str) -> tuple[MatrixInstruction, ...]:
    """Returns every matrix instruction of a target or board, in opcode order. Raises TargetError.

    >>> len(instructions("mi100")), instructions("mi100")[0].mnemonic
    (20, 'v_mfma_f32_32x32x1f32')
    """
    return tuple(_table(_gfx(target)).values())


def find(mnemonic: str, target: str) -> MatrixInstruction:
    """Returns the row of a mnemonic, or of an alias that LLVM accepts, on a target or board.

    An f8f6f4 mnemonic may contain its formats: `…_f8f6f4:fp4` or, for A and B, `…_f8f6f4:fp8:fp4`.
    Raises TargetError, which lists near names and the targets that have the instruction.

    >>> find("v_mfma_f32_16x16x16f16", "gfx942").mnemonic
    'v_mfma_f32_16x16x16_f16'
    """
    gfx = _gfx(target)
    name, *formats = mnemonic.strip().lower().split(":")
    for row in _table(gfx).values():
        if name == row.mnemonic or name in row.aliases:
            return _named_formats(row, formats) if formats else row
    elsewhere = [g for g in TARGETS if any(name == r.mnemonic or name in r.aliases for r in _table(g).values())]
    near = difflib.get_close_matches(name, _table(gfx), n=4, cutoff=0.4)
    raise TargetError(
        f"{gfx} has no matrix instruction {mnemonic!r}"
        + (f" ({', '.join(elsewhere)} has it)" if elsewhere else "")
        + (f"; near: {', '.join(near)}" if near else "")
    )


def _named_formats(row: MatrixInstruction, formats: list[str]) -> MatrixInstruction:
    if not row.flexible or len(formats) > 2 or not set(formats) <= set(FORMATS):
        raise TargetError(
            f"{row.mnemonic} takes no formats {':'.join(formats)!r}; f8f6f4 ones take {', '.join(FORMATS)}"
        )
    return row.with_formats(FORMATS.index(formats[0]), FORMATS.index(formats[-1]))


def by_opcode(opcode: int, target: str, *, scaled: bool = False) -> MatrixInstruction:
    """Returns the row of a 7-bit VOP3P-MAI opcode; scaled: the one after a v_mfma_ld_scale_b32.

    Raises TargetError if the target has no matrix instruction there.

    >>> by_opcode(77, "gfx942").mnemonic
    'v_mfma_f32_16x16x16_f16'
    """
    for row in instructions(target):
        if row.opcode == opcode and row.scaled == scaled:
            return row
    raise TargetError(f"{_gfx(target)} has no {'scaled ' * scaled}matrix instruction with opcode {opcode}")
