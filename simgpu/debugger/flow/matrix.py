"""Traces an element of a matrix instruction's D through the fragment maps to its elements of A, B and C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from simgpu.debugger.flow.influence import Word, place_of
from simgpu.debugger.flow.nodes import WHOLE, FlowNode
from simgpu.debugger.flow.traces import WaveTrace
from simgpu.debugger.place import WavePlace
from simgpu.hardware import mfma
from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.hardware.mfma import MatrixInstruction
from simgpu.hardware.mfma.instruction import SCALE_BLOCK
from simgpu.matrix.one_mfma import DTYPES


class History(Protocol):
    """A workgroup's run, as `why.Why` follows it: instructions by record, the waves' traces, and origins of registers."""

    @property
    def instructions(self) -> Mapping[int, Instruction]: ...

    @property
    def traces(self) -> Sequence[WaveTrace]: ...

    def last_writer(self, wave: int, retired: int, word: Word) -> int | None: ...

    def word(self, wave: int, retired: int, word: Word, mask: int) -> FlowNode: ...


def is_sparse(inst: Instruction) -> bool:
    """True for smfmac: an index register gives the k of A's elements, so its contents must be known first."""
    return mfma.find(inst.mnemonic, inst.target).sparse


def row_of(inst: Instruction) -> MatrixInstruction:
    """Returns the instruction's row of the matrix table, with the formats that its modifiers name."""
    row = mfma.find(inst.mnemonic, inst.target)
    return row.with_formats(int(inst.mods.get("cbsz", 0)), int(inst.mods.get("blgp", 0)))


def follow(run: History, node: FlowNode, inst: Instruction) -> None:
    """Gives a node the products of its instruction, and those of earlier instructions whose D is the next one's C."""
    assert node.place and node.word
    node.kind = "sum"
    place, word = node.place, node.word
    while True:
        row, broadcast = row_of(inst), _broadcast(inst)
        d, a, b, c = (inst.args[name] for name in ("vdst", "src0", "src1", "src2"))
        assert isinstance(d, Reg)
        i, j, block = row.element("D", word[1] - d.index, word[2])
        for k in range(row.k):
            product = FlowNode("product", f"k {k}", place=place, record=node.record)
            product.factors = (
                _words(run, place, row, a, "A", (i, k, block), broadcast), _words(run, place, row, b, "B", (k, j, block), broadcast)
            )  # fmt: skip
            product.sources = [*product.factors[0], *product.factors[1]]
            if row.scaled:
                product.scales = [_scale(run, place, row, inst, number, (i, j, k, block)) for number in range(2)]
                product.sources += product.scales
            node.sources.append(product)
        if not isinstance(c, Reg):
            return
        word = (c.file, c.index + word[1] - d.index, word[2])
        before = run.last_writer(place.wave, place.retired, word)
        earlier = None if before is None else run.instructions[int(run.traces[place.wave].records[before])]
        if before is None or earlier is None or earlier.spec.kind != "matrix" or is_sparse(earlier):
            node.sources.append(run.word(place.wave, place.retired, word, WHOLE))
            return
        place, inst = WavePlace(place.group, place.wave, before), earlier


def follow_sparse(run: History, node: FlowNode, inst: Instruction, rows: dict[int, np.ndarray]) -> None:
    """Gives a node the products of an smfmac, which has two elements of A for every four k, and its old D as a source.

    rows: contents of the registers that it reads, by `place_of`.
    """
    assert node.place and node.word
    place, word, row = node.place, node.word, mfma.find(inst.mnemonic, inst.target)
    mods = {name: int(inst.mods.get(name, 0)) for name in ("cbsz", "abid")}
    d, a, b, index = (inst.args[name] for name in ("vdst", "src0", "src1", "src2"))
    assert isinstance(d, Reg) and isinstance(index, Reg)
    i, j, block = row.element("D", word[1] - d.index, word[2])
    width = row.width("A") // 2
    for first in range(0, row.k, 4):
        _, lane, low = row.owner("IDX", i, first, block, **mods)
        held = int(rows[place_of((index.file, index.index, 0))][lane]) >> low
        chosen = run.word(place.wave, place.retired, (index.file, index.index, lane), 15 << low)
        register, lane, low = row.owner("A", i, first, block)
        for kept in range(2):
            bit = low + width * kept
            k = first + (held >> 2 * kept & 3)
            product = FlowNode("product", f"k {k}", place=place, record=node.record)
            word_of_a = (a.file, a.index + register + bit // 32, lane)  # type: ignore[union-attr]
            product.factors = (
                [run.word(place.wave, place.retired, word_of_a, (1 << width) - 1 << bit % 32)],
                _words(run, place, row, b, "B", (k, j, block), {}),
            )
            product.sources = [*product.factors[0], *product.factors[1], chosen]
            node.sources.append(product)
    node.sources.append(run.word(place.wave, place.retired, word, WHOLE))


def number(parts: list[FlowNode], kind: str) -> float:
    """Returns an element's value. parts: the words that hold it, low bits first. kind: its type, as the matrix table names it."""
    bits, width = 0, 0
    for part in parts:
        low = (part.mask & -part.mask).bit_length() - 1
        bits |= ((part.value or 0) & part.mask) >> low << width
        width += part.mask.bit_length() - low
    if kind not in DTYPES:
        return float(bits)
    dtype = DTYPES[kind]
    return float(np.array([bits], np.uint64).view(np.uint8)[: dtype.itemsize].view(dtype)[0])


def factors_of(node: FlowNode, inst: Instruction) -> tuple[float, float]:
    """Returns the elements of A and B that a product multiplies."""
    row = row_of(inst)
    a, b = node.factors
    return number(a, row.a_type), number(b, row.b_type)


def scale_of(node: FlowNode) -> float:
    """Returns the product of A's and B's scales in a product of a scaled instruction."""
    exponents = [((each.value or 0) & each.mask) >> (each.mask & -each.mask).bit_length() - 1 for each in node.scales]
    return float(np.exp2(float(sum(exponent - 127 for exponent in exponents))))


def settle(node: FlowNode, inst: Instruction) -> None:
    """Removes sources that are multiplied by zero from a product with known values."""
    a, b = factors_of(node, inst)
    others = [each for each in node.sources if all(each is not part for held in node.factors for part in held)]
    node.sources = []
    if b != 0 or not np.isfinite(a):
        node.sources += node.factors[0]
    if a != 0 or not np.isfinite(b):
        node.sources += node.factors[1]
    if a != 0 and (b != 0 or not node.scales):  # scales; or an index, which chooses among the elements of B
        node.sources += others


def _broadcast(inst: Instruction) -> dict[str, int]:
    """Returns the modifiers that permute lanes and blocks; none if the instruction uses them for formats or signs."""
    row = mfma.find(inst.mnemonic, inst.target)
    if row.flexible or row.cd_type == "f64":
        return {}
    return {name: int(inst.mods.get(name, 0)) for name in ("cbsz", "abid", "blgp")}


def _words(
    run: History, place: WavePlace, row: MatrixInstruction, reg: object, operand: str, at: tuple[int, int, int],
    broadcast: dict[str, int],
) -> list[FlowNode]:  # fmt: skip
    """Returns nodes of the words that hold an element of A or B, masked to its bits. at: (i, k, block) or (k, j, block)."""
    assert isinstance(reg, Reg)
    register, lane, low = row.owner(operand, *at, **broadcast)
    width, found = row.width(operand), []
    while width > 0:  # 6-bit elements, and f64, may span two words
        here = min(width, 32 - low % 32)
        mask = ((1 << here) - 1) << low % 32
        found.append(run.word(place.wave, place.retired, (reg.file, reg.index + register + low // 32, lane), mask))
        low, width = low + here, width - here
    return found


def _scale(
    run: History, place: WavePlace, row: MatrixInstruction, inst: Instruction, number: int, at: tuple[int, int, int, int]
) -> FlowNode:
    """Returns the node of the E8M0 scale of A (number 0) or B (1) in a product. at: (i, j, k, block)."""
    i, j, k, block = at
    first = k // SCALE_BLOCK * SCALE_BLOCK
    owner = row.owner("SCALE_A", i, first, block) if number == 0 else row.owner("SCALE_B", first, j, block)
    byte = (int(inst.mods.get("op_sel", 0)) >> number & 1) + 2 * (int(inst.mods.get("op_sel_hi", 3)) >> number & 1)
    reg = inst.args[f"scale_src{number}"]
    if not isinstance(reg, Reg):
        return FlowNode("constant", f"scale {reg}")
    lane = 0 if reg.file == "s" else owner[1]
    return run.word(place.wave, place.retired, (reg.file, reg.index, lane), 0xFF << 8 * byte)
