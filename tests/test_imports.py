"""Imports point one way: hardware <- operators <- asm, hardware <- simgpu; nothing imports tools or tests."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.places import ROOT

MAY_IMPORT = {
    "hardware": {"hardware"},
    "operators": {"operators", "hardware"},
    "asm": {"asm", "operators", "hardware"},
    "simgpu": {"simgpu", "hardware"},
    "tools": {"tools", "simgpu", "asm", "operators", "hardware"},
}
OURS = {*MAY_IMPORT, "tests"}
# Import name -> distribution, where they differ.
DISTRIBUTION = {"elftools": "pyelftools", "llvmlite": "numba", "rocm": "hip-python"}


def imported(source: str) -> set[str]:
    """Packages that a module imports, at any depth: top-level names, of simgpu's folders the folder's."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {_folder(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            names |= {_folder(f"{node.module}.{alias.name}") for alias in node.names}
    return names


def _folder(name: str) -> str:
    top, _, rest = name.partition(".")
    inner = rest.partition(".")[0]
    return inner if top == "simgpu" and inner in MAY_IMPORT else top


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def test_the_reader_sees_every_kind_of_import() -> None:
    source = "import a.b, c\nfrom d.e import f\ndef g():\n    from simgpu import asm, jit\n    import simgpu.tools.cli\n"
    assert imported(source) == {"a", "c", "d", "asm", "simgpu", "tools"}
    assert not imported(source) & OURS <= MAY_IMPORT["asm"]


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_arrows(package: str) -> None:
    found = modules(package)
    assert found
    wrong = {
        str(path.relative_to(ROOT)): sorted(bad)
        for path in found
        if path != ROOT / "simgpu" / "__init__.py" and (bad := imported(path.read_text()) & OURS - MAY_IMPORT[package])
    }
    assert not wrong


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_nothing_undeclared_is_imported(package: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = {text.partition(">=")[0] for text in (*project["dependencies"], *extras["hip"], *extras["triton"], *extras["test"])}
    names = set().union(*(imported(path.read_text()) for path in modules(package)))
    outside = names - OURS - set(sys.stdlib_module_names)
    # PyTorch comes with the test suites that use it: tools.torch.on_host is loaded only where it is installed.
    assert {DISTRIBUTION.get(name, name) for name in outside} <= declared | {"torch"}


def test_every_folder_with_code_is_installed() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {".".join(path.parent.relative_to(ROOT).parts) for package in MAY_IMPORT for path in modules(package)}
    assert {name if name.startswith("simgpu") else f"simgpu.{name}" for name in folders} == set(listed)


def test_deriving_tiles_does_not_load_the_simulator() -> None:
    loaded = _loaded_by("derive", "gemm", "-m", "100", "-n", "100", "-k", "100")
    assert "simgpu.operators" in loaded
    assert not loaded & {"numba", "llvmlite", "simgpu.engine.device", "simgpu.asm"}


def test_help_loads_next_to_nothing() -> None:
    loaded = _loaded_by("--help")
    assert not loaded & {"numpy", "rich", "numba", "simgpu.operators", "simgpu.engine.device", "simgpu.asm"}


def test_plain_simulation_loads_neither_numba_nor_the_checks() -> None:
    """numba compiles the scheduler once; its machine code lies with the handlers'."""
    script = "import sys, simgpu; simgpu.Device('gfx942'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"numba", "scipy", "rich", "simgpu.operators", "simgpu.checks.suite"}


def _loaded_by(*arguments: str) -> set[str]:
    """Names in sys.modules after a command in a fresh interpreter."""
    script = (
        "import sys; from simgpu.tools.cli import main; "
        f"status = main({list(arguments)!r}); assert status == 0, status; print('LOADED', *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.rpartition("LOADED")[2].split())
