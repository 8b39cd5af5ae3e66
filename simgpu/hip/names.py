"""Finds the symbols of kernels and variables in a code object that C++ expressions name (hiprtcGetLoweredName)."""

from __future__ import annotations

from collections.abc import Sequence

from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.code_object.demangled import demangle, without_parameters

USE = "__simgpu_use_"  # prefix of variables that are added to a source to compile the code that it names


def lowered_names(code: bytes, expressions: Sequence[str]) -> list[str]:
    """Returns the symbol for each expression, "" if the code object has none.

    If there is a variable `USE` with an expression's number, its value is the address of the expression's object.
    """
    loaded = CodeObject.parse(code)
    found = {without_parameters(demangle(name)): name for name in (*loaded.symbols, *loaded.kernels)}
    image, base = loaded.image()
    at = {symbol.address: name for name, symbol in loaded.symbols.items()}
    names = []
    for index, expression in enumerate(expressions):
        use = loaded.symbols.get(f"{USE}{index}")
        if use is None:
            names.append(found.get(without_parameters(expression.lstrip("&")), ""))
        else:
            names.append(at.get(int.from_bytes(image[use.address - base :][:8], "little"), ""))
    return names
