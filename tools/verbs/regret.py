"""`simgpu regret [OP]`: the closed form's tiles against a plain exhaustive search, both priced by `simgpu.tools.cost`.

Regret is the modelled time of the closed form's tiles over the least. The formulas were written with the listed problems; `--seed`
draws others. By the model of time instead: `--by time` compares emitted kernels of other tiles (`simgpu.tools.cost.emitted`),
`--odd` those of aligned neighbours (`simgpu.tools.cost.odd`).
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from math import exp, log
from typing import TYPE_CHECKING, Any

from simgpu.hardware.errors import SimError
from simgpu.tools.cases.cluster import add_cluster_option, run_tasks
from simgpu.tools.cases.sweep import ERROR, LOST, PASS, SweepRows
from simgpu.tools.cost.names import OPS, TYPES
from simgpu.tools.shared.console import add_json_option, count_progress, print_json, show, table
from simgpu.tools.shared.errors import UsageError

if TYPE_CHECKING:
    from simgpu.tools.cost.odd import OddKernel
    from simgpu.tools.cost.ranking import TileRanking

DRAWN = 100
DRAWN_ODD = 50
MOST = 1.15  # of the aligned neighbour's time, and of the least time of emitted kernels
MEAN = 1.03  # geometric mean of the latter, at most
TARGET, DTYPE = "mi100", "f32"  # unless an option names others


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("op", nargs="?", default="gemm", choices=OPS, metavar="OP", help=f"{', '.join(OPS)} (default: gemm)")
    parser.add_argument("--target", help=f"board or architecture (default: {TARGET})")
    parser.add_argument("--dtype", help=f"type of the operands (default: {DTYPE}, or the operator's first)")
    parser.add_argument("--all", action="store_true", help="every board and type instead, a line each; with --odd, a "
                        "drawn board and type for each kernel")
    parser.add_argument("--seed", type=int, help=f"{DRAWN} problems drawn with this seed instead of the listed ones")
    parser.add_argument(
        "--odd", action="store_true", help=f"{DRAWN_ODD} kernels of odd extents beside the next aligned ones, timed by the model"
    )
    parser.add_argument(
        "--by", choices=("cost", "time"), default="cost", help="the judge: the closed cost (default), or the model of time, which "
        "times emitted kernels of 20 other tiles for each of --problems random shapes, boards and types",
    )  # fmt: skip
    parser.add_argument("--problems", type=int, default=DRAWN, help=f"with --by time: problems to draw (default: {DRAWN})")
    parser.add_argument("--keep", metavar="FILE", help="with --by time: keep finished problems in FILE.cases, and time only others")
    parser.add_argument("--worst", type=int, default=10, help="problems with the largest regret to list (default: 10)")
    add_cluster_option(parser)
    add_json_option(parser)


def run(options: Namespace) -> int:
    """Prints the table of regrets."""
    from simgpu.hardware import target
    from simgpu.tools.cost.ranking import SUMMARY, rank, summarise
    from simgpu.tools.cost.space import TILES

    if options.by == "time":
        return _print_emitted(options)
    if options.all and (options.target or options.dtype):
        raise UsageError("--all takes all boards and types: leave --target and --dtype out")
    options.target, options.dtype = options.target or TARGET, options.dtype or TYPES.get(options.op, (DTYPE,))[0]
    if options.odd:
        return _odd_extents(options)
    if options.all:
        return _every_row(options)
    problems = _problems(options.op, options.dtype, options.seed)
    with count_progress(len(problems), "problems") as done:
        rows = []
        for kind, problem in problems:
            rows.append(rank(options.op, problem, target(options.target), kind))
            done()
    kinds = dict.fromkeys(row.kind for row in rows)
    summary = [summarise(kind, [row for row in rows if row.kind == kind]) for kind in kinds]
    summary.append(summarise("all", rows))
    worst = sorted(rows, key=lambda row: -row.regret)[: options.worst]
    columns = ("problem", "kind", "tile", "us", "best tile", "us ", "regret")
    if options.json:
        print_json({
            "operator": options.op, "target": options.target, "dtype": options.dtype, "tiles": TILES[options.op],
            "summary": [dict(zip(SUMMARY, line, strict=True)) for line in summary],
            "problems": [_document(row) for row in rows],
        })  # fmt: skip
        return 0
    show(
        f"Closed-form {options.op} tiles against exhaustive search on {options.target}, {options.dtype}: modelled time over least\n"
        f"A tile is {TILES[options.op]}.",
        table("Regret", SUMMARY, summary),
        table("Largest", columns, (
            (r.problem, r.kind, _text(r.chosen), 1e6 * r.seconds, _text(r.best), 1e6 * r.least, r.regret) for r in worst
        ), left=3),
    )  # fmt: skip
    return 0


def _odd_extents(options: Namespace) -> int:
    """Prints kernels of odd extents beside their neighbours. Returns 1 if one takes more than MOST of its neighbour's time."""
    from simgpu.tools.cost.odd import COLUMNS, FIELDS, odd_cases, odd_problems

    seed = 1 if options.seed is None else options.seed
    if options.all:
        cases, of = list(odd_cases(options.op, seed, DRAWN_ODD)), f"{options.op} on random boards"
    else:
        drawn = odd_problems(options.op, options.dtype, seed, DRAWN_ODD)
        cases, of = [(options.target, problem) for problem in drawn], f"{options.op}, {options.dtype} on {options.target}"
    every = [(options.op, *case) for case in cases]
    rows = [future.result() for _, future in run_tasks(options.cluster, _odd_kernel, every, "kernels")]
    rows.sort(key=lambda row: (-row.ratio, row.row()))
    above = sum(row.ratio > MOST for row in rows)
    if options.json:
        named = {} if options.all else {"target": options.target, "dtype": options.dtype}
        print_json({"operator": options.op, **named, "seed": seed, "most": MOST, "above": above,
                    "rows": [dict(zip(FIELDS, row.row(), strict=True)) for row in rows]})  # fmt: skip
        return int(above > 0)
    first = 0 if options.all else 2  # the title has the board and the type of all
    middle = rows[len(rows) // 2].ratio
    show(
        f"{of}: {len(rows)} drawn kernels of odd extents over the next aligned ones\n"
        f"Ratio of modelled times: median {middle:.3f}, worst {rows[0].ratio:.3f}; above {MOST}: {above}",
        table("Largest", COLUMNS[first:], [row.row()[first:] for row in rows[: options.worst]], left=3 - first),
    )
    return int(above > 0)


def _odd_kernel(case: tuple[str, str, Any]) -> OddKernel:
    """Returns the kernels of (operator, board, problem)."""
    from simgpu.hardware import target
    from simgpu.tools.cost.odd import compare_odd

    op, board, problem = case
    return compare_odd(op, problem, target(board))


@dataclass(frozen=True)
class EmittedCase:
    """A problem of `emitted.drawn_cases`, by its number."""

    op: str
    seed: int
    number: int
    sources: str  # digest of the sources: rows of others are not reused

    @property
    def key(self) -> str:
        """Identifies the case among all others."""
        return f"{self.op} {self.seed} {self.number} {self.sources}"


def row_of_emitted(case: EmittedCase) -> dict[str, Any]:
    """Returns a case's row: its status, and the values of `emitted.FIELDS` or an error in words."""
    from simgpu.hardware import target
    from simgpu.tools.cost.emitted import FIELDS, drawn_cases, rank_emitted

    *_, (kind, board, problem) = drawn_cases(case.op, case.seed, case.number + 1)
    try:
        row = rank_emitted(case.op, problem, target(board), kind, case.number).row()
    except SimError as error:
        return {"status": ERROR, "error": f"{board}, {problem}: {error}"}
    return {"status": PASS, **dict(zip(FIELDS, row, strict=True))}


def _print_emitted(options: Namespace) -> int:
    """Prints the regret of emitted kernels. Returns 1 if the mean is above MEAN or one is above MOST."""
    from simgpu.tools.cost.emitted import ALTERNATIVES, APART, COLUMNS, FIELDS, sources

    if options.odd or options.all or options.target or options.dtype:
        raise UsageError("--by time draws boards and types: leave --odd, --all, --target and --dtype out")
    if options.problems < 1:
        raise UsageError(f"--problems {options.problems}: give 1 or more")
    seed = 1 if options.seed is None else options.seed
    cases = [EmittedCase(options.op, seed, number, sources()) for number in range(options.problems)]
    kept = SweepRows(options.keep) if options.keep else None
    found = {case: kept.finished[case.key] for case in cases if kept and case.key in kept.finished}
    for case, future in run_tasks(options.cluster, row_of_emitted, [case for case in cases if case not in found], "problems"):
        lost = future.exception()
        found[case] = {"status": LOST, "error": f"{type(lost).__name__}: {lost}"} if lost else future.result()
        if kept:
            kept.add(case.key, found[case])
    rows = [found[case] for case in cases]
    done = sorted((row for row in rows if row["status"] == PASS), key=lambda row: -row["regret"])
    failed = [row["error"] for row in rows if row["status"] != PASS]
    kinds = [*dict.fromkeys(row["kind"] for row in done), "all"]
    summary = [_summary_of_emitted(kind, [row for row in done if kind in (row["kind"], "all")]) for kind in kinds] if done else []
    status = int(bool(failed) or any(row["mean"] > MEAN or row["worst"] > MOST for row in summary[-1:]))
    if options.json:
        print_json({"operator": options.op, "seed": seed, "most": MOST, "mean": MEAN, "summary": summary, "problems": done,
                    "failed": failed})  # fmt: skip
        return status
    apart = [row for row in done if not 1 / APART <= row["judges"] <= APART]
    cells = [[row[name] for name in FIELDS] for row in done[: options.worst]]
    show(
        f"{options.op}: {len(done)} emitted kernels, each beside up to {ALTERNATIVES} of other tiles, timed by the model\n"
        f"Aims: a mean of {MEAN}, a worst of {MOST}. Judges: closed cost over the model's time.",
        table("Regret", tuple(summary[-1]), [tuple(row.values()) for row in summary]) if summary else "no problem was timed",
        table("Largest", COLUMNS, cells, left=4),
        table(f"Judges apart by {APART}", COLUMNS, [[row[name] for name in FIELDS] for row in apart], left=4),
        *failed,
    )
    return status


def _summary_of_emitted(kind: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    from simgpu.tools.cost.emitted import APART

    regrets, judges = ([row[name] for row in rows] for name in ("regret", "judges"))
    means = [exp(sum(map(log, values)) / len(values)) for values in (regrets, judges)]
    return {
        "kind": kind, "problems": len(rows), "mean": means[0], "worst": max(regrets),
        f"above {MOST}": sum(x > MOST for x in regrets),
        "judges": means[1], "least": min(judges), "most": max(judges),
        f"apart by {APART}": sum(not 1 / APART <= x <= APART for x in judges),
    }  # fmt: skip


def _problems(op: str, dtype: str, seed: int | None) -> list[tuple[str, Any]]:
    """Returns (kind, problem) pairs: the listed problems, or random ones if a seed is given."""
    from simgpu.tools.cost.problems import draw_problems, listed_problems

    return list(listed_problems(op, dtype) if seed is None else draw_problems(op, dtype, seed, DRAWN))


def _ranking(search: tuple[str, str, str, int | None]) -> list[TileRanking]:
    from simgpu.hardware import target
    from simgpu.tools.cost.ranking import rank

    op, board, dtype, seed = search
    return [rank(op, problem, target(board), kind) for kind, problem in _problems(op, dtype, seed)]


def _every_row(options: Namespace) -> int:
    """Prints the summary of all problems for every board and type."""
    from simgpu.hardware import target, targets
    from simgpu.tools.cost.ranking import SUMMARY, summarise

    names = ("target", "dtype", *SUMMARY[1:], "worst problem", "tile", "best tile")
    lines = []
    boards = [name for name in targets() if not name.startswith("gpu")]
    pairs = [(name, kind) for name in boards for kind in target(name).dtypes() if kind in TYPES.get(options.op, (kind,))]
    every = [(options.op, name, kind, options.seed) for name, kind in pairs]
    found = {task: future.result() for task, future in run_tasks(options.cluster, _ranking, every, "searches")}
    for _, name, kind, _ in every:
        rows = found[options.op, name, kind, options.seed]
        worst = max(rows, key=lambda row: row.regret)
        figures = summarise("all", rows)[1:]
        lines.append((target(name).name, kind, *figures, worst.problem, _text(worst.chosen), _text(worst.best)))
    if options.json:
        print_json({"operator": options.op, "rows": [dict(zip(names, line, strict=True)) for line in lines]})
        return 0
    title = f"Closed-form {options.op} tiles against exhaustive search: modelled time over the least"
    show(title, table("Regret", names, lines, left=2))
    return 0


def _text(tile: tuple[int, ...]) -> str:
    return "x".join(map(str, tile))


def _document(row: TileRanking) -> dict[str, Any]:
    return {
        "problem": row.problem, "kind": row.kind, "chosen": row.chosen, "seconds": row.seconds, "best": row.best,
        "least_seconds": row.least, "regret": row.regret,
    }  # fmt: skip
