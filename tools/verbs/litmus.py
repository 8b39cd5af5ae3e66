"""`simgpu litmus`: results of compiled litmus tests on a target's caches; status 1 if one is forbidden or missing."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from simgpu import hardware
from simgpu.tools.shared.console import add_json_option, print_json, show
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.seeds import parse_seeds

if TYPE_CHECKING:
    from simgpu.tools.litmus.form import LitmusTest

USAGE = """examples:
  simgpu litmus                        the tests that come with simgpu, right ones and weakened ones
  simgpu litmus mp.litmus --target mi300x
  simgpu litmus --only 'mp\\.agent.*' --mutants
  simgpu litmus --only mp.agent --show  a test as it is written
Exit status: 0 if all results are as expected; 1 if a result is forbidden by the model or by `never`, or a `sometimes` result is
missing; 2 for an invalid file.
The form of a test, the caches and the model: simgpu help litmus
"""
LIMIT = 1 << 16  # bytes of a test's file


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("files", metavar="FILE", nargs="*", help="tests (default: those that come with simgpu)")
    parser.add_argument("--target", default="mi300x", help="board or architecture (default: mi300x)")
    parser.add_argument("--only", metavar="NAMES", help="tests whose whole name this regular expression matches")
    parser.add_argument("--bound", metavar="N", type=int, default=200_000, help="the most states of each test (default: 200000)")
    parser.add_argument("--mutants", action="store_true", help="also remove each instruction and bit that orders")
    text = "also run the tests in weak mode with a range of seeds, as 1:200"
    parser.add_argument("--weak", metavar="SEEDS", type=parse_seeds, help=text)
    parser.add_argument("--show", action="store_true", help="print the tests, and run none")
    add_json_option(parser)


def run(options: Namespace) -> int:
    """Prints the results of each test; status 1 if anything is wrong."""
    from simgpu.tools.litmus.compiled import compile_test
    from simgpu.tools.litmus.explore import explore
    from simgpu.tools.litmus.form import DEVICES, format_result
    from simgpu.tools.litmus.mutants import mutants
    from simgpu.tools.litmus.weak import weak_results

    target = hardware.target(options.target).arch
    status, documents = 0, []
    for test in _tests(options):
        if options.show:
            show(str(test))
            continue
        threads = compile_test(test, target)
        report = explore(test, target, threads, options.bound)
        status |= bool(report.wrong)
        document = report.document()
        if not options.json:
            show(str(report))
        if options.mutants:
            found = {what: bool(explore(test, target, changed, options.bound).wrong) for what, changed in mutants(target, threads)}
            document["mutants"] = found
            for what, wrong in found.items() if not options.json else ():
                show(f"  {'reported' if wrong else 'not noticed'}: {what}")
        if options.weak is not None and test.place != DEVICES:
            seen = weak_results(test, target, options.weak.all)
            document["weak"] = [{"result": dict(result), "seeds": seeds} for result, seeds in sorted(seen.items())]
            for result, seeds in sorted(seen.items()) if not options.json else ():
                show(f"  in weak mode: {format_result(result)}: {len(seeds)} seeds, the first is {seeds[0]}")
        documents.append(document)
    if options.json:
        print_json({"target": target, "tests": documents, "status": int(status)})
    return int(status)


def _tests(options: Namespace) -> list[LitmusTest]:
    from simgpu.tools.litmus.form import parse
    from simgpu.tools.litmus.herd import is_herd, parse_herd
    from simgpu.tools.litmus.suite import suite

    texts = [(_text(file), file) for file in options.files]
    tests = [parse_herd(text, file) if is_herd(text) else parse(text, file) for text, file in texts] or list(suite())
    if options.only is not None:
        try:
            tests = [test for test in tests if re.fullmatch(options.only, test.name)]
        except re.error as error:
            raise UsageError(f"--only {options.only}: {error}") from None
        if not tests:
            raise UsageError(f"no test has a name that --only {options.only} matches")
    if options.bound < 1:
        raise UsageError(f"--bound {options.bound}: at least 1")
    return tests


def _text(file: str) -> str:
    data = Path(file).read_bytes()[: LIMIT + 1]
    if len(data) > LIMIT:
        raise UsageError(f"{file}: a litmus test has at most {LIMIT} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{file}: not text") from None
