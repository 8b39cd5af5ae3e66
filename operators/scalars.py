"""SGPRs of a wave as named ranges: what every kernel is launched with, its arguments, and what its operator says."""

from __future__ import annotations

from simgpu.operators.resources import RegisterRange

LAUNCH = 4  # the kernel arguments' address, workgroup ids x and y
ALIGNMENT = 3  # lost at most where a buffer's four (or a pair) do not follow directly


def scalar_ranges(**counts: int) -> tuple[RegisterRange, ...]:
    """The launch state and these counts as ranges of file "sgpr"; underscores are blanks, 0 is left out."""
    named = {"launch state": LAUNCH, **{name.replace("_", " "): count for name, count in counts.items()}}
    return tuple(RegisterRange(name, "sgpr", count) for name, count in named.items() if count)
