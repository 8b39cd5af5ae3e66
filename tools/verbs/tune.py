"""`simgpu tune`: how many trials a search of GEMM tiles needs, from the closed form and from random starts, by the cost model."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from statistics import geometric_mean, median
from typing import Any

from simgpu.tools.shared.console import add_json_option, print_json, progress, show, table
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.outputs import claim, write

COLUMNS = ("start", "searches", "first trial", "trials to 2 %, median", "nine of ten", "not within the budget", "at the end")


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("op", choices=("gemm",), metavar="OP", help="gemm")
    parser.add_argument("--target", default="mi300x", help="board or architecture (default: mi300x)")
    parser.add_argument("--dtype", default="f16", help="type of A and B (default: f16)")
    parser.add_argument("--budget", type=int, default=200, help="trials of a search (default: 200)")
    parser.add_argument("--start", choices=("formula", "random", "both"), default="both", help="where to start (default: both)")
    parser.add_argument("--seed", type=int, default=0, help="of the problems and the searches (default: 0)")
    parser.add_argument("--problems", type=int, default=40, help="problems to draw, a search of each (default: 40)")
    parser.add_argument("--svg", metavar="FILE", help="draw the time over the best by trial")
    parser.add_argument("--force", action="store_true", help="overwrite the file")
    add_json_option(parser)


def run(options: Namespace) -> int:
    """Prints a line a start."""
    from simgpu.hardware import target
    from simgpu.tools.cost.problems import drawn
    from simgpu.tools.cost.trials import STARTS, Space, trace, trials_until

    if options.budget < 1 or options.problems < 1:
        raise UsageError(f"{options.budget} trials on {options.problems} problems search nothing: give 1 or more of each")
    if options.svg:
        claim((options.svg,), options.force)
    descriptor = target(options.target)
    starts = STARTS if options.start == "both" else (options.start,)
    traces: dict[str, list[list[float]]] = {start: [] for start in starts}
    with progress("searching"):
        for number, (_, problem) in enumerate(drawn("gemm", options.dtype, options.seed, options.problems)):
            space = Space.of(problem, descriptor)
            for start in starts:
                traces[start].append(trace(space, start, options.budget, options.seed + number))
    rows: list[tuple[Any, ...]] = []
    for start, found in traces.items():
        needed = sorted(trials_until(best) or options.budget + 1 for best in found)
        late = sum(count > options.budget for count in needed)
        most = needed[min(len(needed) - 1, 9 * len(needed) // 10)]
        said = [f"over {options.budget}" if count > options.budget else count for count in (median(needed), most)]
        first, last = (geometric_mean([best[place] for best in found]) for place in (0, -1))
        rows.append((start, len(found), first, *said, late, last))
    if options.svg:
        from simgpu.tools.cost.trials_svg import draw

        write(options.svg, draw(traces, f"{options.target}, {options.dtype}: {options.problems} GEMMs").encode(), options.force)
    if options.json:
        found_rows = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        print_json({"target": options.target, "dtype": options.dtype, "rows": found_rows})
        return 0
    title = f"Trials of a search for GEMM tiles on {options.target}, {options.dtype}, priced by the cost model; times over the best"
    show(title, table("Searches", COLUMNS, rows, left=1))
    return 0
