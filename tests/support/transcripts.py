"""Commands in a page of documentation with their output: run, compared, and rewritten.

    python -m tests.support.transcripts docs/reference/examples.md       # rewrites the outputs of its ```console blocks

A block is `$ simgpu …` lines, each followed by its output. `| head -N` and `| tail -N` shorten it, `2>&1` shows the message of a
failing command. The shell runs other commands. A block ```LANGUAGE FILE is written as a file first. For figures that depend on the
machine, only the words around them are compared.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

from simgpu.tools.cli import main as main_of_simgpu
from tests.support import forks
from tests.support.hip_server import GPU, build
from tests.support.places import PYTHON_PATH
from tests.tools.test_exec import SCALE, code_object

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
FILE = re.compile(r"^```\w+ (\w[\w.]*)\n(.*?)^```$", re.M | re.S)
COMMAND = re.compile(r"^\$ simgpu (?P<words>.*?)(?P<errors> 2>&1)?(?: \| (?P<part>head|tail) -(?P<lines>\d+))?$")
# Lines whose numbers are times of this machine; the widest number sets a table's rules and gaps.
MEASURED = re.compile(
    r"^Simulated .* in|^Ran \d+ in|useful work|by HIP events|^(median|fastest|slowest|spread|product|operands|matrix peak) |"
    r"^clang version|^Linux|^numpy "
)


# Variables of a page's commands: the width of its terminal (other pages show output through a pipe); a warning of Triton's off.
VARIABLES = {"README.md": {"COLUMNS": "80"}, "write-triton.md": {"TRITON_DEFAULT_FP_FUSION": "1"}}


@dataclass(frozen=True)
class Transcript:
    """A command line of the page, and its output."""

    line: str
    output: str

    @property
    def comparable(self) -> str:
        """Output without the parts that differ on another machine, or in another minute."""
        return "\n".join(_comparable(line) for line in self.output.splitlines())


def _comparable(line: str) -> str:
    line = re.sub(r"0x[0-9a-f]{11,}", "0x#", line)  # an address of this process
    if MEASURED.search(line):
        line = re.sub(r"\(.*\)$|\d[\d.,e+-]*", "#", line)
    return re.sub(r"─+", "─", re.sub(r" +", " ", line))


def transcripts(block: str) -> list[Transcript]:
    """Returns the commands of a block with their outputs."""
    found: list[Transcript] = []
    for line in block.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append(Transcript(line.rstrip("\n"), ""))
        else:
            found[-1] = replace(found[-1], output=found[-1].output + line)
    return found


def execute(line: str, folder: Path, environment: dict[str, str]) -> str:
    """Returns the output of a command in `folder`; a command for a GPU runs in a process with its environment."""
    parsed = COMMAND.match(line)
    if parsed is None:
        return subprocess.run(["sh", "-ec", line.removeprefix("$ ")], cwd=folder, capture_output=True, text=True, check=True).stdout
    words = shlex.split(parsed["words"])
    out, err = (_outside if {"hip", "triton"} & set(words) else _inside)(words, folder, environment)
    if err and not parsed["errors"]:
        raise ValueError(f"{line}: {err}")
    lines = (out + err).splitlines(keepends=True)
    count = int(parsed["lines"] or 0)
    return "".join(lines[:count] if parsed["part"] == "head" else lines[-count:])


def _inside(words: list[str], folder: Path, environment: dict[str, str]) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
        patch.dict(os.environ, {name: environment[name] for name in environment.keys() & {"COLUMNS"}}),
    ):  # fmt: skip
        main_of_simgpu(words)
    return out.getvalue(), err.getvalue()


def _outside(words: list[str], folder: Path, environment: dict[str, str]) -> tuple[str, str]:
    done = forks.simgpu(words, folder, {**environment, "PYTHONPATH": PYTHON_PATH})
    return done.stdout, done.stderr


def rerun(page: str, folder: Path, environment: dict[str, str]) -> str:
    """Returns the page with the present outputs of its commands, run in order in `folder`, which has scale.co."""
    (folder / "scale.co").write_bytes(code_object(SCALE))
    for name, content in FILE.findall(page):
        (folder / name).write_text(content)

    def block(match: re.Match[str]) -> str:
        made = [
            Transcript(entry.line, execute(entry.line, folder, environment)) for entry in transcripts(match[1])
        ]
        return "```console\n" + "".join(f"{entry.line}\n{entry.output}" for entry in made) + "```"

    return BLOCK.sub(block, page)


def comparable(page: str) -> list[tuple[str, str]]:
    """Returns (command, comparable output) of all blocks."""
    return [(entry.line, entry.comparable) for match in BLOCK.finditer(page) for entry in transcripts(match[1])]


def main() -> None:
    """Rewrites the pages named on the command line, with a stand-in GPU for `--device hip`."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        gpu = stack.enter_context(GPU(build(folder)))
        for name in sys.argv[1:]:
            work = folder / Path(name).stem
            os.makedirs(work)
            environment = {**gpu.environment, **VARIABLES.get(Path(name).name, {})}
            Path(name).write_text(rerun(Path(name).read_text(), work, environment))
            print(name)


if __name__ == "__main__":
    main()
