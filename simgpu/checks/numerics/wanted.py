"""What the check of numbers looks for: by default, and on request."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simgpu.hardware.errors import LaunchError

MODE = "numerics"  # what `Device(check=...)` begins with
MOST_BITS = 52  # of a cancellation: the fraction of f64


@dataclass(frozen=True)
class Wanted:
    """Besides what reaches memory.

    discarded: NaN and infinities that do not; denormals: flushed ones; cancellation: bits that a sum must cancel to be told of, 0
    for none.
    """

    discarded: bool = False
    denormals: bool = False
    cancellation: int = 0

    @classmethod
    def of(cls, text: str) -> Wanted:
        """Of "numerics", which ",discarded", ",denormals" and ",cancellation=BITS" may follow; LaunchError for anything else."""
        first, *others = text.split(",")
        wanted = cls()
        for word in others:
            name, _, value = word.partition("=")
            if word in ("discarded", "denormals"):
                wanted = replace(wanted, **{word: True})
            elif name == "cancellation" and value.isdigit() and 1 <= int(value) <= MOST_BITS:
                wanted = replace(wanted, cancellation=int(value))
            else:
                known = f"discarded, denormals, cancellation=1 to cancellation={MOST_BITS}"
                raise LaunchError(f"check={text!r}: {word!r} is none of what may follow {MODE!r}: {known}")
        if first != MODE:
            raise LaunchError(f"check={text!r}: it begins with {MODE!r}")
        return wanted
