"""A function by its source: its syntax tree, and the values of the names in it."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import linecache
from collections.abc import Callable
from typing import Any

from simgpu.machine.runtime.places import NotTranslated


@functools.cache
def _definitions(path: str, text: str) -> dict[int, ast.FunctionDef]:
    """Returns the functions of a file by their first lines, including decorators."""
    found = (node for node in ast.walk(ast.parse(text, path)) if isinstance(node, ast.FunctionDef))
    return {min([node.lineno, *(one.lineno for one in node.decorator_list)]): node for node in found}


class Part:
    """A function that is translated where another one calls it. Python can also call it. seldom: True if it is rarely called."""

    def __init__(self, function: Callable[..., Any], seldom: bool = False) -> None:
        self.function = function
        self.seldom = seldom
        self.signature = inspect.signature(function)
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.function(*args, **options)

    @functools.cached_property
    def tree(self) -> ast.FunctionDef:
        """Definition of the function; the source comes from wherever the module was loaded from."""
        code = self.function.__code__
        text = "".join(linecache.getlines(code.co_filename, self.function.__globals__))
        found = _definitions(code.co_filename, text).get(code.co_firstlineno)
        if found is None:
            raise NotTranslated(f"{code.co_filename}:{code.co_firstlineno}: the source of {self.function.__name__} is not there")
        return found

    def global_value(self, name: str) -> Any:
        """Returns the value of a name that is no variable."""
        function = self.function
        enclosing = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        if name in enclosing:
            return enclosing[name].cell_contents
        if name not in function.__globals__ and not hasattr(builtins, name):
            raise NotTranslated(f"{name} has no value")
        return function.__globals__[name] if name in function.__globals__ else getattr(builtins, name)
