"""`simgpu bench`: host times of an operator or a code object, by opcode with --profile; in a checkout the goals of speed."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace
from importlib.util import find_spec

from simgpu.tools.bench import exec, operator
from simgpu.tools.cases.operator_options import add_operator_options
from simgpu.tools.page.page import add_html_option
from simgpu.tools.shared.errors import UsageError

# The wheel leaves the goals out, since they measure simgpu, not a user's kernel.
IS_CHECKOUT = find_spec("simgpu.tools.benchmarks") is not None


def configure(parser: ArgumentParser) -> None:
    """Adds the options of the table of goals, then a subparser for each operator and one for exec."""
    threads = "host threads (default: all cores; for the table of goals 2, also of BLAS)"
    parser.add_argument("--threads", type=int, help=threads)
    parser.add_argument("--profile", action="store_true", help=PROFILE)
    add_html_option(parser)
    if IS_CHECKOUT:
        from simgpu.tools.benchmarks import table

        table.configure(parser)
    operators = add_operator_options(parser, more=_of_operator, required=False)
    text = "a kernel of any code object, as `simgpu exec` takes it; its result is not validated"
    sub = operators.add_parser("exec", help=text, description=text)
    exec.configure(sub)
    _add_shared_options(sub)
    sub.add_argument("--json", action="store_true", default=SUPPRESS, help="print one JSON document instead of text")


PROFILE = "the time by opcode, sampled (Linux)"


def _of_operator(parser: ArgumentParser) -> None:
    operator.add_options(parser)
    _add_shared_options(parser)


def _add_shared_options(parser: ArgumentParser) -> None:
    """Adds --profile to a subparser, and keeps its defaults from overwriting --threads, --html and --force given before OP."""
    parser.add_argument("--profile", action="store_true", default=SUPPRESS, help=PROFILE)
    for action in parser._actions:
        if action.dest in ("threads", "html", "force"):
            action.default = SUPPRESS


def run(options: Namespace) -> int:
    """Prints the table or the times; status 1 if a result is wrong or a row fails. Missed goals are no error."""
    if options.op is None and not IS_CHECKOUT:
        raise UsageError("bench needs OP or exec: the table of goals measures simgpu itself, from a checkout of its repository")
    if options.op is None:
        from simgpu.tools.benchmarks import table

        return table.goals(options)
    for name in ("only", "verbose"):
        if getattr(options, name, None):
            raise UsageError(f"--{name} belongs to the table: leave {options.op} out, or --{name}")
    return exec.run(options) if options.op == "exec" else operator.run(options)
