"""Fragments as SVG: each element of the matrices with the lane and register that hold it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.tools.matrix.fragments import Fragment, ranges

CELL = 34  # pixels of one element
GAP = 46
HEAD = 44  # for the title's two lines
EM = 0.603  # width of a character over its size, of the monospaced fonts below
TITLE, NAME = 15, 13  # sizes of text, pixels
FONT = "font-family='DejaVu Sans Mono, Menlo, Consolas, monospace'"
STYLE = (
    "<style>text{text-anchor:middle} .h{text-anchor:start} .l{font-size:12px} .r{font-size:9px;fill:#333}"
    " .i{font-size:9px;fill:#777} rect{stroke:white}</style>"
)
# Hues of the lanes, sixteen lanes each; lighter for higher registers.
HUES = (8, 130, 215, 285)


def draw(fragments: Sequence[Fragment]) -> str:
    """Returns the operands as an SVG document: A left of D, B above it, others below; every block.

    A cell shows `lane` and below it `register`, with the low bit if elements are packed.
    """
    parts: list[str] = []
    row = fragments[0].row
    by_name = {fragment.operand: fragment for fragment in fragments}
    blocks = "; A 3: block 3 of A" if row.blocks > 1 else ""
    titles = (f"{row.mnemonic} on {row.target}", f"lane over register of every element{blocks}")
    x0, y0 = GAP, HEAD + GAP
    width = GAP + EM * max(TITLE * len(titles[0]), NAME * len(titles[1]))
    height = 0.0
    for block in range(row.blocks):
        column = block % 4
        w, h = _block(parts, by_name, block, x0, y0)
        width, height = max(width, x0 + w), max(height, y0 + h)
        x0 += int(w) + GAP
        if column == 3 or block == row.blocks - 1:
            x0, y0 = GAP, y0 + int(h) + GAP
    size = f"width='{width + GAP:.0f}' height='{height + GAP:.0f}'"
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' {size} viewBox='0 0 {width + GAP:.0f} {height + GAP:.0f}' {FONT}>"
        f"{STYLE}<rect width='100%' height='100%' fill='white'/>"
        f"<text class='h' x='{GAP}' y='24' font-size='{TITLE}'>{escape(titles[0])}</text>"
        f"<text class='h' x='{GAP}' y='44' font-size='{NAME}'>{escape(titles[1])}</text>"
    )
    return head + "\n" + "\n".join(parts) + "\n</svg>\n"


def _block(
    parts: list[str], fragments: dict[str, Fragment], block: int, x: int, y: int
) -> tuple[float, float]:
    """Draws one block's matrices; returns (width, height)."""
    a, b = fragments.get("A"), fragments.get("B")
    left = (a.shape[1] * CELL + GAP) if a else 0
    above = (b.shape[0] * CELL + GAP) if b else 0
    placed: list[tuple[int, int]] = []
    for name, fragment in fragments.items():
        rows = fragment.shape[0]
        at = {"A": (x, y + above), "B": (x + left, y)}.get(name, (x + left, y + above))
        if name not in ("A", "B", "C", "D"):
            bottom = max((top + r * CELL for top, r in placed), default=y)
            at = (x, int(bottom) + GAP)
        _grid(parts, fragment, block, *at)
        placed.append((at[1], rows))
    width = max(
        (at_x + f.shape[1] * CELL for at_x, f in ((x if n not in ("B", "C", "D") else x + left, f) for n, f in fragments.items())),
        default=x,
    )
    return width - x, max(top + rows * CELL for top, rows in placed) - y


def _grid(parts: list[str], fragment: Fragment, block: int, x: int, y: int) -> None:
    """Draws one matrix: its name, indices along the edges, one cell per element."""
    rows, columns = fragment.shape
    packed = fragment.row.width(fragment.operand) < 32 or (fragment.operand == "A" and fragment.row.sparse)
    name = fragment.operand + (f" {block}" if fragment.row.blocks > 1 else "")
    parts.append(f"<text class='h' x='{x}' y='{y - 16}' font-size='{NAME}' font-weight='bold'>{escape(name)}</text>")
    for j in range(columns):
        parts.append(_label(x + j * CELL + CELL / 2, y - 4, j))
    for i in range(rows):
        parts.append(_label(x - 10, y + i * CELL + CELL / 2 + 3, i))
    for (register, lane, low), elements in fragment.elements.items():
        for i, j, owner in elements:
            if owner != block:
                continue
            left, top = x + j * CELL, y + i * CELL
            light = 88 - 26 * register / max(1, fragment.registers)
            hue = HUES[lane * len(HUES) // WAVEFRONT]
            where = f"v{register}" + (f".{low}" if packed else "")
            hint = f"{fragment.operand}[{i},{j}]: lane {lane}, register {register}" + (f", bit {low}" if packed else "")
            shared = f", read for blocks {ranges(sorted({e[2] for e in elements}))}" if len(elements) > 1 else ""
            parts.append(
                f"<g><title>{hint}{shared}</title>"
                f"<rect x='{left}' y='{top}' width='{CELL}' height='{CELL}' fill='hsl({hue},70%,{light:.0f}%)'/>"
                f"<text class='l' x='{left + CELL // 2}' y='{top + 15}'>{lane}</text>"
                f"<text class='r' x='{left + CELL // 2}' y='{top + 28}'>{where}</text></g>"
            )


def _label(x: float, y: float, number: int) -> str:
    return f"<text class='i' x='{x:g}' y='{y:g}'>{number}</text>"
