"""A matrix instruction on elements of A and B: which products it adds to which sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.errors import TargetError
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.mfma import find
from simgpu.hardware.mfma.instruction import BITS
from simgpu.proof.coverage.claims import Violation
from simgpu.proof.coverage.pieces import WORD
from simgpu.proof.coverage.values import PART, A, B, Cells, Sums, Value, same, zero
from simgpu.proof.terms import NotModelled

Map = np.ndarray  # [block, row, column]: register, lane, lowest bit


@dataclass(frozen=True)
class Multiply:
    """A matrix instruction of a workgroup. shape: work-items, and pieces of a word."""

    target: str
    shape: tuple[int, int]
    inst: Instruction

    def add_products(self, a_words: Sequence[Value], b_words: Sequence[Value], old: Sequence[Value], begun: bool) -> list[Value]:
        """Returns the words of the sums with the products. begun: no sum may begin here. Raises Violation, NotModelled."""
        try:
            modifiers = [int(self.inst.mods.get(name, 0)) for name in ("cbsz", "abid", "blgp")]
            a_map, b_map, c_map, bits = _maps(self.inst.spec.mnemonic, self.target, *modifiers)
        except TargetError as error:
            raise NotModelled(str(error)) from None
        a, b = self._elements(a_words, a_map, bits[0]), self._elements(b_words, b_map, bits[1])
        turned = bool(np.all(a.kind == B))  # the product of the transposed matrices
        if np.any(a.kind != (B if turned else A)) or np.any(b.kind != (A if turned else B)):
            raise Violation("something else than elements of A and B is multiplied")
        outer, ks, inner = a.outer[..., :1], a.k[:, :, :1, :], b.outer[..., :1, :]
        if np.any(a.outer != outer) or np.any(b.outer != inner):
            raise Violation("a matrix instruction adds products of different rows or columns")
        if np.any(a.k != ks) or np.any(b.k != np.swapaxes(ks, 2, 3)):
            raise Violation("a matrix instruction multiplies elements of different k")
        if np.any(ks != ks[:1, :1]):
            raise NotModelled("waves or blocks that multiply different k")
        rows, columns = np.broadcast_arrays(*((inner, outer) if turned else (outer, inner)))
        added, words = [int(k) for k in ks[0, 0, 0]], bits[2] // WORD
        made: list[Value] = []
        for word, before in enumerate(old):
            block, i, j = np.nonzero(c_map[..., 0] == word - word % words)
            places = np.empty((2, self.shape[0] // WAVEFRONT, WAVEFRONT), np.int64)
            for array, values in zip(places, (rows, columns), strict=True):
                array[:, c_map[block, i, j, 1]] = values[:, block, i, j]
            made.append(_more(before, places.reshape(2, -1), word % words, added, begun))
        return made

    def _elements(self, words: Sequence[Value], where: Map, bits: int) -> Cells:
        """Returns elements [wave, block, row, column] of A or B."""
        if not all(isinstance(word, Cells) for word in words):
            raise Violation("something else than elements of A and B is multiplied")
        pieces = self.shape[1]
        stacked = np.stack([word.code.reshape(-1, WAVEFRONT, pieces) for word in words if isinstance(word, Cells)])
        first = where[..., 0] * pieces + where[..., 2] * pieces // WORD
        codes = []
        for part in range(bits * pieces // WORD):
            word, piece = np.divmod(first + part, pieces)
            codes.append(stacked[word, :, where[..., 1], piece])
        if any(np.any(each != codes[0] + (part << PART)) for part, each in enumerate(codes)):
            raise Violation("a matrix instruction takes parts of several elements for one")
        return Cells(np.moveaxis(codes[0], -1, 0))


def _more(old: Value, places: np.ndarray, part: int, added: Sequence[int], begun: bool) -> Sums:
    """Returns a sum with more products."""
    if zero(old):
        if begun:
            raise Violation("C: a sum begins again")
        old = Sums(places[0], places[1], 0, part=part)
    if not isinstance(old, Sums) or old.part != part or not same((old.outer, places[0])) or not same((old.inner, places[1])):
        raise Violation("C: products are added to something else than the sum for their row and column")
    more, done = set(old.more), old.done
    for k in added:
        if k < done or k in more:
            raise Violation(f"C: the product at k = {k} of a step is added twice")
        more.add(k)
    while done in more:
        more.remove(done)
        done += 1
    return Sums(old.outer, old.inner, done, frozenset(more), part)


@cache
def _maps(mnemonic: str, target: str, cbsz: int, abid: int, blgp: int) -> tuple[Map, Map, Map, tuple[int, int, int]]:
    """Returns register, lane and lowest bit of each element of A, B and C, and their bits. Raises TargetError, NotModelled."""
    row = find(mnemonic, target)
    if row.flexible:
        row = row.with_formats(cbsz, blgp)
    if row.sparse:
        raise NotModelled(f"{mnemonic}: a sparse matrix")
    maps = row.map("A", cbsz, abid, blgp), row.map("B", cbsz, abid, blgp), row.map("C")
    return *maps, (BITS[row.a_type], BITS[row.b_type], BITS[row.cd_type])
