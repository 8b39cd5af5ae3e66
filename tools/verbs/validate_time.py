"""`simgpu validate-time`: the time model against published measurements, by set, class, board and type."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import fields, replace
from pathlib import Path

from simgpu.timing.gpu import Mechanisms
from simgpu.tools.shared.console import add_json_option, print_json, progress, show, table
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.validation import judge
from simgpu.tools.validation.rows import ENVIRONMENT, data_folder

SETS = (
    "measured", "tensile", "aiter", "attention", "seismic", "mgpusim", "babelstream", "shallow", "workloads", "kittens",
    "laplacian",
)  # fmt: skip
WITHOUT_TABLES = set(SETS[3:])  # their figures are in the checkouts
ROW_COLUMNS = ("rows", "class", "row", "measured", "predicted", "error %", "limited by")
COLUMNS = ("rows", "class", "board", "type", "n", "MAPE %", "median %", "p90 %", "bias %", "in band %", "tau")


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("--data", metavar="DIR", help=f"tables of measurements, *.csv.gz (default: {ENVIRONMENT})")
    parser.add_argument("--aiter", metavar="DIR", help="a checkout of github.com/ROCm/aiter; without one its rows are not judged")
    parser.add_argument("--hipkittens", metavar="DIR", help="a checkout of github.com/HazyResearch/HipKittens: attention, kittens")
    parser.add_argument("--examples", metavar="DIR", help="a checkout of github.com/amd/HPCTrainingExamples: stencils, a solver")
    parser.add_argument("--mgpusim", metavar="DIR", help="a checkout of github.com/sarchlab/mgpusim: programs, workloads on MI300A")
    parser.add_argument("--babelstream", metavar="DIR", help="a checkout of github.com/UoB-HPC/BabelStream at v5.0: streams")
    parser.add_argument("--lab-notes", metavar="DIR", help="a checkout of github.com/amd/amd-lab-notes: AMD's Laplacian")
    parser.add_argument("--sets", default=",".join(SETS), help=f"which, of {', '.join(SETS)} (default: all)")
    parser.add_argument("--limit", type=int, metavar="N", help="rows of AITER and of Tensile, by hash (default: all; seconds)")
    parser.add_argument("--rows", action="store_true", help="each row's measurement and prediction")
    parser.add_argument("--ablate", action="store_true", help="the error with each mechanism of the model off")
    add_json_option(parser)


def run(options: Namespace) -> int:
    """Prints the table, and the rows that were not judged with the reasons."""
    sets = tuple(options.sets.split(","))
    if unknown := [name for name in sets if name not in SETS]:
        raise UsageError(f"--sets {options.sets}: {', '.join(unknown)} is none; there are {', '.join(SETS)}")
    if options.limit is not None and options.limit < 1:
        raise UsageError(f"--limit {options.limit}: give 1 or more")
    folder = data_folder(options.data) if set(sets) - WITHOUT_TABLES else None
    given = options.aiter, options.hipkittens, options.examples, options.mgpusim, options.babelstream, options.lab_notes
    checkout, *others = (Path(one) if one else None for one in given)
    sources = judge.MeasurementFolders(folder, checkout, *others)
    if checkout is not None and not (checkout / "hsa").is_dir():
        raise UsageError(f"--aiter {checkout}: no hsa/ in there; give a checkout of github.com/ROCm/aiter")
    found = judge.Findings()
    off = [replace(Mechanisms(), **{part.name: False}) for part in fields(Mechanisms)] if options.ablate else []
    without: dict[str, list[judge.RowVerdict]] = {part.name: [] for part in fields(Mechanisms)} if options.ablate else {}
    with progress("judging"):
        for one in judge.judges(sources, sets, options.limit, found):
            for name, on in zip(without, off, strict=True):
                without[name].append(one(on))
    lines = judge.table(found.judged)
    ablation = [(name, *_by_set(judged)) for name, judged in [("all on", found.judged), *without.items()]] if options.ablate else []
    if options.json:
        print_json({
            "lines": [judge.document(line) for line in lines],
            "limits": [judge.document(line) for line in judge.table_by_limit(found.judged)],
            "rows": [{**vars(one), "error": one.error} for one in found.judged],
            "not_judged": [{"rows": name, "reason": why, "count": count} for (name, why), count in found.reasons.most_common()],
            "ablation": [{"off": name, "mape": dict(zip(SETS, figures, strict=True))} for name, *figures in ablation],
        })  # fmt: skip
        return 0
    if options.rows:
        show(table("Rows", ROW_COLUMNS, map(_row, found.judged), left=3))
    show(table("Predicted against measured", COLUMNS, map(_cells, lines), left=4))
    if limits := judge.table_by_limit(found.judged):
        show(table("By what limits the prediction", ("limited by", "board", *COLUMNS[4:]), map(_by_limit, limits), left=2))
    if found.reasons:
        reasons = [(name, count, why) for (name, why), count in found.reasons.most_common()]
        show(table("Not judged", ("rows", "n", "note"), reasons))
    if ablation:
        rows = [(name, *("" if value is None else f"{value:.1f}" for value in figures)) for name, *figures in ablation]
        show(table("MAPE % with a mechanism off", ("off", *SETS), rows))
    return 0


def _cells(line: judge.ErrorLine) -> tuple[object, ...]:
    within = "" if line.within is None else f"{line.within:.0f}"
    figures = f"{line.mape:.1f}", f"{line.median:.1f}", f"{line.p90:.1f}", f"{line.bias:+.1f}", within
    tau = "" if line.tau is None else f"{line.tau:.2f}"
    return line.rows, line.group, line.board, line.type, line.count, *figures, tau


def _by_limit(line: judge.ErrorLine) -> tuple[object, ...]:
    return line.group, line.board, *_cells(line)[4:]


def _row(one: judge.RowVerdict) -> tuple[object, ...]:
    figures = f"{one.measured:.4g}", f"{one.predicted:.4g}", f"{100 * one.error:+.1f}"
    return one.rows, one.group, one.name, *figures, one.limit


def _by_set(judged: list[judge.RowVerdict]) -> list[float | None]:
    """Returns the mean absolute error of each set, in percent."""
    made: list[float | None] = []
    for name in SETS:
        errors = [100 * one.error for one in judged if one.rows == name]
        made.append(judge.mape(errors) if errors else None)
    return made
