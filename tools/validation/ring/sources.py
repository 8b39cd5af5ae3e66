"""Triton kernels in a Python file, without the rest of the file: tutorials launch theirs as they are imported."""

from __future__ import annotations

import ast
import importlib.util
import textwrap
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from simgpu.tools.shared.errors import UsageError

HEAD = "import triton\nimport triton.language as tl\n\n"
TRITON = ("triton.jit", "triton.autotune", "triton.heuristics")  # decorators that a kernel loses; it becomes a `triton.jit` again


def kernels_of(
    path: Path, folder: Path, within: str = "", helpers: Collection[str] = (), names: Mapping[str, Any] | None = None,
    replaced: tuple[str, str] = ("", ""),
) -> ModuleType:  # fmt: skip
    """Returns a module with a file's kernels, and with its plain functions `helpers`.

    folder: its text is written there, since Triton reads the source of kernels. within: a function; only kernels in its body are
    taken. names: what else helpers may use. replaced: a text of the file, and another.
    Raises UsageError for a file without such kernels, or a text that is not there.
    """
    before, after = replaced
    text = path.read_text("utf-8")
    if before and before not in text:
        raise UsageError(f"{path} has no {before!r}: give the file of another version")
    text = text.replace(before, after) if before else text
    parts = [_text(text.splitlines(), node, kernel) for node, kernel in _functions(ast.parse(text), within, helpers)]
    if not any(part.startswith("@triton.jit") for part in parts):
        raise UsageError(f"{path} has no @triton.jit function{f' in {within}' if within else ''}")
    made = folder / f"{path.stem.replace('-', '_')}_{len(list(folder.iterdir()))}.py"
    made.write_text(HEAD + "\n\n".join(parts) + "\n", "utf-8")
    spec = importlib.util.spec_from_file_location(made.stem, made)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module).update(names or {})
    spec.loader.exec_module(module)
    return module


def _functions(tree: ast.Module, within: str, helpers: Collection[str]) -> Iterator[tuple[ast.FunctionDef, bool]]:
    """Yields functions, and True for kernels."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    outer = {node.name: node for node in functions}.get(within)
    for node in outer.body if outer else functions:
        if not isinstance(node, ast.FunctionDef):
            continue
        decorators = [ast.unparse(each) for each in node.decorator_list]
        if any(each.startswith(TRITON) for each in decorators):
            yield node, True
    for node in functions:
        if node.name in helpers:
            yield node, False


def _text(lines: list[str], node: ast.FunctionDef, kernel: bool) -> str:
    body = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))
    return f"@triton.jit\n{body}" if kernel else body
