"""Objects of the source: variables, elements, members and targets of pointers, with the registers or memory that hold them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import ml_dtypes
import numpy as np

from simgpu.debugger.breakpoints import RegisterNames
from simgpu.hardware.code_object.expression import Piece, StackOperation
from simgpu.hardware.code_object.types import ARRAY, DwarfType
from simgpu.hardware.errors import LaunchError
from simgpu.machine import layout

if TYPE_CHECKING:
    from simgpu.debugger.debugger import Debugger

DTYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "pointer": np.dtype(np.uint64)}
MOST_ELEMENTS = 4096  # of `*p@N`
_TOKEN = re.compile(r"\s*(?:\[\s*(\d+)\s*\]|(?:\.|->)\s*(\w+))")


class Storage(Protocol):
    """Bytes of an object: a row for each lane, or one row if all lanes share them."""

    def read(self, at: int, nbytes: int) -> np.ndarray:
        """Returns bytes as (rows, nbytes). Raises LaunchError if they are not in memory."""

    def write(self, at: int, raw: np.ndarray, lane: int | None) -> None:
        """Writes bytes of a lane, or of all lanes. Raises LaunchError if they cannot be changed."""


@dataclass(frozen=True)
class Object:
    """A variable, or a part of one."""

    name: str  # as it was typed
    type: DwarfType
    storage: Storage
    at: int = 0  # its first byte in the storage
    lane: int | None = None  # the only lane that is meant

    def raw(self) -> np.ndarray:
        """Returns its bytes, (rows, size)."""
        held = self.storage.read(self.at, self.type.size)
        return held if self.lane is None or len(held) == 1 else held[self.lane : self.lane + 1]

    def values(self) -> np.ndarray:
        """Returns a number, or one for each lane; 32-bit words if it is no number."""
        seen = view(self.raw(), self.type.kind, self.type.size)
        return seen if len(seen) > 1 else seen[0]

    def children(self) -> Iterator[Object]:
        """Yields the elements of an array or the members of a struct."""
        kind = self.type
        if kind.kind == ARRAY:
            for number in range(kind.count):
                yield Object(f"[{number}]", kind.target, self.storage, self.at + number * kind.target.size, self.lane)
        for member in kind.members:
            yield Object(member.name, member.type, self.storage, self.at + member.offset, self.lane)


@dataclass(frozen=True)
class Fixed:
    """Bytes that cannot be changed: constants, computed values, arguments as they were passed."""

    held: np.ndarray  # (rows, bytes)
    why: str  # it cannot be changed

    def read(self, at: int, nbytes: int) -> np.ndarray:
        return self.held[:, at : at + nbytes]

    def write(self, at: int, raw: np.ndarray, lane: int | None) -> None:
        raise LaunchError(f"it is in no register here: {self.why}")


@dataclass(frozen=True)
class Registers:
    """Bytes in consecutive pieces, each in registers or a constant."""

    debugger: Debugger
    wave: int
    parts: tuple[tuple[str, int, int], ...]  # first register ("" for a constant), the constant, bytes

    def read(self, at: int, nbytes: int) -> np.ndarray:
        found = []
        for register, constant, size in self.parts:
            if not register:
                found.append(_bytes_of(constant, size))
                continue
            words = self.debugger.registers(_range(register, size), self.wave)
            words = words[:, None] if words.ndim == 1 else words
            found.append(np.ascontiguousarray(words.T).view(np.uint8)[:, :size])
        rows = max(map(len, found))
        return np.concatenate([np.broadcast_to(part, (rows, part.shape[1])) for part in found], axis=1)[:, at : at + nbytes]

    def write(self, at: int, raw: np.ndarray, lane: int | None) -> None:
        if any(not register for register, _, _ in self.parts):
            raise LaunchError("it is in no register here: the compiler holds it as a constant")
        first = 0
        for register, _, size in self.parts:
            low, high = max(at, first), min(at + len(raw), first + size)
            first += size
            if low >= high:
                continue
            wanted = RegisterNames.parse(_range(register, size))
            start, _ = wanted.span
            state, begin = self.debugger.replay.bytes_of(self.wave), first - size
            for byte in range(low, high):
                word, within = divmod(byte - begin, 4)
                if wanted.reg.file == "s":
                    state[start + 4 * word + within] = raw[byte - at]
                else:
                    row = start + layout.ROW * word + within
                    lanes = slice(row, row + layout.ROW, 4) if lane is None else row + 4 * lane
                    state[lanes] = raw[byte - at]


@dataclass(frozen=True)
class ObjectMemory:
    """Bytes in private memory, LDS or device memory."""

    debugger: Debugger
    wave: int
    space: str  # "private", "lds" or "global"
    addresses: np.ndarray  # (rows,), int64

    def read(self, at: int, nbytes: int) -> np.ndarray:
        if self.space == "private":
            held, places = self._private(at, nbytes)
            return held[places]
        if self.space == "lds":
            return np.stack([self.debugger.lds(int(address) + at, np.uint8, nbytes) for address in self.addresses])
        found = [self.debugger.memory(int(address) + at, nbytes) for address in self.addresses]
        return np.stack([np.frombuffer(each, np.uint8) for each in found])

    def write(self, at: int, raw: np.ndarray, lane: int | None) -> None:
        if self.space == "private":
            held, places = self._private(at, len(raw))
            held[places if lane is None else places[lane : lane + 1]] = raw
            return
        self.read(at, len(raw))  # raises if it is outside memory
        for address in self.addresses[slice(None) if lane is None or len(self.addresses) == 1 else slice(lane, lane + 1)].tolist():
            if self.space == "lds":
                self.debugger.replay.lds()[address + at : address + at + len(raw)] = raw
                continue
            allocation = self.debugger.kernel.module.device.memory.find(address)
            assert allocation is not None
            first = address + at - allocation.base
            allocation.data[first : first + len(raw)] = raw

    def _private(self, at: int, nbytes: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the bytes of the launch's private memory, and the place of each byte of each lane: (64, nbytes)."""
        base = self.debugger.replay.scratch(self.wave)
        allocation = self.debugger.kernel.module.device.memory.find(base)
        offsets = np.broadcast_to(self.addresses, layout.LANES)[:, None] + (at + np.arange(nbytes))
        if allocation is None or (nbytes and not 0 <= offsets.min() <= offsets.max() < self.debugger.replay.launch.private):
            raise LaunchError(f"{nbytes} bytes of private memory from {int(offsets.min()):#x} on: a lane has fewer")
        # Dword d of lane l is at byte 256·d + 4·l (LLVM AMDGPUUsage, "Private").
        lanes = 4 * np.arange(layout.LANES)[:, None]
        return allocation.data, base - allocation.base + (offsets // 4 << 8) + lanes + offsets % 4


def storage_of(debugger: Debugger, wave: int, pieces: Sequence[Piece], kind: DwarfType, frame: str) -> Storage:
    """Returns the storage of a variable. frame: the register of its frame's base, "" if that is 0."""
    size = kind.size
    if len(pieces) == 1 and pieces[0].register and not kind.fits_registers:
        # LLVM moved it from private memory to LDS (AMDGPUPromoteAlloca), and the register holds its address.
        operation = StackOperation("register", pieces[0].register)
        return ObjectMemory(debugger, wave, "lds", _compute(debugger, wave, [operation], frame, 4))
    if len(pieces) == 1 and pieces[0].steps:
        (piece,) = pieces
        number = _compute(debugger, wave, piece.steps, frame, 8 if piece.space else size)
        if piece.space:
            bias = debugger.kernel.module.bias if piece.space == "global" else 0
            return ObjectMemory(debugger, wave, piece.space, number + bias)
        width = min(8, -(-size // 4) * 4)
        return Fixed(number.view(np.uint8).reshape(-1, 8)[:, :width], "it is computed from registers (`info registers`)")
    if any(piece.steps for piece in pieces):
        raise LaunchError("parts of it are in memory or computed, which is not supported")
    parts = []
    for piece in pieces:
        # Without a size, a piece is the whole value; 4 bytes if DWARF is malformed.
        parts.append((piece.register, piece.value, piece.size or (size if len(pieces) == 1 else 4)))
    return Registers(debugger, wave, tuple(parts))


def _compute(debugger: Debugger, wave: int, steps: Sequence[StackOperation], frame: str, size: int) -> np.ndarray:
    """Returns a computed value as int64, of each lane or of all."""
    stack: list[np.ndarray] = []
    for step in steps:
        if step.name == "constant":
            stack.append(np.array([(step.value + (1 << 63)) % (1 << 64) - (1 << 63)], np.int64))
        elif step.name in ("register", "frame"):
            register = step.register or frame
            held = np.zeros((1, 8), np.uint8)
            if register:
                raw = Registers(debugger, wave, ((register, 0, 8 if size > 4 and step.name != "frame" else 4),)).read(0, 8)
                held = np.zeros((len(raw), 8), np.uint8)
                held[:, : raw.shape[1]] = raw
            stack.append(held.view(np.int64)[:, 0] + step.value)
        elif step.name in UNARY:
            stack.append(UNARY[step.name](stack.pop()))
        else:
            right, left = stack.pop(), stack.pop()
            stack.append(BINARY[step.name](left, right))
    return stack[-1]


def _divide(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.where(right == 0, 0, left // np.where(right == 0, 1, right))


UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {"neg": np.negative, "not": np.invert}
BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "plus": np.add, "minus": np.subtract, "mul": np.multiply, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "shl": lambda left, right: left << (right & 63), "shra": lambda left, right: left >> (right & 63),
    "shr": lambda left, right: (left.view(np.uint64) >> (right & 63).view(np.uint64)).view(np.int64),
    "div": _divide, "mod": lambda left, right: left - _divide(left, right) * right,
}  # fmt: skip


def part_of(debugger: Debugger, wave: int, whole: Object, path: str, active: int) -> Object:
    """Returns the part of an object that `path` names: `[3].x`, `->next`. An index of a number is a lane.

    active: mask of active lanes, whose pointers are followed. Raises LaunchError for a part that it lacks.
    """
    found, at = whole, 0
    while at < len(path.rstrip()):
        match = _TOKEN.match(path, at)
        if not match:
            raise LaunchError(f"{whole.name}{path}: write parts as t[3], s.x, p->x, *p or *p@4")
        at, name = match.end(), f"{found.name}{match[0].strip()}"
        if found.type.kind == "pointer" and not (match[1] and found.lane is not None):
            found = target(debugger, wave, found, active, int(match[1] or 0))
        elif match[1]:
            found = _element(found, int(match[1]))
        if match[2]:
            member = found.type.member(match[2])
            if member is None:
                known = ", ".join(filter(None, (each.name for each in found.type.members)))
                raise LaunchError(f"{name}: there is no member {match[2]}" + (f"; there are {known}" if known else ""))
            found = Object(name, member.type, found.storage, found.at + member.offset, found.lane)
        found = Object(name, found.type, found.storage, found.at, found.lane)
    return found


def _element(found: Object, number: int) -> Object:
    if found.type.kind != ARRAY:
        if number >= layout.LANES or found.lane is not None:
            raise LaunchError(f"{found.name}[{number}]: a lane is a number from 0 to {layout.LANES - 1}")
        return Object(found.name, found.type, found.storage, found.at, number)
    if number >= found.type.count:
        raise LaunchError(f"{found.name}[{number}]: it has {found.type.count} elements")
    kind = found.type.target
    return Object(found.name, kind, found.storage, found.at + number * kind.size, found.lane)


def target(debugger: Debugger, wave: int, pointer: Object, active: int, number: int = 0, count: int = 0) -> Object:
    """Returns what a pointer points to, `number` elements on. count: of elements, for an array; 0 for one element."""
    kind = pointer.type.target
    if not kind.size:
        raise LaunchError(f"*{pointer.name}: debug information does not say what it points to; `x ADDRESS` shows memory")
    addresses = pointer.raw().view(np.int64)[:, 0]
    lanes = [lane for lane in range(len(addresses)) if active >> lane & 1] if len(addresses) > 1 else [0]
    if not lanes:
        raise LaunchError(f"*{pointer.name}: no lane is active")
    if len(set(addresses[lanes].tolist())) == 1:
        addresses = addresses[lanes[:1]]
    else:  # inactive lanes point anywhere
        addresses = np.where([active >> lane & 1 for lane in range(len(addresses))], addresses, addresses[lanes[0]])
    held = ObjectMemory(debugger, wave, "global", addresses + number * kind.size)
    if count:
        kind = kind.array(count)
    return Object(f"*{pointer.name}", kind, held, 0, pointer.lane)


def type_of(kind: str, size: int) -> np.dtype | None:
    """Returns the type of a variable's numbers; None if they are no numbers of that size in bytes.

    >>> type_of("i32", 4), type_of("float4", 16)
    (dtype('int32'), None)
    """
    dtype = DTYPES.get(kind)
    if dtype is None and kind[1:].isdecimal() and kind[0] in "fiu":
        dtype = np.dtype(f"{kind[0]}{int(kind[1:]) // 8}")
    return dtype if dtype is not None and dtype.itemsize == size else None


def view(raw: np.ndarray, kind: str, size: int) -> np.ndarray:
    """Returns rows of bytes as numbers of a type; as uint32 words if the type is not a number of that size."""
    dtype = type_of(kind, size)
    if dtype is None or raw.shape[1] != size:
        padded = np.zeros((len(raw), -(-max(1, raw.shape[1]) // 4) * 4), np.uint8)
        padded[:, : raw.shape[1]] = raw
        words = padded.view(np.uint32)
        return words[:, 0] if words.shape[1] == 1 else words
    return np.ascontiguousarray(raw).view(dtype)[:, 0]


def _range(register: str, size: int) -> str:
    """Returns the registers that hold `size` bytes from the first on, `v[2:3]`."""
    count, first = -(-size // 4), int(register[1:])
    return register if count == 1 else f"{register[0]}[{first}:{first + count - 1}]"


def _bytes_of(value: int, size: int) -> np.ndarray:
    return np.frombuffer((value % (1 << 8 * size)).to_bytes(size, "little"), np.uint8)[None]

