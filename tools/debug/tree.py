"""Origin of a value, as a tree of lines.

Moves, conversions and round trips through LDS or memory are folded; terms are sorted by size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.debugger.flow.matrix import factors_of, scale_of
from simgpu.debugger.flow.nodes import FlowNode, leaves
from simgpu.hardware import mfma
from simgpu.hardware.isa.instruction import Reg

if TYPE_CHECKING:
    from simgpu.debugger.debugger import Debugger

TERMS = 8  # products, or other terms, printed without --full
LINES = 40  # lines printed without it
DEPTH = 120  # levels of the tree

# Prefixes of instructions that move, convert or place bits.
MOVES = ("v_mov", "s_mov", "v_accvgpr", "v_cvt", "v_perm", "v_lshl_or", "v_and", "v_or", "v_alignb", "v_pack", "v_bfi",
         "v_bfe", "v_lshlrev", "v_lshrrev", "v_readfirstlane", "ds_", "buffer_",
         "global_", "flat_", "scratch_", "s_load", "s_buffer")  # fmt: skip


def _constants(root: FlowNode) -> set[int]:
    """Returns the ids of nodes that instructions made from constants only."""
    found: set[int] = set()
    pending = [(root, False)]
    seen: set[int] = set()
    while pending:
        node, entered = pending.pop()
        if entered:
            if node.kind == "instruction" and all(id(source) in found for source in node.sources):
                found.add(id(node))
        elif id(node) not in seen:
            seen.add(id(node))
            pending.append((node, True))
            pending += [(source, False) for source in node.sources]
    return found


class Tree:
    """Formats the nodes of one answer. full: nothing is folded, and all terms are printed."""

    def __init__(self, debugger: Debugger, full: bool = False) -> None:
        self._debugger, self._full = debugger, full
        self._told: set[int] = set()
        self._constant: set[int] = set()

    def lines(self, root: FlowNode) -> Iterator[str]:
        """Yields the tree, one line per node; a node that several others came from is followed once. Without --full it yields the
        first LINES, and then the number of elements where the tree ends."""
        self._told, self._constant = set(), _constants(root)
        yield self._words(root)
        left = 0
        for number, line in enumerate(self._lines_below(root, "")):
            if number < LINES or self._full:
                yield line
            else:
                left += 1
        if left:
            yield f"... {left} more lines (--full)"
        yield from self._ends(root)

    def _ends(self, root: FlowNode) -> Iterator[str]:
        """Yields the number of elements of each array where the tree ends."""
        held: dict[str, set[str]] = {}
        for leaf in leaves(root):
            if leaf.kind == "memory":
                held.setdefault(leaf.text.split("[")[0], set()).add(leaf.text.split(" byte ")[0])
        if held:
            parts = (f"{len(found)} of {name}" if "[" in next(iter(found)) else name for name, found in held.items())
            yield f"ends in elements: {', '.join(parts)}"

    def document(self, root: FlowNode) -> dict[str, Any]:
        """Returns a JSON document of the root and its sources."""
        self._constant = _constants(root)
        return {
            "what": self._words(root), "kind": root.kind, "place": str(root.place) if root.place else None,
            "elements": sorted({leaf.text.split(" byte ")[0] for leaf in leaves(root) if leaf.kind == "memory"}),
            "sources": [self._words(source) for source in self._sources(root)],
        }  # fmt: skip

    def _lines_below(self, node: FlowNode, indent: str) -> Iterator[str]:
        if len(indent) > 2 * DEPTH:
            yield f"{indent}└ and so on: ask again at its place"
            return
        if id(node) in self._told:
            if self._sources(node):
                yield f"{indent}└ as above"
            return
        self._told.add(id(node))
        sources = self._sources(node)
        shown = sources if self._full else sources[:TERMS]
        left = len(sources) - len(shown)
        for at, source in enumerate(shown):
            last = at == len(shown) - 1 and not left
            yield f"{indent}{'└ ' if last else '├ '}{self._words(source)}"
            if source.kind != "product" or self._full:
                yield from self._lines_below(source, indent + ("  " if last else "│ "))
        if left:
            yield f"{indent}└ {left} more" + (", smaller" if node.kind == "sum" else "")

    def _sources(self, node: FlowNode) -> list[FlowNode]:
        found = [self._fold(source) for source in node.sources]
        if node.kind == "sum":
            found = sorted(found, key=lambda source: -abs(self._size(source, node)))
            if not self._full:
                found = [source for source in found if id(source) not in self._constant or source.value]
        return list({id(source): source for source in found}.values())

    def _fold(self, node: FlowNode) -> FlowNode:
        """Skips moves, conversions, placing of bits, and round trips through LDS and memory."""
        while not self._full and (node.kind == "stored" or (node.kind == "instruction" and node.text.startswith(MOVES))):
            sources = [source for source in node.sources if id(source) not in self._constant]
            if len(sources) != 1:
                break
            node = sources[0]
        return node

    def _words(self, node: FlowNode) -> str:
        if node.kind == "product":
            return self._product(node)
        if node.kind == "argument":
            bits = node.value or 0
            return f"{node.text} = {bits:#x}" + (f", {np.uint32(bits).view(np.float32):.7g} as f32" if node.size == 4 else "")
        if node.kind == "memory":
            return node.text + self._element(node)
        if node.kind == "stored":
            return node.text + self._element(node)
        value = "" if node.value is None or node.word is None else f" = {self._value(node)}"
        if node.kind == "initial":
            return f"{node.text}{value}"
        if node.kind == "constant" or node.place is None or node.word is None:
            return node.text
        file, number, lane = node.word
        where = f"{file}{number}" + ("" if file == "s" else f"[{lane}]")
        record, code = node.record, self._debugger.code
        line = code.line(record)
        spot = f"{code.address(record)}{f', {line}' if line else ''}, w{node.place.wave} #{node.place.retired}"
        if node.kind == "sum":
            count = sum(source.kind == "product" for source in node.sources)
            inst = self._debugger.replay.launch.instruction(record)
            assert inst is not None
            d = inst.args["vdst"]
            assert isinstance(d, Reg)
            i, j, block = mfma.find(inst.mnemonic, inst.target).element("D", number - d.index, lane)
            of_d = f"D[{i},{j}]" + (f" block {block}" if block else "")
            return f"{where}{value}  sum of {count} products, {of_d} of {inst.mnemonic}  ({spot})"
        return f"{where}{value}  {node.text}  ({spot})"

    def _value(self, node: FlowNode) -> str:
        """Formats a register's word: as f32 if its instruction says so, else in hexadecimal."""
        assert node.value is not None
        name = node.text.split()[0]
        if "_f32" in name or node.kind == "sum" or name.startswith(("v_accvgpr",)):
            return f"{np.array([node.value], np.uint32).view(np.float32)[0]:.7g}"
        return f"{node.value:#010x}"

    def _element(self, node: FlowNode) -> str:
        """Formats the value of an element of a named array, or of an argument."""
        names = self._debugger.names
        name = node.text.split("[")[0]
        if node.address < 0 or node.kind != "memory":
            return ""
        array = names.get(name)
        if array is not None and (found := array.index_at(node.address)):
            address = array.element(found[0])
            raw = self._debugger.initial_bytes(address, array.dtype.itemsize)
            return f" = {float(np.frombuffer(raw, array.dtype)[0]):.7g}"
        raw = self._debugger.initial_bytes(node.address, min(4, node.size))
        if len(raw) == 4:
            return f" = {np.frombuffer(raw, np.float32)[0]:.7g} or {int.from_bytes(raw, 'little'):#x}"
        return ""

    # -- products ------------------------------------------------------------------------------

    def _factors(self, node: FlowNode) -> tuple[float, float]:
        inst = self._debugger.replay.launch.instruction(node.record)
        assert inst is not None
        return factors_of(node, inst)

    def _size(self, source: FlowNode, node: FlowNode) -> float:
        if source.kind != "product":
            return float("inf")
        a, b = self._factors(source)
        product = a * b * scale_of(source)
        return float("inf") if np.isnan(product) else product

    def _product(self, node: FlowNode) -> str:
        a, b = self._factors(node)
        first, second = (self._short(parts[0], value) for parts, value in zip(node.factors, (a, b), strict=True))
        scale = f" * {scale_of(node):.7g}" if node.scales else ""
        return f"{a * b * scale_of(node):.7g} = {first} * {second}{scale}"

    def _short(self, node: FlowNode, value: float) -> str:
        folded = self._fold(node)
        name = folded.text if folded.kind in ("memory", "constant", "initial") else ""
        if not name and folded.word:
            file, number, lane = folded.word
            name = f"{file}{number}" + ("" if file == "s" else f"[{lane}]") + (f" of {folded.text}" if not folded.sources else "")
        return f"{name} {value:.7g}"
