"""Variables of HIP and OpenCL sources at a moment, lane by lane, if debug information gives their registers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from simgpu.hardware.code_object.locals import Local, Piece

if TYPE_CHECKING:
    from simgpu.debugger.debugger import Debugger

DTYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "pointer": np.dtype(np.uint64)}


@dataclass(frozen=True)
class LocalValue:
    """A variable at a moment."""

    name: str
    type: str  # such as "f32", "i64" or "pointer"; "" if it is shown as words
    function: str  # the inlined function that has the variable; "" for the kernel's own
    values: np.ndarray | None  # (64,), or () if the whole wave has one value; None if it is optimized out


def local_values(debugger: Debugger, wave: int | None = None) -> list[LocalValue]:
    """Returns the variables in scope at a wave's place: the innermost scope first, the kernel's arguments last.

    An inner variable hides an outer one of the same name.
    """
    address = debugger.code.virtual(debugger.record(wave))
    found: dict[str, LocalValue] = {}
    for local in debugger.kernel.module.code.debug.locals(address):
        if local.name not in found:
            held = None if local.pieces is None else _values(debugger, local, local.pieces, wave)
            found[local.name] = LocalValue(local.name, local.type, local.function, held)
    for passed in _arguments(debugger):
        if passed.name not in found or found[passed.name].values is None:
            found[passed.name] = passed
    return list(found.values())


def local_value(debugger: Debugger, name: str) -> LocalValue | None:
    """Returns the variable of that name at the place of the wave in focus, None if the source has none."""
    return next((each for each in local_values(debugger) if each.name == name), None)


def _arguments(debugger: Debugger) -> Iterator[LocalValue]:
    """Yields the kernel's arguments as they were passed; kernels change them only in registers."""
    segment, info = debugger.replay.launch.kernarg, debugger.kernel.info
    for argument, typed in zip(info.named_arguments, info.typed_arguments, strict=True):
        raw = segment[argument.offset : argument.offset + argument.size]
        kind = "pointer" if argument.is_pointer else typed.value_type
        yield LocalValue(argument.name, kind, "", _view(np.frombuffer(raw, np.uint8)[None], kind, argument.size)[0])


def _values(debugger: Debugger, local: Local, pieces: Sequence[Piece], wave: int | None) -> np.ndarray:
    size = local.size or sum(piece.size or 4 for piece in pieces)
    parts = []
    for piece in pieces:
        bytes_ = piece.size or (size if len(pieces) == 1 else 4)  # without a size: the whole value; 4 if DWARF is malformed
        if not piece.register:
            parts.append(np.frombuffer((piece.value % (1 << 8 * bytes_)).to_bytes(bytes_, "little"), np.uint8)[None])
            continue
        count, first = -(-bytes_ // 4), int(piece.register[1:])
        name = piece.register if count == 1 else f"{piece.register[0]}[{first}:{first + count - 1}]"
        words = debugger.registers(name, wave)
        words = words[:, None] if words.ndim == 1 else words
        parts.append(np.ascontiguousarray(words.T).view(np.uint8)[:, :bytes_])
    lanes = max(len(part) for part in parts)
    raw = np.concatenate([np.broadcast_to(part, (lanes, part.shape[1])) for part in parts], axis=1)
    values = _view(raw, local.type, size)
    return values if lanes > 1 else values[0]


def type_of(kind: str, size: int) -> np.dtype | None:
    """Returns the type of a variable's numbers; None if they are no numbers of that size in bytes.

    >>> type_of("i32", 4), type_of("float4", 16)
    (dtype('int32'), None)
    """
    dtype = DTYPES.get(kind)
    if dtype is None and kind[1:].isdecimal() and kind[0] in "fiu":
        dtype = np.dtype(f"{kind[0]}{int(kind[1:]) // 8}")
    return dtype if dtype is not None and dtype.itemsize == size else None


def _view(raw: np.ndarray, kind: str, size: int) -> np.ndarray:
    """Returns rows of bytes as numbers of a type; as uint32 words if the type is not a number of that size."""
    dtype = type_of(kind, size)
    if dtype is None or raw.shape[1] != size:
        padded = np.zeros((len(raw), -(-max(1, raw.shape[1]) // 4) * 4), np.uint8)
        padded[:, : raw.shape[1]] = raw
        words = padded.view(np.uint32)
        return words[:, 0] if words.shape[1] == 1 else words
    return np.ascontiguousarray(raw).view(dtype)[:, 0]
