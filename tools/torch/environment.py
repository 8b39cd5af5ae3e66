"""Environment variables that give a process a simulated GPU, and the values of some."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

from simgpu.hardware.errors import LaunchError

TARGET, CHECK, SUPPRESSIONS = "SIMGPU", "SIMGPU_CHECK", "SIMGPU_SUPPRESSIONS"
OPERATORS, HOST, SIMULATED = "SIMGPU_OPERATORS", "host", "simulated"  # where PyTorch's operators compute
COMPILE, EAGER, INDUCTOR = "SIMGPU_COMPILE", "eager", "inductor"  # how torch.compile compiles
SEEDS = {"weak": "SIMGPU_WEAK", "late": "SIMGPU_LATE"}  # by mode
CHECKS: dict[str, bool | str] = {"no": False, "yes": True, **{mode: mode for mode in ("performance", "numerics", "collect")}}


def simulates() -> bool:
    """True if PyTorch's operators compute on the simulated GPU. Raises LaunchError for an unknown word in the variable."""
    how = os.environ.get(OPERATORS) or HOST
    if how not in (HOST, SIMULATED):
        raise LaunchError(f"{OPERATORS}={how!r}: give {HOST} or {SIMULATED}")
    return how == SIMULATED


@contextlib.contextmanager
def with_variables(values: Mapping[str, str | None]) -> Iterator[None]:
    """Sets environment variables of this process for a block; None: without it. All others stay as the block leaves them."""
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
