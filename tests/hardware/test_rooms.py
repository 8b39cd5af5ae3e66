"""The folders of `hardware`: each says what it holds, file by file, and imports follow one order, those for types included."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.places import ROOT

HARDWARE = ROOT / "hardware"
FOLDERS = sorted(path.parent for path in HARDWARE.rglob("__init__.py"))
# From the lowest: a file imports files of its own line and of lines above it.
ORDER = (
    "errors cache architectures",
    "dtypes arrays matrix_table",
    "descriptor",
    "targets",
    "isa/types isa/kinds isa/spec isa/encodings isa/instruction isa/lane isa/lane_numpy",
    "isa/arithmetic",
    "mfma",
    "isa/instructions",
    "isa/code",
    "isa/fidelity",
    "timing_rules",
    "code_object",
    "hip",
)
LEVEL = {name: level for level, line in enumerate(ORDER) for name in line.split()}


def level_of(path: Path) -> int:
    """The line of `ORDER` that a file or folder of `hardware` stands in."""
    name = path.relative_to(HARDWARE).with_suffix("").as_posix()
    return next(LEVEL[part] for part in (name, name.rpartition("/")[0]) if part in LEVEL)


def imported(path: Path) -> set[Path]:
    """The files and packages of `hardware` that a file imports, at any depth."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom):
            continue
        for name in (f"{node.module}.{alias.name}" for alias in node.names):
            while name.startswith("simgpu.hardware."):
                place = ROOT.joinpath(*name.split(".")[1:])
                if place.is_dir() or place.with_suffix(".py").exists():
                    found.add(place if place.is_dir() else place.with_suffix(".py"))
                    break
                name = name.rpartition(".")[0]
    return found


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_map_names_every_entry(folder: Path) -> None:
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()), clean=False)
    named = re.findall(r"^    (\S+\.py|\w+/) +\S", text or "", re.M)
    entries = {f"{path.name}/" if path.is_dir() else path.name for path in folder.iterdir()} - {"__pycache__/"}
    assert sorted(named) == sorted(entries - {"__init__.py"})
    assert len(entries) <= 14 or folder.name == "instructions"


FILES = [path for path in sorted(HARDWARE.rglob("*.py")) if path.name != "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HARDWARE)))
def test_imports_follow_the_order(path: Path) -> None:
    above = [str(other.relative_to(ROOT)) for other in imported(path) if level_of(other) > level_of(path)]
    assert not above, f"{path.name} imports what is built on it"
