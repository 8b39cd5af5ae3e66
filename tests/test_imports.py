"""Imports point one way, between folders and inside each: a file imports only files below it, types and local imports included."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

from tests.support.places import ROOT

T = TypeVar("T")

MAY_IMPORT = {
    "hardware": {"hardware"},
    "operators": {"operators", "hardware"},
    "asm": {"asm", "operators", "hardware"},
    "simgpu": {"simgpu", "hardware"},
    "tools": {"tools", "simgpu", "asm", "operators", "hardware"},
}
# Order inside a folder, from the ground up. Entries of one line do not import each other. A folder includes everything below it
# that has no entry.
ORDER = {
    "hardware": [
        "errors.py cache.py architectures.py lazy.py",
        "dtypes.py arrays.py matrix_table.py memory_model.py",
        "descriptor.py",
        "targets.py rates",
        "isa",
        "isa/arithmetic",
        "isa/ring",
        "mfma",
        "isa/instructions",
        "isa/gfx12",
        "isa/code",
        "isa/fidelity.py",
        "timing_rules",
        "code_object",
        "hip",
    ],
    "operators": [
        "arguments.py error_model.py levels.py expressions.py",
        "resources.py cost.py running_error.py",
        "split.py tree.py",
        "traffic.py",
        "compute.py feasibility.py",
        "gemm",
        "rows",
        "conv2d softmax fused",
        "attention rmsnorm_gemm.py transpose.py columns.py",
        "attention_backward",
        "reference.py",
    ],
    "asm": ["builder", "parts", "visitor.py", "gemm", "conv2d rows transpose.py columns.py", "attention", "attention_backward"],
    "simgpu": [
        "version.py",
        "machine",
        "memory timing",
        "alu matrix",
        "engine/allocations.py",
        "engine/hostcall",
        "engine/workers",
        "engine/lowering engine/workgroup.py engine/finding.py engine/failures.py engine/node.py engine/footprint.py",
        "engine/suppressions.py engine/numbers.py",
        "engine/demand.py",
        "engine/program.py",
        "engine/accounts.py",
        "engine/dispatch.py",
        "engine/result.py engine/positions.py",
        "engine/faults.py engine/check.py",
        "engine/events.py",
        "engine/checked.py engine/device.py",
        "engine/setup.py engine/uploads.py",
        "engine/launch.py",
        "engine/series.py",
        "checks/waits",
        "checks/declared.py checks/races checks/uninitialized",
        "checks/lint",
        "checks",
        "checks/suite.py",
        "sampling slices weak",
        "device.py",
        "advice",
        "matrix/one_mfma.py profile.py",
        "proof/terms.py",
        "proof/solver.py",
        "proof/roots.py",
        "proof/memory_log.py",
        "proof/state.py",
        "proof/scalar.py proof/matrix.py proof/entry.py",
        "proof/buffers.py",
        "proof/vector.py proof/access.py",
        "proof/execute.py proof/effects.py",
        "proof/counterexample.py proof/safety",
        "proof/coverage",
        "proof/equal.py",
        "proof/ir",
        "proof",
        "debugger/native",
        "debugger",
        "debugger/flow",
        "hip",
        "triton",
        "__main__.py",
    ],
    "tools": [
        "shared style",
        "matrix torch tables museum litmus",
        "cost",
        "page",
        "cases",
        "validation/paper",
        "pytest_kernels.py validation debug bench judge",
        "robustness/corpus.py ranking",
        "benchmarks",
        "verbs",
        "cli.py",
        "robustness",
    ],
}
# Import name -> distribution, if they differ.
DISTRIBUTION = {"elftools": "pyelftools", "rocm": "hip-python", "z3": "z3-solver"}


@cache
def modules() -> dict[str, Path]:
    """Returns our modules by name: `simgpu.asm.visitor` is asm/visitor.py."""
    found = {}
    for top in MAY_IMPORT:
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts if top == "simgpu" else ("simgpu", *parts)).removesuffix(".__init__")
            found[name] = path
    return found


@cache
def handed_on() -> dict[str, str]:
    """Returns full names that an __init__.py passes on, and the names that it imports them by."""
    found = {}
    for package, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())) if path.name == "__init__.py" else ():
            if isinstance(node, ast.ImportFrom):
                found |= {f"{package}.{alias.asname or alias.name}": f"{node.module}.{alias.name}" for alias in node.names}
    return found


def module_of(name: str) -> str:
    """Returns the module that a full name is, or in which it is defined."""
    while name not in modules() and name in handed_on():
        name = handed_on()[name]
    return name if name in modules() else name.rpartition(".")[0]


class Parsed(NamedTuple):
    """Properties of a file that laws are about. Its tree of syntax is not kept: all of them take hundreds of megabytes."""

    imports: frozenset[str]  # full names, at any depth: for ours the defining module, for others the name in the import
    functions: tuple[tuple[str, int, int], ...]  # name, lines, arguments


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the statements inside a node, at any depth. `ast.walk` visits all expressions, too: five times the time."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, name, ()):
            yield inner
            yield from statements(inner)


@cache
def parsed(path: Path) -> Parsed:
    return read(path.read_text())


def read(source: str) -> Parsed:
    names: set[str] = set()
    functions = []
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level and node.module, "imports are absolute"
            names |= {module_of(f"{node.module}.{alias.name}") for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            functions.append((node.name, (node.end_lineno or node.lineno) - node.lineno + 1, len(arguments)))
    return Parsed(frozenset(names), tuple(functions))


@cache
def arrows() -> frozenset[tuple[Path, Path]]:
    """Returns (importer, imported) of every import between two of our files; a name from an __init__.py counts for its file."""
    found = {(path, modules()[name]) for path in modules().values() for name in parsed(path).imports if name in modules()}
    return frozenset((a, b) for a, b in found if "__init__.py" not in (a.name, b.name))


def top_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def storey(path: Path) -> tuple[int, str]:
    """Returns the line of ORDER of a file, and its most specific entry there."""
    inside = path.relative_to(ROOT / top_of(path)).as_posix()
    entries = [
        (number, entry)
        for number, line in enumerate(ORDER[top_of(path)])
        for entry in line.split()
        if inside == entry or inside.startswith(f"{entry}/")
    ]
    assert entries, f"{path.relative_to(ROOT)} has no place in ORDER"
    return max(entries, key=lambda found: len(found[1]))


def shown(pairs: Iterable[tuple[Path, Path]]) -> list[str]:
    return sorted(f"{a.relative_to(ROOT)} imports {b.relative_to(ROOT)}" for a, b in pairs)


def test_the_reader_sees_every_kind_of_import() -> None:
    source = "import a.b, c\nfrom d.e import f\ndef g():\n    from simgpu import asm, Device\n    import simgpu.tools.cli\n"
    assert read(source).imports == {"a.b", "c", "d.e", "simgpu.asm", "simgpu.device", "simgpu.tools.cli"}
    heads = "if x:", "else:", "try:", "except A:", "else:", "finally:", "for x in y:", "else:", "match x:\n case 1:"
    nested = "".join(f"{head}\n  import m{number}\n" for number, head in enumerate(heads))
    assert read(nested).imports == {f"m{number}" for number in range(9)}
    with pytest.raises(AssertionError, match="absolute"):
        read("from . import h\n")


def test_folders() -> None:
    assert len(modules()) > 300 and {top_of(path) for path in modules().values()} == set(MAY_IMPORT)
    assert len(arrows()) > 1000
    assert shown((a, b) for a, b in arrows() if top_of(b) not in MAY_IMPORT[top_of(a)]) == []


@pytest.mark.parametrize("top", sorted(ORDER))
def test_the_order_inside_a_folder(top: str) -> None:
    wrong = set()
    for a, b in arrows():
        if top_of(a) == top_of(b) == top:
            (high, importer), (low, target) = storey(a), storey(b)
            if high < low or (high == low and importer != target):
                wrong.add((a, b))
    assert shown(wrong) == []


@pytest.mark.parametrize("top", sorted(ORDER))
def test_the_order_names_what_there_is(top: str) -> None:
    entries = [entry for line in ORDER[top] for entry in line.split()]
    assert [entry for entry in entries if not (ROOT / top / entry).exists()] == []
    assert len(set(entries)) == len(entries)


def in_circles(pairs: Iterable[tuple[T, T]]) -> set[tuple[T, T]]:
    """Returns the pairs whose second leads back to the first."""
    following: dict[T, set[T]] = {}
    for a, b in pairs:
        following.setdefault(a, set()).add(b)

    @cache
    def reached(start: T) -> frozenset[T]:
        seen: set[T] = set()
        left = [start]
        while left:
            for found in following.get(left.pop(), set()) - seen:
                seen.add(found)
                left.append(found)
        return frozenset(seen)

    return {(a, b) for a, b in pairs if a in reached(b)}


def test_circles_are_seen() -> None:
    circle = {("a", "b"), ("b", "c"), ("c", "a")}
    assert in_circles({*circle, ("c", "d"), ("e", "a"), ("d", "f")}) == circle
    assert in_circles({("a", "a"), ("a", "b")}) == {("a", "a")}


def test_no_circle_of_files() -> None:
    """No file leads back to itself by imports, types and local imports included."""
    assert shown(in_circles(arrows())) == []


@pytest.mark.parametrize("top", sorted(MAY_IMPORT))
def test_nothing_undeclared_is_imported(top: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = {text.partition(">=")[0] for text in (*project["dependencies"], *extras["hip"], *extras["triton"], *extras["test"])}
    files = [path for path in modules().values() if top_of(path) == top]
    names = {name.partition(".")[0] for path in files for name in parsed(path).imports}
    outside = names - {"simgpu"} - set(sys.stdlib_module_names)
    # PyTorch comes with the test suites that use it: tools.torch.on_host is loaded only if it is installed.
    assert {DISTRIBUTION.get(name, name) for name in outside} <= declared | {"torch"}


def test_every_folder_with_code_is_installed() -> None:
    """Rooms that measure the project stay in its repository."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {path.parent.relative_to(ROOT).as_posix().replace("/", ".") for path in modules().values()}
    packages = {name if name.startswith("simgpu") else f"simgpu.{name}" for name in folders}
    assert packages - {"simgpu.tools.benchmarks", "simgpu.tools.robustness", "simgpu.tools.style"} == set(listed) - {"simgpu.docs"}


def test_deriving_tiles_does_not_load_the_simulator() -> None:
    loaded = _loaded_by("derive", "gemm", "-m", "100", "-n", "100", "-k", "100")
    assert "simgpu.operators" in loaded
    assert not loaded & {"llvmlite", "simgpu.engine.device", "simgpu.asm"}


def test_help_loads_next_to_nothing() -> None:
    loaded = _loaded_by("--help")
    assert not loaded & {"numpy", "rich", "llvmlite", "simgpu.operators", "simgpu.engine.device", "simgpu.asm"}


def test_plain_simulation_loads_neither_the_model_of_time_nor_the_checks() -> None:
    script = "import sys, simgpu; simgpu.Device('gfx942'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "simgpu.engine.device" in loaded
    assert not loaded & {"simgpu.timing.gpu", "scipy", "rich", "simgpu.operators", "simgpu.checks.suite", "simgpu.engine.checked"}


def test_public_names_are_loaded_when_used() -> None:
    script = "import sys, simgpu; print(*dir(simgpu)); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    names, loaded = (set(line.split()) for line in done.stdout.splitlines())
    assert {"Device", "mfma", "disassemble", "hardware", "operators", "asm", "triton", "SimError"} <= names
    assert {name for name in names if name.startswith("_")} == {"__version__"}
    assert not {name for name in loaded if name.startswith("simgpu.")} and "numpy" not in loaded


@pytest.mark.parametrize("package", ["simgpu", "simgpu.asm", "simgpu.operators", "simgpu.operators.reference"])
def test_names_for_mypy_are_those_that_are_loaded_when_used(package: str) -> None:
    module = importlib.import_module(package)
    tree = ast.parse(Path(str(module.__file__)).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [alias for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(alias.asname or alias.name for alias in imports) == sorted(module.__all__)
    assert all(getattr(module, name) is not None for name in module.__all__)


@pytest.mark.parametrize(("script", "needed"), [
    ("from simgpu import asm, operators; asm.emit(operators.TiledComputation(16, 16, 16))", {"gemm"}),
    ("from simgpu.tools.verbs import check, time, lds, why, trace, debug", set()),
])  # fmt: skip
def test_only_operators_that_are_used_are_loaded(script: str, needed: set[str]) -> None:
    script = f"import sys; {script}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.split(".")[2] for name in done.stdout.split() if name.startswith("simgpu.operators.")}
    assert needed <= loaded
    others = "attention attention_backward columns conv2d fused rows softmax transpose reference"
    assert not loaded & set(others.split())


def test_a_command_loads_its_operator_only() -> None:
    """Help of `simgpu time` names all operators, and references are in one module, but an operator needs neither."""
    loaded = {name.split(".")[2] for name in _loaded_by("time", "gemm", "-m", "16", "-n", "16", "-k", "16") if "operators." in name}
    assert "gemm" in loaded and not loaded & set("attention attention_backward columns conv2d fused rows softmax transpose".split())


def test_a_model_of_time_is_printed_without_emitters_masked_arrays_and_rich() -> None:
    """Needs none of them once the kernel is kept: text for a pipe is not laid out."""
    for _ in range(2):
        loaded = _loaded_by("time", "gemm", "-m", "16", "-n", "16", "-k", "16")
    assert "simgpu.timing.gpu" in loaded
    assert loaded & {"simgpu.asm.gemm", "simgpu.asm.builder.waits", "numpy.ma", "rich"} == set()


def _loaded_by(*arguments: str) -> set[str]:
    """Returns the names in sys.modules after a command in a fresh interpreter."""
    script = (
        "import sys; from simgpu.tools.cli import main; "
        f"status = main({list(arguments)!r}); assert status == 0, status; print('LOADED', *sys.modules)"
    )
    environment = dict(os.environ)  # without COLUMNS, which readline sets in C
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, env=environment)
    return set(done.stdout.rpartition("LOADED")[2].split())
