"""A session's launches, and their totals by kernel."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from simgpu.device import Kernel
from simgpu.engine.result import Run


@dataclass(frozen=True)
class Launched:
    """A finished launch.

    >>> import numpy as np, triton, triton.language as tl
    >>> import simgpu.triton
    >>> @triton.jit
    ... def fill(x):
    ...     tl.store(x + tl.arange(0, 256), 1.0)
    >>> with simgpu.triton.device("mi300x"):
    ...     launched = fill[(1,)](np.empty(256, np.float32))
    >>> last = launched.function.last
    >>> last.grid, last.warps, last.run.counters["global_write_bytes"]
    ((1, 1, 1), 4, 1024)
    """

    kernel: Kernel
    grid: tuple[int, int, int]  # workgroups
    warps: int
    lds_bytes: int  # bytes of LDS that each workgroup requested
    run: Run
    when: int  # monotonic time of its end, nanoseconds


@dataclass
class LaunchUse:
    """Totals of the launches of one kernel name. vgprs, spills and lds_bytes are those of the last one, 0 if none finished."""

    kernel: str
    launches: int = 0  # launches that began
    instructions: int = 0  # wave-instructions
    matrix: int = 0  # matrix instructions among them
    vgprs: int = 0
    spills: int = 0  # spilled VGPRs
    lds_bytes: int = 0  # bytes of LDS of a workgroup
    findings: int = 0
    seconds: float = 0.0  # wall time of the host
    milliseconds: float | None = None  # modelled; None if no time was requested

    def add(self, launched: Launched, milliseconds: float | None) -> None:
        """Counts a finished launch."""
        info, counters = launched.kernel.info, launched.run.counters
        self.instructions += counters["instructions"]
        self.matrix += counters["instructions_mfma"]
        self.vgprs, self.spills, self.lds_bytes = info.vgpr_count, info.vgpr_spill_count, launched.lds_bytes
        self.seconds += launched.run.seconds
        if milliseconds is not None:
            self.milliseconds = (self.milliseconds or 0.0) + milliseconds

    def document(self) -> dict[str, Any]:
        """Returns the totals for JSON."""
        return asdict(self)


@dataclass
class OperatorUse:
    """Calls of one operator of PyTorch while its operators are simulated."""

    operator: str
    kernels: Counter[str] = field(default_factory=Counter)  # launches by kernel, of the simulated calls
    simulated: int = 0  # calls whose arithmetic ran on the simulated device
    host: int = 0  # calls that the host computed
    reasons: Counter[str] = field(default_factory=Counter)  # why, for operators that have a kernel
    milliseconds: float | None = None  # modelled; None if no time was requested

    def add(self, other: OperatorUse) -> None:
        """Adds the calls of another session."""
        self.simulated, self.host = self.simulated + other.simulated, self.host + other.host
        self.kernels.update(other.kernels)
        self.reasons.update(other.reasons)
        self.add_time(other.milliseconds)

    def add_time(self, milliseconds: float | None) -> None:
        """Adds modelled time, if it is known."""
        if milliseconds is not None:
            self.milliseconds = (self.milliseconds or 0.0) + milliseconds
