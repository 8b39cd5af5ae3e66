"""Measurements in processes of their own: caches, memory and threads that nothing before has touched."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import simgpu
from simgpu.tools.shared.errors import KernelFailed

ROOT = Path(simgpu.__file__).resolve().parents[1]


def output_of(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """What Python prints for these arguments, `-m …` or `-c …`, our modules at hand. KernelFailed with the last thing it said
    where it fails."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    given = {**os.environ, "PYTHONPATH": path, **(environment or {})}
    done = subprocess.run([sys.executable, *arguments], env=given, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
        raise KernelFailed(f"{' '.join(arguments[:3])[:80]}: {said[-1]}")
    return done.stdout
