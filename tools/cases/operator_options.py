"""Options that describe a computation, the same for every verb, and its headline and document: `simgpu derive OP …`."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgpu.tools.cases.operators import OPERATORS
from simgpu.tools.shared.console import add_json_option

if TYPE_CHECKING:
    from simgpu.operators.tree import Root


def add_operator_options(
    parser: ArgumentParser,
    more: Callable[[ArgumentParser], None] | None = None,
    kernels: bool = False,
    required: bool = True,
) -> Any:
    """Adds OP, one sub-parser per operator, and --json; returns argparse's action, to which a verb may add others.

    more: adds the verb's own options; kernels: the verb accepts kernels other than the tree's; required: an OP must be named.
    """
    add_json_option(parser)
    operators = parser.add_subparsers(dest="op", metavar="OP", required=required, parser_class=type(parser))
    for name, operator in OPERATORS.items():
        sub = operators.add_parser(name, help=operator.summary, description=operator.summary)
        sub.add_argument("--target", default="mi100", help="board or architecture (default: mi100)")
        sub.add_argument("--policy", default="corrected", help="tile policy: corrected (default) or published")
        sub.add_argument("--dtype", default="f32", help="type of the operands (default: f32)")
        operator.configure(sub)
        if kernels and operator.others:
            said = "; ".join(f"{other}: {row.summary}" for other, row in operator.others.items())
            sub.add_argument("--kernel", choices=("tree", *operator.others), default="tree", help=f"tree (default); {said}")
        if more is not None:
            more(sub)
        sub.add_argument("--json", action="store_true", default=SUPPRESS, help="print one JSON document instead of text")
    return operators


def names_operator(what: str) -> bool:
    """True if a FILE|OP is an operator: it has an operator's name, and no file has that name."""
    return what in OPERATORS and not Path(what).is_file()


def operator_tree(options: Namespace) -> Root:
    """Builds the root node of the operator that the options describe. Raises LaunchError and TargetError as its constructor."""
    return OPERATORS[options.op].tree(options)


def headline(tree: Root) -> str:
    """Formats the computation, the target and the policy in one line."""
    return f"{tree.derivation.title}, {tree.derivation.policy} tiles"


def operator_document(tree: Root, op: str) -> dict[str, Any]:
    """Returns operator, target, policy and sizes for JSON."""
    p, d = tree.problem, tree.descriptor
    sizes = {name: getattr(p, name) for name in p.__dataclass_fields__}
    return {"operator": op, "target": d.name or d.arch, "arch": d.arch, "policy": tree.derivation.policy, "problem": sizes}
