"""`simgpu hip` as in a process of its own. The process is a fork of one that has simgpu's modules, which take 0.5 s to import."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path
from unittest.mock import patch

from tests.support.places import ROOT

SECONDS = 300
# The fork server has no threads and runs nothing else.
FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(["simgpu.tools.cli", "simgpu.tools.verbs.hip", "simgpu.hip.server", __name__])


def hip(*words: object) -> subprocess.CompletedProcess[str]:
    """Runs `simgpu hip WORDS` to its end."""
    command = ["hip", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, environment):  # the fork server starts with it, too
        out, err = Path(folder, "out"), Path(folder, "err")
        process = FORKS.Process(target=_run, args=(command, environment, os.getcwd(), (out, err)))
        process.start()
        process.join(SECONDS)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(command, SECONDS)
        return subprocess.CompletedProcess(command, process.exitcode, out.read_text(), err.read_text())


def _run(command: list[str], environment: dict[str, str], folder: str, files: tuple[Path, Path]) -> None:
    from simgpu.tools.cli import main

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for stream, path in enumerate(files, start=1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, stream)
        os.close(file)
    sys.exit(main(command))
