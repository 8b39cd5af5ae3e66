"""Options of the check of numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simgpu.hardware.errors import LaunchError

MODE = "numerics"  # beginning of `Device(check=...)`
MOST_BITS = 52  # most bits of a cancellation: the fraction of f64


@dataclass(frozen=True)
class NumericsOptions:
    """Kinds of anomaly that are reported only on request."""

    discarded: bool = False  # NaN and infinities that do not reach memory
    denormals: bool = False  # flushed denormals
    cancellation: int = 0  # fewest cancelled bits of a sum that are reported, 0 for none

    @classmethod
    def of(cls, text: str) -> NumericsOptions:
        """Parses "numerics", which ",discarded", ",denormals" and ",cancellation=BITS" may follow. Raises LaunchError for other
        text."""
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
