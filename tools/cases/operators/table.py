"""Operators by name, and from files: a module's `OPERATORS` are Operators, or classes derived from FusedGemm or RowOperator.

A built-in operator's module is loaded when the operator is looked up: most commands need one or none.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np

from simgpu import operators
from simgpu.hardware.errors import SimError
from simgpu.operators.tree import Root
from simgpu.tools.cases.operators.operator import Operator
from simgpu.tools.cases.sources import operator_path
from simgpu.tools.cases.workload import Workload
from simgpu.tools.shared.errors import UsageError, did_you_mean
from simgpu.tools.shared.inputs import Inputs

_HERE = "simgpu.tools.cases.operators"
_FORMS = (
    "rmsnorm", "add_rmsnorm", "layernorm", "rope", "quantise", "mx_quantise", "silu_mul", "row_sum", "row_max",
)  # fmt: skip
# Module of each built-in operator, in the order in which help lists them.
BUILT_IN = {
    "gemm": f"{_HERE}.gemm",
    "conv2d": f"{_HERE}.conv2d",
    "softmax": f"{_HERE}.softmax",
    "attention": f"{_HERE}.attention",
    "unfused": f"{_HERE}.attention",
    "attention_backward": f"{_HERE}.attention_backward",
    "rmsnorm_gemm": "simgpu.operators.rmsnorm_gemm",
    **dict.fromkeys(_FORMS, "simgpu.operators.rows.forms"),
    "transpose": f"{_HERE}.transpose",
    "columns": f"{_HERE}.columns",
}


def operators_of(module: ModuleType, where: str) -> dict[str, Operator]:
    """Returns a module's operators by name. UsageError, which begins with `where`, if its OPERATORS are none."""
    given = getattr(module, "OPERATORS", None)
    if given is None:
        raise UsageError(f"{where} has no OPERATORS: end it with OPERATORS = (YourClass,); see `simgpu help extending`")
    found: dict[str, Operator] = {}
    for entry in given if isinstance(given, (tuple, list)) else (given,):
        if isinstance(entry, type):
            entry = _operator_of_class(entry)
        if not isinstance(entry, Operator):
            said = entry.__name__ if isinstance(entry, type) else repr(entry)
            raise UsageError(f"{where}: OPERATORS has {said}: give classes that derive from FusedGemm or RowOperator, or Operators")
        if entry.name in found:
            raise UsageError(f"{where}: OPERATORS has two named {entry.name}: give each a name of its own")
        found[entry.name] = entry
    if not found:
        raise UsageError(f"{where}: OPERATORS is empty: give at least one")
    return found


def _operator_of_class(kind: type) -> Operator | type:
    """Returns the operator of a class derived from FusedGemm or RowOperator; another class as it is."""
    if issubclass(kind, operators.FusedGemm):
        from simgpu.tools.cases.operators.fused import fused_operator

        return fused_operator(kind)
    if issubclass(kind, operators.RowOperator):
        from simgpu.tools.cases.operators.rows import row_operator

        return row_operator(kind)
    return kind


class _Table(Mapping[str, Operator]):
    """Operators of BUILT_IN by name."""

    def __getitem__(self, name: str) -> Operator:
        return _operators_in(BUILT_IN[name])[name]

    def __contains__(self, name: object) -> bool:
        return name in BUILT_IN

    def __iter__(self) -> Iterator[str]:
        return iter(BUILT_IN)

    def __len__(self) -> int:
        return len(BUILT_IN)


@cache
def _operators_in(module: str) -> dict[str, Operator]:
    return operators_of(importlib.import_module(module), module)


OPERATORS = _Table()


def named_operator(word: str) -> Operator:
    """Returns the operator of a name of the table, of a file with one, or of `FILE.py:NAME`. UsageError says what is wrong."""
    if word in OPERATORS:
        return OPERATORS[word]
    path, name = str(operator_path(word) or word), word.partition(".py:")[2]
    found = operators_of(_module_of(path), path)
    if not name and len(found) > 1:
        raise UsageError(f"{path} has {len(found)} operators: choose {', '.join(f'{path}:{one}' for one in found)}")
    if name and name not in found:
        raise UsageError(f"{path} has no operator {name}{did_you_mean(name, found)}; it has {', '.join(found)}")
    return found[name or next(iter(found))]


def _module_of(path: str) -> ModuleType:
    """Runs a Python file as a module, as `import` from its folder would."""
    if not Path(path).is_file():
        raise UsageError(f"{path}: no such file; operators by name are {', '.join(OPERATORS)}")
    name = f"simgpu_operators_of_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    folder = str(Path(path).resolve().parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except SimError:
        raise
    except SyntaxError as error:
        raise UsageError(f"{error.filename or path}{f':{error.lineno}' * bool(error.lineno)}: {error.msg}") from None
    except Exception as error:
        lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == spec.origin]
        place = f"{path}:{lines[-1].lineno}" if lines else path
        raise UsageError(f"{place}: {type(error).__name__}: {error}") from None
    finally:
        sys.path.remove(folder)
    return module


def workload(tree: Root, arch: str, seed: int, distribution: str = "uniform") -> Workload:
    """Draws the operands of a tree's problem, distributed as one of INPUTS. Raises UsageError for a root that is not in the
    table."""
    for row in OPERATORS.values():
        if type(tree) is row.root:
            return row.kernels.workload(tree, arch, Inputs(np.random.default_rng(seed), distribution))
    known = ", ".join(row.root.__name__ for row in OPERATORS.values())
    raise UsageError(f"no inputs for a {type(tree).__name__}: there are some for {known}")
