"""docs/tutorials/hip.md: its program, compiled, prints what the page says.

    python -m tests.simgpu.hip.test_page      writes what the commands print now
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from simgpu.hip.record import KernelRecord
from simgpu.tools.verbs.hip import _row
from tests.support import transcripts
from tests.support.hip_compiler import PROGRAMS, compiled
from tests.support.places import PYTHON_PATH, ROOT

PAGE = ROOT / "docs" / "tutorials" / "hip.md"
SOURCE = re.compile(r"^```cpp\n(.*?)^```$", re.M | re.S)
# HIP's header defines these for C++; a call of such a template has its place in the header.
TEMPLATES = "template <class T> hipError_t hipMalloc(T **pointer, size_t bytes) { return hipMalloc((void **)pointer, bytes); }\n"


def programs(folder: Path) -> None:
    """Compiles the page's program, and the one with a block too many, into a folder."""
    found = SOURCE.search(PAGE.read_text())
    assert found
    (folder / "hip").mkdir()
    (folder / "hip" / "hip_runtime.h").write_text(f'#include "{PROGRAMS / "api.h"}"\n{TEMPLATES}')
    (folder / "cstdio").write_text("#pragma once\n")
    for name, text in (("race", found[1]), ("beyond", found[1].replace("<<<4, 256>>>", "<<<5, 256>>>"))):
        source = folder / f"{name}.hip"
        source.write_text(text)
        shutil.copy(compiled(source, "gfx942", options=("-I.",)), folder / name)


def printed(folder: Path) -> str:
    """Returns the page with the commands' current output, including stderr where the command says so."""

    def block(match: re.Match[str]) -> str:
        made = []
        for entry in transcripts.transcripts(match[1]):
            parsed = transcripts.COMMAND.match(entry.line)
            assert parsed
            command = [sys.executable, "-P", "-m", "simgpu.tools.cli", *shlex.split(parsed["words"])]
            environment = {**os.environ, "PYTHONPATH": PYTHON_PATH}
            streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT if parsed["errors"] else subprocess.PIPE}
            done = subprocess.run(command, cwd=folder, text=True, env=environment, timeout=300, **streams)
            lines = (line.rstrip() for line in done.stdout.splitlines())
            made.append(f"{entry.line}\n" + "".join(f"{line}\n" for line in lines))
        return "```console\n" + "".join(made) + "```"

    return transcripts.BLOCK.sub(block, PAGE.read_text())


def comparable(page: str) -> str:
    """Returns a page without a machine's seconds and the column widths that follow from them."""
    return re.sub(r"─+", "─", re.sub(r" +", " ", re.sub(r"\d+\.\d+", "#", page)))


@pytest.mark.slow
def test_the_page_prints_what_it_says(tmp_path: Path) -> None:
    programs(tmp_path)
    got, wanted = comparable(printed(tmp_path)), comparable(PAGE.read_text())
    assert got == wanted, "python -m tests.simgpu.hip.test_page writes what the commands print now"


def test_a_launch_too_short_for_the_clock_has_its_decimals() -> None:
    # Given: a kernel whose launches took no measurable time
    record = KernelRecord("fill", "mi300x").document()

    # Then: its row reads as others do
    assert "0.000" in _row(record)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        programs(Path(scratch))
        PAGE.write_text(printed(Path(scratch)))
