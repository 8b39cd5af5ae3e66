"""The folders of `tools`: each says what it holds, file by file, and imports follow one order, those for types included."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.places import ROOT

TOOLS = ROOT / "tools"
FOLDERS = sorted(path.parent for path in TOOLS.rglob("__init__.py"))
# From the lowest: a file imports files of its own room and of rooms on lines above.
ORDER = ("shared torch", "matrix tables cases robustness", "benchmarks", "verbs", "cli pytest_plugin", "gpu_process")
LEVEL = {room: level for level, line in enumerate(ORDER) for room in line.split()}
FILES = sorted(path for path in TOOLS.rglob("*.py") if path.name != "__init__.py")


def room(path: Path) -> str:
    return path.relative_to(TOOLS).with_suffix("").parts[0]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_map_names_every_entry(folder: Path) -> None:
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()), clean=False)
    named = re.findall(r"^    (\S+\.py|\w+/) +\S", text or "", re.M)
    entries = {f"{path.name}/" if path.is_dir() else path.name for path in folder.iterdir()} - {"__pycache__/"}
    assert sorted(named) == sorted(entries - {"__init__.py"})
    assert len(entries) <= 14 or folder.name in ("benchmarks", "verbs")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TOOLS)))
def test_imports_follow_the_order(path: Path) -> None:
    """`cli` loads a verb by its name in VERBS: that is no import."""
    text = path.read_text()
    assert "from simgpu.tools import" not in text
    names = re.findall(r"^\s*(?:from|import) simgpu\.tools\.(\w+)", text, re.M)
    wrong = [name for name in names if name != room(path) and LEVEL[name] >= LEVEL[room(path)]]
    assert not wrong, f"{path.name} imports what is not below it"
