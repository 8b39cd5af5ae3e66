"""Checks before a program runs if its file can load this project's HIP library."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from simgpu.hardware.code_object.elf import ElfFile
from simgpu.hardware.errors import DecodeError, LaunchError
from simgpu.hip.library import SOCKET, target

ELF = b"\x7fELF"
MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
DT_NEEDED, DT_STRTAB = 1, 5
DYNAMIC = struct.Struct("<qQ")


@dataclass(frozen=True)
class HipProgram:
    """Properties of a program's file."""

    elf: bool  # machine code, not a script
    kernels: bool = False  # holds code for a GPU
    needed: tuple[str, ...] = ()  # the libraries that it loads

    @property
    def loads_hip(self) -> bool:
        """True if the file itself links a HIP library; its libraries may do so, too."""
        return any(name.startswith(("libamdhip64.so", "libhiprtc.so")) for name in self.needed)


def inspect(path: str) -> HipProgram:
    """Reads a program's file. Raises LaunchError for one that cannot run here or cannot load a library."""
    data = Path(path).read_bytes()
    if not data.startswith(ELF):
        return HipProgram(elf=False)
    machine, host = int.from_bytes(data[18:20], "little"), target().partition("-")[0]
    if MACHINES.get(machine) != host:
        other = MACHINES.get(machine, f"machine {machine}")
        raise LaunchError(f"{path} is for {other}; this host is {host}: compile it for {host}")
    try:
        file = ElfFile(data)
        kernels = ".hip_fatbin" in file.sections_named((b".hip_fatbin",))
        if not any(header.type in (PT_DYNAMIC, PT_INTERP) for header in file.headers):
            raise LaunchError(f"{path} is statically linked: AMD's library cannot be replaced in it; link it dynamically")
        found = HipProgram(True, kernels, _needed_libraries(file))
    except DecodeError:
        return HipProgram(elf=True)
    if kernels and not found.loads_hip and not found.needed:
        raise LaunchError(f"{path} has kernels and loads no library: HIP is linked into it; link libamdhip64.so instead")
    return found


def _needed_libraries(file: ElfFile) -> tuple[str, ...]:
    """Returns the libraries that the dynamic section names."""
    dynamic = next((header for header in file.headers if header.type == PT_DYNAMIC), None)
    if dynamic is None:
        return ()
    size = dynamic.file_size // DYNAMIC.size * DYNAMIC.size
    values = list(DYNAMIC.iter_unpack(file.part("the dynamic section", dynamic.offset, size)))
    strings = next((value for tag, value in values if tag == DT_STRTAB), 0)
    for header in file.headers:
        if header.type == PT_LOAD and 0 <= strings - header.address < header.file_size:
            at = strings - header.address + header.offset
            return tuple(_text(file.data, at + value) for tag, value in values if tag == DT_NEEDED)
    return ()


def _text(data: bytes, at: int) -> str:
    return data[at : data.find(b"\0", at)].decode(errors="replace")


def why_no_hip(path: str, program: HipProgram) -> str:
    """Explains why nothing called HIP, as far as the file shows."""
    name = Path(path).name
    if program.kernels and not program.loads_hip:
        return f"{name} never called HIP here: it has kernels, but loads no libamdhip64.so; is the runtime linked into it?"
    if program.elf and not program.loads_hip:
        return (
            f"nothing called HIP: {name} is not linked to it, nor did a program that it started call it; "
            f"in a chroot, programs need the folders of LD_LIBRARY_PATH and {SOCKET}"
        )
    return f"{name} never called HIP"
