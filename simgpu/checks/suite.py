"""Checks of checked mode, in the order in which they emit code around an instruction's body. Plain mode loads none of them."""

from __future__ import annotations

from simgpu.checks.barrier_slack import BarrierSlack
from simgpu.checks.bounds import Bounds
from simgpu.checks.performance import Performance
from simgpu.checks.races.check import Races
from simgpu.checks.races.lds_dma import LdsDma
from simgpu.checks.resources import ResourceCheck
from simgpu.checks.uninitialized.check import Uninitialized
from simgpu.checks.waits.in_flight import InFlight
from simgpu.checks.waits.paths import Paths
from simgpu.checks.waits.surplus import Surplus
from simgpu.engine.check import Check
from simgpu.engine.events import RetiredCounter

CHECKS: tuple[Check, ...] = (RetiredCounter(), Paths(), InFlight(), LdsDma(), Uninitialized(), Races(), Bounds(), ResourceCheck())
NOTES: tuple[Check, ...] = (BarrierSlack(), *CHECKS, Performance(), Surplus())  # with check="performance"
