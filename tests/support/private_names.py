"""Counts PyTorch's private names that tools/torch uses: `python -m tests.support.private_names` lists them with their files.

A name is private if a part of it begins with an underscore: an attribute of `torch`, or of what is imported from it, or a string
that `pretend` patches. Python's own names (`__get__`) are not counted.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

from tests.support.places import ROOT

FOLDER = ROOT / "tools" / "torch"
PATCHED = re.compile(r"(?:(?:_C|cuda|accelerator|autograd|nn|Tensor|version|random)\.)[\w.]+")  # keys of ANSWERS, below `torch`


def is_private(name: str) -> bool:
    """True if a part of a dotted name is private."""
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def _imported(tree: ast.Module) -> dict[str, str]:
    """Returns PyTorch's full names of what a module imports from it, by the names that it uses."""
    found = {"torch": "torch"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch" and not node.level:
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            found |= {one.asname: one.name for one in node.names if one.asname and one.name.split(".")[0] == "torch"}
    return found


def _dotted(node: ast.expr, known: dict[str, str]) -> str:
    """Returns PyTorch's full name of an expression, or ""."""
    if isinstance(node, ast.Name):
        return known.get(node.id, "")
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value, known)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def names_in(source: str) -> Iterator[str]:
    """Yields PyTorch's private names in a module, each as often as it is used."""
    tree = ast.parse(source)
    known = _imported(tree)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names = [*known.values(), *(_dotted(node, known) for node in ast.walk(tree) if id(node) not in inner and _is_attribute(node))]
    yield from filter(is_private, (*names, *_patched(tree, known)))


def _is_attribute(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute)


def _patched(tree: ast.Module, known: dict[str, str]) -> Iterator[str]:
    """Yields the names that are replaced: keys of `ANSWERS`, below `torch`, and attributes in (owner, name, value)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and PATCHED.fullmatch(node.value):
            yield f"torch.{node.value}"
        elif isinstance(node, ast.DictComp) and isinstance(node.key, ast.JoinedStr):
            beginning = node.key.values[0]
            for one in ast.walk(node.generators[0].iter) if isinstance(beginning, ast.Constant) else ():
                if isinstance(one, ast.Constant) and isinstance(one.value, str):
                    yield f"torch.{beginning.value}{one.value}"
        elif isinstance(node, ast.Tuple) and len(node.elts) == 3 and isinstance(name := node.elts[1], ast.Constant):
            if (owner := _dotted(node.elts[0], known)) and isinstance(name.value, str):
                yield f"{owner}.{name.value}"


def by_name() -> dict[str, set[str]]:
    """Returns the private names in tools/torch, each with the files that use it."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(FOLDER.rglob("*.py")):
        for name in names_in(path.read_text()):
            found[name].add(str(Path(path).relative_to(FOLDER)))
    return dict(sorted(found.items()))


if __name__ == "__main__":
    for name, files in by_name().items():
        print(f"{name}  ({', '.join(sorted(files))})")
    print(f"{len(by_name())} private names")
