"""Effect: what an instruction does to registers, counters and LDS."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.register_use import Register, RegisterUse
from simgpu.hardware.timing_rules.waits import WaitQueue

LdsUse = Literal["", "read", "write"]
NONE: frozenset[Register] = frozenset()


@dataclass(frozen=True)
class Effect:
    """Effects of an instruction on registers, counters and LDS."""

    access: RegisterUse  # what the hazard rules see
    queue: WaitQueue | None = None  # the queue in which its operation completes
    pending: frozenset[Register] = NONE  # registers that it writes when the operation completes
    lds: LdsUse = ""  # how the operation accesses LDS
    dma: bool = False  # True if it moves data between memory and LDS
    control: ControlKind = ControlKind.NONE  # `Spec.control`
    waits: Mapping[str, int] | None = field(default=None, hash=False)  # the counters that an s_waitcnt waits for

    def __hash__(self) -> int:  # schedules and checks look up each instruction's effect many times
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.access, self.queue, self.pending, self.lds, self.dma, self.control))

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_hash"}  # hashes of strings differ in other processes

    @functools.cached_property
    def registers(self) -> frozenset[Register]:
        """Registers read or written."""
        return self.access.read() | self.access.writes

    @functools.cached_property
    def ordered(self) -> bool:
        """True if a hazard rule may bind a later instruction that shares no register."""
        named = any(isinstance(register, str) for register in self.access.writes)
        return named or not self.access.classes.isdisjoint(("dgemm", "setreg"))
