"""Output of the prompt as lines of text: a wave's place, its registers, tiles, LDS and memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simgpu.debugger.breakpoints import FILES, RegisterNames
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.code.operands import register_text
from simgpu.hardware.isa.instruction import M0
from simgpu.tools.shared.arrays import array_type
from simgpu.tools.shared.source_files import source_lines

if TYPE_CHECKING:
    from simgpu.debugger.debugger import Debugger, Stop
    from simgpu.debugger.variables import Variable
    from simgpu.hardware.isa.instruction import Reg

FORMATS = {"x": np.uint32, "u": np.uint32, "d": np.int32, "f": np.float32, "h": np.float16}
COLUMNS = 8  # lanes, or elements, on a line
SHOWN = 16  # rows and columns of a tile in the output
LISTED = 10  # lines of source that one `list` shows
LIMIT = 4096  # elements in one command's output


def position_line(debugger: Debugger, wave: int | None = None) -> str:
    """Returns one line: the wave, its place, its instruction, its source line."""
    place, record = debugger.wave_place(wave), debugger.record(wave)
    line = debugger.code.line(record)
    state = debugger.wave_state(wave)
    return f"{place}  {debugger.code.address(record)}  {debugger.code.text(record)}" + (f"  {line}" if line else "") + (
        f"  ({state})" if state else ""
    )


def stop_lines(debugger: Debugger, stop: Stop) -> Iterator[str]:
    """Yields the reason of a stop, and its place."""
    if stop.message:
        yield stop.message
    yield position_line(debugger, stop.place.wave)


def number(value: Any, form: str) -> str:
    """Formats a value by its type; hexadecimal for form "x", and for u32 if form is ""."""
    if form == "x" or (not form and isinstance(value, np.integer) and value.dtype == np.uint32):
        return f"{int(value) & 0xFFFFFFFFFFFFFFFF:#010x}"
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    return f"{float(value):.7g}"


def breakpoint_lines(debugger: Debugger) -> Iterator[str]:
    """Yields the breakpoints and watchpoints."""
    for each in debugger.breakpoints.values():
        condition = f" if {each.condition}" if each.condition else ""
        yield f"{each.number}  {each.kind}  {each.what}{condition}  stopped {each.hits} time{'' if each.hits == 1 else 's'}"
    if not debugger.breakpoints:
        yield "no breakpoints or watchpoints"


def registers(debugger: Debugger, name: str, form: str) -> Iterator[str]:
    """Yields registers: a scalar register or one lane in a line, else lanes in rows of eight or four; (…) marks inactive lanes."""
    wanted = RegisterNames.parse(name)
    values = debugger.registers(name)
    kind = FORMATS[form or "x"]
    names = _names(wanted.reg)
    if wanted.reg.file == "s" or wanted.lane is not None:
        for text, value in zip(names, values, strict=True):
            lane = "" if wanted.lane is None else f"[{wanted.lane}]"
            yield f"{text}{lane} = {_cell(value, kind, form or 'x')}"
        return
    active = debugger.snapshot().exec
    for text, row in zip(names, values, strict=True):
        cells = [_cell(value, kind, form or "x") for value in row]
        cells = [cell if active >> lane & 1 else f"({cell})" for lane, cell in enumerate(cells)]
        yield from lane_rows(text, cells)


def all_registers(debugger: Debugger) -> Iterator[str]:
    """Yields a line for each register that the kernel declares: a scalar's value, or a vector's first lanes."""
    snapshot, declared = debugger.snapshot(), debugger.kernel.info.declared_resources
    yield f"exec  {snapshot.exec:#018x}"
    yield f"vcc   {snapshot.vcc:#018x}"
    yield f"m0    {int(snapshot.scalars[M0]):#010x}"
    yield f"scc   {snapshot.scc}"
    for number, word in enumerate(snapshot.scalars[: min(declared["sgprs"], FILES["s"])]):
        yield f"{f's{number}':5} {int(word):#010x}  {int(word.astype(np.int32))}"
    for file, rows, count in (("v", snapshot.vgprs, declared["vgprs"]), ("a", snapshot.agprs, declared["agprs"])):
        for number, row in enumerate(rows[:count]):
            shown = ", ".join(f"{int(word):#x}" for word in row[: COLUMNS // 2])
            yield f"{f'{file}{number}':5} {{{shown}, ...}}"


class StackFrame(NamedTuple):
    """A function that a wave is in."""

    function: str
    line: str  # `file:line`, or ""
    record: int  # of the instruction there, or of the call that has not returned
    inlined: bool  # True if the next frame's code contains it

    def words(self, debugger: Debugger, innermost: bool) -> str:
        """Returns text for people. innermost: True for the first frame of a record, which has the address."""
        where = f"{debugger.code.address(self.record)} " if innermost else ""
        return f"{where}in {self.function}" + (f" at {self.line}" if self.line else "")


def stack(debugger: Debugger, wave: int | None = None) -> Iterator[StackFrame]:
    """Yields the functions that a wave is in, innermost first: those that its instruction is inlined from, then the same for each
    call that has not returned."""
    code = debugger.code
    for record in (debugger.record(wave), *debugger.calls(wave)):
        found = code.file.debug.frames(code.virtual(record))
        for frame in found:
            yield StackFrame(frame.function or code.part(record).title, str(frame.line), record, bool(frame.function))
        if not found:
            yield StackFrame(code.part(record).title, "", record, False)


def frames(debugger: Debugger) -> Iterator[str]:
    """Yields the functions that the current wave is in as text, innermost first."""
    inside = False
    for frame in stack(debugger):
        yield frame.words(debugger, not inside)
        inside = frame.inlined


def source(folders: Sequence[Path], where: str, count: int, here: str = "") -> Iterator[str]:
    """Yields lines of a source file around `file:line`, `=>` before the line `here`; none if the file is not on this machine."""
    file, _, line = where.rpartition(":")
    lines = (source_lines(file, folders) if line.isdecimal() else None) or []
    first = max(1, int(line) - count // 2) if lines else 1
    for number, text in enumerate(lines[first - 1 : first - 1 + count], first):
        yield f"{'=>' if f'{file}:{number}' == here else '  '} {number:4} {text}".rstrip()


def lane_rows(name: str, cells: list[str]) -> Iterator[str]:
    """Yields lanes in rows of eight or four, the first with the name."""
    width = max(map(len, cells))
    many = _columns(width)
    for first in range(0, len(cells), many):
        shown = " ".join(cell.rjust(width) for cell in cells[first : first + many])
        yield f"{name if not first else '':5}{f'[{first}]':>5} {shown}"


def _columns(width: int) -> int:
    """Number of lanes on a line: COLUMNS, or half if a terminal of 80 columns would break the line."""
    return COLUMNS if 10 + COLUMNS * (width + 1) <= 80 else COLUMNS // 2


def _names(reg: Reg) -> list[str]:
    return [register_text(reg[part]) for part in range(reg.count)]


def _cell(value: Any, kind: Any, form: str) -> str:
    held = np.array([value], np.uint32).view(kind)
    if len(held) == 2:
        return f"{held[0]:.5g},{held[1]:.5g}"
    return f"{int(held[0]):#010x}" if form == "x" else number(held[0], form)


def value(debugger: Debugger, expression: str, form: str) -> Iterator[str]:
    """Yields an expression's value; all lanes of a value that has lanes."""
    found = debugger.value(expression)
    if not isinstance(found, np.ndarray):
        yield f"{expression} = {number(found, form)}"
        return
    cells = [number(one, form) for one in found]
    width = max(map(len, cells))
    many = _columns(width)
    for first in range(0, len(cells), many):
        yield f"{f'[{first}]':>5} " + " ".join(cell.rjust(width) for cell in cells[first : first + many])


def matrix(values: np.ndarray, row0: int = 0, column0: int = 0) -> Iterator[str]:
    """Yields a matrix with its row and column numbers, cut to SHOWN by SHOWN."""
    part = values[:SHOWN, :SHOWN].astype(np.float64) if values.dtype.kind not in "iu" else values[:SHOWN, :SHOWN]
    cells = [[f"{one:.4g}" if values.dtype.kind not in "iu" else str(one) for one in row] for row in part]
    width = max([len(cell) for row in cells for cell in row] + [len(str(column0 + part.shape[1]))])
    yield " " * 6 + " ".join(str(column0 + at).rjust(width) for at in range(part.shape[1]))
    for at, row in enumerate(cells):
        yield f"{row0 + at:5} " + " ".join(cell.rjust(width) for cell in row)
    if values.shape[0] > SHOWN or values.shape[1] > SHOWN:
        yield f"{SHOWN} x {SHOWN} of {values.shape[0]} x {values.shape[1]} are shown"


def extents(text: str) -> tuple[int, ...]:
    """Parses a shape: 64, 64x32. Raises LaunchError for others."""
    if not re.fullmatch(r"\d+(x\d+)*", text) or "0" in text.split("x"):
        raise LaunchError(f"{text!r} is no shape: give 64 or 64x32")
    return tuple(int(part) for part in text.split("x"))


def shared_array(debugger: Debugger, offset: int, kind: str, shape: str) -> Iterator[str]:
    """Yields a part of LDS as an array."""
    values = debugger.lds(offset, array_type(kind, debugger.kernel.module.device.arch), extents(shape))
    yield from array(values, offset)


def array(values: np.ndarray, first: int) -> Iterator[str]:
    """Yields elements with their addresses, or a matrix if the shape has two extents."""
    if values.ndim == 2:
        yield from matrix(values)
        return
    flat = values.reshape(-1)[:LIMIT]
    for at in range(0, len(flat), COLUMNS):
        held = flat[at : at + COLUMNS]
        cells = [f"{float(one):.6g}" if flat.dtype.kind not in "iu" else f"{int(one):#x}" for one in held]
        yield f"{first + at * flat.itemsize:#x}: {' '.join(cells)}"


def variable(found: Variable, part: str = "") -> Iterator[str]:
    """Yields a variable of the source as numpy prints it; part: of its elements, as `3,0:4`. Raises LaunchError for a part
    outside it."""
    values = found.values
    shape = "x".join(map(str, values.shape))
    times = f", assigned {found.times} times" if found.times > 1 else ""
    if part:
        values = values[_part(found, part)]
    elif shape:
        yield f"{found.name}: {found.kind} {shape}, line {found.line}{times}"
    lines = _elements(values, hex if found.kind.startswith("pointer") else None).splitlines()
    yield from lines if shape and not part else [f"{found.name}{f'[{part}]' if part else ''} = {lines[0]}", *lines[1:]]


def _elements(values: Any, form: Callable[[Any], str] | None) -> str:
    """Formats an array, or one element, as numpy prints it; -- for an element that is masked."""
    values = np.ma.asarray(values)
    if values.dtype.kind not in "iufb":  # bfloat16 and 8-bit floats are not numpy's own
        values = values.astype(np.float32)
    whole = not np.ma.getmaskarray(values).any()

    def show(one: Any) -> str:
        return "--" if one is np.ma.masked else form(one) if form else number(one, "")

    with np.printoptions(linewidth=128, formatter={} if whole and not form else {"all": show}):
        return str(values.data if whole else values) if values.ndim else show(values[()])


def _part(found: Variable, part: str) -> tuple[int | slice, ...]:
    """Parses `3,0:4` into numpy's index."""
    wrong = f"{found.name}[{part}]: {found.name} has the shape {'x'.join(map(str, found.values.shape)) or 'of a number'}"
    axes: list[int | slice] = []
    for word in part.split(","):
        match = re.fullmatch(r"\s*(?:(\d+)|(\d*):(\d*))\s*", word)
        if not match or len(axes) == found.values.ndim:
            raise LaunchError(wrong)
        at = None if match[1] is None else int(match[1])
        if at is not None and at >= found.values.shape[len(axes)]:
            raise LaunchError(wrong)
        axes.append(at if at is not None else slice(*(int(end) if end else None for end in (match[2], match[3]))))
    return tuple(axes)


def code(debugger: Debugger, before: int = 4, after: int = 8) -> Iterator[str]:
    """Yields the instructions around the wave's next one."""
    here = debugger.record()
    known = [at for at, _ in debugger.code]
    position = known.index(here) if here in known else 0
    last = ""
    for at in known[max(0, position - before) : position + after]:
        line = debugger.code.line(at)
        mark = "=>" if at == here else "  "
        yield f"{mark} {debugger.code.address(at)}  {debugger.code.text(at)}" + (f"  {line}" if line != last else "")
        last = line
