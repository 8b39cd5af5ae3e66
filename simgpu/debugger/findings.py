"""What checked mode and the check of numbers find in a debugger's workgroup, each finding with its place in the run.

The workgroup runs alone in checked mode, on a device of its own that has the memory at the same addresses, copied as the workgroup
finds it. So what other workgroups do meanwhile is not seen, races with them among it: `simgpu check` looks at whole launches.
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

OWN_MEMORY = 1 << 46  # the device's own allocations, such as kernel arguments, begin there: apart from all of the caller's
CHECKED = (
    "missing-wait", "hazard", "race", "stale-read", "barrier", "uninitialized", "out-of-bounds", "use-after-free", "misaligned",
    "buffer", "resource",
)  # fmt: skip
NUMBERS = ("nan", "infinity", "overflow", "saturation", "format", "denormal")
KINDS = (*CHECKED, *NUMBERS)
MODES: tuple[tuple[bool | str, tuple[str, ...]], ...] = ((True, CHECKED), ("numerics,discarded,denormals", NUMBERS))
SHORT = {"wait": "missing-wait", "bounds": "out-of-bounds"}  # as people call them


def kinds_of(text: str) -> tuple[str, ...]:
    """The kinds that a list names, separated by blanks or commas; none for an empty one. Raises LaunchError for what is none."""
    found = tuple(SHORT.get(word, word) for word in text.replace(",", " ").split())
    unknown = [word for word in found if word not in KINDS]
    if unknown:
        raise LaunchError(f"{unknown[0]!r} is no kind of finding: {', '.join((*KINDS, *SHORT))}")
    return found


def findings(
    kernel: Kernel, geometry: Geometry, args: Sequence[object], group: Sequence[int], kinds: Sequence[str] = ()
) -> list[Finding]:
    """The findings with a place in one workgroup of a launch, of these kinds (default: all that are errors), in order of places.

    Memory is as the workgroup finds it, and stays so.
    """
    modes = [mode for mode, held in MODES if not kinds or {*kinds} & {*held}]
    found = [finding for mode in modes for finding in _checked(kernel, geometry, args, geometry.number(group), mode)]
    wanted = [each for each in found if (each.kind in kinds if kinds else each.severity == "error") and each.when]
    return sorted(wanted, key=lambda each: (int(each.when.rpartition("#")[2]), each.when))


def _checked(
    kernel: Kernel, geometry: Geometry, args: Sequence[object], number: int, mode: bool | str
) -> Sequence[Finding]:
    addresses = [value.address if isinstance(value, Buffer) else value for value in args]
    try:
        return Launch(_twin(kernel, mode), geometry, addresses, parts=[range(number, number + 1)]).run().findings
    except SimError as error:  # a fault: what was found before
        return error.findings


def _twin(kernel: Kernel, mode: bool | str) -> Kernel:
    """The kernel on a device of its own in checked mode, with the memory as it is now at the same addresses."""
    module = kernel.module
    old = module.device
    device = Device(old.arch, check=mode, threads=1, max_instructions=old.max_instructions, timeout=old.timeout)
    device.descriptor = old.descriptor
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
