"""Launches that record the page's data: counts, memory touched, and registers at some visits of a wave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.debugger.native.touching import MOST_BYTES, Touches, Touching
from simgpu.debugger.snapshot import Snapshot, trace
from simgpu.engine.allocations import SavedMemory
from simgpu.hardware.errors import InstructionLimit, SimError
from simgpu.tools.page.code import Rows, listing_rows
from simgpu.tools.page.lds import has_addresses

if TYPE_CHECKING:
    from simgpu import Finding, Kernel, Run
    from simgpu.engine.allocations import DeviceMemory
    from simgpu.engine.check import Check
    from simgpu.engine.dispatch import Dispatch
    from simgpu.timing.predict import Prediction

Bits = Mapping[int, np.ndarray]  # bitmaps of allocations, by base address
MOST_PLACES = 24  # matrix instructions of a kernel whose registers are kept
MOST_ACCESSES = 96  # LDS instructions whose addresses are kept
MOST_INSTRUCTIONS = 2_500_000  # of a launch whose accesses are counted one by one: about a second
NOT_COUNTED = "which bytes each instruction touches and how often each is read was not counted"
MOST_STOPS = 400  # visits of the wave to all recorded instructions together


@dataclass(frozen=True)
class TouchedAllocation:
    """An allocation that a launch could reach. `read` and `written` have a bit for each of its bytes.

    Each uint8 holds the bits of eight bytes, the first byte's lowest.
    """

    address: int
    nbytes: int
    label: str
    read: np.ndarray
    written: np.ndarray
    times: np.ndarray | None = None  # uint16: how often each byte was read, at most 65535; None if not counted


@dataclass
class WatchedLaunch:
    """A launch and its records."""

    kernel: Kernel
    call: Mapping[str, Any]
    visits: list[Snapshot] = field(default_factory=list)  # of a wave of the first workgroup, recorded before the launch
    run: Run | None = None  # None if it failed
    touched: list[TouchedAllocation] = field(default_factory=list)
    touches: Touches | None = None  # by instruction; None if not counted
    uncounted: str = ""  # why not counted
    error: str = ""  # message of its failure
    findings: Sequence[Finding] = ()
    origins: Mapping[str, str] = field(default_factory=dict)  # Python lines of emitted code, by line of its assembly
    widths: Mapping[str, int] = field(default_factory=dict)  # bytes of a row of matrix arguments, by name
    timed: Prediction | None = None  # time model's prediction
    stops: Sequence[Mapping[str, Any]] = ()  # registers as `simgpu trace` shows them: row of the code, text, who, tables

    @cached_property
    def rows(self) -> Rows:
        """Instructions of the kernel."""
        return listing_rows(self.kernel.module.code, self.kernel.info)

    def look(self, wave: int = 0) -> WatchedLaunch:
        """Fills in `visits`, of a wave of the first workgroup, and returns itself."""
        self.visits = visits_of(self.kernel, self.call, self.rows, wave)
        return self


class Watching:
    """Launches kernels as `Kernel.launch` does and keeps their records in `launches`."""

    def __init__(self) -> None:
        self.launches: list[WatchedLaunch] = []

    def launch(self, kernel: Kernel, **call: Any) -> Run:
        """Launches and returns the run. Raises as `Kernel.launch`, and keeps the records and findings up to the error."""
        watched = WatchedLaunch(kernel, call).look()
        watched.touches, watched.uncounted = touches_of(kernel, call, watched.rows)
        self.launches.append(watched)
        device = kernel.module.device
        before, device.profiler = device.profiler, _Listener(watched)
        try:
            run: Run = kernel.launch(**call)
        except SimError as error:
            watched.error, watched.findings = f"{type(error).__name__}: {error}", error.findings
            if watched.touches is not None:
                watched.touched = _touched_allocations(
                    device.memory, watched.touches.read, watched.touches.written, watched.touches
                )
            raise
        finally:
            device.profiler = before
        watched.run, watched.findings = run, run.findings
        return run


def touches_of(kernel: Kernel, call: Mapping[str, Any], rows: Rows) -> tuple[Touches | None, str]:
    """Counts the memory that each instruction touches, in a separate launch; or returns None and the reason for not counting.

    The device's memory is restored. A failing launch keeps its counts up to the failure, which the real launch will report.
    """
    accessing = [(offset, inst) for offset, inst, _ in rows if inst is not None and inst.spec.memory is not None]
    memory = [offset for offset, inst in accessing if inst.spec.encoding != "ds"]
    if not memory:
        return None, ""
    touching = Touching(memory)
    saved = SavedMemory.of(kernel.module.device.memory)
    counting = _sharing(kernel, [touching])
    device = counting.module.device
    device.shown = kernel.module.device.shown
    device.max_instructions = min(MOST_INSTRUCTIONS, kernel.module.device.max_instructions)
    try:
        counting.launch(**call)
    except InstructionLimit:
        return None, f"{NOT_COUNTED}: the launch executes more than {MOST_INSTRUCTIONS:,} instructions"
    except SimError:
        pass
    finally:
        saved.restore()
    touches = touching.take()
    return touches, "" if touches is not None else f"{NOT_COUNTED}: the device holds more than {MOST_BYTES >> 20} MiB"


@dataclass(frozen=True)
class _Listener:
    """Records the bytes that a launch touched when it ends, while its bitmaps still exist."""

    watched: WatchedLaunch

    def working(self) -> AbstractContextManager[None]:
        return nullcontext()

    def after_launch(self, launch: Dispatch, run: Run) -> None:
        self.watched.touched = touched_of(launch, self.watched.touches)


def touched_of(launch: Dispatch, touches: Touches | None = None) -> list[TouchedAllocation]:
    """Returns the buffers of a launch that ended, by address; touches: counts of the same launch."""
    if launch.table.bitmaps is None:
        return []
    read, written = (launch.table.touched_bits(which) for which in (0, 1))
    return _touched_allocations(launch.memory, read, written, touches)


def _touched_allocations(memory: DeviceMemory, read: Bits, written: Bits, touches: Touches | None) -> list[TouchedAllocation]:
    times = touches.reads if touches is not None else {}
    found = []
    for one in memory.allocations:
        if one.tracked:
            none = np.zeros(-(-one.data.size // 8), np.uint8)
            was_read, was_written = (_part(bits.get(one.base, none), one.lead, one.nbytes) for bits in (read, written))
            counted = times[one.base][one.lead : one.lead + one.nbytes] if one.base in times else None
            found.append(TouchedAllocation(one.address, one.nbytes, one.label, was_read, was_written, counted))
    return found


def _part(bits: np.ndarray, lead: int, nbytes: int) -> np.ndarray:
    """Returns the bits of an allocation's own bytes. bits: those of the dwords that hold it."""
    if lead or nbytes % 8:
        return np.packbits(np.unpackbits(bits, count=lead + nbytes, bitorder="little")[lead:], bitorder="little")
    return bits[: nbytes // 8]


def visits_of(kernel: Kernel, call: Mapping[str, Any], rows: Rows, wave: int = 0) -> list[Snapshot]:
    """Records registers of a wave of the first workgroup when it comes to matrix and LDS instructions, and after matrix ones.

    The device's memory is restored. If the wave fails on its way the list is empty; the launch will report why.
    """
    places = stops(rows)
    if not places:
        return []
    saved = SavedMemory.of(kernel.module.device.memory)
    try:
        return trace(_sharing(kernel, []), places, **extents(call), wave=wave, hits=MOST_STOPS, alone=True)
    except SimError:
        return []
    finally:
        saved.restore()


def stops(rows: Rows) -> list[int]:
    """Returns the code offsets at which registers are recorded."""
    matrix = [(offset, inst) for offset, inst, _ in rows if inst is not None and inst.spec.kind == "matrix"]
    lds = [offset for offset, inst, _ in rows if inst is not None and has_addresses(inst)]
    chosen = matrix[:: -(-len(matrix) // MOST_PLACES)] if matrix else []
    behind = {offset + inst.size for offset, inst in chosen} & {offset for offset, _, _ in rows}
    return sorted({offset for offset, _ in chosen} | behind | set(lds[:MOST_ACCESSES]))


def extents(call: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the launch's arguments for `trace`: the grid in workgroups."""
    given = {name: value for name, value in call.items() if name not in ("global_size", "cooperative") and value is not None}
    if call.get("global_size") is not None:
        from simgpu.hardware.code_object.arguments import Geometry

        made = Geometry.of(None, call.get("block", 64), 0, call["global_size"])
        given["grid"] = made.groups
    return given


def _sharing(kernel: Kernel, checks: Sequence[Check]) -> Kernel:
    """Returns the kernel on a new device that shares its device's memory and has these checks instead."""
    from simgpu.device import Kernel as Plain

    return Plain(kernel.module.on(kernel.module.device.sharing(checks)), kernel.info)
