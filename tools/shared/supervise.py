"""A command that uses a real GPU runs in a process of its own: ROCm aborts the process of a kernel that faults,
and its exit handlers wait for a kernel that hangs. `python -m simgpu.tools.shared.supervise ARGUMENTS` is that process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from simgpu.hardware.errors import HipKernelError
from simgpu.hardware.hip.library import SIMULATE

ROOT = Path(__file__).resolve().parent.parent


def supervised(arguments: Sequence[str]) -> int:
    """The status of `simgpu ARGUMENTS` on a GPU; HipKernelError where a signal ended it, with the runtime's last words."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "simgpu.tools.shared.supervise", *arguments],
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
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


def main() -> None:
    """Ends without exit handlers: HIP's would wait for a kernel that hangs."""
    from simgpu.tools.cli import main as command

    status = command(sys.argv[1:], on_gpu=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
