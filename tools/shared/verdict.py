"""Compares a kernel's result with float64: elementwise against its bound, and as a whole against a faithful kernel's error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simgpu.operators.error_model import TypicalError
from simgpu.tools.shared.faithful import Likeness, likeness

WAITS = (
    "Plain mode completes every load at once, so a PASS does not vouch for the kernel's waits: "
    "`simgpu check` looks at them."
)


@dataclass(frozen=True)
class Verdict:
    """A result compared with float64. The worst element is the one with the largest error over bound."""

    total: int  # elements
    wrong: int  # elements outside their bound
    touched: int  # elements of the padding that were written
    max_error: float
    worst: tuple[int, ...]  # index of the worst element
    got: float  # value of the worst element
    want: float  # float64 reference of the worst element
    error: float  # of the worst element
    bound: float  # of the worst element
    name: str  # of the result
    likeness: Likeness | None  # to a faithful kernel's error; None if that is 0 and the bound suffices

    @property
    def passed(self) -> bool:
        return not self.wrong and not self.touched and (self.likeness is None or self.likeness.passed)

    def document(self) -> dict[str, Any]:
        """Returns a JSON document."""
        said = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return said | {"likeness": self.likeness and self.likeness.document()}

    def lines(self) -> list[str]:
        """Returns lines for people."""
        said = [
            f"Error against float64: at most {self.max_error:.3g}; nearest to its bound is "
            f"{self.name}{list(self.worst)} = {self.got:.9g}, want {self.want:.9g}: "
            f"off by {self.error:.3g}, bound {self.bound:.3g}"
        ]
        if self.wrong:
            said.append(f"{self.wrong:,} of {self.total:,} elements are outside their bound")
        if self.likeness is not None:
            said += self.likeness.lines(self.name)
        if self.touched:
            said.append(f"{self.touched:,} elements of {self.name}'s padding were written")
        return said


def judge(
    got: np.ndarray, want: np.ndarray, bound: np.ndarray, typical: TypicalError | None, touched: int, name: str
) -> Verdict:
    """Judges arrays of one shape, in float64; NaN and an infinity are right only if float64 has the same."""
    same = (got == want) | np.isnan(got) & np.isnan(want)
    error = np.zeros(got.shape)
    np.subtract(got, want, out=error, where=~same)
    np.abs(error, out=error)
    np.nan_to_num(error, copy=False, nan=np.inf)
    within = (error <= bound) | same
    ratio = np.divide(error, bound, out=np.where(within, 0.0, np.inf), where=bound > 0)
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(ratio)), ratio.shape))
    return Verdict(
        total=error.size,
        wrong=int(error.size - np.count_nonzero(within)),
        touched=touched,
        max_error=float(error.max()),
        worst=worst,
        got=float(got[worst]),
        want=float(want[worst]),
        error=float(error[worst]),
        bound=float(bound[worst]),
        name=name,
        likeness=None if typical is None else likeness(got, typical),
    )
