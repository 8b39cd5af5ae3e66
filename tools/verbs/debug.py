"""`simgpu debug`: a prompt in which a workgroup of a kernel runs forward and backward."""

from __future__ import annotations

from argparse import REMAINDER, ArgumentParser, Namespace

from simgpu.tools.cases.operators import OPERATORS
from simgpu.tools.cases.script import add_launch_options, with_subject
from simgpu.tools.cases.sources import is_script
from simgpu.tools.cases.subject import WHAT, Subject
from simgpu.tools.shared.console import add_json_option, print_json
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.parser import own_options

USAGE = """FILE takes the options of `simgpu exec`, OP those of `simgpu run`:
  simgpu debug gemm -m 40 -n 36 -k 20
  simgpu debug k.s --grid 4 --arg x.npy --arg zeros:f32:256 --group 3
  simgpu debug k.s --grid 4 --arg x.npy -ex "break loop" -ex continue --batch
  simgpu debug captured/                      a dispatch that kerncap recorded
  simgpu debug --launch add:2 script.py 1000  a Triton script, at the second launch of add
  simgpu debug --variables script.py          the same, compiled so that its variables can be printed
The prompt's commands: help. A tutorial: simgpu help debug
"""


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's own options; those of exec or run follow FILE or OP."""
    _own_options(parser)
    parser.add_argument("what", metavar="FILE|OP", help=f"{WHAT}: {', '.join(OPERATORS)}")
    parser.add_argument("rest", metavar="...", nargs=REMAINDER, help="options of `simgpu exec` or `simgpu run`, or a script's own")


def _own_options(parser: ArgumentParser) -> None:
    parser.add_argument("--group", default="0", metavar="X[,Y[,Z]]", help="the workgroup (default: 0,0,0)")
    parser.add_argument("--step", metavar="K", help="the kernel of an operator with several (default: the first)")
    parser.add_argument("-ex", action="append", default=[], metavar="COMMAND", help="a command to begin with; may be repeated")
    parser.add_argument("--batch", action="store_true", help="end after these commands; status 1 if the last one was an error")
    add_launch_options(parser)
    text = "compile a Triton script's kernels so that `print` knows their variables; this changes registers and schedule"
    parser.add_argument("--variables", action="store_true", help=text)
    add_json_option(parser)


def run(options: Namespace) -> int:
    """Reads commands until quit."""
    wanted, rest = (options, options.rest) if is_script(options.what) else own_options(_own_options, options)
    if wanted.json and not wanted.batch:
        raise UsageError("--json prints the output of commands as one document: give commands with -ex COMMAND, and --batch")
    try:
        group = tuple(int(part) for part in wanted.group.split(","))
    except ValueError:
        raise UsageError(f"--group {wanted.group}: give the workgroup's numbers, as 1,0,0") from None
    return with_subject("debug", options.what, rest, wanted, lambda debugged: _session(debugged, wanted, group))


def _session(debugged: Subject, wanted: Namespace, group: tuple[int, ...]) -> int:
    from simgpu.tools.debug.prompt import Prompt, carry_out, interactive

    with debugged.debugger(group) as debugger:
        said: list[str] = []
        prompt = Prompt(debugger, debugged, said.append if wanted.json else print)
        if not carry_out(prompt, wanted.ex) and not wanted.batch:
            interactive(prompt)
        if wanted.json:
            print_json({"output": [line for text in said for line in text.splitlines()], "failed": prompt.failed})
        return int(wanted.batch and prompt.failed)
