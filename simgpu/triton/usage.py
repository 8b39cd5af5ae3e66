"""A session's launches, and what they came to by kernel."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from simgpu.device import Kernel
from simgpu.engine.result import Run


@dataclass(frozen=True)
class Launched:
    """One finished launch: kernel, workgroups, bytes of LDS that each asked for, what ran; `when` orders launches."""

    kernel: Kernel
    grid: tuple[int, int, int]
    warps: int
    lds_bytes: int
    run: Run
    when: int


@dataclass
class LaunchUse:
    """All launches of the kernels of one name; registers, spills and LDS are the last one's, 0 where none finished.

    launches: those that began; instructions, matrix: executed by waves; seconds: of the host; milliseconds: modelled, None where
    no time was asked for.
    """

    kernel: str
    launches: int = 0
    instructions: int = 0
    matrix: int = 0
    vgprs: int = 0
    spills: int = 0
    lds_bytes: int = 0
    findings: int = 0
    seconds: float = 0.0
    milliseconds: float | None = None

    def add(self, launched: Launched, milliseconds: float | None) -> None:
        """Counts what a launch did that finished."""
        info, counters = launched.kernel.info, launched.run.counters
        self.instructions += counters["instructions"]
        self.matrix += counters["instructions_mfma"]
        self.vgprs, self.spills, self.lds_bytes = info.vgpr_count, info.vgpr_spill_count, launched.lds_bytes
        self.seconds += launched.run.seconds
        if milliseconds is not None:
            self.milliseconds = (self.milliseconds or 0.0) + milliseconds

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
