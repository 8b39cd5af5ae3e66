"""Examples in docstrings print what they say, and every public function and class has one."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import simgpu
from tests.support.places import ROOT

FOLDERS = ("hardware", "operators", "asm", "simgpu", "tools")
EXAMPLE = re.compile(r"^ *>>> ", re.M)
# Pages whose snippets a user copies. Those for contributors import what is not public; tests/test_extending.py runs them.
PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if page.name != "extending.md"]
IMPORT = re.compile(r"^ *(?:>>> )?from (simgpu[\w.]*) import ([\w, ]+)$", re.M)


def module_name(path: Path) -> str:
    """Dotted name of a file: the folders are parts of the package `simgpu`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in ("simgpu", *parts[parts[0] == "simgpu" :]) if part != "__init__")


def modules_with_examples() -> list[str]:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [module_name(path) for path in paths if EXAMPLE.search(path.read_text())]


def needs_example(value: Any) -> bool:
    """True for functions and classes. Nobody calls an exception: examples of functions show it."""
    return callable(value) and not (isinstance(value, type) and issubclass(value, BaseException))


def exported(module: ModuleType) -> dict[str, Any]:
    """Public functions and classes by name: a module's `__all__`, and that of its public modules, except folders of `simgpu`."""
    found: dict[str, Any] = {}
    for name in set(module.__all__) - set(simgpu._FOLDERS):
        value = getattr(module, name)
        if needs_example(value):
            found[f"{module.__name__}.{name}"] = value
        elif isinstance(value, ModuleType) and hasattr(value, "__all__"):
            found |= exported(value)
    return found


def imported_by(page: Path) -> dict[str, Any]:
    """Public functions and classes that the page's snippets import, by name."""
    found: dict[str, Any] = {}
    for module, names in IMPORT.findall(page.read_text()):
        home = importlib.import_module(module)
        found |= {f"{module}.{name}": getattr(home, name) for name in re.split(", *", names.strip())}
    return {name: value for name, value in found.items() if needs_example(value)}


def without_example(public: dict[str, Any]) -> list[str]:
    return sorted(name for name, value in public.items() if not EXAMPLE.search(value.__doc__ or ""))


@pytest.mark.parametrize("module", modules_with_examples())
def test_examples_print_what_they_say(module: str) -> None:
    """`...` replaces output that an example omits. Examples may use the names of their module."""
    if module.startswith("simgpu.triton"):
        pytest.importorskip("triton", reason="Triton is an optional extra")
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for example in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module), module):
        runner.run(example)
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize("module", ["simgpu", *(f"simgpu.{folder}" for folder in simgpu._FOLDERS)])
def test_a_public_name_has_an_example(module: str) -> None:
    """Add a `>>>` line to the docstring of a name that is listed here; it runs in milliseconds to a second."""
    if module == "simgpu.triton" and importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    public = exported(importlib.import_module(module))
    assert public and without_example(public) == []


@pytest.mark.parametrize("page", [page for page in PAGES if IMPORT.search(page.read_text())], ids=lambda page: page.name)
def test_a_name_that_a_page_imports_has_an_example(page: Path) -> None:
    assert without_example(imported_by(page)) == []


def test_a_wrong_example_and_a_missing_one_are_seen() -> None:
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    assert doctest.DocTestRunner(verbose=False).run(wrong, out=lambda text: None).failed == 1
    assert without_example({"with": lambda: None, "needs": needs_example}) == ["needs", "with"]
    names = exported(importlib.import_module("simgpu.operators"))
    assert {"simgpu.operators.TiledComputation", "simgpu.operators.reference.gemm"} <= set(names)
    assert not needs_example(simgpu.SimError) and needs_example(simgpu.Device)
