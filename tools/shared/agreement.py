"""A real GPU's result compared with the simulated one, element by element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Agreement:
    """Number of elements whose bits differ between a real GPU's result and the simulator's."""

    name: str
    total: int
    different: int
    max_difference: float  # 0 if nothing differs
    exact: bool  # every simulated instruction is exact, so no difference is expected

    @classmethod
    def of(cls, name: str, real: np.ndarray, simulated: np.ndarray, exact: bool) -> Agreement:
        """Compares two arrays of one type and shape by their bits."""
        raw = (np.ascontiguousarray(a).reshape(-1).view(np.uint8).reshape(a.size, a.itemsize) for a in (real, simulated))
        differ = (next(raw) != next(raw)).any(1)
        largest = 0.0
        if differ.any() and real.dtype.kind != "V":
            wide = [a.reshape(-1)[differ].astype(np.float64) for a in (real, simulated)]
            largest = float(np.nan_to_num(np.abs(wide[0] - wide[1]), nan=np.inf).max())
        return cls(name, real.size, int(differ.sum()), largest, exact)

    @property
    def agrees(self) -> bool:
        """True if nothing differs, or if simgpu does not claim exact bits."""
        return not self.different or not self.exact

    def document(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {"agrees": self.agrees}

    def line(self) -> str:
        """Returns a line for people."""
        if not self.different:
            return f"{self.name}: all {self.total:,} elements have the simulator's bits"
        expected = "every instruction is simulated exactly: this should not be" if self.exact else "not all instructions are exact"
        return (
            f"{self.name}: {self.different:,} of {self.total:,} elements differ from the simulator's, "
            f"at most by {self.max_difference:.3g}; {expected}"
        )


def all_exact(fidelity: dict[str, int]) -> bool:
    """True if a run's fidelity counts exact instructions only."""
    return not any(count for name, count in fidelity.items() if name != "exact")
