"""Child processes: for measurements with fresh caches, memory and threads, and for commands on a real GPU.

If a kernel faults, ROCm aborts the process. If a kernel hangs, ROCm's exit handlers wait for it. So a command on a GPU runs in
a child process, which this process can kill and whose end it reports.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import simgpu
from simgpu.hardware.cache import AHEAD
from simgpu.hardware.errors import HipKernelError
from simgpu.hardware.hip.library import SIMULATE
from simgpu.tools.shared.errors import KernelFailed

COMMAND = "from simgpu.tools.cli import gpu_process; gpu_process()"  # runs the simgpu command in its arguments on a GPU


def environment(**more: str) -> dict[str, str]:
    """Returns this process's environment and `more`, with a PYTHONPATH to the running simgpu.

    Child processes keep bytecode, as for an installed package. If this process writes none, theirs goes to a folder that is
    deleted when this process ends. They compile no handlers ahead, which would disturb measurements.
    """
    root = str(Path(simgpu.__file__).resolve().parents[1])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": _bytecode()} if sys.dont_write_bytecode else {}
    return {**os.environ, "PYTHONPATH": paths, AHEAD: "0", **kept, **more}


@functools.cache
def _bytecode() -> str:
    folder = tempfile.mkdtemp(prefix="simgpu-bytecode-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def output_of(arguments: Sequence[str], variables: Mapping[str, str] | None = None) -> str:
    """Returns the output of a new Python with these arguments, `-m …` or `-c …`.

    Raises KernelFailed with the last line of its stderr if it fails.
    """
    done = subprocess.run([sys.executable, "-P", *arguments], env=environment(**(variables or {})), capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
        raise KernelFailed(f"{' '.join(arguments[:3])[:80]}: {said[-1]}")
    return done.stdout


def supervise(arguments: Sequence[str]) -> int:
    """Runs `simgpu ARGUMENTS` on a GPU and returns its status.

    Raises HipKernelError with the last line of its stderr if a signal ended it.
    """
    child = subprocess.Popen([sys.executable, "-P", "-c", COMMAND, *arguments], stderr=subprocess.PIPE, env=environment())
    try:
        _, raw = child.communicate()
    finally:
        child.kill()
    said = raw.decode(errors="replace")
    if child.returncode < 0:
        words = said.strip().splitlines() or ["it said nothing"]
        name = signal.Signals(-child.returncode).name
        raise HipKernelError(f"the GPU's runtime ended the command ({name}): {words[-1].strip()}", SIMULATE)
    sys.stderr.write(said)
    return child.returncode
