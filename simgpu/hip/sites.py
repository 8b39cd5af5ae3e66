"""Source lines of code addresses in a running program, from its memory map and the line tables of its files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from simgpu.hardware.code_object.debug import DebugInformation
from simgpu.hardware.code_object.elf import PT_LOAD, ElfFile

LARGEST_FILE = 1 << 28  # bytes: line tables of larger programs would take minutes
# HIP's own headers: their templates contain calls, which are not the program's own source.
HEADERS = ("hip_runtime_api.h", "hip_runtime.h", "amd_hip_runtime.h", "hip_ext.h")


@dataclass(frozen=True)
class MappedRegion:
    """A mapped part of a file."""

    start: int
    end: int
    offset: int  # offset of its first byte in the file
    path: str


class BinaryFile:
    """A file of machine code, read on first use. A file that cannot be read gives no lines."""

    def __init__(self, path: str) -> None:
        self.path = path

    @cached_property
    def _data(self) -> bytes:
        path = Path(self.path)
        try:
            return path.read_bytes() if path.stat().st_size <= LARGEST_FILE else b""
        except OSError:
            return b""

    @cached_property
    def _debug(self) -> DebugInformation:
        return DebugInformation(self._data, ())

    def lines(self, offset: int) -> tuple[str, ...]:
        """Returns the `file:line` of the instruction at an offset of the file, then those of the calls that it was inlined from."""
        try:
            headers = ElfFile(self._data).headers
        except Exception:  # not an ELF file
            return ()
        for header in headers:
            if header.type == PT_LOAD and header.offset <= offset < header.offset + header.file_size:
                address = header.address + offset - header.offset
                return tuple(str(frame.line) for frame in self._debug.frames(address))
        return ()


class CallSites:
    """Source lines of calls in a running process."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._regions: list[MappedRegion] = []
        self._binaries: dict[str, BinaryFile] = {}
        self._known: dict[int, tuple[str, ...]] = {}

    def note_map(self) -> None:
        """Reads the process's mapped files again: libraries may have been loaded."""
        try:
            lines = Path(f"/proc/{self._process}/maps").read_text().splitlines()
        except OSError:
            return
        found = []
        for line in lines:
            fields = line.split(None, 5)
            if len(fields) == 6 and fields[5].startswith("/") and "x" in fields[1]:
                start, end = (int(part, 16) for part in fields[0].split("-"))
                found.append(MappedRegion(start, end, int(fields[2], 16), fields[5]))
        self._regions = found or self._regions

    def first(self, return_addresses: Iterable[int]) -> str | None:
        """Returns the `file:line` of the innermost call in the program's own source, None if there is none."""
        for address in map(int, return_addresses):
            if address and address not in self._known:
                self._known[address] = self._lines(address - 1)  # of the call itself
            for line in self._known.get(address, ()):
                file = line.rpartition(":")[0].rpartition("/")[2]
                if file not in HEADERS and not file.endswith((".S", ".s")):  # the code that calls main is assembly
                    return line
        return None

    def _lines(self, address: int) -> tuple[str, ...]:
        for refresh in (False, True):
            if refresh or not self._regions:
                self.note_map()
            for region in self._regions:
                if region.start <= address < region.end:
                    binary = self._binaries.setdefault(region.path, BinaryFile(region.path))
                    return binary.lines(address - region.start + region.offset)
        return ()
