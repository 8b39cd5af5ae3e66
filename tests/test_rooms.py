"""Tree of folders: each has a map that names its files, tests are in the same rooms, and the cache sees every room."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import simgpu
import simgpu.hardware
from simgpu.machine.jit import source_digest, sources
from tests.support.places import ROOT
from tests.support.sweeps import swept
from tests.test_imports import MAY_IMPORT, parsed

ROOMS = sorted({path.parent.relative_to(ROOT) for top in MAY_IMPORT for path in (ROOT / top).rglob("*.py")})
MOST_LINES, MOST_OF_A_FUNCTION, MOST_ARGUMENTS = 500, 60, 12
# Rooms of the simulator that do not affect a handler.
KEYLESS = {("advice",), ("debugger",), ("hip",), ("proof",), ("sampling",), ("slices",), ("timing",), ("triton",)}


def content(room: Path) -> set[str]:
    """Returns the files and folders of a room, as its map should name them."""
    files = {path.name for path in (ROOT / room).glob("*.py")} - {"__init__.py"}
    folders = {f"{path.name}/" for path in (ROOT / room).iterdir() if not path.is_symlink() and (path / "__init__.py").is_file()}
    return files | folders


@swept("room", ROOMS, ids=str)
def test_a_map_names_what_lies_in_the_room(room: Path) -> None:
    """A map is a sentence, then indented lines: names, two or more blanks, their purpose."""
    text = (ROOT / room / "__init__.py").read_text()
    docstring = text.split('"""')[1]
    assert re.match(r"[^\n]{10,}[.:]\n", docstring), "the first sentence says what the folder is for"
    lines = [line for line in docstring.splitlines() if re.match(r"    \w+(\.py|/)", line)]
    named = [name for line in lines for name in re.findall(r"\w+(?:\.py|/)", re.split(r" {2,}", line.strip())[0])]
    assert sorted(named) == sorted(content(room))
    assert all(re.search(r"\S {2,}\S", line.strip()) for line in lines), "each line says what its files are for"


def test_a_file_can_be_read_in_a_sitting() -> None:
    """A room may have any number of files; the tables of instructions, a file an encoding, grow with the instruction set."""
    tables = ROOT / "hardware" / "isa" / "instructions"
    files = [path for top in MAY_IMPORT for path in (ROOT / top).rglob("*.py") if path.parent != tables]
    lines = {path.relative_to(ROOT).as_posix(): path.read_text().count("\n") for path in files}
    assert {name: number for name, number in lines.items() if number > MOST_LINES} == {}


def test_tests_lie_in_the_rooms_of_what_they_test() -> None:
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("*.py")}
    assert {folder for folder in folders if not (ROOT / folder).is_dir()} == {Path("support")}


def test_the_documentation_shows_the_rooms() -> None:
    text = (ROOT / "docs" / "reference" / "architecture.md").read_text()
    for room in ROOMS:
        if len(room.parts) <= 2:
            assert f"{room.name}/" in text, f"docs/reference/architecture.md does not show {room}/"


def test_every_room_of_the_simulator_keys_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit in any of these rooms makes handlers' IR anew; code that emits, launches, times or debugs kernels has no effect."""
    for top in MAY_IMPORT:
        shutil.copytree(ROOT / top, tmp_path / top, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
    monkeypatch.setattr(simgpu, "__file__", str(tmp_path / "simgpu" / "__init__.py"))
    monkeypatch.setattr(simgpu.hardware, "__file__", str(tmp_path / "hardware" / "__init__.py"))
    read = [path.relative_to(tmp_path) for path in sources()]
    assert len(set(read)) == len(read)
    for room in ROOMS:
        decides = room.parts[0] == "hardware" or (
            room.parts[0] == "simgpu" and room.parts[1:2] not in KEYLESS
        ) or room.parts[1:] in (("debugger", "native"), ("timing", "native"))
        files = {path.relative_to(tmp_path) for path in (tmp_path / room).glob("*.py")}
        assert files & set(read) == (files if decides else set()), room
    digest = source_digest.__wrapped__
    seen = [digest()]
    assert digest() == seen[0]
    for file in (read[0], read[-1], Path("simgpu/machine/values.py"), Path("tools/cli.py")):
        (tmp_path / file).write_text((tmp_path / file).read_text() + "\n# an edit\n")
        assert (digest() not in seen) == (file in read), file
        seen.append(digest())


# Signatures that are fixed from outside: the paper's keywords for a GEMM, PyTorch's for its operators.
GIVEN = {"operators/gemm/tree.py", "tools/torch/operators/attention.py"}


def test_a_function_can_be_taken_in_at_a_glance() -> None:
    long, wide = [], []
    for top in MAY_IMPORT:
        for path in (ROOT / top).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            for function, lines, arguments in parsed(path).functions:
                if lines > MOST_OF_A_FUNCTION:
                    long.append(f"{name}: {function}")
                if arguments > MOST_ARGUMENTS and name not in GIVEN:
                    wide.append(f"{name}: {function}")
    assert (long, wide) == ([], [])
