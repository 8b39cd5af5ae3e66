"""`simgpu sweep`: runs, checks or times an operator for many targets, types and shapes, into one table."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import Counter
from concurrent.futures import Future
from functools import cache
from itertools import product
from threading import Lock
from typing import Any

from simgpu.hardware.errors import SimError
from simgpu.slices.worker import version
from simgpu.tools.cases.cluster import add_cluster_option, run_tasks
from simgpu.tools.cases.operator_options import names_operator
from simgpu.tools.cases.operators import OPERATORS
from simgpu.tools.cases.sweep import ERROR, FAIL, FORMATS, LOST, PASS, SweepCase, SweepRows, flatten, shapes, write_table
from simgpu.tools.shared.console import add_json_option, print_json, quiet, show, table
from simgpu.tools.shared.errors import UsageError, did_you_mean
from simgpu.tools.shared.outputs import add_force_option, claim, write
from simgpu.tools.shared.parser import Parser

SHOWN = 20  # the most cases in the list of failures
SUMS = ("cycles", "seconds", "seconds_low", "seconds_high")  # fields that are sums over a computation's kernels, modelled


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("op", type=_operator, metavar="OP", help=f"{', '.join(OPERATORS)}, or a Python file with OPERATORS")
    parser.add_argument("--targets", default="mi100", metavar="A,B", help="boards or architectures (default: mi100)")
    parser.add_argument("--dtypes", default="f32", metavar="A,B", help="types of the operands (default: f32)")
    parser.add_argument("--shapes", required=True, metavar="FILE", help="a line a shape: options of `simgpu run OP`")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--check", dest="verb", action="store_const", const="check", help="in checked mode")
    how.add_argument("--time", dest="verb", action="store_const", const="time", help="modelled times instead of whole runs")
    parser.set_defaults(verb="run")
    parser.add_argument("-o", "--output", required=True, metavar="TABLE", help=f"the table, {', '.join(FORMATS)}; finished "
                        "cases are kept in TABLE.cases, and do not run again")  # fmt: skip
    add_cluster_option(parser, "local:1")
    add_force_option(parser)
    add_json_option(parser)


def _operator(word: str) -> str:
    if not names_operator(word):
        raise ArgumentTypeError(f"no operator {word!r}{did_you_mean(word, OPERATORS)}: {', '.join(OPERATORS)}")
    return word


def run(options: Namespace) -> int:
    """Runs the unfinished cases and writes the table; status 1 if a case failed."""
    suffix = next((known for known in FORMATS if options.output.endswith(known)), None)
    if suffix is None:
        raise UsageError(f"-o {options.output}: name a table that ends in {', '.join(FORMATS)}")
    write_table([], suffix)  # reports a missing package before anything runs
    rows = SweepRows(options.output)
    claim([options.output], options.force or rows.path.exists())
    wanted = product(options.targets.split(","), options.dtypes.split(","), shapes(options.shapes))
    cases = [SweepCase(options.verb, options.op, target, dtype, shape, version()) for target, dtype, shape in wanted]
    left = [case for case in cases if case.key not in rows.finished]
    begun = time.perf_counter()
    for case, future in run_tasks(options.cluster, row_of, left, "cases"):
        rows.add(case.key, _row(case, future))
    found = rows.of(cases)
    write(options.output, write_table(found, suffix), force=True)
    _show(options, found, len(cases) - len(left), time.perf_counter() - begun)
    return int(any(row["status"] != PASS for row in found))


def _row(case: SweepCase, future: Future[dict[str, Any]]) -> dict[str, Any]:
    """Returns the row of a case."""
    try:
        return future.result()
    except Exception as error:  # whatever an executor raises for a worker that died
        return {**_case_fields(case), "status": LOST, "error": f"{type(error).__name__}: {error}"}


def _case_fields(case: SweepCase) -> dict[str, Any]:
    return {"operator": case.operator, "target": case.target, "dtype": case.dtype, "options": case.options}


@cache
def _turn() -> Lock:
    return Lock()


def row_of(case: SweepCase) -> dict[str, Any]:
    """Runs a case in this process; returns its description, its status (pass, fail or error), and the verb's JSON, flattened."""
    verb = importlib.import_module(f"simgpu.tools.verbs.{case.verb}")
    parser, printed = Parser(prog=f"simgpu {case.verb}"), io.StringIO()
    verb.configure(parser)
    row = _case_fields(case)
    with _turn(), quiet(), contextlib.redirect_stdout(printed):  # an executor may have threads, which share standard output
        try:
            status = verb.run(parser.parse_args([*case.words(), "--json"], Namespace(words=[case.verb, *case.words()])))
        except SimError as error:
            return {**row, "status": ERROR, "error": " ".join(str(error).split())}
    document = json.loads(printed.getvalue())
    if case.verb == "time":
        kernels = document.pop("kernels")
        document |= {name: sum(kernel[name] for kernel in kernels) for name in SUMS}
        document["limit"] = max(kernels, key=lambda kernel: kernel["seconds"])["limit"]
    row |= {"status": PASS if status == 0 else FAIL, "error": ""}
    return row | {name: value for name, value in flatten(document).items() if name not in row}


def _show(options: Namespace, rows: list[dict[str, Any]], before: int, seconds: float) -> None:
    counts = Counter(row["status"] for row in rows)
    failed = [row for row in rows if row["status"] != PASS]
    if options.json:
        print_json({"cases": len(rows), "run": len(rows) - before, "seconds": seconds, **counts, "table": options.output})
        return
    said = ", ".join(f"{count} {status}" for status, count in counts.items())
    show(f"{len(rows)} cases: {said}", f"Ran {len(rows) - before} in {seconds:.1f} s; {before} were finished before")
    if failed:
        columns = ("target", "dtype", "options", "status", "error")
        show(table("Not passed", columns, ([row.get(name, "") for name in columns] for row in failed[:SHOWN]), left=5))
    show(f"{options.output} has all of it")
