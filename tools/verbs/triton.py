"""`simgpu triton`: runs an unmodified Python program whose Triton kernels and PyTorch use a simulated GPU."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import sys
from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from simgpu import hardware
from simgpu.tools.shared.console import table
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.known_findings import add_suppressions_option, show_suppressed
from simgpu.tools.shared.outputs import add_force_option, claim, write
from simgpu.tools.shared.seeds import add_seed_options, demand_plain, one_seed, seeds_of
from simgpu.tools.torch.environment import CHECK, HOST, OPERATORS, SEEDS, SIMULATED, SUPPRESSIONS, TARGET, with_variables
from simgpu.tools.torch.script import status_of

if TYPE_CHECKING:
    from simgpu.triton import Session

USAGE = """examples:
  simgpu triton script.py 1000                  on an MI300X
  simgpu triton --check --report script.py      findings and a table by kernel, on stderr, at the end
  simgpu triton -m mypackage.bench              a module
  SIMGPU=mi210 python script.py                 the same without this command, if the program uses PyTorch

Status: the program's, or 1 if that is 0 and something was found. `simgpu help triton` has more.
"""

WIDTH = 100  # of a report outside a terminal


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("--target", default="mi300x", metavar="BOARD", help="board or architecture (mi300x); mi300x:2 is two")
    parser.add_argument("--check", action="store_true", help="checked mode: races, undefined values, waits, bounds")
    add_suppressions_option(parser)
    add_seed_options(parser, searches=False)
    parser.add_argument("--threads", type=int, help="host threads (default: all cores)")
    parser.add_argument("--report", action="store_true", help="a table by kernel at the end, on stderr")
    parser.add_argument("--times", action="store_true", help="model the time of each launch; the report has it")
    parser.add_argument(
        "--operators", choices=(HOST, SIMULATED), default=os.environ.get(OPERATORS) or HOST,
        help=f"where PyTorch's operators compute: {HOST} (default), or {SIMULATED}, with a summary at the end",
    )  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="write kernels, figures and findings as JSON")
    add_force_option(parser)
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module's name")
    parser.add_argument("command", nargs=REMAINDER, metavar="PROGRAM ...", help="the program and its arguments")


def run(options: Namespace) -> int:
    """Runs the program; returns its status, or 1 if it is 0 and there are findings."""
    hardware.target_count(options.target)
    if not options.command:
        raise UsageError("name the program to run: simgpu triton script.py; see `simgpu triton --help`")
    demand_plain(options, ("check",))
    one_seed(options, "triton")
    if importlib.util.find_spec("triton") is None:
        raise UsageError("Triton is not installed: pip install 'triton>=3.7'")
    if not options.module and not os.path.isfile(options.command[0]):
        raise UsageError(f"{options.command[0]}: no such program")
    claim([options.json], options.force)
    with _gpu(options) as session:
        if options.times:
            session.clock.modelled_ms()
        status = status_of(options.command, options.module)
    for finding in session.findings:
        print(finding, file=sys.stderr)
    if options.report:
        _show(session)
    if session.operators:
        from simgpu.tools.torch.operators.summary import lines

        print(*lines(session.name, session.operators.values()), sep="\n", file=sys.stderr)
    if options.json:
        document = {
            "command": options.command, "status": status, "target": options.target,
            "kernels": [use.document() for use in session.used.values()],
            "findings": [finding.document() for finding in session.findings],
            "suppressed": dict(session.suppressions.used),
        }  # fmt: skip
        write(options.json, (json.dumps(document, indent=1) + "\n").encode(), options.force)
    return status or int(any(finding.severity == "error" for finding in session.findings))


def _show(session: Session) -> None:
    """Prints a table by kernel on stderr: stdout is the program's."""
    from rich.console import Console

    console = Console(stderr=True, width=max(Console(stderr=True).width, WIDTH))
    columns = ("kernel", "launches", "instructions", "matrix", "VGPRs", "spills", "LDS bytes", "model ms", "host s", "findings")
    rows = (
        (use.kernel, use.launches, use.instructions, f"{use.matrix / max(1, use.instructions):.0%}", use.vgprs, use.spills,
         use.lds_bytes, use.milliseconds, f"{use.seconds:.3f}", use.findings)
        for use in session.used.values()
    )  # fmt: skip
    console.print(table(f"kernels on {session.name}", columns, rows))
    show_suppressed(session.suppressions.used)


@contextlib.contextmanager
def _gpu(options: Namespace) -> Iterator[Session]:
    """Gives this process and its children Triton's device, and PyTorch's if it is installed."""
    import simgpu.triton

    check: Any = "collect" if options.check else False
    seeds = seeds_of(options)
    given = {TARGET: options.target, CHECK: check or "no", SUPPRESSIONS: options.suppressions, OPERATORS: options.operators}
    given |= {SEEDS[mode]: None if seed is None else str(seed) for mode, seed in seeds._asdict().items()}
    has_torch = importlib.util.find_spec("torch") is not None
    if has_torch:
        importlib.import_module("torch")  # before TARGET is set: PyTorch then loads `simgpu.tools.torch` while that loads PyTorch
    with simgpu.triton.device(
        options.target, check=check, threads=options.threads, suppressions=options.suppressions, weak=seeds.weak, late=seeds.late
    ) as session, contextlib.ExitStack() as stack:
        stack.enter_context(with_variables(given))
        if has_torch:
            from simgpu.tools.torch.pretend import pretended_gpu

            stack.enter_context(pretended_gpu())
        yield session
