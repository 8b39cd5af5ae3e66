"""Commands and snippets as in processes of their own: forks of one that has simgpu's modules, which take 0.5 to 1 s to import."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.support.places import PYTHON_PATH

SECONDS = 300
# The fork server has no threads and runs nothing else.
FORKS = get_context("forkserver")
FORKS.set_forkserver_preload([
    "pytest", "simgpu.tools.cli", "simgpu.hip.server", __name__, *(f"simgpu.tools.verbs.{verb}" for verb in ("hip", "run", "time")),
])  # fmt: skip


def hip(*words: object) -> subprocess.CompletedProcess[str]:
    """Runs `simgpu hip WORDS` to its end."""
    return simgpu(["hip", *map(str, words)], Path.cwd(), {**os.environ, "PYTHONPATH": PYTHON_PATH})


def simgpu(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs `simgpu WORDS` to its end."""
    return forked(_command, list(words), folder, environment)


def on_gpu(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs `simgpu WORDS --device hip` to its end, without a process that watches it."""
    return forked(_gpu_command, list(words), folder, environment)


def python(text: str, folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, as `python -c`."""
    return forked(_program, text, folder, environment)


def pytest(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs `python -m pytest WORDS` to its end."""
    return forked(_pytest, list(words), folder, environment)


def forked(
    function: Callable[[Any], object], argument: Any, folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Returns what function(argument) printed in a process, and the process's status."""
    with tempfile.TemporaryDirectory() as scratch, patch.dict(os.environ, {"PYTHONPATH": PYTHON_PATH}):  # of the fork server
        files = Path(scratch, "out"), Path(scratch, "err")
        process = FORKS.Process(target=_run, args=(function, argument, folder, dict(environment), files))
        process.start()
        process.join(SECONDS)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(str(argument), SECONDS)
        return subprocess.CompletedProcess(str(argument), process.exitcode, *(file.read_text() for file in files))


def _run(
    function: Callable[[Any], object], argument: Any, folder: Path, environment: Mapping[str, str], files: tuple[Path, Path]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for stream, path in enumerate(files, start=1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, stream)
        os.close(file)
    sys.exit(function(argument))  # type: ignore[arg-type]


def _command(words: list[str]) -> int:
    from simgpu.tools.cli import main

    return main(words)


def _gpu_command(words: list[str]) -> int:
    from simgpu.tools.cli import main

    return main(words, on_gpu=True)


def _pytest(words: list[str]) -> int:
    from pytest import main

    sys.path.insert(0, os.getcwd())
    return int(main(words))


def _program(text: str) -> None:
    import __main__

    sys.path.insert(0, "")
    exec(compile(text, "<string>", "exec"), vars(__main__))
