"""`simgpu why`: where an element of a kernel's result came from, as a tree that ends in arguments and constants."""

from __future__ import annotations

from argparse import REMAINDER, ArgumentParser, Namespace

from simgpu.tools.cases.operators import OPERATORS
from simgpu.tools.cases.script import add_launch_options, with_subject
from simgpu.tools.cases.sources import is_script
from simgpu.tools.cases.subject import WHAT, Subject
from simgpu.tools.shared.console import add_json_option, print_json, progress, show
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.parser import own_options

USAGE = """FILE takes the options of `simgpu exec`, OP those of `simgpu run`:
  simgpu why C[4,22] gemm -m 40 -n 36 -k 20
  simgpu why --worst gemm -m 40 -n 36 -k 20 --dtype f16 --target mi300x
  simgpu why y[5] k.s --grid 4 --arg x.npy --arg zeros:f32:256
  simgpu why --first-nan k.s --grid 4 --arg x.npy --arg zeros:f32:256
  simgpu why --launch add:2 out[5] script.py 1000
Values are followed, not addresses, nor which way a branch went: simgpu help debugger
"""


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's own options; those of exec or run follow FILE or OP."""
    _own_options(parser)
    text = f"NAME[i,j], or 0xADDRESS[:f16 ...]; then {WHAT}: {', '.join(OPERATORS)}; with its options"
    parser.add_argument("what", metavar="ELEMENT", help=text)
    parser.add_argument("rest", metavar="...", nargs=REMAINDER, help="FILE or OP, and options of `simgpu exec` or `simgpu run`")


def _own_options(parser: ArgumentParser) -> None:
    parser.add_argument("--first-nan", action="store_true", help="instead of ELEMENT: the first NaN of the result")
    parser.add_argument("--worst", action="store_true", help="instead of ELEMENT: the element farthest from the float64 reference")
    parser.add_argument("--full", action="store_true", help="also show moves, conversions and round trips through LDS")
    parser.add_argument("--step", metavar="K", help="the kernel of an operator with several (default: the last)")
    add_launch_options(parser)
    add_json_option(parser)


def run(options: Namespace) -> int:
    """Prints the tree."""
    script = any(map(is_script, [options.what, *options.rest[:1]]))
    wanted, rest = (options, options.rest) if script else own_options(_own_options, options)
    words = [options.what, *rest]
    named = not (wanted.first_nan or wanted.worst)
    if wanted.first_nan and wanted.worst:
        raise UsageError("--first-nan and --worst: give one of them")
    if len(words) < 1 + named:
        raise UsageError("give ELEMENT and then FILE or OP, as `simgpu why C[4,22] gemm -m 40 -n 36 -k 20`")
    element, (what, *rest) = (words[0], words[1:]) if named else ("", words)
    return with_subject("why", what, rest, wanted, lambda asked: _answer(asked, wanted, element), last=True)


def _answer(asked: Subject, wanted: Namespace, element: str) -> int:
    """Prints where an element of a subject came from."""
    from simgpu.debugger.flow.why import Why
    from simgpu.debugger.named import element as address_of
    from simgpu.tools.debug.questions import first_nan, group_of, worst
    from simgpu.tools.debug.tree import Tree

    note = ""
    if wanted.first_nan:
        element = first_nan(asked)
    elif wanted.worst:
        element, _, want = worst(asked)
        note = f", {want:.9g} in float64"
    address, kind = address_of(asked.names or {}, element)
    with asked.debugger(group_of(asked, address)) as debugger:
        with progress("following the values"):
            root = Why(debugger).memory(address, kind.itemsize)
            debugger.go_on()
        value = debugger.element(element)[1]
        tree = Tree(debugger, wanted.full)
        if wanted.json:
            print_json({"element": element, "value": float(value), "workgroup": list(debugger.replay.group), **tree.document(root)})
            return 0
        first, *lines = tree.lines(root)
        group = ",".join(map(str, debugger.replay.group))
        show(f"{first} = {float(value):.9g}{note}, by workgroup {group}", *lines)
    return 0
