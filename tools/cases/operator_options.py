"""Options that describe a computation, the same for every verb, and its headline and document: `simgpu derive OP …`."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentError, ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgpu.tools.cases.operators import OPERATORS, Operator, named_operator
from simgpu.tools.cases.sources import is_operator_file, operator_path
from simgpu.tools.shared.console import add_json_option
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.parser import SubParsers

if TYPE_CHECKING:
    from simgpu.operators.tree import Root


class OperatorParsers(SubParsers):
    """Sub-parsers by OP. One for a Python file is added when it is asked for."""

    def __init__(self, action: Any, add: Callable[[str, Callable[[], Operator]], None]) -> None:
        super().__init__(action)
        self._add, self._asked = add, set[object]()

    def __contains__(self, word: object) -> bool:
        if operator_path(str(word)) is not None and word not in self._asked:
            self._asked.add(word)
            operator = named_operator(str(word))
            self._add(str(word), lambda: operator)
        return super().__contains__(word)


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
    text = "an operator, or a Python file with OPERATORS (simgpu help extending)"
    made = parser.add_subparsers(dest="op", metavar="OP", required=required, parser_class=type(parser), help=text)

    def add(word: str, load: Callable[[], Operator]) -> None:
        def configure(sub: ArgumentParser) -> None:
            try:
                _add_options(sub, load(), more, kernels)
            except ArgumentError as error:
                raise UsageError(f"{word}: {error}: give the operator's field another name") from None

        parsers.announce(word, configure, lambda: load().summary, listed=True)

    parsers = OperatorParsers(made, add)
    for name in OPERATORS:
        add(name, partial(OPERATORS.__getitem__, name))
    return made


def _add_options(
    sub: ArgumentParser, operator: Operator, more: Callable[[ArgumentParser], None] | None, kernels: bool
) -> None:
    """Adds the options of one operator, and those of the verb."""
    sub.set_defaults(operator=operator, op=operator.name)
    sub.add_argument("--target", default="mi100", help="board or architecture (default: mi100)")
    sub.add_argument("--policy", default="corrected", help="tile policy: corrected (default) or published")
    sub.add_argument("--dtype", default="f32", help="type of the operands (default: %(default)s)")
    operator.configure(sub)
    if kernels and operator.others:
        said = "; ".join(f"{other}: {row.summary}" for other, row in operator.others.items())
        sub.add_argument("--kernel", choices=("tree", *operator.others), default="tree", help=f"tree (default); {said}")
    if more is not None:
        more(sub)
    sub.add_argument("--json", action="store_true", default=SUPPRESS, help="print one JSON document instead of text")


def names_operator(what: str) -> bool:
    """True if a FILE|OP is an operator: it has an operator's name, and no file has that name, or is a Python file with some."""
    return (what in OPERATORS and not Path(what).is_file()) or is_operator_file(what)


def operator_tree(options: Namespace) -> Root:
    """Builds the root node of the operator that the options describe. Raises LaunchError and TargetError as its constructor."""
    operator: Operator = options.operator
    return operator.tree(options)


def headline(tree: Root) -> str:
    """Formats the computation, the target and the policy in one line."""
    return f"{tree.derivation.title}, {tree.derivation.policy} tiles"


def operator_document(tree: Root, op: str) -> dict[str, Any]:
    """Returns operator, target, policy and sizes for JSON."""
    p, d = tree.problem, tree.descriptor
    sizes = {entry.name: getattr(p, entry.name) for entry in fields(p)}
    return {"operator": op, "target": d.name or d.arch, "arch": d.arch, "policy": tree.derivation.policy, "problem": sizes}
