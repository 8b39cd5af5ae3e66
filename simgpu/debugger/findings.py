"""Runs checked mode and its check of numerics on a debugger's workgroup. Each finding has its place in the run.

The workgroup runs alone, on a separate device with a copy of the memory at its beginning, at the same addresses. So races with
other workgroups are not found: `simgpu check` checks whole launches.
"""

from __future__ import annotations

from collections.abc import Sequence

from simgpu.device import Device
from simgpu.engine.allocations import DeviceMemory
from simgpu.engine.device import Buffer, Kernel
from simgpu.engine.finding import Finding
from simgpu.engine.launch import Launch
from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hardware.errors import LaunchError, SimError
from simgpu.machine.host_memory import aligned_bytes

OWN_MEMORY = 1 << 46  # first address of that device's other allocations, such as kernel arguments; the caller has none there
CHECKED = (
    "missing-wait", "hazard", "race", "stale-read", "barrier", "uninitialized", "out-of-bounds", "use-after-free", "misaligned",
    "buffer", "resource",
)  # fmt: skip
NUMBERS = ("nan", "infinity", "overflow", "saturation", "format", "denormal")
KINDS = (*CHECKED, *NUMBERS)
MODES: tuple[tuple[bool | str, tuple[str, ...]], ...] = ((True, CHECKED), ("numerics,discarded,denormals", NUMBERS))
SHORT = {"wait": "missing-wait", "bounds": "out-of-bounds"}  # abbreviations


def kinds_of(text: str) -> tuple[str, ...]:
    """Returns the kinds in a list separated by blanks or commas. Raises LaunchError for an unknown kind."""
    found = tuple(SHORT.get(word, word) for word in text.replace(",", " ").split())
    unknown = [word for word in found if word not in KINDS]
    if unknown:
        raise LaunchError(f"{unknown[0]!r} is no kind of finding: {', '.join((*KINDS, *SHORT))}")
    return found


def findings(
    kernel: Kernel, geometry: Geometry, args: Sequence[object], group: Sequence[int], kinds: Sequence[str] = ()
) -> list[Finding]:
    """Returns findings with a place in one workgroup of a launch, ordered by place. kinds: () for all errors.

    Device memory must have its contents at the workgroup's beginning, and keeps them.
    """
    modes = [mode for mode, held in MODES if not kinds or {*kinds} & {*held}]
    found = [finding for mode in modes for finding in _check(kernel, geometry, args, geometry.number(group), mode)]
    wanted = [each for each in found if (each.kind in kinds if kinds else each.severity == "error") and each.when]
    return sorted(wanted, key=lambda each: (int(each.when.rpartition("#")[2]), each.when))


def _check(
    kernel: Kernel, geometry: Geometry, args: Sequence[object], number: int, mode: bool | str
) -> Sequence[Finding]:
    addresses = [value.address if isinstance(value, Buffer) else value for value in args]
    try:
        return Launch(_twin(kernel, mode), geometry, addresses, parts=[range(number, number + 1)]).run().findings
    except SimError as error:  # a fault: findings before it
        return error.findings


def _twin(kernel: Kernel, mode: bool | str) -> Kernel:
    """Returns the kernel on a new device in checked mode, with a copy of the current memory at the same addresses."""
    module = kernel.module
    old = module.device
    device = Device(old.descriptor, check=mode, threads=1, max_instructions=old.max_instructions, timeout=old.timeout)
    device.memory = DeviceMemory(device.memory.checked, first=OWN_MEMORY)
    base = min(segment.base for segment in module.segments)
    twin = device.load(module.code.data, lambda room: (base, aligned_bytes(room)))
    for mine, theirs in zip(twin.segments, module.segments, strict=True):
        mine.data[:] = theirs.data
    for one in old.memory.allocations:
        if one.tracked and device.memory.find(one.base) is None:
            placed = device.memory.place(one.address, one.data.copy(), one.writable, one.label, nbytes=one.nbytes, tracked=True)
            if placed.undefined is not None and one.undefined is not None:
                placed.undefined[:] = one.undefined
                placed.whole = False
    return twin[kernel.info.name]
