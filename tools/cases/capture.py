"""A dispatch that kerncap recorded on a GPU: code object, arguments and all device memory, at its original addresses.

The folder holds `dispatch.json` (the kernel's name, grid in work-items, block, LDS), `kernel.hsaco`, `kernarg.bin`, and
`memory_regions.json` with `memory/region_ADDRESS.bin`. If the module has variables, it also holds `module_variables.json`
(AMDResearch/intellikit, kerncap).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.hardware.code_object.names import printable_name
from simgpu.tools.cases.file_kernel import FileKernel, Input, kernel_named
from simgpu.tools.cases.sources import read_code_object
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.launching import Watch, device_of, launch, launch_work

if TYPE_CHECKING:
    from argparse import Namespace

    from simgpu import Device
    from simgpu.hardware import hip
    from simgpu.hardware.code_object.code_object import CodeObject
    from simgpu.hardware.code_object.kernels import KernelInfo

GRANULE = 4  # bytes: device memory is whole dwords


@dataclass(frozen=True)
class CapturedRegion:
    """Device memory before the dispatch."""

    base: int
    nbytes: int
    path: Path
    label: str  # names the arguments that point into it

    def bytes(self) -> np.ndarray:
        """Returns a copy, padded with zeros to a whole dword. Raises UsageError if the file is too short."""
        held = self.path.stat().st_size if self.path.is_file() else 0  # before memory is allocated for the size in the JSON
        if held < self.nbytes:
            raise UsageError(f"{self.path}: {held:,} bytes of the {self.nbytes:,} at {self.base:#x}: capture it again")
        data = np.zeros(-(-self.nbytes // GRANULE) * GRANULE, np.uint8)
        data[: self.nbytes] = np.fromfile(self.path, np.uint8, self.nbytes)
        return data


@dataclass(frozen=True)
class Capture(FileKernel):
    """A recorded dispatch, and how to launch it. `inputs` are its explicit arguments."""

    folder: Path
    regions: list[CapturedRegion]
    variables: list[tuple[str, bytes]]  # symbol and value of the module's variables

    def execute(self, device: Device | hip.Device, watch: Watch | None = None) -> tuple[Any, dict[int, np.ndarray]]:
        """Returns the run and, by pointer argument, the memory from the pointer to the end of its region."""
        kernel, arguments, memory = self.bind(device)
        outcome: Any = launch_work(self.info.title, lambda: launch(kernel, watch, args=arguments, **self.extents), watch)
        after = {}
        for index, argument in enumerate(self.info.explicit_arguments):
            found = _pointed_region(self.inputs[index].value, argument.is_pointer, self.regions)
            if found is not None:
                region, start = found
                after[index] = memory[region.base][start : region.nbytes].copy()
        return outcome, after

    def bind(self, device: Device | hip.Device) -> tuple[Any, list[object], dict[int, Any]]:
        """Returns the loaded kernel, its arguments, and the memory by the regions' addresses."""
        from simgpu import Device

        if not isinstance(device, Device):
            raise UsageError(f"{self.folder}: a capture is replayed in the simulator; kerncap replays it on a GPU")
        kernel = device.load(self.code.data)[self.info.name]
        for symbol, value in self.variables:
            address, nbytes = kernel.module.symbol(symbol)
            held = device.memory.find(address)
            if held is None or nbytes != len(value):
                raise UsageError(f"{self.folder}: variable {symbol} has {nbytes} bytes in kernel.hsaco, {len(value)} were captured")
            held.data[address - held.base : address - held.base + nbytes] = np.frombuffer(value, np.uint8)
        memory = {region.base: region.bytes() for region in self.regions}
        for region in self.regions:
            device.place(region.base, memory[region.base], nbytes=region.nbytes, label=region.label, defined=True)
        return kernel, [entry.value for entry in self.inputs], memory


def capture(options: Namespace, watch: Watch | None = None) -> Capture:
    """Reads the capture in the folder `options.file`. Raises UsageError that names a missing or damaged part."""
    folder = Path(options.file)
    if options.arg or options.grid or options.global_size or options.block or options.dynamic_lds:
        raise UsageError(f"{folder} is a capture, which has its own grid, block and arguments: leave these options out")
    dispatch = _json(folder / "dispatch.json")
    ran_on = str(dispatch.get("isa_name") or dispatch.get("agent_name") or "")  # amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-
    target = options.target or ran_on.rpartition("--")[2].partition(":")[0]
    code = read_code_object(str(folder), target or None)
    name = options.kernel or str(dispatch.get("mangled_name", "")).removesuffix(".kd")
    info = code.kernels[kernel_named(code.kernels, name if name in code.kernels or options.kernel else None)]
    segment = _read(folder / "kernarg.bin")
    values = []
    for argument in info.explicit_arguments:
        raw = segment[argument.offset : argument.offset + argument.size]
        if len(raw) < argument.size:
            end = argument.offset + argument.size
            raise UsageError(f"{folder / 'kernarg.bin'}: {len(segment)} bytes, argument {argument.name} ends at {end}")
        values.append(raw)
    regions = _regions(folder, info, values)
    inputs = []
    read: dict[int, np.ndarray] = {}  # by region: an allocator's region often serves many arguments
    for argument, raw in zip(info.explicit_arguments, values, strict=True):
        array, found = None, _pointed_region(raw, argument.is_pointer, regions)
        if found is not None:
            region, start = found
            if region.base not in read:
                read[region.base] = region.bytes()
            array = read[region.base][start : region.nbytes]
        inputs.append(Input(f"{int.from_bytes(raw, 'little'):#x}", array, raw))
    extents = {
        "global_size": _three(folder, dispatch, "grid"), "block": _three(folder, dispatch, "block"),
        "dynamic_lds": max(0, _number(folder / "dispatch.json", {"group_segment_size": 0, **dispatch}, "group_segment_size")
                           - info.group_segment_size),
    }  # fmt: skip
    variables = _variables(folder, code) if (folder / "module_variables.json").is_file() else []
    return Capture(device_of(options, target or code.target, watch), code, info, inputs, extents, folder, regions, variables)


def _variables(folder: Path, code: CodeObject) -> list[tuple[str, bytes]]:
    """Returns name and value of each variable that the code object has. Raises UsageError for a file outside of the folder."""
    found = []
    for entry in _entries(folder / "module_variables.json", "variables"):
        name, blob = entry.get("name"), entry.get("blob")
        if not isinstance(name, str) or not isinstance(blob, str) or Path(blob).is_absolute() or ".." in Path(blob).parts:
            raise UsageError(
                f"{folder / 'module_variables.json'}: {printable_name(repr(blob))} is no file of the capture: capture it again"
            )
        if name in code.symbols:
            found.append((name, _read(folder / blob)))
    return found


def _regions(folder: Path, info: KernelInfo, values: list[bytes]) -> list[CapturedRegion]:
    """Returns the regions by address. Raises UsageError if two overlap."""
    file = folder / "memory_regions.json"
    found: list[CapturedRegion] = []
    for base, nbytes in sorted((_number(file, entry, "base"), _number(file, entry, "size")) for entry in _entries(file, "regions")):
        pointing = [
            argument.name
            for argument, raw in zip(info.explicit_arguments, values, strict=True)
            if argument.is_pointer and base <= int.from_bytes(raw, "little") < base + nbytes
        ]
        label = f"argument {' and '.join(pointing)}" if pointing else "captured memory"
        if found and found[-1].base + found[-1].nbytes > base:
            other = f"{found[-1].nbytes:,} bytes at {found[-1].base:#x}"
            raise UsageError(f"{folder}: memory at {base:#x} overlaps {other}: capture it again")
        if base % GRANULE or nbytes <= 0:
            raise UsageError(f"{folder}: memory of {nbytes} bytes at {base:#x} is none that a GPU allocates: capture it again")
        found.append(CapturedRegion(base, nbytes, folder / "memory" / f"region_{base:x}.bin", label))
    return found


def _pointed_region(value: object, is_pointer: bool, regions: list[CapturedRegion]) -> tuple[CapturedRegion, int] | None:
    """Returns the region that an argument points into, and the offset in it."""
    address = int.from_bytes(value, "little") if isinstance(value, bytes) else 0
    for region in regions if is_pointer else ():
        if region.base <= address < region.base + region.nbytes:
            return region, address - region.base
    return None


def _three(folder: Path, dispatch: dict[str, Any], name: str) -> tuple[int, ...]:
    given = dispatch.get(name)
    if not isinstance(given, list) or not 1 <= len(given) <= 3 or not all(isinstance(n, int) and n > 0 for n in given):
        raise UsageError(f"{folder / 'dispatch.json'}: {name} is {printable_name(repr(given))}, not up to three numbers above 0")
    return tuple(given)


def _entries(path: Path, name: str) -> list[dict[str, Any]]:
    """Returns the objects of a list in a JSON file."""
    found = _json(path).get(name, [])
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise UsageError(f"{path}: {name} is no list of objects: capture it again")
    return found


def _number(path: Path, entry: dict[str, Any], name: str) -> int:
    """Returns an object's whole number, which may be written in decimal digits."""
    value = entry.get(name)
    if isinstance(value, int) or (isinstance(value, str) and re.fullmatch(r"[0-9]{1,20}", value)):
        return int(value)
    raise UsageError(f"{path}: {name} is {printable_name(repr(value))}, not a whole number: capture it again")


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: no JSON ({error})") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path}: {type(found).__name__}, not an object")
    return found


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise UsageError(f"{path} is missing: capture it again")
    return path.read_bytes()
