"""Code of a kernel: converts addresses, labels and lines to records and back, and finds instructions that write a register."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

import numpy as np

from simgpu.hardware.code_object.demangled import kernels_by_name, without_parameters
from simgpu.hardware.code_object.kernels import CalledFunction, KernelInfo
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa import text
from simgpu.hardware.isa.instruction import EXEC, M0, VCC, Instruction, Reg
from simgpu.hardware.isa.kinds import ControlKind

if TYPE_CHECKING:
    from simgpu.debugger.replay import Replay
    from simgpu.hardware.code_object.code_object import CodeObject

NAMED = {VCC: "vcc", VCC + 1: "vcc", EXEC: "exec", EXEC + 1: "exec", M0: "m0"}  # names in `Effect`
BITS = {"f32": 32, "f16": 16, "bf16": 18, "f64": 64}  # format codes of `points.nan`; 17 is an f16 in the low half only


def offsets(where: str, code: CodeObject, kernel: str, source: str = "") -> list[int]:
    """Returns a list of one code offset, in bytes from the kernel's first instruction, for an address, label or source line.

    A line without code counts as the next one that has some, as in gdb. Places in functions that kernels call have offsets
    below 0 or behind the kernel.

    source: the kernel's assembly, for local labels, which the file lacks; such a label is at the next line that has code. Raises
    LaunchError, with the known names, for unknown text.
    """
    info = code.kernels[kernel]
    if address := re.fullmatch(r"(?:(.*)\+|\+?|\*)(0x[0-9a-fA-F]+)", where):
        called = _function(code, address[1]) if address[1] and not kernels_by_name([kernel], address[1]) else info
        if called is None:
            raise LaunchError(f"{where}: this is {info.title}; --kernel {address[1]} chooses another of the file")
        offset, size = int(address[2], 16), called.code_size
        if offset % 4 or offset >= size:
            raise LaunchError(f"{where}: {called.title} has {size:#x} bytes of code; give a multiple of 4 below that")
        return [called.start + offset - info.start]
    number = line_number(where)
    if number is not None:
        lines = _lines(code, info, where.rpartition(":")[0])
        later = [line for line in lines if line >= number]
        if not later:
            said = f"its lines are {min(lines)} to {max(lines)}" if lines else "the line table has none of it"
            raise LaunchError(f"{where}: no instruction of {info.title} comes from that line or a later one; {said}")
        return [lines[min(later)]]
    symbol = code.symbols.get(where)
    if symbol is not None and symbol.address in info:
        return [symbol.address - info.start]
    if called := _function(code, where):
        return [called.start - info.start]
    lines = _lines(code, info, "") if source else {}
    for at, line in enumerate(source.splitlines(), 1):
        if line.split(";")[0].strip() in (f"{where}:", f".L{where}:"):
            after = [number for number in sorted(lines) if number > at]
            if after:
                return [lines[after[0]]]
    labels = re.findall(r"^(\S+):$", source.partition(".rodata")[0], re.MULTILINE) or [
        name for name, s in code.symbols.items() if s.address in info
    ]
    labels += [without_parameters(function.title) for function in code.functions]
    raise LaunchError(f"{where}: no such label; there are {', '.join(labels)}; or give 0x… or a source line")


def line_number(where: str) -> int | None:
    """Returns the line that `25` or `k.hip:25` names; None for other places.

    >>> line_number("k.hip:25"), line_number("loop")
    (25, None)
    """
    match = re.fullmatch(r"(?:.*:)?(\d+)", where)
    return int(match[1]) if match else None


def _function(code: CodeObject, name: str) -> CalledFunction | None:
    """Returns the function that a name means, mangled or in C++ form; None if there is none."""
    found = kernels_by_name([function.name for function in code.functions], name)
    return next((function for function in code.functions if function.name in found), None)


def _lines(code: CodeObject, info: KernelInfo, file: str) -> dict[int, int]:
    """Returns the first code offset of each source line of the kernel, then of functions.

    file: the file's name, or the end of its path; "" for any file.
    """
    lines: dict[int, int] = {}
    for part in code.parts(info):
        for address in range(part.start, part.start + part.code_size, 4):
            name, _, line = (code.source_line(address) or "").rpartition(":")
            if line and (not file or f"/{name}".endswith(f"/{file}") or f"/{file}".endswith(f"/{name}")):
                lines.setdefault(int(line), address - info.start)
    return lines


class ReplayCode:
    """Code that a replay runs. source: the kernel's assembly, if known."""

    def __init__(self, replay: Replay, source: str = "") -> None:
        self.replay = replay
        self.info = replay.launch.info
        self.file = replay.launch.kernel.module.code
        self._source = source

    def __iter__(self) -> Iterator[tuple[int, Instruction]]:
        """Yields the lowered instructions by record, in order."""
        known: dict[int, Instruction] = {}
        for program in self.replay.launch.programs.values():
            known |= program.instructions
        return iter(sorted(known.items()))

    def text(self, record: int) -> str:
        """Returns the instruction as LLVM prints it, or why there is none."""
        inst = self.replay.launch.instruction(record)
        return text(inst) if inst is not None else self.replay.launch.problem(record) or "not reached yet"

    def virtual(self, record: int) -> int:
        """Returns the virtual address in the code object."""
        return self.replay.launch.program.base + 4 * record - self.replay.launch.kernel.module.bias

    def record(self, virtual: int) -> int:
        """Returns the record of a virtual address."""
        return (virtual + self.replay.launch.kernel.module.bias - self.replay.launch.program.base) // 4

    def address(self, record: int) -> str:
        """Returns a record's address as users read and type it: `gemm+0x98`."""
        return self.file.address_name(self.info, self.virtual(record))

    def part(self, record: int) -> KernelInfo | CalledFunction:
        """Returns the function around a record; the kernel if no symbol contains it."""
        return self.file.part_at(self.info, self.virtual(record)) or self.info

    def line(self, record: int) -> str:
        """Returns a record's `file:line`, or ""."""
        return self.file.source_line(self.virtual(record)) or ""

    def find(self, where: str) -> int:
        """Returns the record that an address, a label or a source line names. Raises LaunchError if no instruction begins there."""
        (offset,) = offsets(where, self.file, self.info.name, self._source)
        record = self.replay.launch.entry + offset // 4
        self._lower(self.part(record))
        if self.replay.launch.instruction(record) is None:
            held = [at for at, inst in self if at < record < at + inst.size // 4]
            why = f"it is inside `{self.text(held[0])}`" if held else "no known jump leads there"
            raise LaunchError(f"{where}: no instruction begins at {self.address(record)}: {why}")
        return record

    def copies(self, where: str) -> list[int]:
        """Returns the record that a place names; of a line, the records at which one of its copies begins.

        Copies are those in each inlined call, and others that the compiler made, as of an unrolled loop: a statement of the line
        is the beginning of a copy if a path leads there that passes no earlier copy in the same call. Instructions that the
        compiler moved up past a barrier of an earlier line do not count, unless the line has no others.
        """
        first = self.find(where)
        line = self.line(first)
        if line_number(where) is None or not line:
            return [first]
        return sorted(record for part in self.file.parts(self.info) for record in self._copies_in(part, line, first))

    def _copies_in(self, part: KernelInfo | CalledFunction, line: str, first: int) -> list[int]:
        """Does `copies` in the kernel or in a function. first: the record of the line's first instruction."""
        starts = self.file.debug.statements(part.start, part.start + part.code_size)
        own_starts = {record for record in map(self.record, starts) if self.line(record) == line}
        own_starts |= {first} if self.virtual(first) in part else set()
        if own_starts:
            self._lower(part)
        settled = [record for record in sorted(own_starts) if not self._is_moved_up(record, line)]
        found: dict[tuple[str, ...], list[int]] = {}  # by the calls that a copy is in
        for record in settled or sorted(own_starts):
            if self.replay.launch.instruction(record) is None:
                continue
            calls = [str(frame.line) for frame in self.file.debug.frames(self.virtual(record))]
            own = found.setdefault(tuple(calls[calls.index(line) + 1 :] if line in calls else ()), [])
            if not own or self._is_reached(self.record(part.start), record, own):
                own.append(record)
        return [record for own in found.values() for record in own]

    def _is_moved_up(self, record: int, line: str) -> bool:
        """True if the code from a record on, up to its next branch, has a barrier of an earlier line of the same file."""
        barriers, seen, file, number = self.barriers(), {record}, *line.rsplit(":", 1)
        after = self.following([record])
        while len(after) == 1 and after[0] not in seen:
            (record,) = after
            if record in barriers:
                name, _, before = self.line(record).rpartition(":")
                return name == file and int(before) < int(number)
            seen.add(record)
            after = self.following([record])
        return False

    def _lower(self, part: KernelInfo | CalledFunction) -> None:
        """Lowers a function that no wave may have called yet."""
        if self.replay.launch.instruction(self.record(part.start)) is None:
            self.replay.lower(self.record(part.start))

    def _is_reached(self, start: int, record: int, avoided: Collection[int]) -> bool:
        """True if a path leads from the record `start` to another without passing one of `avoided`."""
        seen, left = set(avoided), [start]
        while left:
            at = left.pop()
            if at in seen:
                continue
            if at == record:
                return True
            seen.add(at)
            left += self.following([at])
        return False

    def barriers(self) -> list[int]:
        """Returns the records of s_barrier."""
        return [at for at, inst in self if inst.spec.control is ControlKind.BARRIER]

    def endings(self) -> list[int]:
        """Returns the records of s_endpgm."""
        return [at for at, inst in self if inst.spec.control in (ControlKind.ENDPGM, ControlKind.ENDPGM_SAVED)]

    def calls(self) -> list[int]:
        """Returns the records of s_swappc_b64 and s_call_b64."""
        return [at for at, inst in self if inst.spec.control in (ControlKind.SWAPPC, ControlKind.CALL)]

    def returns(self) -> list[int]:
        """Returns the records of s_setpc_b64."""
        return [at for at, inst in self if inst.spec.control is ControlKind.SETPC]

    def returns_to(self, record: int, scalars: np.ndarray) -> int:
        """Returns the record to which the s_setpc_b64 at a record jumps. scalars: the wave's SGPRs before it."""
        launch = self.replay.launch
        inst = launch.instruction(record)
        source = inst.args["src0"] if inst is not None else None
        assert isinstance(source, Reg)
        address = int(scalars[source.index]) | int(scalars[source.index + 1]) << 32
        return (address - launch.program.base) // 4

    def function(self, record: int) -> range:
        """Returns the records of the function around a record, as `part`."""
        part = self.part(record)
        return range(self.record(part.start), self.record(part.start + part.code_size))

    def following(self, records: list[int]) -> list[int]:
        """Returns the direct successors of some records."""
        found: set[int] = set()
        for program in self.replay.launch.programs.values():
            for record in records:
                if record in program.instructions:
                    found.update(at for at in program.following(record) if at in program.instructions)
        return sorted(found)

    def writers(self, register: Reg) -> list[int]:
        """Returns the records of instructions that may write one of these registers, also by an index in M0."""
        wanted = {NAMED.get(i, ("s", i)) if register.file == "s" else (register.file, i)
                  for i in range(register.index, register.index + register.count)}  # fmt: skip
        indirect = {"s": (ControlKind.MOVRELD,), "v": (), "a": ()}[register.file]

        def writes(record: int, inst: Instruction) -> bool:
            programs = self.replay.launch.programs.values()
            program = next(program for program in programs if record in program.instructions)
            effect = program.effect(record)
            return bool(effect.access.writes & wanted) or inst.spec.control in indirect or (
                register.file != "s" and any(p.mode.indexed and record in p.instructions for p in programs)
            )

        return [record for record, inst in self if writes(record, inst)]

    def stores(self, lds: bool) -> list[int]:
        """Returns the records of instructions that may write LDS (`lds`) or device memory."""

        def stores(inst: Instruction) -> bool:
            memory = inst.spec.memory
            shared = inst.spec.encoding == "ds" or bool(memory and (memory.lds or inst.mods.get("lds")))
            if inst.spec.control in (ControlKind.APPEND, ControlKind.CONSUME):
                return lds
            if memory is None:
                return False
            writes = memory.op != "load" or (shared and inst.spec.encoding != "ds")
            flat = memory.space == "flat"
            return writes and (shared == lds or flat)

        return self._records_where(stores)

    def _records_where(self, holds: Callable[[Instruction], bool]) -> list[int]:
        return [record for record, inst in self if holds(inst)]

    def floats(self) -> list[tuple[int, Reg, int]]:
        """Returns the records of instructions with a float result, with the result's registers and its format code for
        `points.nan`."""
        found = []
        for record, inst in self:
            operand = inst.args.get("vdst")
            if inst.spec.memory is not None or not isinstance(operand, Reg) or operand.file == "s":
                continue
            if inst.spec.kind == "matrix":
                match = re.match(r"v_s?mfmac?(?:_scale)?_(f32|f16|bf16|f64)_", inst.mnemonic)
                name = match[1] if match else ""
                packed = False
            else:
                kinds = [result for result in inst.spec.results if not result.state]
                result = kinds[0] if kinds else None
                packed = result is not None and result.element is not None
                held = (result.element or result) if result is not None else None
                name = held.name if held is not None and held.is_float else ""
            if name in BITS:
                found.append((record, operand, 17 if name == "f16" and not packed else BITS[name]))
        return found
