"""`SIMGPU=mi300x python script.py`: the unchanged script finds a GPU, and so do its child processes.

PyTorch calls the entry point `torch.backends` at the end of `import torch`; without the variable this does nothing.
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from simgpu.tools.torch.environment import CHECK, CHECKS, SEEDS, SUPPRESSIONS, TARGET

if TYPE_CHECKING:
    from simgpu.triton import Session


def begin() -> None:
    """Gives PyTorch and Triton the simulated GPU that SIMGPU names, or several for "mi300x:2", until the process ends.

    SIMGPU_CHECK is a key of CHECKS, SIMGPU_SUPPRESSIONS a file of findings to hide, SIMGPU_WEAK and SIMGPU_LATE
    seeds of these modes.
    Findings that SIMGPU_CHECK=collect gathered are printed on stderr at the end, and with SIMGPU_OPERATORS=simulated a summary of
    PyTorch's operators. Raises SystemExit, with the reason, for an unknown target, a Triton that is too old, an unknown word of
    SIMGPU_CHECK, SIMGPU_COMPILE or SIMGPU_OPERATORS, a bad seed, and a file that cannot be read.
    """
    target, check = os.environ.get(TARGET), os.environ.get(CHECK, "no")
    if not target:
        return
    from simgpu.hardware.errors import SimError

    if check not in CHECKS:
        raise SystemExit(f"simgpu: {CHECK}={check!r}: give one of {', '.join(CHECKS)}")
    given = {name: os.environ.get(name) for name in SEEDS.values()}
    for name, seed in given.items():
        if seed and not (seed.isascii() and seed.isdecimal() and len(seed) < 19):
            raise SystemExit(f"simgpu: {name}={seed!r}: give a seed, as 37")
    stack = ExitStack()
    try:
        import simgpu.triton
        from simgpu.tools.torch.pretend import pretended_gpu

        known = os.environ.get(SUPPRESSIONS)
        weak, late = (int(seed) if seed else None for seed in given.values())
        gpu = simgpu.triton.device(target, check=CHECKS[check], suppressions=known, weak=weak, late=late)
        session = stack.enter_context(gpu)
        stack.enter_context(pretended_gpu())
    except (SimError, OSError) as error:
        raise SystemExit(f"simgpu: {TARGET}={target!r}: {error}") from None
    atexit.register(_end, stack, session)


def _end(stack: ExitStack, session: Session) -> None:
    """Restores PyTorch and Triton, and prints the collected findings and the summary of simulated operators."""
    stack.close()
    for finding in session.findings:
        print(f"simgpu: {finding}", file=sys.stderr)
    if session.operators:
        from simgpu.tools.torch.operators.summary import lines

        print(*lines(session.name, session.operators.values()), sep="\n", file=sys.stderr)
