"""`simgpu check`: `run` or `exec` in checked mode; prints nothing and returns 0 if nothing is found."""

from __future__ import annotations

import contextlib
import io
import json
from argparse import REMAINDER, ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from simgpu.tools.cases.operator_options import names_operator
from simgpu.tools.cases.operators import OPERATORS
from simgpu.tools.page.page import add_html_option
from simgpu.tools.shared.console import add_json_option, print_json, progress, show
from simgpu.tools.shared.errors import KernelFailed, UsageError
from simgpu.tools.shared.known_findings import add_suppressions_option, read_suppressions, show_suppressed
from simgpu.tools.shared.launching import Watch, has_errors, run_document
from simgpu.tools.shared.outputs import claim, write
from simgpu.tools.shared.parser import Parser, own_options
from simgpu.tools.shared.sarif import sarif
from simgpu.tools.shared.seeds import parse_seeds
from simgpu.tools.verbs import exec as exec_verb
from simgpu.tools.verbs import run as run_verb

UNCHECKED = 3  # status: nothing was found, but a check itself failed
USAGE = """FILE takes the options of `simgpu exec`, OP those of `simgpu run`:
  simgpu check k.co --kernel k --grid 4 --arg zeros:f32:256
  simgpu check gemm -m 100 -n 70 -k 33 --target mi300x
Status: 0 nothing found but notes, 1 findings or a kernel that fails, 2 a wrong command line, 3 a check that failed itself,
and nothing else found.
Kinds of findings: simgpu help findings
"""


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's own options; those of exec or run follow FILE or OP."""
    _own_options(parser)
    text = f"a code object, assembly, a folder that kerncap captured, or an operator: {', '.join(OPERATORS)}"
    parser.add_argument("what", metavar="FILE|OP", nargs="?", help=text)
    parser.add_argument("--capture", metavar="FOLDER", help="a dispatch captured by kerncap, instead of FILE (simgpu help replay)")
    parser.add_argument("rest", metavar="...", nargs=REMAINDER, help="options of `simgpu exec` or `simgpu run`")


def _own_options(parser: ArgumentParser) -> None:
    parser.add_argument("--verbose", action="store_true", help="print the kernels and the number of executed instructions")
    parser.add_argument("--performance", action="store_true", help="also notes on lost time")
    text = "only the first NaN, infinity, overflow and saturation, and their way to memory (simgpu help numerics)"
    parser.add_argument("--numerics", action="store_true", help=text)
    text = "with --numerics: also NaN and infinities that do not reach memory"
    parser.add_argument("--discarded", action="store_true", help=text)
    parser.add_argument("--denormals", action="store_true", help="with --numerics: also denormals that MODE flushes")
    text = "with --numerics: also sums of floats that cancel BITS bits or more"
    parser.add_argument("--cancellation", type=int, metavar="BITS", help=text)
    text = "of OP, with --numerics: run the worst element's workgroup again in f64, and name the origin of its error"
    parser.add_argument("--shadow", choices=("f64",), help=text)
    text = "if nothing is found, launch again with waves in the order of each seed, as 1:20, until something is"
    parser.add_argument("--schedules", type=parse_seeds, metavar="SEEDS", help=text)
    add_suppressions_option(parser)
    parser.add_argument("--sarif", metavar="FILE", help="write the findings as SARIF 2.1.0, for code review tools")
    add_html_option(parser, against=True)
    add_json_option(parser)


FAULTS = ("out-of-bounds", "use-after-free", "misaligned")  # findings that repeat the message of a launch's error


def run(options: Namespace) -> int:
    """Launches in checked mode. Status 1: an error was found, the kernel failed or a result is wrong; else 3 if a check failed."""
    if (options.what is None) == (options.capture is None):
        raise UsageError("give a FILE, an OP or --capture FOLDER; see `simgpu check --help`")
    options.what = options.what or options.capture
    if options.what in ("exec", "run") and not Path(options.what).exists():
        raise UsageError(f"leave {options.what!r} out: simgpu check FILE|OP takes the options of `simgpu {options.what}`")
    verb, module = ("run", run_verb) if names_operator(options.what) else ("exec", exec_verb)
    wanted, rest = own_options(_own_options, options)
    claim([wanted.sarif], wanted.force)
    inner = Parser(prog="simgpu check")
    module.configure(inner)
    outputs = [*_option_words("html", wanted), *_option_words("against", wanted), *(["--force"] if wanted.force else [])]
    known = read_suppressions(wanted.suppressions)
    watch = Watch(check=_check(wanted), shadow=wanted.shadow is not None, suppressions=known)
    if wanted.shadow and not (wanted.numerics and verb == "run"):
        raise UsageError("--shadow f64 needs --numerics, and an operator, whose float64 result shows the worst element")
    given = inner.parse_args([options.what, *rest, *outputs], Namespace(words=options.words))
    status, failure, said = _attempt(module, given, watch)
    for seed in wanted.schedules.all if wanted.schedules else ():
        if status or has_errors(watch.findings):
            break
        watch = Watch(check=watch.check, suppressions=known, schedule=seed)
        with progress(f"schedule {seed} of {wanted.schedules.first} to {wanted.schedules.last}"):
            status, failure, said = _attempt(module, given, watch)
    wrong = has_errors(watch.findings)
    if wrong:
        status = 1
    elif status == 0 and any(finding.is_internal for finding in watch.findings):
        status = UNCHECKED
    if wanted.sarif:
        text = json.dumps(sarif(watch.findings, options.what), indent=1) + "\n"
        write(wanted.sarif, text.encode(), wanted.force)
    if wanted.json:
        print_json(_document(options.what, watch, failure, status))
    else:
        if watch.schedule is not None and (wrong or status):
            show(f"with waves in the order of seed {watch.schedule} (--schedules {watch.schedule}):")
        for finding in watch.findings:
            show(str(finding))
        for text in [] if wanted.numerics else watch.unusual:
            show(f"note: after the launch {text}: `--numerics` names the instruction that made the first")
        if watch.worst is not None:
            show(*watch.worst.lines())
        if wanted.verbose:
            _summary(watch)
        if status == 1 and not failure and not wrong:
            show(said)  # a wrong result: the whole output of run or exec
        show_suppressed(known.used)
    if failure:
        told = any(finding.kind in FAULTS and finding.severity == "error" for finding in watch.findings)
        raise KernelFailed(f"{failure.partition(':')[0]}: the launch ended there" if told and not wanted.json else failure)
    return status


def _attempt(module: Any, given: Namespace, watch: Watch) -> tuple[int, str, str]:
    """Runs exec or run for a watch. Returns its status, the kernel's error if it failed, and what it printed."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            return module.run(given, watch), "", said.getvalue()
    except KernelFailed as error:
        return 1, str(error), said.getvalue()


def _option_words(name: str, options: Namespace) -> list[str]:
    """Returns an option as given on the command line, for run or exec."""
    value = getattr(options, name)
    return [f"--{name}", value] if value else []


def _check(wanted: Namespace) -> bool | str:
    """Returns `Device`'s check argument."""
    more = [name for name in ("discarded", "denormals") if getattr(wanted, name)]
    if wanted.cancellation is not None:
        more.append(f"cancellation={wanted.cancellation}")
    if wanted.numerics:
        if wanted.performance:
            raise UsageError("--numerics checks only numbers: leave --performance out, or check twice")
        return ",".join(("numerics", *more))
    if more:
        raise UsageError("--discarded, --denormals and --cancellation need --numerics: add it")
    return "performance" if wanted.performance else True


def _document(what: str, watch: Watch, failure: str, status: int) -> dict[str, Any]:
    return {
        "checked": what,
        "findings": [finding.document() for finding in watch.findings],
        "schedule": watch.schedule,
        "suppressed": dict(watch.suppressions.used),
        "runs": [{"kernel": name, **run_document(run)} for name, run in watch.runs],
        "worst": watch.worst and watch.worst.document(),
        "error": failure or None,
        "status": status,
    }


def _summary(watch: Watch) -> None:
    """Prints the part that --verbose adds."""
    for name, run in watch.runs:
        kinds = ", ".join(
            f"{count:,} {key.removeprefix('instructions_')}"
            for key, count in run.counters.items()
            if key.startswith("instructions_") and count
        )
        places = f"{len(run.profile):,} instructions of the code were reached"
        show(f"{name}: {run.instructions:,} wave-instructions executed ({kinds}); {places}")
    count = len(watch.findings)
    show("nothing found" if not count else f"{count} finding{'s' if count > 1 else ''}")
