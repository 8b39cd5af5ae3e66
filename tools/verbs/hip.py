"""`simgpu hip`: runs a HIP program, unmodified, on simulated GPUs, plain or checked."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import sys
import tempfile
from argparse import REMAINDER, ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from simgpu import hardware
from simgpu.engine.finding import Finding
from simgpu.hip import launcher, library
from simgpu.hip.options import MOST_PAD, Options
from simgpu.hip.program import inspect, why_no_hip
from simgpu.tools.shared.console import table
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.hiprtc import compile_source
from simgpu.tools.shared.known_findings import add_suppressions_option, read_suppressions, show_suppressed
from simgpu.tools.shared.launching import add_limit_options, add_ring_option
from simgpu.tools.shared.outputs import add_force_option, claim, write
from simgpu.tools.shared.sarif import sarif
from simgpu.tools.shared.seeds import (
    ModeSeeds,
    add_seed_options,
    demand_plain,
    mode_of,
    one_seed,
    search,
    searched_seeds,
    seeds_of,
    show_search,
)

if TYPE_CHECKING:
    from simgpu import Kernel, Run

USAGE = """examples:
  simgpu hip ./a.out 1000                          on an MI300X
  simgpu hip --check --report ./a.out 10           like valgrind on the host, and a table by kernel
  simgpu hip --devices 2 ./a.out                   two GPUs; --target mi300x,mi210 gives two boards
  eval "$(simgpu hip --check --env)" && ctest      every program that the shell starts from now on

Status: the program's, or 1 if that is 0 and something was found; 2 for a wrong command line.
From a program to the race that it has: simgpu help hip
"""

WIDTH = 132  # of a report outside a terminal
COLUMNS: tuple[str, ...] = (
    "kernel", "launches", "instructions", "read bytes", "written bytes", "host s", "findings", "not exact",
)  # fmt: skip


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("--target", default="mi300x", metavar="BOARD", help="board or architecture, several by commas (mi300x)")
    parser.add_argument("--devices", type=int, default=1, metavar="N", help="the number of devices (default: 1)")
    parser.add_argument("--check", action="store_true", help="checked mode: races, undefined values, waits, leaks")
    text = "only the first NaN, infinity and overflow, and their way to memory (simgpu help numerics)"
    parser.add_argument("--numerics", action="store_true", help=text)
    add_suppressions_option(parser)
    add_seed_options(parser)
    parser.add_argument("--kernels", metavar="REGEX", help="check only kernels whose C++ name matches REGEX")
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="leave the first N launches of each kernel unchecked")
    parser.add_argument("--only", type=int, metavar="N", help="check at most N launches of each kernel")
    forgiven = f"forgive accesses up to the next multiple of BYTES, at most {MOST_PAD}"
    parser.add_argument("--pad", type=int, default=0, metavar="BYTES", help=forgiven)
    parser.add_argument("--threads", type=int, help="host threads (default: all cores)")
    add_limit_options(parser, parser)
    add_ring_option(parser)
    parser.add_argument("--report", action="store_true", help="a table by kernel at the end, on stderr")
    parser.add_argument("--trace-calls", action="store_true", help="print each call of HIP and its result on stderr")
    text = "also modelled times of launches on a real GPU (simgpu help timing); shapes are sampled once each"
    parser.add_argument("--times", action="store_true", help=text)
    text = "write a page of the first launch of each kernel: source, registers, LDS, traffic, findings (simgpu help look)"
    parser.add_argument("--html", metavar="FILE", help=text)
    parser.add_argument("--json", metavar="FILE", help="write kernels, figures and findings as JSON")
    parser.add_argument("--sarif", metavar="FILE", help="write the findings as SARIF 2.1.0, for code review tools")
    add_force_option(parser)
    parser.add_argument("--env", action="store_true", help="print the environment for programs that others start")
    parser.add_argument("--serve", type=int, metavar="FD", help="serve the library at a socket's other end, as --env sets up")
    parser.add_argument("command", nargs=REMAINDER, metavar="PROGRAM ...", help="the program and its arguments")


def run(options: Namespace) -> int:
    """Runs the program; returns its status, or 1 if it is 0 and there are findings."""
    wanted = _options(options)
    if options.serve is not None:
        return _serve(options.serve, wanted)
    if options.env:
        print(_environment(options))
        return 0
    if not options.command:
        raise UsageError("name the program to run: simgpu hip ./a.out; see `simgpu hip --help`")
    demand_plain(options, ("check", "numerics", "html"))
    claim([options.html, options.json, options.sarif], options.force)
    path = shutil.which(options.command[0])
    if path is None:
        there = os.path.exists(options.command[0])
        raise UsageError(f"{options.command[0]}: {'not executable' if there else 'no such program'}")
    if searched_seeds(options) is not None:
        return _search(options, [path, *options.command[1:]], wanted)
    program = inspect(path)
    outcome = launcher.run([path, *options.command[1:]], wanted, compile_source)
    if not outcome.processes and not outcome.status:
        print(f"simgpu hip: {why_no_hip(path, program)}", file=sys.stderr)
    if outcome.status and (failed := _failed_calls(outcome)):
        print(f"simgpu hip: calls that failed: {failed}", file=sys.stderr)
    if options.report or options.times:
        _show(outcome, options.times)
    show_suppressed(sum((Counter(process["suppressed"]) for process in outcome.processes), Counter()))
    if options.html:
        _page(outcome, options)
    for process in outcome.processes:
        del process["observed"]
    document = {"command": options.command, "status": outcome.status, "processes": outcome.processes}
    if options.json:
        write(options.json, (json.dumps(document, indent=1) + "\n").encode(), options.force)
    if options.sarif:
        text = json.dumps(sarif(_findings(outcome), path), indent=1) + "\n"
        write(options.sarif, text.encode(), options.force)
    return outcome.status or int(outcome.wrong)


def _options(options: Namespace) -> Options:
    """Returns the options for the servers. Raises UsageError and TargetError."""
    boards = tuple(board for board in options.target.split(",") if board)
    for board in boards:
        hardware.target(board)
    if options.devices < 1 or (options.devices > 1 and len(boards) != 1) or not 1 <= options.devices * len(boards) <= 16:
        raise UsageError(f"--devices {options.devices}: give 1 to 16 of one board, or name the boards: --target mi300x,mi210")
    for name in ("skip", "only", "pad"):
        value = getattr(options, name)
        if value is not None and value < 0:
            raise UsageError(f"--{name} {value}: give 0 or more")
    if options.pad > MOST_PAD:
        raise UsageError(f"--pad {options.pad}: give at most {MOST_PAD}: allocations are that far apart")
    try:
        kernels = re.compile(options.kernels) if options.kernels else None
    except re.error as error:
        raise UsageError(f"--kernels {options.kernels}: {error}") from None
    if options.check and options.numerics:
        raise UsageError("--numerics checks only numbers: leave --check out, or run twice")
    seeds = seeds_of(options)
    check: bool | str = "numerics" if options.numerics else options.check
    if not check and (kernels or options.skip or options.only is not None):
        raise UsageError("--kernels, --skip and --only choose what is checked: add --check or --numerics")
    if not check and options.suppressions:
        raise UsageError("--suppressions names findings of checked mode: add --check or --numerics")
    return Options(
        boards * options.devices, check=check, pad=options.pad, kernels=kernels, skip=options.skip, only=options.only,
        threads=options.threads, max_instructions=options.max_instructions, timeout=options.timeout, time=options.times,
        observe=_observe if options.html else None, suppressions=read_suppressions(options.suppressions),
        ring=options.ring or None, weak=seeds.weak, late=seeds.late, trace_calls=options.trace_calls,
    )  # fmt: skip


def _search(options: Namespace, command: list[str], wanted: Options) -> int:
    """Searches for a seed under which the program ends or prints otherwise than in a plain run; status 1 if there is one."""

    mode = mode_of(options)

    def result(seed: int | None) -> tuple[int, bytes]:
        seeds = ModeSeeds(**{mode: seed})
        with tempfile.TemporaryFile() as output:
            outcome = launcher.run(command, replace(wanted, weak=seeds.weak, late=seeds.late), compile_source, output)
            output.seek(0)
            return outcome.status, output.read()

    status, printed = result(None)
    if status:
        raise UsageError(f"the program ends with status {status} without --{mode}: a search needs a run that is right")

    def differs(seed: int) -> str:
        ended, said = result(seed)
        if ended:
            return f"the program ends with status {ended}"
        return "" if said == printed else "the program prints something else"

    found = search(options, differs)
    if options.json:
        write(options.json, (json.dumps(found.document(), indent=1) + "\n").encode(), options.force)
    show_search(found)
    return int(found.found is not None)


def _observe(kernel: Kernel, **call: Any) -> tuple[Run, dict[str, Any]]:
    from simgpu.tools.page.launched import observe

    return observe(kernel, **call)


def _page(outcome: launcher.ProgramOutcome, options: Namespace) -> None:
    """Writes the page of the launches of the program's processes."""
    from simgpu.tools.page.launched import join_documents
    from simgpu.tools.page.page import Page

    documents = [document for process in outcome.processes for document in process["observed"]]
    tables = [list(_table(process, options.times)) for process in outcome.processes]
    title = shlex.join(options.command)
    Page(title, {**join_documents(documents), "tables": tables}, shlex.join(["simgpu", *options.words])).save(
        options.html, options.force
    )


def _serve(descriptor: int, options: Options) -> int:
    with socket.socket(fileno=descriptor) as peer:
        return launcher.serve_into(peer, os.open(os.devnull, os.O_WRONLY), options, compile_source)


def _environment(options: Namespace) -> str:
    """Returns lines for a shell."""
    given = ["--target", options.target, "--devices", options.devices, "--skip", options.skip, "--pad", options.pad]
    one_seed(options, "hip --env")
    for mode, seed in seeds_of(options)._asdict().items():
        given += [f"--{mode}", seed] if seed is not None else []
    for name in ("kernels", "only", "threads", "max_instructions", "timeout", "suppressions"):
        if getattr(options, name) is not None:
            given += [f"--{name.replace('_', '-')}", getattr(options, name)]
    flags = [f"--{name}" for name in ("check", "numerics", "times", "ring") if getattr(options, name)]
    command = [sys.executable, "-P", "-m", "simgpu.tools.cli", "hip", *flags, *map(str, given), "--serve"]
    path = f"{library.folder()}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
    traced = f"\nexport {library.TRACE}=1" if options.trace_calls else ""
    return f'export LD_LIBRARY_PATH="{path}"\nexport {library.SERVER}={shlex.quote(shlex.join(command))}{traced}'


def _failed_calls(outcome: launcher.ProgramOutcome) -> str:
    """Lists the calls that failed, for a program that failed: a library may hide the error that a call returned to it."""
    calls: Counter[tuple[str, str]] = Counter()
    for process in outcome.processes:
        for call, error, times in process["failed_calls"]:
            calls[call, error] += times
    return ", ".join(
        f"{name} {times} times ({error})" if times > 1 else f"{name} ({error})" for (name, error), times in calls.items()
    )


def _findings(outcome: launcher.ProgramOutcome) -> list[Finding]:
    names = Finding.__dataclass_fields__
    return [
        Finding(**{name: value for name, value in entry.items() if name in names})
        for process in outcome.processes
        for entry in process["findings"]
    ]


def _show(outcome: launcher.ProgramOutcome, timed: bool) -> None:
    """Prints a table by kernel on stderr: stdout is the program's."""
    from rich.console import Console

    console = Console(stderr=True, width=None if sys.stderr.isatty() else WIDTH)
    for process in outcome.processes:
        console.print(table(*_table(process, timed)))


def _table(process: dict[str, Any], timed: bool) -> tuple[str, Sequence[str], list[tuple[object, ...]]]:
    """Returns title, columns and rows; timed: the model of time ran."""
    boards = ", ".join(dict.fromkeys(kernel["board"] for kernel in process["kernels"])) or "no board: it launched nothing"
    rows, columns = [_row(kernel) for kernel in process["kernels"]], COLUMNS
    if timed:
        columns += ("modelled us",)
        rows = [(*row, _modelled_text(kernel)) for row, kernel in zip(rows, process["kernels"], strict=True)]
    return f"{os.path.basename(process['program'])} on {boards}", columns, rows


def _row(kernel: dict[str, Any]) -> tuple[object, ...]:
    inexact = sum(count for kind, count in kernel["fidelity"].items() if kind != "exact")
    found = kernel["findings"] + kernel["failed"]
    return (
        kernel["name"], kernel["launches"], kernel["instructions"], kernel["read_bytes"], kernel["write_bytes"],
        f"{kernel['seconds']:.3f}", found, inexact,
    )  # fmt: skip


def _modelled_text(kernel: dict[str, Any]) -> str:
    """Formats the time of all launches together, and the number of launches without a modelled time."""
    said = f"{1e6 * kernel['modelled']:,.1f}"
    return f"{said}, and {kernel['untimed']} not modelled" if kernel["untimed"] else said
