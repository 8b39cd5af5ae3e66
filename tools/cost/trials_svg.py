"""A picture of the time over the best by trial: one line per start, the geometric mean over the searches."""

from __future__ import annotations

from math import log2
from statistics import geometric_mean
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 640, 320, 60, 50, 40
_COLOURS = {"formula": "#0b6e4f", "random": "#b3541e"}
_RATIOS = (1.0, 1.02, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)


def draw(traces: dict[str, list[list[float]]], title: str) -> str:
    """Returns an SVG document: trials on one logarithmic axis, the best time so far over the least on the other."""
    means = {start: [geometric_mean(values) for values in zip(*found, strict=False)] for start, found in traces.items()}
    most, trials = max(max(line) for line in means.values()), max(len(line) for line in means.values())
    ratios = [ratio for ratio in _RATIOS if ratio <= most * 1.1]

    def place(trial: int, ratio: float) -> tuple[float, float]:
        x = _LEFT + (_WIDTH - _LEFT - 90) * log2(trial) / max(1.0, log2(trials))
        high = log2(max(ratios[-1], most))
        return x, _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * log2(ratio) / max(1e-9, high)

    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='{_HEIGHT}' viewBox='0 0 {_WIDTH} {_HEIGHT}' "
        "font-family='sans-serif' font-size='12'><rect width='100%' height='100%' fill='white'/>",
        f"<text x='{_LEFT}' y='22' font-size='14'>{escape(title)}: time over the best, by trials</text>",
    ]
    for ratio in ratios:
        (x0, y), (x1, _) = place(1, ratio), place(trials, ratio)
        dash = " stroke-dasharray='4 3'" if ratio == 1.02 else ""
        parts.append(f"<line x1='{x0:.1f}' y1='{y:.1f}' x2='{x1:.1f}' y2='{y:.1f}' stroke='#ccc'{dash}/>")
        if ratio != 1.02:
            parts.append(f"<text x='{x0 - 8:.1f}' y='{y + 4:.1f}' text-anchor='end'>{ratio:g}</text>")
    marks = [mark for mark in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if mark <= trials]
    for mark in marks:
        x, y = place(mark, 1.0)
        parts.append(f"<text x='{x:.1f}' y='{y + 20:.1f}' text-anchor='middle'>{mark}</text>")
    for start, line in means.items():
        points = " ".join("{:.1f},{:.1f}".format(*place(number + 1, ratio)) for number, ratio in enumerate(line))
        x, y = place(len(line), line[-1])
        colour = _COLOURS.get(start, "black")
        parts.append(f"<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='2'/>")
        x, y = place(2, line[min(1, len(line) - 1)])
        parts.append(f"<text x='{x + 6:.1f}' y='{y - 6:.1f}' fill='{colour}'>from {escape(start)}</text>")
    return "\n".join(parts) + "\n</svg>\n"
