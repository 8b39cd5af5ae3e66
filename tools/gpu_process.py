"""The process in which a command uses a real GPU: `python -m simgpu.tools.gpu_process ARGUMENTS` (`tools/shared/processes.py`)."""

from __future__ import annotations

import os
import sys

from simgpu.tools.cli import main as command


def main() -> None:
    """Ends without exit handlers: HIP's would wait for a kernel that hangs."""
    status = command(sys.argv[1:], on_gpu=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
