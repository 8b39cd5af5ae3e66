"""`simgpu tune OP`: the number of trials that a tile search needs, from the closed form and from random starts.

A trial prices a tile by the cost model, or with --device hip runs its kernels on a GPU.
"""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import geometric_mean, median
from typing import TYPE_CHECKING, Any

from simgpu.tools.cases.cluster import HERE, add_cluster_option, run_tasks
from simgpu.tools.cases.operator_options import operator_tree
from simgpu.tools.cases.operators import OPERATORS
from simgpu.tools.cost.names import OPS, TYPES
from simgpu.tools.shared.console import add_json_option, count_progress, print_json, show, table
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.launching import real_device
from simgpu.tools.shared.outputs import claim, write

if TYPE_CHECKING:
    from simgpu.hardware import hip
    from simgpu.hardware.descriptor import HardwareDescriptor
    from simgpu.tools.cost.space import Space, Tile

COLUMNS = ("start", "searches", "first trial", "trials to 2 %, median", "nine of ten", "not within the budget", "at the end")
LAUNCHES = 20  # of a tile's kernels on a GPU; their median counts
Measures = Callable[["Space"], Callable[["Tile"], float]]  # gives seconds of a space's tiles
Ratios = dict[str, list[float]]  # by start, for each trial: the least time so far over the least of all


def configure(parser: ArgumentParser) -> None:
    """Adds OP with a subparser for each operator, which takes the verb's options and those of one problem."""
    add_json_option(parser)
    operators = parser.add_subparsers(dest="op", metavar="OP", required=True, parser_class=type(parser))
    for name in OPS:
        summary = OPERATORS[name].summary
        sub = operators.add_parser(name, help=summary, description=f"{summary}; without sizes: problems that are drawn")
        OPERATORS[name].configure(sub)
        sizes = {action.dest: action.option_strings[0] for action in sub._actions if action.required}
        for action in sub._actions:
            action.required = False
        sub.set_defaults(sizes=sizes, policy="corrected", operator=OPERATORS[name])
        _add_search_options(sub)


def _add_search_options(parser: ArgumentParser) -> None:
    parser.add_argument("--target", default="mi300x", help="board or architecture (default: mi300x)")
    parser.add_argument("--dtype", default="f16", help="type of the operands (default: f16)")
    parser.add_argument("--budget", type=int, default=200, help="trials of a search (default: 200)")
    parser.add_argument("--start", choices=("formula", "random", "both"), default="both", help="where to start (default: both)")
    parser.add_argument("--seed", type=int, default=0, help="seed of problems and searches (default: 0)")
    parser.add_argument("--problems", type=int, default=40, help="problems to draw, or searches of the one given (default: 40)")
    parser.add_argument("--device", choices=("model", "hip"), default="model",
                        help="time a tile by the cost model (default) or on a real GPU through HIP")  # fmt: skip
    parser.add_argument("--svg", metavar="FILE", help="draw the time over the best by trial")
    parser.add_argument("--force", action="store_true", help="overwrite the file")
    parser.set_defaults(timeout=None)  # of a launch on a GPU: the default
    add_cluster_option(parser)
    parser.add_argument("--json", action="store_true", default=SUPPRESS, help="print one JSON document instead of text")


def run(options: Namespace) -> int:
    """Prints one line per start."""
    from simgpu.hardware import target
    from simgpu.tools.cost.trials import STARTS, trials_until

    op, kind = options.op, options.dtype
    if options.budget < 1 or options.problems < 1 or options.seed < 0:
        given = f"--budget {options.budget}, --problems {options.problems}, --seed {options.seed}"
        raise UsageError(f"{given}: give 1, 1 and 0 or more")
    descriptor = target(options.target)
    if kind not in (known := TYPES.get(op, descriptor.dtypes())):
        raise UsageError(f"--dtype {kind}: {op} on {options.target} has {', '.join(known)}")
    if options.svg:
        claim((options.svg,), options.force)
    if options.device == "hip" and options.cluster != HERE:
        raise UsageError(f"--cluster {options.cluster}: trials on a real GPU run here, one after another; leave it out")
    device = real_device(options, options.target) if options.device == "hip" else None
    starts = STARTS if options.start == "both" else (options.start,)
    traces: dict[str, list[list[float]]] = {start: [] for start in starts}
    searches = [
        Search(op, problem, descriptor, starts, options.budget, options.seed + number)
        for number, problem in enumerate(_problems(options))
    ]
    for found in _find(searches, options.cluster) if device is None else _found_on(searches, device):
        for start in starts:
            traces[start].append(found[start])
    rows: list[tuple[Any, ...]] = []
    for start, ratios in traces.items():
        needed = sorted(trials_until(best, 1.0) or options.budget + 1 for best in ratios)
        late = sum(count > options.budget for count in needed)
        most = needed[min(len(needed) - 1, 9 * len(needed) // 10)]
        said = [f"over {options.budget}" if count > options.budget else count for count in (median(needed), most)]
        first, last = (geometric_mean([best[place] for best in ratios]) for place in (0, -1))
        rows.append((start, len(ratios), first, *said, late, last))
    if options.svg:
        from simgpu.tools.cost.trials_svg import draw

        title = f"{options.target}, {kind}: {options.problems} searches of {op}"
        write(options.svg, draw(traces, title).encode(), options.force)
    if options.json:
        found_rows = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        where = device.name if device else "the cost model"
        print_json({"operator": op, "target": options.target, "dtype": kind, "timed_by": where, "rows": found_rows})
        return 0
    how = f"run on {device.name}; times over the best that was found" if device else "priced by the cost model; times over the best"
    show(f"Trials of a search for {op} tiles on {options.target}, {kind}, {how}", table("Searches", COLUMNS, rows, left=1))
    return 0


def _problems(options: Namespace) -> list[Any]:
    """Returns the problem of the sizes, once for each search; without sizes, random ones. Raises UsageError if some sizes are
    missing."""
    from simgpu.tools.cost.problems import draw_problems

    lacking = [option for name, option in options.sizes.items() if getattr(options, name) is None]
    if len(lacking) == len(options.sizes):
        return [problem for _, problem in draw_problems(options.op, options.dtype, options.seed, options.problems)]
    if lacking:
        raise UsageError(f"{', '.join(lacking)} must be given, too; or give no size to draw random problems")
    return [operator_tree(options).problem] * options.problems


@dataclass(frozen=True)
class Search:
    """A problem, searched from each start."""

    op: str
    problem: Any
    descriptor: HardwareDescriptor
    starts: tuple[str, ...]
    budget: int
    seed: int


def _find(searches: list[Search], cluster: str) -> list[Ratios]:
    """Returns the searches' results by the cost model, in their order."""
    found = {task.seed: future.result() for task, future in run_tasks(cluster, search_modelled, searches, "searches")}
    return [found[search.seed] for search in searches]


def _found_on(searches: list[Search], device: hip.Device) -> Iterator[Ratios]:
    """Yields the searches' results on a GPU."""
    with count_progress(len(searches), "searches") as done:
        for search in searches:
            yield _ratios(search, _measure_on(device), known=False)
            done()


def search_modelled(search: Search) -> Ratios:
    """Returns a search's result by the cost model."""
    return _ratios(search, _model, known=True)


def _ratios(search: Search, measures: Measures, known: bool) -> Ratios:
    """Runs a search from each start. known: the least time is that of the whole space by the cost model; else of the trials."""
    from simgpu.tools.cost.space import space
    from simgpu.tools.cost.trials import Grid, trace

    tiles = space(search.op, search.problem, search.descriptor)
    grid, measure = Grid.of(tiles), measures(tiles)
    found = {start: trace(grid, start, search.budget, search.seed, measure) for start in search.starts}
    least = tiles.best()[1] if known else min(best[-1] for best in found.values())
    spent = {start: search.budget - len(best) for start, best in found.items()}  # for spaces with fewer tiles than trials
    return {start: [seconds / least for seconds in (*best, *spent[start] * best[-1:])] for start, best in found.items()}


def _model(space: Space) -> Callable[[Tile], float]:
    """Returns a function from a tile to its seconds by the cost model."""
    rows = {row: number for number, row in enumerate(space.rows)}
    columns = {split: number for number, split in enumerate(space.splits)}
    return lambda tile: float(space.seconds[rows[tile[:-1]], columns[tile[-1]]])


def _measure_on(device: hip.Device) -> Measures:
    """Returns a measure on a GPU: the median seconds of LAUNCHES, after a warm-up, of all of a tile's kernels."""
    from simgpu import asm
    from simgpu.tools.cases.operators import workload
    from simgpu.tools.cases.timing import Timer
    from simgpu.tools.shared.launching import launch_work

    def measures(space: Space) -> Callable[[Tile], float]:
        def seconds(tile: Tile) -> float:
            tree = space.tree(tile)
            kernel = asm.emit(tree)
            timer = Timer(device, kernel, workload(tree, device.arch, 0), True, LAUNCHES)
            try:
                _, times, _ = launch_work(kernel.name, timer.measure)
            finally:
                timer.free()
            return median(times)

        return seconds

    return measures
