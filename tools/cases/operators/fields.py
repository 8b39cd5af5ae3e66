"""Options of a command from the fields of an operator's class."""

from __future__ import annotations

import inspect
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields
from functools import partial
from typing import Any

from simgpu.tools.cases.operators.operator import Kernels, Operator, finite_number
from simgpu.tools.shared.errors import UsageError

# Type of a field's default -> parser of its option.
TYPES: dict[type, Callable[[str], Any]] = {bool: bool, int: int, float: finite_number, str: str}


def class_operator(
    kind: Any, root: Any, sizes: Mapping[str, str], known: Mapping[str, str], kernels: Kernels, **more: Any
) -> Operator:
    """Returns the operator of a class whose fields are options. UsageError names what the class lacks.

    root: class of its tree. sizes, known: help of its sizes, and of the fields of its base. more: further fields of `Operator`.
    """
    options = partial(add_fields, sizes, option_fields(kind, sizes, known), known)
    return Operator(kind.name, summary(kind), root, options, partial(_tree, kind, root), kernels, **more)


def _tree(kind: Any, root: Any, o: Namespace) -> Any:
    return root(kind(**{entry.name: getattr(o, entry.name) for entry in fields(kind)}), o.target, o.policy)


def option_fields(kind: Any, sizes: Iterable[str], known: Iterable[str]) -> list[Field[Any]]:
    """Returns a class' fields other than its sizes and dtype. known: fields of its base. UsageError names what the class lacks."""
    if not kind.name.isidentifier():
        raise UsageError(f"{kind.__name__}.name is {kind.name!r}: give the operator a name of letters, digits and _")
    if "__dataclass_fields__" not in vars(kind) and vars(kind).get("__annotations__"):
        raise UsageError(f"{kind.__name__} has fields: decorate it with @dataclass(frozen=True), so that they become options")
    own = [entry for entry in fields(kind) if entry.name not in (*sizes, "dtype")]
    for entry in own:
        if entry.name not in known and type(entry.default) not in TYPES:
            said = "no default" if entry.default is MISSING else f"the default {entry.default!r}"
            raise UsageError(f"{kind.__name__}.{entry.name} has {said}: give a number, a word, True or False: it becomes an option")
    return own


def summary(kind: Any) -> str:
    """Returns the first line of a class' documentation."""
    return (inspect.getdoc(kind) or kind.name).splitlines()[0].rstrip(".")


def add_fields(sizes: Mapping[str, str], own: Iterable[Field[Any]], known: Mapping[str, str], sub: ArgumentParser) -> None:
    """Adds an option for each size, which is required, and for each field. known: help of the base's fields."""
    for name, text in sizes.items():
        sub.add_argument(f"-{name}" if len(name) == 1 else f"--{name}", type=int, required=True, metavar=name.upper(), help=text)
    for entry in own:
        option, default = f"--{entry.name.replace('_', '-')}", entry.default
        text = known.get(entry.name, f"{entry.metadata.get('help', 'of the operator')} (default: {default})")
        if isinstance(default, bool):
            action = BooleanOptionalAction if default else "store_true"
            sub.add_argument(option, dest=entry.name, action=action, default=default, help=text)
        else:
            parse = int if default is None else TYPES[type(default)]
            sub.add_argument(option, dest=entry.name, type=parse, default=default, help=text)
