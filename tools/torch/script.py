"""A Python program run as `python` runs it, in this process."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from simgpu.hardware.errors import SimError


def status_of(command: Sequence[str], module: bool = False) -> int:
    """Runs a program with its arguments; returns its exit status. Its errors are printed as Python does.

    module: the program is a module's name.
    """
    arguments, path = sys.argv, list(sys.path)
    program = command[0]
    sys.argv = list(command)
    sys.path.insert(0, os.getcwd() if module else os.path.dirname(os.path.abspath(program)))
    start: Callable[..., Any] = runpy.run_module if module else runpy.run_path
    try:
        start(program, run_name="__main__", **({"alter_sys": True} if module else {}))
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return 1
    except Exception as error:
        print(format_error(error), end="", file=sys.stderr)
        return 1
    finally:
        sys.argv, sys.path[:] = arguments, path
    return 0


def format_error(error: Exception) -> str:
    """Formats an error as Python does, from the program's first frame on. A SimError's traceback leaves out frames of Triton
    and simgpu."""
    shown = traceback.TracebackException.from_exception(error)
    hidden = [__file__, runpy.__file__, "<frozen runpy>"]
    if isinstance(error, SimError):
        found = map(importlib.util.find_spec, ("simgpu", "triton"))
        hidden += [str(Path(spec.origin).parent) for spec in found if spec is not None and spec.origin is not None]
    kept = [frame for frame in shown.stack if not frame.filename.startswith(tuple(hidden))]
    shown.stack = traceback.StackSummary.from_list(kept)
    return "".join(shown.format())
