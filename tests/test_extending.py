"""docs/how-to/extending.md followed to the letter in a copy of the repository: the laws and mypy accept its additions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.places import ROOT, copied, kept_folder
from tests.test_imports import MAY_IMPORT

BLOCK = re.compile(r"^```(python add|python new|diff) (\S+)\n(.*?)^```$", re.M | re.S)
TRY = re.compile(r"^```python try\n(.*?)^```$", re.M | re.S)
PAGE = (ROOT / "docs" / "how-to" / "extending.md").read_text()
LAWS = (
    "tests/test_rooms.py", "tests/test_imports.py", "tests/test_docs.py::test_the_reference_of_commands_is_what_the_parsers_take",
    "tests/tools/test_cli.py::test_every_verb_explains_itself[count]", "tests/tools/test_cli.py::test_version_and_help",
    "-k", "not load and not keys_the_cache",  # what starts and copies of the sources see does not depend on the additions
)  # fmt: skip


def apply(block: re.Match[str], at: Path) -> None:
    """Carries out a block of the page: makes a file, appends to a file, or changes a file's lines."""
    how, name, text = block.groups()
    file = at / name
    if how == "python new":
        assert not file.exists(), name
        file.write_text(text)
    elif how == "python add":
        file.write_text(file.read_text() + text)
    else:
        lines = text.splitlines(keepends=True)
        before, after = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
        assert file.read_text().count(before) == 1, f"{name} has not, or twice:\n{before}"
        file.write_text(file.read_text().replace(before, after))


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Makes a copy of the repository with all of the page's additions."""
    at = tmp_path_factory.mktemp("extended")
    for name in (*MAY_IMPORT, "tests", "docs"):
        copied(ROOT / name, at / name, symlinks=True)
    for name in ("pyproject.toml", "mkdocs.yml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, at / name)
    blocks = list(BLOCK.finditer(PAGE))
    assert len(blocks) == 8
    for block in blocks:
        apply(block, at)
    outcome(at, "-m", "tests.support.commands")
    yield at


def outcome(at: Path, *command: str) -> str:
    """Returns the output of a command in the copy; the command must succeed."""
    environment = {**os.environ, "PYTHONPATH": str(at), "MYPY_CACHE_DIR": str(kept_folder("mypy"))}
    done = subprocess.run([sys.executable, *command], cwd=at, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("snippet", TRY.findall(PAGE), ids=("instruction", "check"))
def test_what_the_page_adds_works(extended: Path, snippet: str) -> None:
    outcome(extended, "-c", snippet)


def test_the_verb_counts(extended: Path, tmp_path: Path) -> None:
    kernel = tmp_path / "k.co"
    outcome(extended, "-m", "simgpu", "emit", "gemm", "-m", "40", "-n", "33", "-k", "7", "--object", str(kernel))
    assert "s_endpgm" in outcome(extended, "-m", "simgpu", "count", str(kernel))


@pytest.mark.slow
def test_the_house_accepts_it(extended: Path) -> None:
    outcome(extended, "-m", "pytest", "-q", "-p", "no:cacheprovider", *LAWS)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed: pip install -e '.[lint]'")
def test_mypy_accepts_it(extended: Path) -> None:
    outcome(extended, "-m", "mypy", "-p", "simgpu.checks", "-p", "simgpu.tools.verbs", "--follow-imports=silent")
