"""`simgpu` and `python -m simgpu`: the command. The import is inside `main`, so that Ctrl-C during it shows no traceback."""

from __future__ import annotations

import gc
import importlib
import sys

YOUNG = 50_000  # new objects before a garbage collection: with Python's 700, collections took 3 % of a command's time


def main() -> int:
    """Runs the process's command line and returns the exit status."""
    gc.set_threshold(YOUNG)
    try:
        return int(importlib.import_module("simgpu.tools.cli").main())
    except KeyboardInterrupt:
        return 130  # what shells report for a process that SIGINT ended
    finally:
        if "triton" not in sys.modules:  # its nanobind prints each object that is left when the interpreter ends
            gc.freeze()  # the interpreter ends sooner if it does not search all modules for cycles first


if __name__ == "__main__":
    sys.exit(main())
