"""A child process with limits of time and memory, and the messages to and from it.

This is no sandbox: the child has the user's rights. It gets few variables of the environment, no input, an empty folder to be
in, and no name of the reference.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simgpu.tools.judge.messages import ArrayMessage, ProtocolError, receive, send
from simgpu.tools.shared.processes import environment

# Variables that a child gets. Others may hold keys and passwords.
PASSED = (
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH", "XDG_CACHE_HOME", "SIMGPU_CACHE_DIR", "SIMGPU_CLANG",
    "SIMGPU_AHEAD", "TRITON_CACHE_DIR", "ROCM_PATH", "HIP_DEVICE_LIB_PATH", "LD_LIBRARY_PATH",
)  # fmt: skip
TOLD = 4000  # most characters of a child's stderr in a message


class ChildEnded(Exception):
    """Raised if a child process ends, runs out of time or breaks the protocol; its message says how."""


class ChildFailed(Exception):
    """Raised if the code in a child raises: its message is the error, `trace` the traceback."""

    def __init__(self, message: str, trace: str) -> None:
        super().__init__(message)
        self.trace = trace


class Child:
    """A process that answers requests: `python -m simgpu.tools.judge.child.NAME`."""

    def __init__(self, name: str, arguments: Sequence[str], timeout: float, memory: int) -> None:
        self._name, self._timeout = name, timeout
        self._folder = tempfile.mkdtemp(prefix="simgpu-judge-")
        self._stderr = open(Path(self._folder, "stderr"), "w+b")  # noqa: SIM115  (closed by `close`)
        Path(self._folder, "work").mkdir()
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        command = [sys.executable, "-P", "-m", f"simgpu.tools.judge.child.{name}", str(theirs_in), str(theirs_out), str(memory)]
        kept = {key: value for key, value in environment().items() if key in PASSED or key.startswith("PYTHON")}
        try:
            self._process = subprocess.Popen(
                [*command, *arguments], stdin=subprocess.DEVNULL, stdout=self._stderr, stderr=self._stderr, env=kept,
                cwd=Path(self._folder, "work"), pass_fds=(theirs_in, theirs_out), start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(theirs_in)
            os.close(theirs_out)

    def ask(self, request: str, arrays: Sequence[np.ndarray] = (), **more: Any) -> ArrayMessage:
        """Sends a request and returns the answer. Raises ChildFailed and ChildEnded."""
        try:
            send(self._out, ArrayMessage({"request": request, **more}, list(arrays)))
            answer = receive(self._in, self._timeout)
        except (ProtocolError, OSError) as error:
            raise ChildEnded(self._end(str(error))) from None
        if "error" in answer.document:
            raise ChildFailed(str(answer.document["error"]), str(answer.document.get("trace", "")))
        return answer

    def _end(self, what: str) -> str:
        """Kills the child; returns how it ended."""
        if what == "out of time":
            self.close()
            return f"no answer within {self._timeout:g} s"
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        status = self._process.poll()
        self._stderr.seek(0)
        said = self._stderr.read()[-TOLD:].decode(errors="replace").strip().splitlines()
        self.close()
        how = what if status is None else f"signal {-status}" if status < 0 else f"status {status}"
        return f"its process ended with {how}" + (f": {said[-1]}" if said else "")

    def close(self) -> None:
        """Ends the process, and all that it started in its session."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for descriptor in (self._in, self._out):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._in = self._out = -1
        self._stderr.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *unused: object) -> None:
        if not self._stderr.closed:
            self.close()
